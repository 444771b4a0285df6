"""The record of one evaluation, from which it can be explained, plotted and replayed.

`Store.record_evaluation` keeps one per job and interval: plain JSON, numbers to five digits (noise does not
compress), never a forecast's paths. A value that was not known is `{"unknown": reason}`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from models import codec
from models.quantities import Json, Measurement, Misuse, RecoveryEvent, Unknown

SCHEMA = 1
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
    recommends and does not touch, else null; `reason`: the sentence for a person."""
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
    """The recovery under way: `kind`, `failed_at_s`, `why`."""
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
        """Plain JSON, numbers to five digits."""
        return {"schema": SCHEMA} | {
            f.name: codec.readable(getattr(self, f.name), digits=DIGITS) for f in fields(self)
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The evaluation that was written; one of another schema is Misuse."""
        if data.get("schema") != SCHEMA:
            raise Misuse("evaluation", f"has schema {data.get('schema')!r}, this version reads {SCHEMA}")
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        for name in ("scale_out", "lag_s"):
            value = known.get(name)
            if isinstance(value, Mapping):
                known[name] = Unknown(str(value["unknown"]))
        return cls(**known)

    @property
    def reason(self) -> str:
        """The sentence for a person."""
        return str(self.instruction["reason"])

    @property
    def facts(self) -> tuple[Measurement | RecoveryEvent, ...]:
        """What was learnt."""
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
