"""Wrong arguments of the models: an answer, or Misuse that names the argument that cannot be used."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from wrong_arguments import refused

from bench._truths_optimise import Paths, question
from models.capacity import CapacityModel, OnlineCapacity
from models.control import Models, Settings, start, step
from models.downtime import DowntimeModel, DowntimePrior, downtime_priors
from models.latency import LatencyModel
from models.observation import Observation
from models.optimise import aligned_scale_outs
from models.optimise.question import BatchEngine, ContinuousEngine
from models.planning import Explorer, Plan, SlotMeasurement, bounded_inverse_ds2, smallest_scale_out
from models.probing import Settings as ProbingSettings
from models.probing import start as start_probing
from models.promise import Promise
from models.quantities import (
    Alarm,
    Hold,
    Interval,
    Learn,
    Measurement,
    Misuse,
    RecoveryEvent,
    Scale,
    Unknown,
)
from models.recovery import (
    batch_recovery_seconds,
    first_batch_start_s,
    recovered_at,
    recovery_seconds,
    steady_recovery_s,
    utilisation_limit,
)
from models.workload import fit_forecast, forecast

pytestmark = pytest.mark.fast

NAN, INF = math.nan, math.inf
LINE = [Measurement(size, 1300.0 * size, 1000.0 * size, False) for size in (1, 2, 4)]
LINEAR = CapacityModel.fit(LINE)
LATENCY = LatencyModel.fit([replace(run, latency_ms=900.0) for run in LINE * 3], LINEAR)
SEEN = Observation(at_s=60.0, scale_out=4, arrival_rps=2_000.0, throughput_rps=2_000.0, lag_records=10.0)
AGREED = {"promise": Promise(180.0), "max_scale_out": 12, "models": Models(capacity=LINEAR)}
SPACE = {"slots": (1, 4), "memory_mb": (512.0,), "target_rps": 1.0}


def tick(*, now: Any = 60.0, **seen: Any) -> None:
    step(start(Settings(**AGREED)), replace(SEEN, **seen), now)


def contradicting(sustained_rps: float) -> list[Measurement]:
    return [LINE[1], Measurement(2, sustained_rps, sustained_rps, True)]


HISTORY = [100.0 + k % 7 for k in range(60)]
FORECASTER = fit_forecast(HISTORY, step_s=60.0, horizon_s=300.0)
FITTED = {"history_rps": HISTORY[:9], "step_s": 60.0, "horizon_s": 300.0, "seed": 0}
RECOVERY = {"arrivals_rps": [10.0] * 9, "downtime_s": 3.0, "lag_records": 0.0, "step_s": 1.0}
COLUMNS = [20.0, 30.0, 40.0]
BATCHES = {
    "capacity_rps": COLUMNS[:2],
    "overhead_s": 1.0,
    "limit_records": 100.0,
    "trigger_s": 0.0,
    "band_s": 5.0,
}
ASKED = {"scale_out": 2, "rate_rps": 1.0}
LIMIT = {"target_s": 60.0, "downtime_s": 1.0, "replay_s": 1.0}
SIGNATURES: list[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = []


def fixed(
    ask: Callable[..., Any], right: dict[str, Any], numbers: tuple[str, ...], **wrong: list[Any]
) -> Iterator[Any]:
    """Cases of a fixed signature with all its arguments, some of which hold nothing but numbers."""
    SIGNATURES.append((ask, right, numbers))
    yield from refused(ask, right, **wrong)


def update(**given: Any) -> None:
    """A forecaster of its own for each call: it would remember."""
    fit_forecast(**FITTED).update(**given)


CASES = [
    *fixed(
        Interval,
        {"low": 1.0, "mid": 2.0, "high": 3.0, "confidence": 0.9},
        ("low", "mid", "high", "confidence"),
    ),
    *fixed(Scale, {"to": 3, "reason": "why"}, ("to",)),
    *fixed(Learn, {"fact": LINE[0]}, ("fact",)),
    *fixed(update, {"new_rps": [1.0]}, ()),
    *fixed(forecast, FITTED, ("step_s", "horizon_s", "seed")),
    *fixed(FORECASTER.predict, {"paths": 20}, ("paths",), paths=[1e300, 10**7]),
    *fixed(
        OnlineCapacity().update,
        {"worker_cpu": {"a": 0.5}, "worker_throughput_rps": {"a": 10.0}, "step_s": 1.0},
        ("step_s",),
        worker_cpu=[{"a": [-0.1]}, {"a": [35.0]}, {"a": [0.1, 0.2]}, [0.1, 0.2], {"a": "x"}],
        worker_throughput_rps=[{"a": [INF]}, {"a": [-1.0]}, {"b": [1.0]}],
        step_s=[0.0],
    ),
    *fixed(
        recovery_seconds,
        RECOVERY | {"capacity_rps": COLUMNS, "replay_s": 4.0, "past_rps": 10.0},
        ("arrivals_rps", "capacity_rps", "downtime_s", "replay_s", "lag_records", "step_s"),
        arrivals_rps=[[1.0, NAN], [1.0, -1.0], [1.0, INF], [], 5.0, "many"],
        capacity_rps=[-1.0, NAN, INF],
        downtime_s=[-0.1, NAN, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]],
        replay_s=[-1.0, INF],
        lag_records=[-1.0, NAN],
        past_rps=[[1.0, 2.0], [-1.0] * 5, np.ones((7, 5)), []],
        step_s=[0.0, -1.0],
    ),
    *fixed(
        batch_recovery_seconds,
        RECOVERY | BATCHES,
        ("arrivals_rps", "capacity_rps", "overhead_s", "limit_records", "trigger_s", "downtime_s", "step_s"),
        arrivals_rps=[[NAN], [-1.0], 3.0],
        capacity_rps=[-1.0],
        overhead_s=[-1.0, INF],
        limit_records=[0.0, NAN],
        trigger_s=[-1.0, INF],
        downtime_s=[NAN, [[1.0] * 5] * 2],
        lag_records=[-1.0],
        band_s=[-1.0, INF],
        step_s=[0.0],
    ),
    *refused(
        first_batch_start_s,
        {"downtime_s": 9, "arrival_rps": 1, "capacity_rps": 2, "overhead_s": 0, "limit_records": 5},
        downtime_s=[-1],
        arrival_rps=[-1],
        capacity_rps=[0],
        overhead_s=[-1],
        limit_records=[0],
        lag_records=[-1],
    ),
    *fixed(
        steady_recovery_s,
        {"utilisation": 0.5, "downtime_s": 1.0, "replay_s": 1.0},
        ("utilisation", "downtime_s", "replay_s"),
        utilisation=[-0.1, NAN],
        downtime_s=[-1],
        replay_s=[INF],
    ),
    *fixed(
        utilisation_limit,
        LIMIT,
        tuple(LIMIT),
        target_s=[-1],
        downtime_s=["soon"],
        replay_s=[NAN],
    ),
    *fixed(
        recovered_at,
        {"times_s": [0.0, 1.0, 2.0], "lag_s": [1.0] * 3, "failed_at_s": 0.0, "band_s": 1.0, "hold_s": 1.0},
        ("times_s", "lag_s", "failed_at_s", "band_s", "hold_s"),
        times_s=[[0.0, 2.0, 1.0], [0.0, 1.0, 1.0], [0.0, NAN, 2.0], [], [[0.0, 1.0, 2.0]]],
        lag_s=[[1.0, 2.0], [1.0, NAN, 2.0], [1.0, -1.0, 2.0]],
        failed_at_s=[NAN],
        band_s=[-1.0],
        hold_s=[-1.0, INF],
    ),
    *refused(
        tick,
        {},
        now=[NAN, INF, "noon"],
        at_s=[NAN],
        scale_out=[0, 2.5],
        arrival_rps=[-1.0, NAN],
        throughput_rps=[INF],
        lag_records=[-5.0],
        lag_readings=[[(1.0, NAN)], [(1.0, -5.0)], [1.0, 2.0]],
        latency_ms=[NAN],
        executors_alive=[-1],
        last_commit_at_s=[NAN],
        commits_at_s=[[1.0, NAN]],
        cpu=[{"1": NAN}],
    ),
    *refused(
        Settings,
        AGREED | {"min_scale_out": 5},
        promise=[180.0],
        min_scale_out=[0],
        max_scale_out=[4],
        mode=["act"],
        path=["hope"],
        candidates=[(0, 1), (40, 50)],
        failure_kinds=[("meteor",), ()],
        interval_s=[0.0],
        cooldown_in_s=[-1.0],
        scale_in_window_s=[NAN],
        max_step_out=[0],
        max_share_in=[0.0],
    ),
    *refused(
        lambda **given: start_probing(ProbingSettings(**given)),
        {"scale_outs": (1, 2, 4), "warm_up_s": 60.0, "probe_s": 60.0, "first_rate_rps": 500.0},
        scale_outs=[(), (0, 2), (2, 2), (1.5,), 4],
        probe_s=[0.0, NAN],
        warm_up_s=[-1.0],
        strategy=["random"],
        first_rate_rps=[-5.0],
        first_guess=[NAN, {0: 10.0}, {1: -10.0}],
        budget_executor_seconds=[0.0],
        tasks=[0],
        parallel=[0],
        executors_at_once=[3],
        bracket=[-0.1],
        retries=[-1],
        most_probes=[0],
    ),
    *refused(
        question,
        {},
        candidates=[(), (0, 1)],
        current=[0],
        kinds=[(), ("meteor",)],
        rescale=["teleport"],
        observed_rps=[-1.0, NAN],
        lag_records=[-1.0],
        moments_s=[0.0],
        latency_bound_ms=[0.0],
        stay_s=[-1.0],
        seed=[-1],
        engine=["spark"],
        forecast=[Paths(np.full((3, 100), 5.0)), Paths(np.empty((0, 400)))]
        + [Paths(np.array([[1.0, wrong]])) for wrong in (NAN, -1.0)],
    ),
    *refused(
        BatchEngine,
        {},
        overhead_s=[-1.0, {}],
        limit_records=[0, NAN],
        trigger_s=[-1.0],
        band_s=[0.0],
    ),
    *refused(ContinuousEngine, {}, replay_s=[-1.0]),
    *refused(aligned_scale_outs, {"low": 1, "high": 4, "tasks": None}, low=[0, 1.5], high=[0], tasks=[0]),
    *refused(Promise, {"target_s": 60.0}, target_s=[0.0, NAN], confidence=[1.0, 0.0]),
    *fixed(
        CapacityModel.fit,
        {"measurements": LINE, "forms": ["linear"], "tasks": 12},
        ("measurements",),
        measurements=[[1, 2], LINE[0], None, [Measurement(1, 10.0, 0.0, False)], contradicting(2400.0)],
        forms=[["cubic"], []],
        tasks=[0, 1.5],
    ),
    *fixed(LINEAR.predict, {"scale_out": 2}, ("scale_out",), scale_out=[0, -1, 1.5, NAN, True, "two"]),
    *refused(
        lambda scale_out: LINEAR.candidates["linear"].predict(scale_out),
        {},
        scale_out=[0, -1, 1.5, NAN, True, "two"],
    ),
    *fixed(
        OnlineCapacity,
        {"half_life_s": 60.0, "prior_weight": 0.0},
        ("prior_weight",),
        half_life_s=[0.0, NAN],
        prior_weight=[-1.0],
    ),
    *fixed(OnlineCapacity().total, {"scale_out": 2}, (), scale_out=[0]),
    *fixed(
        OnlineCapacity().merge,
        {"other": OnlineCapacity()},
        ("other",),
        other=[OnlineCapacity(prior_weight=1.0)],
    ),
    *refused(DowntimeModel.fit().with_events, {}, events=[[30.0]]),
    *refused(DowntimeModel.fit, {}, priors=[{"earthquake": DowntimePrior(3.0, 0.5)}]),
    *refused(downtime_priors, {}, heartbeat_timeout_s=[-1.0], cold_start_s=[NAN]),
    *refused(
        DowntimePrior, {"typical_s": 1.0, "spread": 0.5}, typical_s=[-1.0], spread=[0.0], spread_weight=[0.0]
    ),
    *fixed(
        LatencyModel.fit,
        {"measurements": LINE, "capacity": LINEAR},
        ("measurements", "capacity"),
        capacity=[None],
        measurements=[[(2, 100.0)]],
    ),
    *fixed(LATENCY.predict, ASKED, tuple(ASKED), scale_out=[0, 2.5, True], rate_rps=[-1.0, NAN, INF, "many"]),
    *fixed(
        LATENCY.is_normal, ASKED, tuple(ASKED), scale_out=[0, 2.5, True], rate_rps=[-1.0, NAN, INF, "many"]
    ),
    *fixed(
        Measurement,
        {
            "scale_out": 2,
            "offered_rps": 100.0,
            "throughput_rps": 90.0,
            "sustained": False,
            "latency_ms": 5.0,
            "duration_s": 1.0,
            "executor_seconds": 1.0,
            "memory_mb": 512.0,
            "origin": "live",
            "standard_error_rps": 1.0,
        },
        ("scale_out", "offered_rps", "throughput_rps", "duration_s", "executor_seconds"),
        scale_out=[0, -3, 1.5, True, "two", None, NAN],
        offered_rps=[-1.0, NAN, "many"],
        throughput_rps=[INF, None],
        sustained=[1, None],
        latency_ms=[NAN, -1.0],
        duration_s=[-1.0],
        executor_seconds=[INF],
        memory_mb=[NAN],
        standard_error_rps=[-0.1],
        origin=["guess"],
    ),
    *fixed(
        RecoveryEvent,
        {"kind": "executor_kill", "scale_out": 2, "failed_at_s": 0.0, "downtime_s": 3.0, "recovery_s": 9.0},
        ("scale_out", "failed_at_s", "downtime_s", "recovery_s"),
        kind=["meteor"],
        scale_out=[0, "two"],
        failed_at_s=[INF],
        downtime_s=[-1.0, NAN, "long"],
        recovery_s=[NAN],
    ),
    *fixed(
        fit_forecast,
        FITTED,
        ("step_s", "horizon_s", "seed"),
        history_rps=[[], [NAN, NAN], [-1.0, 5.0], [INF], [[1.0, 2.0]], ["many"]],
        step_s=[0, NAN, -30],
        horizon_s=[0, INF, 1e9],
        seed=[-1, 0.5],
    ),
    *refused(
        SlotMeasurement,
        {"task_slots": 2, "memory_mb": 512.0, "sustained_rps": 1.0},
        task_slots=[0, 2.5],
        memory_mb=[0.0, NAN],
        sustained_rps=[-1.0, INF],
    ),
    *refused(Plan.fit, {}, measurements=[[(4, 512.0, 100.0)]]),
    *refused(Plan.fit([]).answers, {"target_rps": 1.0}, target_rps=[0], margin=[-0.1]),
    *refused(
        Explorer,
        SPACE,
        slots=[(4, 4), (0, 4)],
        memory_mb=[(), (512.0, 512.0), (-1.0,)],
        target_rps=[0.0],
        margin=[NAN],
        most_runs=[0],
    ),
    *refused(
        Explorer(**SPACE).tell,
        {"task_slots": 4, "memory_mb": 512.0, "sustained_rps": 1.0},
        task_slots=[99],
        memory_mb=[999.0],
        sustained_rps=[NAN],
    ),
    *fixed(
        bounded_inverse_ds2,
        {"rates_per_task": [1.0], "weights": [1.0], "slots": 3},
        ("rates_per_task", "weights", "slots"),
        rates_per_task=[[], [[1.0]], [NAN], [-1.0], [INF]],
        weights=[[1.0, 2.0], [-0.1]],
        slots=[-1, 2.5, NAN],
    ),
    *fixed(
        smallest_scale_out,
        {"model": LINEAR, "target_rps": 1.0},
        ("model", "target_rps"),
        target_rps=[-1.0, NAN, INF, None],
        model=[None],
    ),
]


@pytest.mark.parametrize(("ask", "given", "argument"), CASES)
def test_a_wrong_argument_is_named(ask: Callable[..., Any], given: dict[str, Any], argument: str) -> None:
    with pytest.raises(Misuse) as error:
        ask(**given)
    assert re.fullmatch(rf"(\w+\.)*{argument}(\W.*)?", error.value.argument)


NO_NUMBERS: dict[str, Any] = {
    "true": True,
    "text": "7",
    "bytes": b"5",
    "time": np.datetime64("2026-01-01"),
    "span": np.timedelta64(5, "s"),
    "nothing": None,
    "object": object(),
    "complex": 1j,
    "texts": ["7", "8"],
    "truths": np.array([True, False]),
    "times": np.array(["2026-01-01"], dtype="datetime64[s]"),
    "masked": np.ma.masked_array([10.0] * 30, mask=[True] + [False] * 29),
}
FOREIGN: dict[str, Any] = NO_NUMBERS | {
    "unknown": Unknown("not read"),
    "nan": math.nan,
    "inf": math.inf,
    "huge": 10**400,
    "vast": 1e300,
    "tiny": 1e-300,
    "negative": -1.0,
    "fraction": 1.5,
    "numbers": [1.0, 2.0],
    "empty": [],
    "mapping": {"a": 1},
}


def arguments_of(*, numbers: bool) -> list[Any]:
    """Every argument of the fixed signatures, or those that hold nothing but numbers."""
    return [
        pytest.param(ask, given, argument, id=f"{getattr(ask, '__qualname__', ask)}-{argument}")
        for ask, given, only_numbers in SIGNATURES
        for argument in (only_numbers if numbers else given)
    ]


@pytest.mark.parametrize(("ask", "given", "argument"), arguments_of(numbers=False))
@pytest.mark.filterwarnings("ignore")
def test_whatever_is_given_there_is_an_answer_or_the_argument_is_named(
    ask: Callable[..., Any], given: dict[str, Any], argument: str
) -> None:
    for name, value in FOREIGN.items():
        try:
            ask(**given | {argument: value})
        except Misuse:
            continue
        except Exception as other:
            raise AssertionError(f"{argument} = {name}: {type(other).__name__}: {other}") from other


@pytest.mark.parametrize(("ask", "given", "argument"), arguments_of(numbers=True))
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_number_passes_as_none(
    ask: Callable[..., Any], given: dict[str, Any], argument: str
) -> None:
    taken = []
    for name, value in NO_NUMBERS.items():
        try:
            ask(**given | {argument: value})
        except Misuse:
            continue
        taken.append(name)
    assert taken == []


def test_a_horizon_that_would_take_all_memory_is_refused() -> None:
    with pytest.raises(Misuse, match="horizon_s"):
        fit_forecast(**FITTED | {"step_s": 1e-9})


def test_words_of_people_are_instructions_too() -> None:
    assert (Hold("why").reason, Alarm("why").reason) == ("why", "why")


def test_a_forecast_that_is_too_short_says_how_far_it_has_to_reach() -> None:
    with pytest.raises(Misuse, match="forecast: reaches 100 s, but the promise looks 300 s"):
        question(forecast=Paths(np.full((3, 100), 5.0)))


def test_what_is_unknown_is_no_wrong_scale_out() -> None:
    assert OnlineCapacity().total(Unknown("not declared")) == Unknown("not declared")
