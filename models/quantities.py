"""Values that the models take and return, checks of numbers, counts in words, and Student's t.

Intervals where there is uncertainty, `Unknown` where nothing can be said, `Misuse` where the question
itself was wrong. Units are in the names: `_rps` records/s, `_s` seconds, `_ms` milliseconds.

This module does not import numpy: a process that only checks a scale-out need not load it.

>>> executors(1), executors(4), executors(1, "sustain"), counted(2, "drill")
('1 executor', '4 executors', '1 executor sustains', '2 drills')
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

if TYPE_CHECKING:
    from .arguments import Array


def _is_real(value: Any) -> bool:
    """One number, also an infinite one; numpy's scalars count, but no truth value, text, time or mask."""
    if type(value) is float or type(value) is int:
        return True
    if isinstance(value, bool | str | bytes | bytearray | complex) or hasattr(value, "mask"):
        return False
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return dtype.kind in "iuf" and getattr(value, "shape", ()) == ()
    return hasattr(value, "__float__") or hasattr(value, "__index__")


def _is_number(value: Any) -> bool:
    """A finite number."""
    try:
        return _is_real(value) and math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


class Misuse(ValueError):
    """An argument that cannot be used. The message names the argument and what is accepted."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument}: {problem}")
        self.argument = argument
        self.problem = problem

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.argument, self.problem)


@dataclass(frozen=True)
class Unknown:
    """A value that is not known, with the reason. Its `bool()` raises, so that no caller takes it for
    zero."""

    reason: str

    def __bool__(self) -> bool:
        raise TypeError(
            f"unknown is neither true nor false ({self.reason}); test with isinstance(…, Unknown)"
        )


@dataclass(frozen=True)
class Interval:
    """A value that lies between `low` and `high` with the stated confidence, most likely at `mid`."""

    low: float
    mid: float
    high: float
    confidence: float

    def __post_init__(self) -> None:
        for name in ("low", "mid", "high", "confidence"):
            if not _is_real(getattr(self, name)):
                raise Misuse(f"Interval.{name}", f"must be a number, got {getattr(self, name)!r}")
        if not self.low <= self.mid <= self.high:
            raise Misuse("Interval", f"needs low <= mid <= high, got {self.low}, {self.mid}, {self.high}")
        if not 0.0 < self.confidence <= 1.0:
            raise Misuse("Interval.confidence", f"must be in (0, 1], got {self.confidence}")


@dataclass(frozen=True)
class Measurement:
    """What one probe, or one healthy stretch of the live job, showed at one scale-out.

    `sustained=True` makes `throughput_rps` a lower bound on the capacity; `False` makes it a noisy direct
    estimate of the capacity, and `offered_rps` only a check. An invalid probe never becomes a Measurement.
    """

    scale_out: int
    offered_rps: float
    throughput_rps: float
    sustained: bool
    latency_ms: float | None = None
    duration_s: float = 0.0
    executor_seconds: float = 0.0
    memory_mb: float | None = None
    origin: Literal["profile", "live"] = "profile"
    standard_error_rps: float | None = None

    def __post_init__(self) -> None:
        whole("Measurement.scale_out", self.scale_out)
        if not isinstance(self.sustained, bool):
            raise Misuse("Measurement.sustained", f"must be True or False, got {self.sustained!r}")
        if not isinstance(self.origin, str) or self.origin not in ("profile", "live"):
            raise Misuse("Measurement.origin", f"must be 'profile' or 'live', got {self.origin!r}")
        for name in ("offered_rps", "throughput_rps", "duration_s", "executor_seconds"):
            value = getattr(self, name)
            if not _is_number(value) or value < 0:
                raise Misuse(f"Measurement.{name}", f"must be a finite number >= 0, got {value!r}")
        for name in ("latency_ms", "memory_mb", "standard_error_rps"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or value < 0):
                raise Misuse(f"Measurement.{name}", f"must be a finite number >= 0 or None, got {value!r}")


@dataclass(frozen=True)
class RecoveryEvent:
    """One observed failure or rescale; `recovery_s` is inf if the job did not recover in time."""

    kind: str
    scale_out: int
    failed_at_s: float
    downtime_s: float
    """To the first new commit."""
    recovery_s: float
    rate_rps: float | None = None
    """The load at which it happened; None: not known."""
    first_batch_s: float | None = None
    """Of the downtime, the batch committed first, whose length depends on the load; None: not known."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in EVENT_KINDS:
            raise Misuse("RecoveryEvent.kind", f"must be one of {', '.join(EVENT_KINDS)}, got {self.kind!r}")
        whole("RecoveryEvent.scale_out", self.scale_out)
        if not _is_number(self.failed_at_s):
            raise Misuse("RecoveryEvent.failed_at_s", f"must be a finite number, got {self.failed_at_s!r}")
        for name in ("downtime_s", "recovery_s"):
            value = getattr(self, name)
            if not (_is_number(value) or (_is_real(value) and value == math.inf)) or value < 0:
                raise Misuse(f"RecoveryEvent.{name}", f"must be >= 0, got {value!r}")
        if math.isinf(self.downtime_s) and math.isfinite(self.recovery_s):
            raise Misuse("RecoveryEvent.recovery_s", "must be inf where downtime_s is: it never came back")
        for name in ("rate_rps", "first_batch_s"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or value < 0):
                raise Misuse(f"RecoveryEvent.{name}", f"must be >= 0 or None, got {value!r}")

    @property
    def started_s(self) -> float:
        """From the failure to the start of the first batch; to its commit where its length is not known."""
        return max(0.0, self.downtime_s - (self.first_batch_s or 0.0))


FailureKind = Literal[
    "executor_kill",
    "executor_freeze",
    "driver_kill",
    "driver_freeze",
    "broker_restart",
    "node_loss",
    "straggler",
    "pod_failure",
    "network_partition",
    "network_delay",
    "network_loss",
    "cpu_stress",
    "memory_stress",
]
FAILURE_KINDS: tuple[str, ...] = get_args(FailureKind)
RESCALE_KINDS = ("live_out", "live_in", "restart_out", "restart_in")
EVENT_KINDS = FAILURE_KINDS + RESCALE_KINDS


Origin = Literal["decision", "emergency", "pin", "rollback", "reassert"]
"""Why a size is changed."""


@dataclass(frozen=True)
class Scale:
    """Change the scale-out to `to` executors."""

    to: int
    reason: str
    origin: Origin = field(default="decision", compare=False)

    def __post_init__(self) -> None:
        whole("Scale.to", self.to)


@dataclass(frozen=True)
class Hold:
    """Change nothing, and say why. `would`: the size that is recommended and not touched."""

    reason: str
    would: int | None = None
    ends: str = field(default="", compare=False)
    """What would end it."""
    again_at_s: float = field(default=math.inf, compare=False)
    """When it is looked at again."""
    patience_s: float = field(default=math.inf, compare=False)
    """How long the reason can explain it; a longer hold raises an alarm."""


@dataclass(frozen=True)
class Alarm:
    """A problem that needs a person."""

    reason: str


@dataclass(frozen=True)
class Learn:
    """A fact for the models: what a healthy or saturated stretch, a failure or a rescale has shown."""

    fact: Measurement | RecoveryEvent

    def __post_init__(self) -> None:
        if not isinstance(self.fact, Measurement | RecoveryEvent):
            raise Misuse("Learn.fact", f"must be a Measurement or a RecoveryEvent, got {self.fact!r}")


Instruction = Scale | Hold | Alarm | Learn

Json = Mapping[str, Any]
"""A plain JSON object; `models.codec` writes and reads it."""


def number(
    name: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf, at_most: float = math.inf
) -> float:
    """A finite number within its bounds."""
    if not _is_real(value):
        raise Misuse(name, f"must be a number, got {value!r}")
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise Misuse(name, f"must be a number, got {value!r}") from None
    except OverflowError:
        raise Misuse(name, "is larger than any number that is reckoned with") from None
    if not math.isfinite(result):
        raise Misuse(name, f"must be finite, got {value!r}")
    if result < at_least:
        raise Misuse(name, f"must be >= {at_least:g}, got {value!r}")
    if result <= above:
        raise Misuse(name, f"must be > {above:g}, got {value!r}")
    if result > at_most:
        raise Misuse(name, f"must be <= {at_most:g}, got {value!r}")
    return result


MOST_PATHS = 100_000  # judgement: an hour of minutes in 50 MB
LARGEST = 2**53  # beyond it floats, which numbers pass through, skip whole numbers


def whole(name: str, value: Any, *, at_least: int = 1, at_most: int = LARGEST) -> int:
    """A whole number, by default >= 1, as a scale-out is."""
    if not _is_real(value):
        raise Misuse(name, f"must be a whole number, got {value!r}")
    result = number(name, value)
    if result != int(result):
        raise Misuse(name, f"must be a whole number, got {value!r}")
    if result < at_least:
        raise Misuse(name, f"must be >= {at_least}, got {value!r}")
    if result > at_most:
        raise Misuse(name, f"must be <= {at_most:,}, got {value!r}")
    return int(result)


ONE = {"are": "is", "were": "was", "do": "does", "have": "has"}


def numbers(
    name: str,
    values: Any,
    *,
    at_least: float = -math.inf,
    missing_allowed: bool = False,
    infinite_allowed: bool = False,
) -> Array:
    """An array of floats. NaN means *missing* and is refused unless it is allowed; a zero is a value."""
    import numpy as np

    if isinstance(values, np.ma.MaskedArray):  # what is masked is missing
        numeric: Any = values.astype(np.float64) if values.dtype.kind in "iuf" else values
        values = numeric.filled(np.nan) if values.dtype.kind in "iuf" else values.data
    try:
        raw = np.asarray(values)
        real = raw.dtype.kind in "iuf" or (raw.dtype.kind == "O" and all(map(_is_real, raw.flat)))
        if not real:
            raise Misuse(name, "must be numbers of one shape")
        result: Array = raw.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(name, "must be numbers of one shape") from None
    missing = np.isnan(result)
    if not missing_allowed and bool(missing.any()):
        raise Misuse(name, "must not contain NaN")
    if not infinite_allowed and bool(np.isinf(result).any()):
        raise Misuse(name, "must be finite")
    if bool((result[~missing] < at_least).any()):
        raise Misuse(name, f"must be >= {at_least:g}, got {float(np.nanmin(result)):g}")
    return result


def counted(number: int, noun: str) -> str:
    """`1 drill`, `4 drills`, `1,200 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def executors(number: int, do: str = "") -> str:
    """`1 executor`, `4 executors`; with what they do `1 executor is`, `4 executors are`."""
    does = ONE.get(do, f"{do}s") if number == 1 else do
    return f"{counted(number, 'executor')} {does}" if do else counted(number, "executor")


UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def percent(share: float) -> str:
    """A share in percent, rounded down so that it never reads as kept when it is not."""
    return f"{math.floor(share * 1000 + 1e-9) / 10:g} %"


def lasting(seconds: float) -> str:
    """`4 s`, `4 min 30 s`, `2 h 5 min`, `3 d 4 h`: two units at most."""
    left = round(seconds)
    if left < 1:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "0 s"
    parts: list[str] = []
    for name, size in UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


GRID = 4001
"""Points: relative error below 1e-5 for probabilities 0.001 … 0.999 and ν from 1 to 10 000 (measured)."""

FAR = 40.0
"""Standard deviations at which a tail that is nearly normal is cut."""


def student_quantiles(probabilities: Array, *, degrees: float) -> Array:
    """The quantiles of Student's t at these probabilities, each in (0, 1)."""
    import numpy as np

    p = numbers("probabilities", probabilities)
    nu = number("degrees", degrees, at_least=1.0)
    if bool(((p <= 0) | (p >= 1)).any()):
        raise Misuse("probabilities", "must be in (0, 1)")
    widest = min(math.pi / 2.0, FAR / math.sqrt(nu))
    theta = np.linspace(0.0, widest, GRID)
    density = np.cos(theta) ** (nu - 1.0)
    above = np.zeros(GRID)
    # Simpson over each interval, with its middle: the plain trapezium is too coarse for the far tail.
    middle = np.cos((theta[1:] + theta[:-1]) / 2.0) ** (nu - 1.0)
    pieces = (density[1:] + 4.0 * middle + density[:-1]) / 6.0
    above[:-1] = np.cumsum(pieces[::-1])[::-1]  # summed from the tail inwards, where it is small
    tail = 0.5 * above / above[0]
    outside = np.minimum(p, 1.0 - p)
    # Interpolated in the logarithm, in which both tails are nearly straight.
    known = tail > 0
    angle = np.interp(-np.log(outside), -np.log(tail[known]), theta[known])
    result: Array = np.where(p < 0.5, -1.0, 1.0) * math.sqrt(nu) * np.tan(angle)
    return result


@functools.lru_cache(maxsize=4096)
def quantile_95(degrees: float) -> float:
    """The 95 % quantile, so that ± this many standard errors cover 90 %; below 1 degree as for 1."""
    from statistics import NormalDist

    import numpy as np

    if math.isinf(degrees):
        return NormalDist().inv_cdf(0.95)
    return float(student_quantiles(np.array([0.95]), degrees=max(1.0, degrees))[0])
