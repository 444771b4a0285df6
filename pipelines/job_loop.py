"""What does a `[job.NAME]` table mean for the control loop, and which models does a tick find?

Settings and the champions' files in, what `models.control` takes out; nothing is started here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from models import control
from models.downtime_priors import COLD_START_S
from models.optimise.candidates import aligned_scale_outs
from models.promise import Promise
from models.quantities import Misuse, Unknown
from profiling_jobs.errors import Misconfigured
from profiling_jobs.learning.champions import Champions, path_of
from profiling_jobs.learning.model_documents import KINDS
from profiling_jobs.loop.ground import InCharge

from .job_plans import limit_records
from .settings import JobSettings, Rescale, SparkSettings

Found = TypeVar("Found")
BACK_TO_BACK_S = 10.0  # a batch of a job without a trigger interval; control's own default
ENDING_S = 60.0  # a restart first waits so long for the batch in hand, then for its executors
EFFECT_S = {"live": control.Settings.effect_s, "restart": ENDING_S + COLD_START_S}
"""Until a change works."""
SCALE_TIMEOUT_S = SparkSettings().scale_timeout_s


def control_settings(
    name: str,
    job: JobSettings,
    *,
    tasks: int | None = None,
    scale_timeout_s: float = SCALE_TIMEOUT_S,
) -> control.Settings:
    """What control agrees to. `tasks`: partitions, where they bound what an executor can do.

    A change has not failed before whoever carries it out may give it up, after `scale_timeout_s`.
    """
    path: Rescale = "restart" if job.attach else job.rescale
    try:
        return control.Settings(
            promise=Promise(job.recovery_target_s, job.confidence),
            min_scale_out=job.scale_out_min,
            max_scale_out=job.scale_out_max,
            candidates=aligned_scale_outs(job.scale_out_min, job.scale_out_max, tasks=tasks),
            mode=job.mode,
            path=path,
            only_commits=job.attach,
            interval_s=job.evaluation_interval_s,
            failure_kinds=job.failure_kinds,
            latency_bound_ms=job.latency_bound_ms,
            max_step_out=job.step_out,
            max_step_in=job.step_in,
            scale_in_window_s=job.scale_in_window_s,
            cooldown_in_s=min(job.scale_in_window_s, control.Settings.cooldown_in_s),
            trigger_s=job.trigger_s or BACK_TO_BACK_S,
            max_lag_s=job.max_lag_s,
            effect_s=EFFECT_S[path],
            take_effect_s=max(control.Settings.take_effect_s, scale_timeout_s + ENDING_S),
        )
    except Misuse as wrong:
        raise Misconfigured(f"job.{name}.{wrong.argument}", wrong.problem) from wrong


class ChampionsInCharge:
    """The champions of the jobs, read anew only when one of their files has changed."""

    def __init__(self, folder: Path, jobs: Callable[[], Mapping[str, JobSettings]]) -> None:
        self._folder, self._jobs = folder, jobs
        self._known: dict[str, tuple[object, Champions]] = {}

    def __call__(self, job: str) -> InCharge:
        """What a tick of this job uses."""
        settings, champions = self._jobs()[job], self.champions(job)
        models = champions.models(limit_records=limit_records(settings), trigger_s=settings.trigger_s)
        if not settings.copyable:
            models = replace(
                models,
                capacity=_with_its_program(job, models.capacity),
                engine=_with_its_program(job, models.engine),
            )
        return InCharge(
            models=models,
            forecaster=champions.forecaster,
            forecaster_until_s=champions.forecaster_until_s,
            versions=champions.versions,
            provisional=champions.provisional,
            seed=champions.seed,
        )

    def champions(self, job: str) -> Champions:
        """As they lie on the disk."""
        stamp = tuple(_stamp(path_of(self._folder, job, kind)) for kind in KINDS)
        before = self._known.get(job)
        if before is None or before[0] != stamp:
            before = self._known[job] = (stamp, Champions.load(self._folder, job))
        return before[1]


def _with_its_program(job: str, found: Found) -> Found | Unknown:
    """What profiling would tell of a job that somebody else runs: say what it takes."""
    if not isinstance(found, Unknown):
        return found
    return Unknown(f"{found.reason}, which needs its program: give job.{job}.script or build beside attach")


def _stamp(path: Path) -> tuple[int, int, int] | Unknown:
    try:
        found = path.stat()
    except OSError:
        return Unknown("it is not there")
    return found.st_mtime_ns, found.st_size, found.st_ino
