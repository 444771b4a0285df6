"""What the control loop keeps of a job: the evaluation of each tick, and its memory between two ticks.

`Evaluation` is the record from which a tick can be explained, plotted and replayed.
`Store.record_evaluation` keeps one per job and interval: plain JSON, numbers to five digits (noise does not
compress), never a forecast's paths. A value that was not known is `{"unknown": reason}`.

`Memory` lasts across restarts. It is one document in `Store.control`, written as a whole by compare-and-set:
control's own state, the rates seen, the forecasts still to be scored, the online capacity, and the newest
evaluation. The evaluation is written to the store only after the document is saved, and again by the next
reader: so nothing that was decided is lost, and nothing is decided twice.

`CapacityDrift` compares the profile with the capacity that the running job shows, at the size it runs with.
Where their 90 % intervals have not touched for half an hour, tick after tick at one size, the profile is out
of date and that size is to be measured again; so it is where the job fell behind although the models said
that its size fits.

The epoch grows with every tick. It begins at the number of the interval: where the store was lost, a new one
does not look older to a deployment than what was done with the old.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from models import codec, control
from models.capacity import OnlineCapacity
from models.errors import Unsafe
from models.ports import Control, Directive, Sample, Store
from models.quantities import Interval, Json, Measurement, Misuse, RecoveryEvent, Unknown, executors

from .context import Loop
from .forecasting import Rates, Scoring

APART_S = 1800.0  # judgement: three stretches that teach, and longer than a noisy neighbour mostly stays
CONTRADICTED = "models contradicted"  # how control begins that alarm
ASK_AGAIN_S = 86_400.0  # judgement: measuring costs executor-seconds


@dataclass(frozen=True)
class CapacityDrift:
    """Since when profile and running job have disagreed."""

    version: int = 0
    """Of the capacity model: a new one begins anew. The others are fitted more often than it is measured."""
    apart_since_s: float = math.inf
    apart_until_s: float = -math.inf
    """The newest tick of which that is known."""
    apart_at: int = 0
    """The size at which they disagree."""
    scale_out: int = 0
    """The size that was asked for."""
    asked_since_s: float = math.inf
    """When the request that stands was made."""
    why: str = ""

    def seen(
        self,
        *,
        version: int | Unknown,
        scale_out: int | Unknown,
        profile: Interval | Unknown,
        online: Interval | Unknown,
        alarms: Sequence[str],
        longest_gap_s: float,
        now_s: float,
    ) -> CapacityDrift:
        """The state one tick later. `longest_gap_s`: ticks further apart do not belong together."""
        state = self
        if not isinstance(version, Unknown) and version != self.version:
            state = CapacityDrift(version=version)
        if isinstance(scale_out, Unknown):
            return state
        if any(alarm.startswith(CONTRADICTED) for alarm in alarms):
            return state._asking(
                f"the job fell behind at {executors(scale_out)}, which fit", scale_out, now_s
            )
        if isinstance(profile, Unknown) or isinstance(online, Unknown):
            return state
        if online.low <= profile.high and profile.low <= online.high:
            return replace(state, apart_since_s=math.inf)
        goes_on = state.apart_at == scale_out and now_s - state.apart_until_s <= longest_gap_s
        since_s = min(state.apart_since_s, now_s) if goes_on else now_s
        state = replace(state, apart_since_s=since_s, apart_until_s=now_s, apart_at=scale_out)
        if now_s - state.apart_since_s < APART_S:
            return state
        return state._asking(
            f"{executors(scale_out, 'show')} {online.low:,.0f}–{online.high:,.0f} records/s where the "
            f"profile says {profile.low:,.0f}–{profile.high:,.0f}",
            scale_out,
            now_s,
        )

    @property
    def requests(self) -> tuple[dict[str, Any], ...]:
        if not self.why:
            return ()
        asked = {"do": "profile", "model": "capacity", "why": self.why, "since_s": self.asked_since_s}
        return ({**asked, "scale_outs": [self.scale_out]},)

    def _asking(self, why: str, scale_out: int, now_s: float) -> CapacityDrift:
        if self.why and self.scale_out == scale_out and now_s - self.asked_since_s < ASK_AGAIN_S:
            return self
        return replace(self, scale_out=scale_out, asked_since_s=now_s, why=why)


EVALUATION_SCHEMA = 1
DIGITS = 5  # measured (bench store): with all 17 a day of 256 candidates takes 65 MB

NOT_DECIDED = {"unknown": "nothing was decided at this tick"}
NOT_FORECAST = {"unknown": "nothing was forecast at this tick"}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One tick of one job. `to_json` has exactly these keys, and `schema`."""

    job: str
    at_s: float
    """When it was evaluated."""
    interval: int
    """⌊at_s / interval_s⌋: an interval is evaluated once, however often it is asked for."""
    interval_s: float
    """E."""
    mode: str
    """observe, recommend or apply, as it was then."""
    epoch: int
    """The job's control state after this tick; grows with every tick. A change carries the epoch of the tick
    that ordered it."""
    scale_out: int | Unknown
    """The declared number of executors."""
    instruction: Json
    """`do`: "hold" or "scale"; `to`: the size ordered, else null; `would`: the size that mode recommend
    recommends and does not touch, else null; `reason`: the sentence for a person; of a hold also `ends`, what
    would end it, and `again_at_s`, when it is looked at again."""
    apply: Json | None
    """What has to be carried out now, or null: `epoch`, `before`, `to`, `origin` (decision, emergency, pin,
    rollback or reassert), `reason`, `at_s` (when it was ordered), `key` (names the attempt: one run each).
    It comes again, with another key, until it is carried out or withdrawn, so that a lost run is replaced."""
    alarms: Sequence[str] = ()
    """Problems that a person has to look at, each again after half an hour only."""
    learnt: Sequence[Json] = ()
    """Facts for the models, as `fact_to_json` writes them; also kept as measurements and events."""
    observation: Json = field(default_factory=dict)
    """What was seen: `at_s`, `scale_out`, `executors_alive`, `run_id`, `arrival_rps`, `throughput_rps`,
    `lag_records`, `latency_ms` (95th percentile), `last_commit_at_s`, `limited_by` (cpu or waiting: what
    its workers will run out of first), `hottest_share` (0…1, of the busiest worker), `workers` (how many
    were read)."""
    lag_s: float | Unknown = field(default=Unknown("the lag was not read"))
    """Lag in seconds of input."""
    decision: Json = field(default_factory=lambda: dict(NOT_DECIDED))
    """The optimiser's answer, or unknown where nothing was asked: `current`, `scale_out` (recommended),
    `smallest` (feasible), `feasible`, `reason`, `alarm` ("" without one), `verdicts`: per candidate
    `scale_out`, `status` (feasible, infeasible, unknown), `excuses` (each `condition`, `sentence`, `measure`:
    what would settle it, else null), `capacity` (low, mid, high, confidence, records/s), `probability` (that
    a failure is recovered in time), `worst_moment_s`, `worst_kind`, `load_probability`,
    `rescale_probability`, `latency_ms`, `recovery_s` (low, mid, high, and `promised`: by when the
    promised share has ended; for the chosen size and its neighbours; null: not within the forecast)."""
    recoveries: Json = field(default_factory=dict)
    """Kind of failure -> the recovery if it happened now, at the declared size: `low`, `mid`, `high`,
    `confidence`, `promised`, and `probability` that it is in time; or unknown. At every tick."""
    models: Json = field(default_factory=dict)
    """Kind -> version of the champions used; those that could not be used are missing."""
    provisional: Json = field(default_factory=dict)
    """Kind -> what to measure to make it firm, of those whose checks had too little data."""
    models_version: str = "none"
    """All of them in one name."""
    seed: int = 0
    """Of all random draws: with it, the same question gets the same answer."""
    capacity: Json = field(default_factory=dict)
    """At the declared size, each low, mid, high, confidence or unknown: `profile`, `online` (from the running
    workers), `used`."""
    forecast: Json = field(default_factory=lambda: dict(NOT_FORECAST))
    """`by`: "champion" or "naive" (the best naive one, after the champion has missed too often), `model`,
    `from_s` (epoch: where it begins), `step_s`, `horizon_s`, `mean_rps` (over the horizon), `peak` (low, mid,
    high, confidence), `misses_in_row` (of the champion's forecasts at this horizon, overlapping ones
    counted once), `instead`: why the naive one forecasts, else null; `scored`: forecasts whose horizon has
    ended since the last tick, each `made_at_s`, `by`, `missed`, `why`, `mae_rps`, `naive_mae_rps`,
    `coverage`, `highest_rps`."""
    requests: Sequence[Json] = ()
    """What should be done in the background: `do` ("refit" or "profile"), `model` (kind), `why`, `since_s`
    (the same request keeps it, so (job, do, model, since_s) names it), and to profile `scale_outs`."""
    orders: Json = field(default_factory=dict)
    """What people and windows say, only those in force: `pause` (who, why, until_s; null: for ever), `pin`
    (also scale_out), `blackout` (why, scale_out_allowed), `drill` on the live job (kind, since_s)."""
    promise: Json = field(default_factory=dict)
    """`target_s` and `confidence`."""
    recovering: Json | None = None
    """The recovery under way: `kind`, `failed_at_s`, `why`, `spoilt` (why it teaches nothing, or "")."""
    change: Json | None = None
    """A change that is not verified yet: `origin`, `before`, `to`, `at_s`, `problem` ("" without one)."""
    foreign: Json | None = None
    """A size that others have set: `since_s`, `found`, `ours`."""
    reassert: Json | None = None
    """The job came back with another size than the one we had verified: `found`, `ours`. It is brought back
    at once, or as soon as nothing that outranks it stands in the way."""
    quarantined: Sequence[Json] = ()
    """Sizes that did not work: `scale_out`, `direction` (out: and more; in: and fewer), `until_s`, `why`."""
    attached: bool = False
    """An attached job: only its offsets and commits are seen, and nothing is ever changed."""
    trouble: Sequence[str] = ()
    """What could not be read or done at this tick, also where it is no reason for an alarm."""

    def to_json(self) -> dict[str, Any]:
        return {"schema": EVALUATION_SCHEMA} | {
            f.name: codec.readable(getattr(self, f.name), digits=DIGITS) for f in fields(self)
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The evaluation that was written; one of another schema is Misuse."""
        if data.get("schema") != EVALUATION_SCHEMA:
            reads = f"this version reads {EVALUATION_SCHEMA}"
            raise Misuse("evaluation", f"has schema {data.get('schema')!r}, {reads}")
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        for name in ("scale_out", "lag_s"):
            value = known.get(name)
            if isinstance(value, Mapping):
                known[name] = Unknown(str(value["unknown"]))
        return cls(**known)

    @classmethod
    def if_readable(cls, data: Json) -> Self | None:
        """The evaluation that was written; None where another version of Headroom has written it."""
        try:
            return cls.from_json(data)
        except (Misuse, KeyError, TypeError):
            return None

    @property
    def reason(self) -> str:
        return str(self.instruction["reason"])

    def covers(self, kind: str) -> bool:
        """Whether the promise holds for failures of this kind: recoveries from other ones have no limit."""
        return kind in self.recoveries

    @property
    def facts(self) -> tuple[Measurement | RecoveryEvent, ...]:
        return tuple(fact_from_json(fact) for fact in self.learnt)


def fact_to_json(fact: Measurement | RecoveryEvent) -> dict[str, Any]:
    """A fact with its sort: `fact` is "measurement" or "event"; a recovery that never ended is null."""
    sort = "measurement" if isinstance(fact, Measurement) else "event"
    found: dict[str, Any] = {"fact": sort, **codec.readable(fact, digits=DIGITS)}
    return found


def fact_from_json(data: Json) -> Measurement | RecoveryEvent:
    """The fact that was written."""
    values = {key: value for key, value in data.items() if key != "fact"}
    if data["fact"] == "measurement":
        return Measurement(**values)
    never = {name: math.inf for name in ("downtime_s", "recovery_s") if values[name] is None}
    return RecoveryEvent(**values | never)


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
        committed = None if isinstance(sample.committed, Unknown) else _flat(sample.committed)
        return cls(sample.at_s, _flat(sample.head), committed, _flat(sample.log_start))

    @property
    def sample(self) -> Sample:
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
    "latency_p95_ms",
)


def nothing_learnt() -> OnlineCapacity:
    """The online capacity before the first tick.

    Without the prior through the origin: each batch costs its executors something beside its records, so that
    they are at work for three quarters of their time at a tenth of their load (measured, `bench.real online`:
    with the prior 682 records/s, without it 1,565, probed 1,571).
    """
    return OnlineCapacity(half_life_s=HALF_LIFE_S, limiting=True)


@dataclass(frozen=True)
class Memory:
    """Everything that the loop keeps of a job; `epoch` is None before the first tick."""

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
    """Load the memory of a job, with its present settings; Unsafe where a newer version has written it.

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
    """Save the memory; False, and nothing is written, when another process has saved a newer epoch."""
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
    """Outcome of the newest change that was begun; None before the first."""
    data: Mapping[str, Any] | None = store.document(job, OUTCOME)
    if data is None or data.get("schema") != Outcome.schema:
        return None
    return codec.from_json(Outcome, data)


def save_outcome(store: Store, job: str, what: Outcome) -> None:
    """Durable when it returns."""
    store.save_document(job, OUTCOME, codec.to_json(what))


@dataclass(frozen=True)
class Tick:
    """One evaluation of one job: what it is about and what it may use."""

    job: str
    settings: control.Settings
    loop: Loop
    memory: Memory
    """As the tick before has left it."""
    outcome: Outcome | None
    """What became of the newest change that was begun."""
    now_s: float

    @classmethod
    def of(cls, job: str, settings: control.Settings, loop: Loop, *, now_s: float) -> Self:
        """With what the store holds now."""
        store = loop.store
        return cls(job, settings, loop, recall(store, job, settings), outcome(store, job), now_s)

    @property
    def interval(self) -> int:
        """⌊now / E⌋: an interval is evaluated once."""
        return math.floor(self.now_s / self.settings.interval_s)


DAY_S = 86_400.0
LEAST_LIVE = 48  # judgement: a day of live measurements of one sort, at one size
LIVE = "live/"
"""How the key of a measurement of the live job begins."""
WHO = "headroom"


def deliver(loop: Loop, evaluation: Evaluation, *, before: Evaluation | None) -> None:
    """Write the evaluation and its facts to the store; a second time changes nothing.

    `before`: the evaluation before this one. What is too old is deleted when a new day begins.
    """
    store, job = loop.store, evaluation.job
    key = f"delivered {job}"
    if loop.remembered.get(key) == evaluation.epoch:
        return
    new = store.record_evaluation(
        job, interval=evaluation.interval, at_s=evaluation.at_s, evaluation=evaluation.to_json()
    )
    for fact in evaluation.facts:
        _keep(store, evaluation, fact)
    if new and evaluation.foreign is not None:
        _hold(store, evaluation)
    if before is not None and before.at_s // DAY_S != evaluation.at_s // DAY_S:
        before_s = evaluation.at_s - loop.kept_s
        store.forget_evaluations(job, before_s=before_s)
        store.forget_measurements(job, _outdated(store, job, before_s=before_s))
    loop.remembered[key] = evaluation.epoch


def _outdated(store: Store, job: str, *, before_s: float) -> list[str]:
    """Keys of old live measurements: of each size and sort the newest stay, and so does every probe."""
    kept: dict[str, list[tuple[str, float]]] = {}
    for key, at_s, _ in store.measurements(job):  # the oldest first
        if key.startswith(LIVE):
            kept.setdefault(key.rpartition("/")[0], []).append((key, at_s))
    return [key for sort in kept.values() for key, at_s in sort[:-LEAST_LIVE] if at_s < before_s]


def _keep(store: Store, evaluation: Evaluation, fact: Measurement | RecoveryEvent) -> None:
    if isinstance(fact, Measurement):
        sort = "steady" if fact.sustained else "saturated"
        key = f"{LIVE}e{fact.scale_out}/{sort}/{evaluation.at_s:.0f}"
        store.add_measurement(evaluation.job, key, fact, at_s=evaluation.at_s)
        return
    details = {
        "origin": "live",
        "learnt_at_s": evaluation.at_s,
        "epoch": evaluation.epoch,
        "models": evaluation.models_version,
        **({} if fact.rate_rps is None else {"rate_rps": fact.rate_rps}),
    }
    store.add_event(evaluation.job, fact, details=details)


def happened_live(details: Mapping[str, Any]) -> bool:
    """Whether a stored event, by its details, is of the live job: in a drill, or by itself."""
    return "live" in (details.get("origin"), details.get("on"))


def _hold(store: Store, evaluation: Evaluation) -> None:
    """A foreign edit is held until `resume`, also if the control state is lost."""
    if any(each.kind == "hold" for each in store.directives(evaluation.job, now_s=evaluation.at_s)):
        return
    foreign = evaluation.foreign or {}
    why = f"the size was set to {executors(foreign['found'])} where we had set {foreign['ours']}"
    store.direct(Directive(evaluation.job, "hold", WHO, why, since_s=evaluation.at_s))
