"""What does a job do that somebody else runs?

Its checkpoint, or its consumer group, and the brokers' offsets are read, and nothing else is known of it.
What it does follows from them:

    running   its newest commit is young
    stalled   records have waited since that commit, and the next one is overdue
    unknown   nothing could be read, or nothing waits that could be committed

How many executors it has only its owner can say: `executors` in headroom.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from models.quantities import Unknown
from pipelines.settings import JobSettings
from profiling_jobs.errors import HeadroomError, Unsafe
from profiling_jobs.ports import Sample, Status

PATIENCE_S = 60.0  # as control's: the longest healthy time between two commits, or six triggers
LOOKED_S = 120.0  # judgement: as control's, an older look says nothing about now
NOT_LOOKED = Unknown("nothing was read of it yet: wait for the next second")
NO_RUN = Unknown("a checkpoint does not name the runs of its query")
NO_EXECUTORS = Unknown("somebody else runs it: its executors are not seen")

State = Literal["running", "stalled", "unknown"]


@dataclass(frozen=True)
class Theirs:
    """A job that somebody else runs: where it reads, writes and keeps its checkpoint. A `Query`."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    checkpoint: str
    executors: int | Unknown
    """What its owner has given it."""
    trigger_s: float = 0.0
    consumer_group: str | None = None
    """To which it commits by itself, if it does."""

    @property
    def job(self) -> str:
        return self.name

    @property
    def role(self) -> Literal["live"]:
        return "live"

    @property
    def group(self) -> str:
        """Nobody but the job commits to it; it may not be there at all."""
        return self.consumer_group or f"headroom.{self.name}"

    @property
    def patience_s(self) -> float:
        """Longest healthy time between two commits while there is something to do."""
        return max(PATIENCE_S, 6.0 * self.trigger_s)


def theirs(jobs: Mapping[str, JobSettings]) -> dict[str, Theirs]:
    """The attached jobs of the settings."""
    return {
        name: Theirs(
            name=name,
            inputs=dict(job.inputs),
            outputs=dict(job.outputs),
            checkpoint=str(job.checkpoint),
            executors=job.executors or not_said(name),
            trigger_s=job.trigger_s,
            consumer_group=job.consumer_group,
        )
        for name, job in jobs.items()
        if job.attach
    }


def not_said(name: str) -> Unknown:
    """Nobody has said how many executors it has."""
    return Unknown(f"job.{name}.executors is not set: say there how many its owner has given it")


@dataclass(frozen=True)
class _Look:
    """What was read last, and since when records wait for another commit."""

    found: Sample | HeadroomError
    commit_at_s: float | Unknown
    waits_since_s: float | Unknown
    """When records were first seen to wait after it."""


class Attached:
    """The jobs of other people: what was seen of them, and what follows from that."""

    def __init__(self, jobs: Mapping[str, Theirs], *, now_s: Callable[[], float]) -> None:
        self.jobs = dict(jobs)
        self._now_s = now_s
        self._looks: dict[str, _Look] = {}

    def saw(self, name: str, found: Sample | HeadroomError) -> None:
        """What was read of it just now."""
        before = self._looks.get(name)
        if isinstance(found, HeadroomError):
            if before is not None:
                self._looks[name] = replace(before, found=found)
            return
        commit_at_s, lag = found.last_commit_at_s, found.lag_records
        since_s: float | Unknown = Unknown("nothing has arrived since its newest commit")
        if before is not None and before.commit_at_s == commit_at_s:
            since_s = before.waits_since_s
        if isinstance(since_s, Unknown) and not isinstance(lag, Unknown) and lag > 0:
            since_s = found.at_s
        self._looks[name] = _Look(found, commit_at_s, since_s)

    def status(self, name: str) -> Status:
        """What follows from what was read last."""
        their = self.jobs[name]
        state, reason = self._state(their)
        return Status(state, their.executors, NO_EXECUTORS, NO_RUN, reason, ours=False)

    def refuse(self, name: str, what: str) -> None:
        """Hands off, if it is one of them."""
        if name in self.jobs:
            raise Unsafe(f"job.{name}.attach = true: somebody else runs it, so it is not {what} here")

    def _state(self, their: Theirs) -> tuple[State, str]:
        look, now_s = self._looks.get(their.name), self._now_s()
        if look is None:
            return "unknown", NOT_LOOKED.reason
        found, commit_at_s = look.found, look.commit_at_s
        if isinstance(found, HeadroomError):
            return "unknown", str(found)
        if now_s - found.at_s > LOOKED_S:
            return "unknown", f"it was read last {now_s - found.at_s:.0f} s ago"
        for read in (found.committed, found.lag_records):
            if isinstance(read, Unknown):
                return "unknown", read.reason
        silent_s = found.at_s - commit_at_s if not isinstance(commit_at_s, Unknown) else None
        if silent_s is not None and silent_s <= their.patience_s:
            return "running", ""
        since_s = look.waits_since_s
        if isinstance(since_s, Unknown):
            ago = f", {silent_s:.0f} s ago" if silent_s is not None else ""
            return "unknown", f"{since_s.reason}{ago}: the next records show it"
        waited_s = found.at_s - since_s
        if waited_s <= their.patience_s:
            return "unknown", f"records wait for {waited_s:.0f} s, its next commit is not overdue yet"
        nothing = "no commit was seen" if silent_s is None else f"no commit for {silent_s:.0f} s"
        return "stalled", f"{nothing} while records wait: it is down, or at one very long batch"
