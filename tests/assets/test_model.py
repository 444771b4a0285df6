"""The model stage as Dagster runs it: figures, pictures, checks, and who is in charge afterwards."""

import base64
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from memory_registry import MemoryRegistry
from temporary_store import TemporaryStore

from assets import metadata, model
from assets.decide import sizes
from assets.metadata import of_evaluation
from assets.partitions import JOBS, POINTS
from models.errors import Misconfigured, NotReady
from models.ports import Registry, Store
from models.quantities import Measurement, Misuse, Unknown
from pipelines.environments import batch_tasks
from pipelines.integrations import mlflow_model
from pipelines.integrations.mlflow_registry import MlflowRegistry
from pipelines.orchestration.resources import Modelling, ModellingResource
from pipelines.settings import loading
from pipelines.settings.schema import MlflowSettings
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.training.champions import Champions
from profiling_jobs.training.checks import CHECKS, CheckResult, failed

Fill = Callable[..., None]
ALL = (model.capacity_model, model.workload_model, model.latency_model, model.recovery_model)
AROUND = (
    dg.AssetSpec("profiling_points", partitions_def=POINTS),
    dg.AssetSpec("workload_history", partitions_def=JOBS),
    dg.AssetSpec("failure_drills", partitions_def=JOBS),
)
FILE = """
[job.orders]
build = "package.module:function"
inputs = {events = "orders"}
scale_out_max = 8
max_offsets_per_trigger = 20000
"""
SETTINGS = loading.parse(FILE, environment={})


class Workshop(Modelling):
    """What the pipeline gives to the stage, and a store."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        super().__init__(SETTINGS, folder, registry, page="http://127.0.0.1:5000")
        self.folder, self.registry = folder, registry
        self.store: Store = TemporaryStore()

    def materialize(
        self,
        *assets: dg.AssetsDefinition,
        instance: dg.DagsterInstance,
        tags: dict[str, str] | None = None,
    ) -> Any:
        return dg.materialize(
            [*assets, *AROUND],
            partition_key="orders",
            instance=instance,
            resources={"store": self.store, "modelling": self},
            raise_on_error=False,
            tags=tags,
        )


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        found.add_dynamic_partitions("jobs", ["orders"])
        yield found


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path, MemoryRegistry())


def shown(run: Any, asset: str) -> dict[str, Any]:
    found = run.asset_materializations_for_node(asset)
    return {name: value.value for name, value in found[-1].metadata.items()}


def test_all_four_are_fitted_checked_shown_and_in_charge(
    workshop: Workshop, lived: Fill, instance: dg.DagsterInstance
) -> None:
    lived(workshop.store, hours=1.5)
    run = workshop.materialize(*ALL, instance=instance)
    assert run.success
    champions = Champions.load(workshop.folder, "orders")
    assert champions.versions == {"workload": 1, "capacity": 1, "latency": 1, "recovery": 1}
    found = {(e.asset_key.to_user_string(), e.check_name): e for e in run.get_asset_check_evaluations()}
    few = {
        (f"{kind}_model", name)
        for kind in CHECKS
        for name in CHECKS[kind]
        if f"| {name.replace('_', ' ')} | **too little data**" in shown(run, f"{kind}_model")["checks"]
    }
    assert ("recovery_model", "enough_points") in few  # the driver was never killed
    every = {(f"{kind}_model", name) for kind, names in CHECKS.items() for name in names}
    assert set(found) == every - few  # skipped, which is neither passed nor failed
    for kind in CHECKS:
        values = shown(run, f"{kind}_model")
        assert [name for name in values if not metadata.known(name)] == []
        assert values["champion_version"] == values["model_version"] == values["promoted"] == 1
        assert values["mlflow"] == f"http://127.0.0.1:5000/#/models/orders.{kind}/versions/1"
        pictures = [name for name in values if name in metadata.PICTURES]
        assert "picture" in pictures
        for name in pictures:
            data = values[name].removesuffix(")").partition("base64,")[2]
            assert base64.b64decode(data).startswith(b"\x89PNG")
    assert {"drills_picture", "downtime_picture"} <= set(shown(run, "recovery_model"))
    assert shown(run, "recovery_model")["drill_error"] < 0.5


@pytest.mark.parametrize(
    ("outcome", "passed", "said"),
    [
        ("passed", True, "orders: passed: as usual"),
        ("warned", True, "orders: warned: as usual"),
        ("failed", False, "orders: failed: as usual"),
    ],
)
def test_a_check_fails_only_where_it_stops_the_promotion(outcome: Any, passed: bool, said: str) -> None:
    result = CheckResult(outcome, "as usual", name="monotone")
    assert bool(failed([result])) is not passed
    (found,) = model.check_results([result], job="orders")
    assert (found.passed, found.description) == (passed, said)


def test_a_check_that_fails_keeps_the_champion_and_stops_what_comes_after_it(
    workshop: Workshop, lived: Fill, muddled: Fill, instance: dg.DagsterInstance
) -> None:
    lived(workshop.store, hours=0)
    assert workshop.materialize(model.capacity_model, instance=instance).success
    workshop.store = TemporaryStore()
    muddled(workshop.store)
    run = workshop.materialize(model.capacity_model, model.latency_model, instance=instance)
    assert not run.success
    assert Champions.load(workshop.folder, "orders").versions == {"capacity": 1}
    bad = [e.check_name for e in run.get_asset_check_evaluations() if not e.passed]
    assert "held_out_error" in bad
    values = shown(run, "capacity_model")
    assert values["promoted"] == 0
    assert (values["model_version"], values["champion_version"]) == (2, 1)
    assert "Version 1 stays in charge" in values["said"]
    assert run.asset_materializations_for_node("latency_model") == []


def test_a_job_without_measurements_fails_with_what_to_do(
    workshop: Workshop, instance: dg.DagsterInstance
) -> None:
    run = workshop.materialize(model.capacity_model, instance=instance)
    assert not run.success
    assert run.asset_materializations_for_node("capacity_model") == []
    (failed,) = (e for e in run.all_node_events if e.is_step_failure)
    assert "profile the job" in failed.step_failure_data.error.message
    assert "no champion" in failed.step_failure_data.error.message
    assert isinstance(Champions.load(workshop.folder, "orders").capacity, Unknown)


def test_a_model_that_nobody_waits_for_is_skipped_with_the_reason(
    workshop: Workshop, instance: dg.DagsterInstance
) -> None:
    """An automation condition has launched the run, or no latency bound needs the model."""
    automated = workshop.materialize(
        model.capacity_model, instance=instance, tags={"dagster/from_automation_condition": "true"}
    )
    unbounded = workshop.materialize(model.latency_model, instance=instance)
    for run, name in ((automated, "capacity_model"), (unbounded, "latency_model")):
        assert run.success
        assert run.asset_materializations_for_node(name) == []
        assert run.get_asset_check_evaluations() == []
        (seen,) = run.asset_observations_for_node(name)
        assert "could not be fitted" in seen.metadata["said"].value


def test_a_registry_that_is_away_changes_nothing(
    workshop: Workshop, lived: Fill, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived(workshop.store, hours=0)
    assert workshop.materialize(model.recovery_model, instance=instance).success

    def away(*given: Any, **more: Any) -> None:
        raise NotReady("MLflow does not answer: start it")

    lived(workshop.store, hours=0, drills=8)  # something new to register
    monkeypatch.setattr(workshop.registry, "register", away)
    assert not workshop.materialize(model.recovery_model, instance=instance).success
    assert Champions.load(workshop.folder, "orders").versions == {"recovery": 1}


def test_with_mlflow_the_version_carries_its_picture_and_its_verdicts(
    tmp_path: Path, lived: Fill, instance: dg.DagsterInstance
) -> None:
    registry = MlflowRegistry.of(MlflowSettings(), tmp_path)
    workshop = Workshop(tmp_path, registry)
    lived(workshop.store, hours=0)
    run = workshop.materialize(model.capacity_model, instance=instance)
    assert run.success
    assert registry.aliases("orders.capacity") == {"champion": 1, "challenger": 1}
    kept = registry.load("orders.capacity")
    assert not isinstance(kept, Unknown)
    assert kept.tags["checks"] == "passed"
    assert kept.tags["dagster_run"] == run.run_id
    assert [check["name"] for check in kept.document["checks"]] == list(CHECKS["capacity"])
    pictures = [path for path in tmp_path.rglob("*.png") if path.read_bytes().startswith(b"\x89PNG")]
    assert pictures
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pickle")]


@pytest.mark.fast
class TestNames:
    def test_a_figure_without_an_agreed_name_is_refused(self) -> None:
        with pytest.raises(Misuse, match="no agreed name 'speed'"):
            metadata.labelled({"speed": 3.0})

    def test_what_is_unknown_says_why_and_infinities_are_not_plotted(self) -> None:
        found = metadata.labelled(
            {"lag_s": Unknown("not read"), "recovery_s": float("inf"), "promoted": True}
        )
        assert found["lag_s"].value == "unknown: not read"
        assert "recovery_s" not in found
        assert found["promoted"].value == 1

    def test_units_stand_at_the_end_of_the_names(self) -> None:
        for name, about in metadata.KEYS.items():
            for unit, suffix in (("records/s", "_rps"), ("milliseconds", "_ms")):
                assert about.startswith(unit) == name.endswith(suffix), name
            assert not about.startswith("seconds") or name.endswith("_s"), name

    def test_evaluations_use_the_same_names(self) -> None:
        interval = {"low": 1.0, "mid": 2.0, "high": 3.0, "confidence": 0.9}
        taken = {**interval, "promised": 2.5}
        verdict = {"scale_out": 3, "status": "feasible", "recovery_s": taken, "probability": 0.97}
        evaluation = Evaluation(
            job="orders",
            at_s=0.0,
            interval=0,
            interval_s=60.0,
            mode="apply",
            epoch=1,
            scale_out=4,
            instruction={"do": "hold", "to": None, "would": 3, "reason": "it fits"},
            apply=None,
            alarms=["behind"],
            trouble=["no metrics"],
            lag_s=2.0,
            observation=dict.fromkeys(
                ("arrival_rps", "throughput_rps", "lag_records", "latency_ms", "hottest_share"), 1.0
            )
            | {"executors_alive": 4},
            decision={"scale_out": 3, "smallest": 3, "verdicts": [verdict]},
            capacity={"used": interval},
            forecast={"peak": interval},
            promise={"target_s": 180.0, "confidence": 0.95},
        ).to_json()
        found = of_evaluation(evaluation)
        assert len(found) > 15
        assert [name for name in found if not metadata.known(name)] == []
        assert found["recovery_promised_s"].value == 2.5
        assert "| 95 % recover within, s |" in sizes(evaluation)
        assert "| 3 **←** | feasible | – | 2.5 | 97.0% |  |" in sizes(evaluation)

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (1171.6336165690109, 1171.6),
            (226.81500101089478, 226.815),
            (0.012720712345, 0.0127207),
            (-3267.301371740844, -3267.3),
            (1_763_470_000.25, 1_763_470_000.2),
            (0.0, 0.0),
            (12_345_678, 12_345_678),
        ],
    )
    def test_a_figure_has_the_digits_that_somebody_reads(self, value: float, shown: float) -> None:
        assert metadata.figures(capacity_rps=value)["capacity_rps"].value == shown

    def test_what_cannot_be_plotted_is_left_out(self) -> None:
        assert metadata.figures(a=None, b=math.inf, c=math.nan, d=True, e="7") == {}

    def test_every_check_is_explained(self) -> None:
        assert {name for names in CHECKS.values() for name in names} == set(model.ABOUT_CHECKS)


def test_the_partitions_that_the_owner_has_counted_shape_the_capacity(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """12 tasks run in two waves at 6 executors and at 8: neither carries more than the other."""
    rng, store, folder = np.random.default_rng(1), TemporaryStore(), tmp_path / ".headroom"
    for number, size in enumerate((1, 3, 6, 8) * 3):
        rate = 1000.0 * 12 / math.ceil(12 / size) * float(rng.normal(1.0, 0.02))
        run = Measurement(size, 1.5 * rate, rate, False, duration_s=60.0)
        store.add_measurement("orders", f"profile-1-{number}", run, at_s=1_763_474_400.0 + number)
    registry = MemoryRegistry()
    modelling = Modelling(SETTINGS, folder, registry)
    assert modelling.purpose("orders", store).tasks is None
    store.save_document("orders", batch_tasks.DOCUMENT, {"schema": 1, "tasks": 12})
    dg.materialize(
        [model.capacity_model, *AROUND],
        partition_key="orders",
        instance=instance,
        resources={"store": store, "modelling": modelling},
    )
    kept = registry.load("orders.capacity")
    assert not isinstance(kept, Unknown)
    assert mlflow_model.parameters(kept.document)["tasks"] == "12"
    capacity = Champions.load(folder, "orders").capacity
    for size in (6, 8):
        found = capacity.predict(size)
        assert not isinstance(found, Unknown)
        assert found.low <= 6000.0 <= found.high


@pytest.mark.fast
class TestResource:
    def test_purposes_come_from_the_settings(self, tmp_path: Path) -> None:
        file = tmp_path / "headroom.toml"
        file.write_text(f'[mlflow]\ntracking_uri = "http://mlflow:5000"\n{FILE}recovery_target_s = 120\n')
        made = ModellingResource(file=str(file), folder=str(tmp_path)).create_resource(
            dg.build_init_resource_context()
        )
        assert isinstance(made, Modelling)
        found = made.purpose("orders", TemporaryStore())
        assert (found.candidates, found.target_s, found.limit_records) == (
            tuple(range(1, 9)),
            120.0,
            20_000.0,
        )
        assert found.horizon_s == 60.0 + 30.0 + 120.0
        assert made.page("orders.capacity", 3) == "http://mlflow:5000/#/models/orders.capacity/versions/3"
        with pytest.raises(Misconfigured, match="there are: orders"):
            made.purpose("clicks", TemporaryStore())
