"""Control settings of one job: the promise, the bounds, and how patient control is.

`interval_s` is E, the time between two ticks. The defaults suit a live rescale that costs one slow batch; for
a job that is restarted at every change, use longer windows and cool-downs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .. import arguments
from ..promise import Promise
from ..quantities import FAILURE_KINDS, Misuse
from .deciding import Decider, Models, by_optimise

Mode = Literal["observe", "recommend", "apply"]
Path = Literal["live", "restart"]


NO_MODELS = Models()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One job's promise, bounds, limits and models."""

    promise: Promise
    max_scale_out: int
    min_scale_out: int = 1
    candidates: tuple[int, ...] = ()
    """The aligned scale-outs; empty means every one within the bounds."""
    mode: Mode = "recommend"
    path: Path = "live"
    only_commits: bool = False
    """An attached job shows its commits only: neither the kind of a failure nor the time and way of a change
    of its size is known. Recoveries are followed, but nothing is learnt from them."""
    interval_s: float = 60.0  # Daedalus' loop
    models: Models = NO_MODELS
    decide: Decider = by_optimise
    failure_kinds: tuple[str, ...] = ("executor_kill", "driver_kill")
    latency_bound_ms: float | None = None
    seed: int = 0

    # When what was read is too old, or too little
    stale_after_s: float = 120.0  # two intervals: one may be lost (judgement)
    missing_for_s: float = (
        300.0  # as long as HPA looks back before it shrinks; a broker restart is over by then
    )
    emergency_scale_out: int | None = None
    """The size to take when nothing can be read for `missing_for_s`; without it the size is held."""

    # How much, how often
    max_step_out: int | None = None
    max_step_in: int | None = None
    max_share_in: float = 0.6  # of the executors at once: Flink's scale-down.max-factor
    cooldown_out_s: float = 60.0  # one interval, so that every change is seen before the next (judgement)
    cooldown_in_s: float = 600.0  # Daedalus' "young rescale"
    scale_in_window_s: float = 1800.0
    # Half of Flink's scale-down.interval of 1 h (20 rescales a day came of 15 min there, FLINK-36018);
    # half, because a live rescale costs one slow batch and no restart (judgement).

    # Failures
    trigger_s: float = 10.0
    """The trigger interval of the job, or its median batch: the lag of a healthy job moves by this much."""
    commit_gap_s: float | None = None
    """Longest healthy time between two commits; default the longer of 60 s and six triggers (judgement)."""
    max_lag_s: float | None = None
    """Lag, in seconds of input, that endangers the promise without any failure; default target/2."""
    hold_s: float | None = None
    """How long lag stays in its band before a recovery is over; default max(3 triggers, 15 s)."""
    give_up_s: float | None = None
    """A longer recovery is recorded as inf; default the longer of 3 targets and 900 s (judgement)."""

    # After a change
    effect_s: float = 30.0
    """Until a change usually works: executors came after 4–12 s, their first batch took 8–10 (measured)."""
    take_effect_s: float = (
        180.0  # Daedalus' grace; live executors register in 4-10 s, pods may wait for a node
    )
    settle_s: float = 60.0  # the first batch after growing ran at a quarter of its speed for 10 s (measured)
    effective_share: float = 0.1  # of the expected gain: Flink's effectiveness threshold
    quarantine_s: float = 1800.0  # doubled with every repetition, up to a day (judgement)

    # What the live job teaches
    busy_share: float = 0.5  # a hottest worker below this is waiting for something else (judgement)
    steady_s: float = 600.0  # ten batches of 60 s at least (judgement)
    saturated_s: float = 180.0  # three intervals: the fewest that give a standard error
    learn_every_s: float = 1800.0  # at most 48 measurements of each sort a day (judgement)
    alarm_every_s: float = 1800.0  # Flink's scaling.event.interval

    def __post_init__(self) -> None:
        if not isinstance(self.promise, Promise):
            raise Misuse("promise", f"must be a Promise(target_s, confidence), got {self.promise!r}")
        arguments.whole("min_scale_out", self.min_scale_out)
        arguments.whole("max_scale_out", self.max_scale_out, at_least=self.min_scale_out)
        for name, accepted in (("mode", ("observe", "recommend", "apply")), ("path", ("live", "restart"))):
            if getattr(self, name) not in accepted:
                raise Misuse(name, f"must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for candidate in self.candidates:
            arguments.whole("candidates", candidate)
        if not self.sizes:
            raise Misuse(
                "candidates",
                f"none of {list(self.candidates)} lies within {self.min_scale_out}…{self.max_scale_out}",
            )
        if not self.failure_kinds:
            raise Misuse("failure_kinds", "must name at least one kind of failure")
        for kind in self.failure_kinds:
            if kind not in FAILURE_KINDS:
                raise Misuse("failure_kinds", f"must be among {', '.join(FAILURE_KINDS)}, got {kind!r}")
        for name in ("interval_s", "stale_after_s", "trigger_s", "take_effect_s", "steady_s", "saturated_s"):
            arguments.number(name, getattr(self, name), above=0.0)
        for name in _NOT_NEGATIVE:
            if getattr(self, name) is not None:
                arguments.number(name, getattr(self, name), at_least=0.0)
        for name in ("max_step_out", "max_step_in", "emergency_scale_out"):
            if getattr(self, name) is not None:
                arguments.whole(name, getattr(self, name))
        if self.emergency_scale_out is not None and self.emergency_scale_out not in self.sizes:
            raise Misuse(
                "emergency_scale_out", f"must be one of {self.sizes}, got {self.emergency_scale_out}"
            )
        arguments.number("max_share_in", self.max_share_in, above=0.0, at_most=1.0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The scale-outs that may be taken, smallest first."""
        inside = range(self.min_scale_out, self.max_scale_out + 1)
        return tuple(s for s in sorted(set(self.candidates or inside)) if s in inside)

    @property
    def horizon_s(self) -> float:
        """How far a forecast has to reach for a decision."""
        return self.interval_s + self.effect_s + self.promise.target_s

    @property
    def longest_commit_gap_s(self) -> float:
        return max(60.0, 6.0 * self.trigger_s) if self.commit_gap_s is None else self.commit_gap_s

    @property
    def lag_bound_s(self) -> float:
        return self.promise.target_s / 2.0 if self.max_lag_s is None else self.max_lag_s

    @property
    def recovered_after_s(self) -> float:
        return max(3.0 * self.trigger_s, 15.0) if self.hold_s is None else self.hold_s

    @property
    def longest_recovery_s(self) -> float:
        return max(3.0 * self.promise.target_s, 900.0) if self.give_up_s is None else self.give_up_s

    @property
    def longest_gap_s(self) -> float:
        """Ticks further apart than this do not belong to one stretch."""
        return max(3.0 * self.interval_s, self.stale_after_s)


_NOT_NEGATIVE = (
    "missing_for_s",
    "cooldown_out_s",
    "cooldown_in_s",
    "scale_in_window_s",
    "commit_gap_s",
    "max_lag_s",
    "hold_s",
    "give_up_s",
    "settle_s",
    "effect_s",
    "effective_share",
    "quarantine_s",
    "busy_share",
    "learn_every_s",
    "alarm_every_s",
    "latency_bound_ms",
)
