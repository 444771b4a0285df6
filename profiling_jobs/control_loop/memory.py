"""What the control loop remembers of a job between two ticks, across restarts and between daemons.

`Memory` is one document in `Store.control`, written as a whole by compare-and-set: control's own state, the
rates seen, the forecasts still to be scored, the online capacity, and the newest evaluation. The evaluation
is written to the store only after the document is saved, and again by the next reader: so nothing that was
decided is lost, and nothing is decided twice.

`Outcome` is a document of its own: what became of the newest change of the size. It is written before and
after each attempt, so that a change that was begun is known to have begun, whatever dies in the middle.

The epoch grows with every tick. It begins at the number of the interval: where the store was lost, a new one
does not look older to a deployment than what was done with the old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from models import codec, control
from models.capacity import OnlineCapacity
from models.errors import Unsafe
from models.ports import Control, Sample, Store
from models.quantities import Misuse, Unknown

from .evaluation_record import Evaluation
from .forecasting import Rates, Scoring
from .live_capacity import CapacityDrift

SCHEMA = 2
HALF_LIFE_S = 6 * 3600.0
"""Of what the online capacity has learnt. Judgement: long enough to have seen the load vary, short enough to
follow a new release of the job within a day."""
NO_READING = Unknown("only its offsets were kept over the restart")


@dataclass(frozen=True)
class Anchor:
    """The offsets of the newest sample: with them the first tick after a restart knows its rates."""

    at_s: float
    head: Mapping[str, int]
    committed: Mapping[str, int] | None
    log_start: Mapping[str, int]

    @classmethod
    def of(cls, sample: Sample) -> Anchor:
        """What is kept of a sample."""
        committed = None if isinstance(sample.committed, Unknown) else _flat(sample.committed)
        return cls(sample.at_s, _flat(sample.head), committed, _flat(sample.log_start))

    @property
    def sample(self) -> Sample:
        """The sample, as far as it was kept."""
        return Sample(
            at_s=self.at_s,
            head=_pairs(self.head),
            committed=NO_READING if self.committed is None else _pairs(self.committed),
            committed_source="neither" if self.committed is None else "checkpoint",
            log_start=_pairs(self.log_start),
            **dict.fromkeys(_UNREAD, NO_READING),  # type: ignore[arg-type]
        )


_UNREAD = (
    "lag_records",
    "last_batch",
    "last_commit_at_s",
    "run_id",
    "executors",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
)


def nothing_learnt() -> OnlineCapacity:
    """The online capacity before the first tick.

    Without the prior through the origin: each batch costs its executors something beside its records, so that
    they are at work for three quarters of their time at a tenth of their load (measured, `bench.real online`:
    with the prior 682 records/s, without it 1,565, probed 1,571).
    """
    return OnlineCapacity(half_life_s=HALF_LIFE_S)


@dataclass(frozen=True)
class Memory:
    """All of it; `epoch` is None before the first tick."""

    schema: ClassVar[int] = SCHEMA
    control: control.State
    epoch: int | None = None
    rates: Rates | None = None
    scoring: Scoring = field(default_factory=Scoring)
    online: OnlineCapacity = field(default_factory=nothing_learnt)
    anchor: Anchor | None = None
    evaluation: Evaluation | None = None
    """The newest one."""
    drift: CapacityDrift = field(default_factory=CapacityDrift)
    alarmed_at_s: Mapping[str, float] = field(default_factory=dict)
    """The loop's own alarms and when they were raised last."""
    trouble: str = field(default="", metadata=codec.GIVEN)
    """Why what was remembered could not be read; empty if it could. Not written."""


def recall(store: Store, job: str, settings: control.Settings) -> Memory:
    """What is remembered of a job, under the settings of now; what a newer version wrote is Unsafe to touch.

    A memory that cannot be read is begun anew, with the trouble said: it costs windows and quarantines, and a
    foreign edit is still held by the directive it left.
    """
    kept: Control | None = store.control(job)
    if kept is None:
        return Memory(control.start(settings))
    schema = kept.state.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise Unsafe(
            f"the control state of {job} has schema {schema}, this version reads {SCHEMA}: run the version "
            "that wrote it, nothing is decided meanwhile"
        )
    try:
        return _restored(kept, settings)
    except (Misuse, KeyError, TypeError, ValueError, AttributeError, IndexError) as broken:
        said = f"the control state of {job} could not be read ({broken}): it is begun anew"
        return Memory(control.start(settings), epoch=kept.epoch, trouble=said)


def save(store: Store, job: str, memory: Memory, *, expected_epoch: int | None) -> bool:
    """False, and nothing is written, when another process has saved a newer epoch."""
    return store.save_control(
        Control(job, memory.epoch or 0, codec.to_json(memory)), expected_epoch=expected_epoch
    )


def next_epoch(memory: Memory, interval: int) -> int:
    """The epoch of this tick."""
    return max(0, interval) if memory.epoch is None else memory.epoch + 1


def _restored(kept: Control, settings: control.Settings) -> Memory:
    state = codec.from_json(control.State, kept.state["control"], settings=settings)
    return codec.from_json(Memory, kept.state, name="state", control=state, epoch=kept.epoch, trouble="")


def _flat(offsets: Mapping[tuple[str, int], int]) -> dict[str, int]:
    return {f"{topic}:{partition}": int(offset) for (topic, partition), offset in offsets.items()}


def _pairs(offsets: Mapping[str, int]) -> dict[tuple[str, int], int]:
    found = {}
    for name, offset in offsets.items():
        topic, _, partition = name.rpartition(":")
        found[topic, int(partition)] = offset
    return found


OUTCOME = "applied"


@dataclass(frozen=True)
class Outcome:
    """What became of the newest change that was begun."""

    schema: ClassVar[int] = 1
    epoch: int
    before: int
    to: int
    state: Literal["begun", "done", "later", "refused"]
    """later: it may still succeed. refused: it never will."""
    begun_at_s: float
    at_s: float
    """Of the newest attempt's end, or of its beginning while it is at work."""
    tries: int = 1
    path: str = ""
    """live or restart, once it is done."""
    took_s: float = 0.0
    problem: str = ""


def outcome(store: Store, job: str) -> Outcome | None:
    """Of the newest change that was begun; None before the first."""
    data: Mapping[str, Any] | None = store.document(job, OUTCOME)
    if data is None or data.get("schema") != Outcome.schema:
        return None
    return codec.from_json(Outcome, data)


def save_outcome(store: Store, job: str, what: Outcome) -> None:
    """Durable when it returns."""
    store.save_document(job, OUTCOME, codec.to_json(what))
