"""Champions are read from files with numpy alone, and nothing that is wrong with one is fatal."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fresh_python import HEAVY, printed

from models import codec
from models.capacity import CapacityModel
from models.control import Models
from models.downtime import DowntimeModel
from models.errors import Unsafe
from models.latency import LatencyModel
from models.optimise.question import BatchEngine
from models.quantities import Interval, Measurement, Misuse, RecoveryEvent, Unknown
from models.workload import Forecaster, fit_forecast
from profiling_jobs.telemetry.batch_costs import BareCapacity, EngineInputs
from profiling_jobs.training import champions
from profiling_jobs.training.champions import (
    KINDS,
    Champions,
    digest,
    document,
    export,
    exported,
    rebuilt,
    training,
)

ENGINE = EngineInputs({1: 0.4, 4: 0.6}, limit_records=20_000.0, trigger_s=0.0)


def measurements() -> list[Measurement]:
    rng = np.random.default_rng(3)
    found = []
    for size in (1, 2, 4, 8):
        most = 4000.0 * size**0.85
        for share in (0.5, 0.8, 1.1, 1.3):
            latency = 300.0 / (1.4 - min(share, 1.3)) * float(rng.uniform(0.95, 1.05))
            through = most * min(share, 1.0) * (1.0 if share < 1.0 else float(rng.uniform(0.98, 1.02)))
            found.append(
                Measurement(size, most * share, through, share < 1.0, latency_ms=latency, duration_s=60.0)
            )
    return found


def history(seed: int = 5) -> Any:
    rng = np.random.default_rng(seed)
    return 9000.0 + 2000.0 * np.sin(np.arange(240) / 9.0) + rng.normal(0.0, 300.0, 240)


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    capacity = CapacityModel.fit(measurements())
    events = [RecoveryEvent("executor_kill", 4, 100.0 * i, 11.0 + i, 40.0) for i in range(5)]
    events.append(RecoveryEvent("driver_kill", 4, 900.0, math.inf, math.inf))
    return {
        "workload": fit_forecast(history()[:14], step_s=30.0, horizon_s=600.0, seed=7),
        "capacity": capacity,
        "latency": LatencyModel.fit(measurements(), capacity),
        "recovery": DowntimeModel.fit(events),
    }


@pytest.fixture(scope="module")
def documents(fitted: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        kind: document(
            kind,
            model,
            trained_on=training([1.0, 2.0, 3.0], from_s=0.0, to_s=7200.0, profile="1763474400"),
            figures={"held_out_error": 0.02},
            engine=ENGINE if kind == "capacity" else None,
        )
        for kind, model in fitted.items()
    }


@pytest.fixture
def folder(tmp_path: Path, documents: dict[str, dict[str, Any]]) -> Path:
    for version, (kind, data) in enumerate(documents.items(), start=3):
        export(tmp_path, "orders", kind, version, data)
    return tmp_path


def answers(model: Any) -> list[float]:
    """Everything that a decision asks of a model, as numbers."""
    if isinstance(model, Forecaster):
        forecast = model.predict(paths=64)
        arrays = (forecast.mid, forecast.low, forecast.high, forecast.paths.ravel())
        return [float(x) for x in np.concatenate(arrays)]
    if isinstance(model, DowntimeModel):
        return [float(x) for k in model.priors for x in model.samples(k, paths=50, seed=1)]
    if isinstance(model, CapacityModel):
        found: list[Any] = [model.predict(s) for s in range(1, 13)]
    else:
        found = [model.predict(s, r) for s in range(1, 9) for r in (500.0, 4000.0, 20_000.0)]
    return [v for one in found for v in _numbers(one)]


def _numbers(one: Interval | Unknown) -> tuple[float, ...]:
    return (-1.0,) if isinstance(one, Unknown) else (one.low, one.mid, one.high)


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_comes_back_exactly(
    kind: str, fitted: dict[str, Any], folder: Path, documents: dict[str, dict[str, Any]]
) -> None:
    loaded = Champions.load(folder, "orders")
    field = {"workload": "forecaster", "recovery": "downtime"}.get(kind, kind)
    again = getattr(loaded, field)
    assert isinstance(again, KINDS[kind])
    before = Forecaster.from_json(fitted[kind].to_json()) if kind == "workload" else fitted[kind]
    np.testing.assert_allclose(answers(again), answers(before), rtol=1e-12, atol=0.0)
    assert codec.to_json(again) == codec.to_json(fitted[kind])
    if kind == "workload":
        new = [9100.0, math.nan, 12_000.0, 300.0]
        np.testing.assert_allclose(answers(again.update(new)), answers(before.update(new)), rtol=1e-12)


@pytest.mark.parametrize(("seed", "points"), [*itertools.product(range(4), (1, 7, 40)), (4, 240)])
def test_forecasters_of_every_sort_come_back_exactly(seed: int, points: int, tmp_path: Path) -> None:
    series = np.round(history(seed)[:points], 3)
    if seed == 1:
        series[points // 2 :] = np.nan if points > 1 else series[0]
    if seed == 2:
        series[:] = 0.0
    model = fit_forecast(series, step_s=30.0, horizon_s=300.0, seed=seed)
    export(
        tmp_path, "orders", "workload", 1, document("workload", model, trained_on=training(series.tolist()))
    )
    again = Champions.load(tmp_path, "orders").forecaster
    assert isinstance(again, Forecaster)
    np.testing.assert_array_equal(answers(again), answers(model))
    new = [9100.0, math.nan, 12_000.0, 300.0]
    np.testing.assert_array_equal(answers(again.update(new)), answers(model.update(new)))


@pytest.mark.fast
@pytest.mark.parametrize("model", [CapacityModel.fit([]), CapacityModel.fit(measurements()[2:4], tasks=12)])
def test_models_that_know_little_come_back_too(model: CapacityModel, tmp_path: Path) -> None:
    latency = LatencyModel.fit([], model)
    for kind, one in (("capacity", model), ("latency", latency), ("recovery", DowntimeModel.fit())):
        export(tmp_path, "orders", kind, 1, document(kind, one, trained_on=training([])))
    loaded = Champions.load(tmp_path, "orders")
    assert isinstance(loaded.capacity, CapacityModel)
    assert [loaded.capacity.predict(s) for s in (1, 2, 3)] == [model.predict(s) for s in (1, 2, 3)]
    assert isinstance(loaded.latency, LatencyModel)
    assert loaded.latency.predict(1, 5.0) == latency.predict(1, 5.0)
    assert isinstance(loaded.engine, Unknown)
    assert "profile the job" in loaded.engine.reason


@pytest.mark.fast
def test_who_they_are_is_told(folder: Path) -> None:
    loaded = Champions.load(folder, "orders")
    assert loaded.versions == {"workload": 3, "capacity": 4, "latency": 5, "recovery": 6}
    assert loaded.version == "capacity 4, latency 5, recovery 6, workload 3"
    assert loaded.forecaster_until_s == 7200.0
    assert loaded.trained_on["capacity"]["profile"] == "1763474400"
    assert loaded.figures["recovery"] == {"held_out_error": 0.02}
    assert loaded.seed == Champions.load(folder, "orders").seed
    assert loaded.seed >= 0


@pytest.mark.fast
def test_control_gets_the_bare_capacity_beside_the_engine(folder: Path) -> None:
    loaded = Champions.load(folder, "orders")
    models = loaded.models()
    assert isinstance(models, Models)
    assert isinstance(models.engine, BatchEngine)
    assert models.engine.limit_records == 20_000.0
    assert isinstance(models.capacity, BareCapacity)
    for size in (1, 3, 6):
        sustained, bare = loaded.capacity.predict(size), models.capacity.predict(size)
        assert isinstance(sustained, Interval)
        assert isinstance(bare, Interval)
        # What the engine makes of the bare rate is what was measured.
        back = models.engine.sustained_rps(np.array([bare.low, bare.mid]), scale_out=size)
        np.testing.assert_allclose(back, [sustained.low, sustained.mid], rtol=1e-12)
        assert bare.high >= sustained.high
    now = loaded.models(limit_records=5_000.0, trigger_s=10.0).engine
    assert isinstance(now, BatchEngine)
    assert (now.limit_records, now.trigger_s) == (5_000.0, 10.0)


@pytest.mark.fast
def test_an_overhead_that_leaves_no_time_for_records_is_unknown_and_an_upper_end_stays_finite() -> None:
    class Flat:
        def predict(self, scale_out: int) -> Interval:
            return Interval(900.0, 950.0, 1100.0, 0.9)

    assert BareCapacity(Flat(), EngineInputs({1: 0.0})).predict(2) == Flat().predict(2)  # no limit
    narrow = BareCapacity(Flat(), EngineInputs({1: 1.0}, limit_records=1000.0)).predict(2)
    assert isinstance(narrow, Interval)
    assert narrow.mid == pytest.approx(19_000.0)
    assert math.isfinite(narrow.high)
    hopeless = BareCapacity(Flat(), EngineInputs({1: 2.0}, limit_records=1000.0)).predict(2)
    assert isinstance(hopeless, Unknown)
    assert "profile again" in hopeless.reason


@pytest.mark.fast
def test_a_new_job_has_none_and_is_told_what_to_do(tmp_path: Path) -> None:
    loaded = Champions.load(tmp_path, "orders")
    for value, fix in (
        (loaded.capacity, "profile the job"),
        (loaded.engine, "profile the job"),
        (loaded.latency, "profile the job"),
        (loaded.downtime, "run a drill"),
        (loaded.forecaster, "fit the workload model"),
    ):
        assert isinstance(value, Unknown)
        assert fix in value.reason
    assert loaded.version == "none"
    assert isinstance(loaded.forecaster_until_s, Unknown)
    assert loaded.models().capacity == loaded.capacity


def changed(path: Path, change: Callable[[dict[str, Any]], object], *, sign: bool = False) -> None:
    data = json.loads(path.read_text())
    change(data)
    if sign:
        body = {key: data.get(key) for key in ("name", "version", "document")}
        data["signature"] = champions.signature(path.parents[2], **body)
    path.write_text(json.dumps(data))


def signed(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """The file was written with this change, and its signature fits."""
    return lambda path: changed(path, change, sign=True)


def in_document(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return signed(lambda data: change(data["document"]))


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda p: p.write_text(""), "is damaged"),
    "half of it": (lambda p: p.write_text(p.read_text()[:200]), "is damaged"),
    "not text": (lambda p: p.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "a list": (lambda p: p.write_text("[]"), "no object"),
    "endless nesting": (lambda p: p.write_text("[" * 100_000), "is damaged"),
    "a folder": (lambda p: (p.unlink(), p.mkdir()), "cannot be read"),
    "one digit": (lambda p: p.write_text(p.read_text().replace("60.0", "61.0", 1)), "not of this"),
    "another version number": (lambda p: changed(p, lambda d: d.update(version=9)), "not of this"),
    "no signature": (lambda p: changed(p, lambda d: d.pop("signature")), "it has no signature"),
    "a number for a signature": (lambda p: changed(p, lambda d: d.update(signature=1)), "not of this"),
    "of a version that did not sign": (
        lambda p: changed(p, lambda d: d.update(schema=1, signature=None)),
        "run `headroom model orders --kind capacity --sign 4`",
    ),
    "an impossible version": (signed(lambda d: d.update(version="x")), "has no version or no document"),
    "an older file": (lambda p: changed(p, lambda d: d.update(schema=0)), "older Headroom (schema 0"),
    "a newer file": (lambda p: changed(p, lambda d: d.update(schema=3)), "newer Headroom (schema 3"),
    "an older document": (in_document(lambda d: d.pop("schema")), "older Headroom (schema None"),
    "a newer document": (in_document(lambda d: d.update(schema=7)), "newer Headroom (schema 7"),
    "an older model": (in_document(lambda d: d["model"].update(schema=0)), "older Headroom (schema 0"),
    "another kind": (in_document(lambda d: d.update(kind="latency")), "got 'latency'"),
    "no model": (in_document(lambda d: d.pop("model")), "holds no model"),
    "no measurements": (in_document(lambda d: d["model"].pop("measurements")), "cannot be rebuilt"),
    "measurements that cannot be": (
        in_document(lambda d: d["model"]["measurements"][0].update(scale_out=0)),
        "Measurement.scale_out",
    ),
    "an engine without overhead": (in_document(lambda d: d["engine"].update(overhead_s={})), "overhead_s"),
}


@pytest.mark.fast
@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_says_what_to_do_and_the_others_stay_in_charge(case: str, folder: Path) -> None:
    break_it, said = WRONG[case]
    break_it(champions.path_of(folder, "orders", "capacity"))
    loaded = Champions.load(folder, "orders")
    assert isinstance(loaded.capacity, Unknown)
    assert said in loaded.capacity.reason
    assert "promote" in loaded.capacity.reason
    assert isinstance(loaded.engine, Unknown)
    assert isinstance(loaded.latency, LatencyModel)
    assert set(loaded.versions) == {"workload", "latency", "recovery"}
    assert loaded.models().engine == loaded.engine


@pytest.mark.fast
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("f" * 64, "run `headroom model orders --kind capacity --sign 4`"),
        (None, "run `headroom model orders --kind capacity --sign 4`"),
        ("", "models.key is empty or cut short: delete it"),
    ],
    ids=["of another installation", "deleted", "empty"],
)
def test_without_its_key_no_champion_is_in_charge(key: str | None, said: str, folder: Path) -> None:
    path = folder / "models.key"
    path.unlink() if key is None else path.write_text(key)
    loaded = Champions.load(folder, "orders")
    assert loaded.versions == {}
    assert isinstance(loaded.capacity, Unknown)
    assert said in loaded.capacity.reason


@pytest.mark.fast
def test_another_jobs_or_another_kinds_file_is_not_taken(
    folder: Path, documents: dict[str, dict[str, Any]]
) -> None:
    there = champions.path_of(folder, "orders", "capacity")
    export(folder, "clicks", "capacity", 9, documents["capacity"])
    there.write_bytes(champions.path_of(folder, "clicks", "capacity").read_bytes())
    wrong = exported(folder, "orders", "capacity")
    assert isinstance(wrong, Unknown)
    assert "is that of clicks.capacity, not of orders.capacity" in wrong.reason
    there.write_bytes(champions.path_of(folder, "orders", "latency").read_bytes())
    wrong = exported(folder, "orders", "capacity")
    assert isinstance(wrong, Unknown)
    assert "is that of orders.latency" in wrong.reason


@pytest.mark.fast
def test_a_document_that_could_not_be_loaded_leaves_the_old_champion(
    folder: Path, documents: dict[str, dict[str, Any]]
) -> None:
    for wrong in ({**documents["capacity"], "schema": 2}, documents["latency"], {"schema": 1}):
        with pytest.raises(Unsafe, match=r"orders\.capacity version 8 is not put in charge"):
            export(folder, "orders", "capacity", 8, wrong)
    assert Champions.load(folder, "orders").versions["capacity"] == 4
    with pytest.raises(Misuse, match="kind"):
        export(folder, "orders", "colour", 8, documents["capacity"])


def test_a_champion_is_read_whole_while_it_is_replaced(
    folder: Path, documents: dict[str, dict[str, Any]]
) -> None:
    done = threading.Event()

    def replace(first: int) -> None:
        for version in range(first, first + 40, 2):
            export(folder, "orders", "recovery", version, documents["recovery"])
        done.set()

    writers = [threading.Thread(target=replace, args=(first,)) for first in (10, 11)]
    for writer in writers:
        writer.start()
    seen = []
    while not done.is_set() or not seen:
        seen.append(exported(folder, "orders", "recovery"))
    for writer in writers:
        writer.join()
    assert not [one for one in seen if isinstance(one, Unknown)]
    left = champions.path_of(folder, "orders", "recovery").parent.iterdir()
    assert sorted(path.name for path in left) == sorted(f"{kind}.json" for kind in KINDS)


def test_numpy_alone_is_needed(folder: Path) -> None:
    program = """
import json, sys
from pathlib import Path
from profiling_jobs.training.champions import Champions
c = Champions.load(Path(sys.argv[1]), "orders")
models = c.models()
found = [c.forecaster.update([9000.0]).predict().peak.mid, models.capacity.predict(3).mid,
    models.latency.predict(3, 5000.0).mid, float(models.downtime.samples("driver_kill", paths=9, seed=1)[0])]
print(json.dumps([found, sorted({name.split(".")[0] for name in sys.modules})]))
"""
    found, loaded = printed(program, folder)
    assert len(found) == 4
    assert HEAVY & set(loaded) == set()


@pytest.mark.fast
def test_documents_ask_for_what_they_need(fitted: dict[str, Any]) -> None:
    trained = training([])
    with pytest.raises(Misuse, match="kind"):
        document("colour", fitted["capacity"], trained_on=trained)
    with pytest.raises(Misuse, match="must be a CapacityModel"):
        document("capacity", fitted["latency"], trained_on=trained)
    with pytest.raises(Misuse, match="digest"):
        document("capacity", fitted["capacity"], trained_on={})
    with pytest.raises(Misuse, match="belongs to the capacity"):
        document("latency", fitted["latency"], trained_on=trained, engine=ENGINE)
    assert isinstance(rebuilt([], kind="capacity"), Unknown)
    assert digest({"a": 1.5, "b": math.inf}) == digest({"b": math.inf, "a": 1.5}) != digest({"a": 1.5})


@pytest.mark.fast
def test_what_makes_a_model_firm_is_named_once_with_the_larger_number() -> None:
    """Two checks of one model may count the drills of one kind differently."""
    needs = ("2 more drills of driver_kill", "a profile", "10 more drills of driver_kill", "a profile",
             "1 more drill of executor_kill")  # fmt: skip
    data = {"checks": [{"outcome": "too little data", "needs": need} for need in needs]}
    assert champions.provisional(data) == (
        "10 more drills of driver_kill",
        "a profile",
        "1 more drill of executor_kill",
    )
