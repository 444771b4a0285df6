"""What have people ordered? Rows of the store, read before every tick and handed in with `with_directives`.

They outrank every decision, in this order: pause, foreign edit, pin, blackout, then the mode of the job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.quantities import Unknown


@dataclass(frozen=True)
class Pause:
    """Stop deciding, not the job; measuring goes on."""

    who: str
    why: str
    until_s: float = math.inf


@dataclass(frozen=True)
class Pin:
    """Keep exactly this many executors."""

    scale_out: int
    who: str
    why: str
    until_s: float = math.inf


@dataclass(frozen=True)
class Blackout:
    """A window in which nothing changes, or in which nothing shrinks."""

    why: str
    scale_out_allowed: bool = False


@dataclass(frozen=True)
class Injected:
    """A failure that we injected ourselves, so that what follows is learnt under its true name and time."""

    kind: str
    at_s: float


@dataclass(frozen=True)
class Drill:
    """A drill on the live job. It measures the recovery itself, and nothing is decided before it is over."""

    kind: str
    since_s: float
    until_s: float = math.inf


NO_MARK = Unknown("the deployment carries no mark of ours that could be read")


@dataclass(frozen=True)
class Directives:
    """Everything that people and windows say about one job at one moment."""

    pause: Pause | None = None
    pin: Pin | None = None
    blackout: Blackout | None = None
    foreign_edit: bool | Unknown = NO_MARK
    """True: the declared size is not ours. False: it still carries our mark, so that a job which came back
    with another size is put right. Unknown: any size we did not set is taken for somebody else's."""
    resumed_at_s: float = -math.inf
    """The newest `resume`; it ends a foreign-edit hold, a quarantine and a failed rollback older than it."""
    injected: Injected | None = None
    drill: Drill | None = None
    """The newest one, also when it is over: what it has caused is not learnt a second time."""

    def paused(self, now: float) -> Pause | None:
        return self.pause if self.pause is not None and now < self.pause.until_s else None

    def pinned(self, now: float) -> Pin | None:
        return self.pin if self.pin is not None and now < self.pin.until_s else None

    def drilled(self, since_s: float) -> Drill | None:
        """The drill that was going on at this moment or after it."""
        return self.drill if self.drill is not None and since_s <= self.drill.until_s else None
