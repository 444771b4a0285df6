"""What is asked of the job, and what comes back?

A probe is a scale-out, a rate and a time; its result has a verdict. *Sustained* makes its rate a lower bound
of the capacity, *not sustained* makes what was processed an estimate of it, *invalid* has a reason but no
value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..arguments import number, whole
from ..quantities import Misuse

Verdict = Literal["sustained", "not sustained", "invalid"]
VERDICTS: tuple[Verdict, ...] = ("sustained", "not sustained", "invalid")

CLEARLY = 0.95  # processed of offered, below which a shortfall cannot be a probe's noise alone; judgement


@dataclass(frozen=True)
class Probe:
    """Run the job at this scale-out under this rate: warm up, then watch for `probe_s`."""

    number: int
    scale_out: int
    rate_rps: float
    warm_up_s: float
    probe_s: float
    attempt: int = 1

    def __post_init__(self) -> None:
        whole("Probe.number", self.number, at_least=0)
        whole("Probe.scale_out", self.scale_out)
        whole("Probe.attempt", self.attempt)
        number("Probe.rate_rps", self.rate_rps, above=0.0)
        number("Probe.warm_up_s", self.warm_up_s, at_least=0.0)
        number("Probe.probe_s", self.probe_s, above=0.0)

    @property
    def executor_seconds(self) -> float:
        """What does it cost? Executors × (warm-up + watching)."""
        return self.scale_out * (self.warm_up_s + self.probe_s)


@dataclass(frozen=True)
class Result:
    """What a probe has shown. An invalid one carries a reason and no throughput."""

    probe: Probe
    verdict: Verdict
    offered_rps: float | None = None
    throughput_rps: float | None = None
    latency_ms: float | None = None
    standard_error_rps: float | None = None
    executor_seconds: float | None = None
    """What it really cost, where that is known; otherwise what the probe was planned to cost."""
    measured_s: float | None = None
    """How long the stretch was, where that is known."""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise Misuse("Result.verdict", f"must be one of {', '.join(VERDICTS)}, got {self.verdict!r}")
        for name in (
            "offered_rps",
            "latency_ms",
            "standard_error_rps",
            "executor_seconds",
            "throughput_rps",
            "measured_s",
        ):
            if (value := getattr(self, name)) is not None:
                number(f"Result.{name}", value, at_least=0.0)
        if self.verdict == "invalid":
            if self.throughput_rps is not None:
                raise Misuse("Result.throughput_rps", "an invalid probe has no throughput")
            if not self.reason:
                raise Misuse("Result.reason", "an invalid probe needs a reason")
        elif self.throughput_rps is None or self.throughput_rps <= 0.0:
            raise Misuse("Result.throughput_rps", f"a {self.verdict} probe needs one above 0")

    @property
    def valid(self) -> bool:
        """May this probe be learnt from?"""
        return self.verdict != "invalid"

    @property
    def sustained(self) -> bool:
        """Did the job keep up?"""
        return self.verdict == "sustained"

    @property
    def clear(self) -> bool:
        """Did it fall short by more than noise explains?"""
        return self.verdict == "not sustained" and self.value_rps <= CLEARLY * self.rate_rps

    @property
    def value_rps(self) -> float:
        """The rate this probe stands for: kept up with, or the most that was processed."""
        if self.throughput_rps is None:
            raise Misuse("Result", f"an invalid probe has no value ({self.reason})")
        return self.throughput_rps

    @property
    def rate_rps(self) -> float:
        """What was really offered, where that is known; otherwise what was asked for."""
        return self.probe.rate_rps if self.offered_rps is None else self.offered_rps

    @property
    def cost(self) -> float:
        """Executor-seconds this probe has used."""
        return self.probe.executor_seconds if self.executor_seconds is None else self.executor_seconds

    @property
    def duration_s(self) -> float:
        """For how long it was watched: twice as long as planned where the first half decided nothing."""
        return self.probe.probe_s if self.measured_s is None else self.measured_s
