"""Whether the promises can be kept: concerns of the settings, attached jobs, and measured downtimes."""

from __future__ import annotations

from profiling_jobs.explain.wording import brief_s, kind, lasting

from ...environments.base import STORE
from ...integrations.sqlite_store import SqliteStore
from ...settings.checks import concerns
from ...settings.schema import JobSettings
from . import Finding, Patient
from .attached import attached


def promises(patient: Patient) -> list[Finding]:
    """One finding or more per job."""
    if not patient.settings.jobs:
        return [Finding("jobs", "warning", f"{patient.file} names no job", "add a table [job.NAME]")]
    found = []
    for name, job in sorted(patient.settings.jobs.items()):
        mine = [
            *attached(name, job, patient),
            *(
                Finding(f"job {name}", "problem" if one.serious else "warning", one.problem, one.fix)
                for one in concerns(name, patient.settings, folder=patient.root)
            ),
            *_lived_through(name, job, patient),
        ]
        fine = f"{lasting(job.recovery_target_s)} are promised, and no time-out stands against it"
        found += mine or [Finding(f"job {name}", "ok", fine)]
    return found


def _lived_through(name: str, job: JobSettings, patient: Patient) -> list[Finding]:
    """Downtimes that were measured and are longer than the promise."""
    path = patient.folder / STORE
    if not path.exists():
        return []
    with SqliteStore(path, patience_s=1.0) as store:
        events = [event for event, _ in store.events(name)]
    found = []
    for each in job.failure_kinds:
        downtimes = sorted(event.downtime_s for event in events if event.kind == each)
        if downtimes and downtimes[len(downtimes) // 2] >= job.recovery_target_s:
            middle = brief_s(downtimes[len(downtimes) // 2])
            told = (
                f"{kind(each)} was lived through {len(downtimes)} times, half of them with a downtime of "
                f"{middle} s or more: longer than the {job.recovery_target_s:g} s promised, whatever the size"
            )
            fix = (
                f"a longer recovery_target_s, or shorten the restart (`headroom drill {name} --kind {each}`)"
            )
            found.append(Finding(f"job {name}", "problem", told, fix))
    return found
