"""Whether the promises can be kept: concerns of the settings, jobs that run elsewhere, measured downtimes."""

from __future__ import annotations

from models.errors import HeadroomError
from models.quantities import Unknown, counted, lasting
from profiling_jobs.explain.wording import brief_s, kind
from profiling_jobs.telemetry.checkpoint import Checkpoint

from ...integrations.stores.opening import find_store
from ...settings.concerns import concerns
from ...settings.schema import JobSettings
from .findings import Finding, Surroundings, ok, problem, warning


def promises(around: Surroundings) -> list[Finding]:
    """One finding or more per job."""
    if not around.settings.jobs:
        return warning("jobs", f"{around.file} names no job", "add a table [job.NAME]")
    found = []
    for name, job in sorted(around.settings.jobs.items()):
        mine = [
            *attached(name, job, around),
            *(
                Finding(
                    f"job {name}",
                    "problem" if one.serious else "warning",
                    f"{one.path.removeprefix(f'job.{name}.')} {one.problem}",
                    one.fix,
                )
                for one in concerns(name, around.settings, folder=around.root)
            ),
            *_too_long_down(name, job, around),
        ]
        fine = f"no time-out or downtime is in the way of the {lasting(job.recovery_target_s)} promised"
        found += mine or ok(f"job {name}", fine)
    return found


def _too_long_down(name: str, job: JobSettings, around: Surroundings) -> list[Finding]:
    """Downtimes that were measured and are longer than the promise."""
    settings, environment = around.settings.store, around.environment
    try:
        there = find_store(settings, around.folder, environment=environment, patience_s=1.0)
    except HeadroomError:
        return []  # said of the store already
    if there is None:
        return []
    with there as store:
        events = [event for event, _ in store.events(name)]
    found = []
    for each in job.failure_kinds:
        downtimes = sorted(event.downtime_s for event in events if event.kind == each)
        if downtimes and downtimes[len(downtimes) // 2] >= job.recovery_target_s:
            middle = brief_s(downtimes[len(downtimes) // 2])
            count = counted(len(downtimes), "downtime")
            seen = (
                f"{kind(each)}: half of {count} took {middle} s or more: longer than the "
                f"{job.recovery_target_s:g} s promised, whatever the size"
            )
            fix = (
                f"a longer recovery_target_s, or shorten the restart (`headroom drill {name} --kind {each}`)"
            )
            found += problem(f"job {name}", seen, fix)
    return found


def attached(name: str, job: JobSettings, around: Surroundings) -> list[Finding]:
    """What an attached job lacks, each with its fix; nothing for a job that runs here."""
    if not job.elsewhere:
        return []
    what, key = f"job {name}", f"job.{name}"
    found = []
    if job.attach and job.executors is None:
        seen = f"{key}.executors is not set: how many executors it has is not known, nothing is decided"
        found += warning(what, seen, f"{key}.executors = its present number of executors")
    if not job.copyable:
        seen = "its program is not here: no copy can be profiled, so of no size it is known what it can do"
        found += warning(what, seen, f"give {key}.script or {key}.build, too")
    if around.real:
        found += _seen(name, job, around)
    return found


def _seen(name: str, job: JobSettings, around: Surroundings) -> list[Finding]:
    """Check that its checkpoint can be read, and that its brokers are named."""
    what, key = f"job {name}", f"job.{name}"
    found = []
    if around.settings.brokers.bootstrap is None:
        seen = "it runs outside Headroom, and brokers.bootstrap is not set: only our own broker is looked at"
        found += warning(what, seen, "brokers.bootstrap = the address of its brokers")
    position = Checkpoint(str(job.checkpoint), job.inputs.values(), job=name).position()
    if isinstance(position, Unknown) and job.consumer_group is None:
        fix = f"correct it or mount it here, or name the {key}.consumer_group to which the job commits"
        found += problem(what, position.reason.removeprefix(f"{key}.checkpoint: "), fix)
    return found
