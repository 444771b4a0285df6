"""What every registry promises: the one in memory and MLflow say the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from memory_registry import MemoryRegistry
from waiting import together

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.errors import Misconfigured, Unsafe
from models.ports import ModelVersion, Registry
from models.quantities import Measurement, Misuse, RecoveryEvent, Unknown
from pipelines.integrations.mlflow_registry import MlflowRegistry
from pipelines.settings.schema import MlflowSettings
from profiling_jobs.telemetry.batch_costs import EngineInputs
from profiling_jobs.training import champions
from profiling_jobs.training.champions import Champions, document, training

CHECKED = [{"name": "enough_points", "outcome": "passed", "said": "enough"}]
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 16


@pytest.fixture(scope="module", params=["memory", "mlflow"])
def registry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    if request.param == "memory":
        yield MemoryRegistry()
    else:
        yield MlflowRegistry.of(MlflowSettings(), tmp_path_factory.mktemp("registry"))


_numbers = itertools.count(1)


@pytest.fixture
def job() -> str:
    """A job that nobody else has."""
    return f"orders-{next(_numbers)}"


def capacity(rate: float = 1000.0) -> dict[str, Any]:
    measured = [
        Measurement(size, 1.2 * rate * size**0.9, rate * size**0.9, False, duration_s=60.0)
        for size in (1, 2, 4)
    ]
    return document(
        "capacity",
        CapacityModel.fit(measured),
        trained_on=training([rate], profile="1763474400"),
        figures={"held_out_error": 0.02},
        engine=EngineInputs({1: 0.5}),  # without a limit, which is infinite
        checks=CHECKED,
    )


def recovery(seconds: float = 12.0) -> dict[str, Any]:
    event = RecoveryEvent("executor_kill", 4, 1.0, seconds, 40.0)
    return document("recovery", DowntimeModel.fit([event]), trained_on=training([seconds]), checks=CHECKED)


def test_a_version_comes_back_as_it_was_registered(registry: Registry, job: str) -> None:
    name = f"{job}.capacity"
    made = registry.register(name, capacity(), tags={"epoch": "7"}, picture=PNG, about="After a search.")
    assert made == ModelVersion(name, 1, capacity(), {"epoch": "7"})
    assert registry.load(name, version=1) == made
    assert registry.load(name, alias="challenger") == made
    assert registry.versions(name) == (1,)


def test_the_newest_is_the_challenger_until_one_is_promoted(registry: Registry, job: str) -> None:
    name = f"{job}.recovery"
    for seconds in (10.0, 20.0, 30.0):
        registry.register(name, recovery(seconds), tags={})
    assert registry.versions(name) == (1, 2, 3)
    assert registry.aliases(name) == {"challenger": 3}
    nobody = registry.load(name)
    assert isinstance(nobody, Unknown)
    assert f"{name} has no champion yet" in nobody.reason
    registry.promote(name, 2)
    champion = registry.load(name)
    assert isinstance(champion, ModelVersion)
    assert (champion.version, champion.document) == (2, recovery(20.0))
    registry.promote(name, 1)  # back again
    registry.promote(name, 1)
    assert registry.aliases(name) == {"challenger": 3, "champion": 1}
    registry.promote(name, 2, alias="kept")
    assert registry.aliases(name)["kept"] == 2


def test_jobs_and_kinds_do_not_meet(registry: Registry, job: str) -> None:
    registry.register(f"{job}.recovery", recovery(), tags={})
    registry.register(f"{job}x.recovery", recovery(30.0), tags={})
    registry.promote(f"{job}x.recovery", 1)
    assert isinstance(registry.load(f"{job}.recovery"), Unknown)
    assert isinstance(registry.load(f"{job}.capacity", version=1), Unknown)
    assert registry.versions(f"{job}.capacity") == ()
    assert registry.aliases(f"{job}.capacity") == {}


def test_what_is_not_there_is_said(registry: Registry, job: str) -> None:
    name = f"{job}.recovery"
    with pytest.raises(Misconfigured, match=rf"{name} version 1: is not registered; there are: none"):
        registry.promote(name, 1)
    registry.register(name, recovery(), tags={})
    with pytest.raises(Misconfigured, match="there are: 1"):
        registry.promote(name, 2)
    missing = registry.load(name, version=2)
    assert isinstance(missing, Unknown)
    assert f"{name} has no version 2" in missing.reason
    assert registry.aliases(name) == {"challenger": 1}


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("name", {"name": "orders"}),
        ("name", {"name": "orders.colour"}),
        ("name", {"name": "Or'ders.recovery"}),
        ("name", {"name": ".recovery"}),
        ("document", {"document": {}}),
        ("document", {"document": {**recovery(), "schema": 0}}),
        ("document", {"document": {**recovery(), "schema": 2}}),
        ("document", {"document": {**recovery(), "kind": "capacity"}}),
        ("document", {"document": {**recovery(), "model": {"schema": 1}}}),
        ("document", {"document": {k: v for k, v in recovery().items() if k != "trained_on"}}),
        ("document", {"document": {**recovery(), "figures": {"error": {1, 2}}}}),
        ("picture", {"picture": b"GIF89a"}),
        ("tags", {"tags": {"headroom.digest": "x"}}),
        ("tags", {"tags": {"mlflow.source.name": "x"}}),
        ("tags", {"tags": {"epoch": 3}}),
    ],
)
def test_what_could_not_be_used_is_not_registered(
    registry: Registry, job: str, argument: str, change: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"name": f"{job}.recovery", "document": recovery(), "tags": {}, **change}
    with pytest.raises(Misuse, match=f"^{argument}"):
        registry.register(given.pop("name"), given.pop("document"), **given)
    assert registry.versions(f"{job}.recovery") == ()


def test_several_may_register_and_promote_at_once(registry: Registry, job: str) -> None:
    name = f"{job}.recovery"

    def work(first: float) -> None:
        made = registry.register(name, recovery(first), tags={"first": str(first)})
        registry.promote(name, made.version)
        kept = registry.load(name, version=made.version)
        assert isinstance(kept, ModelVersion)
        assert kept.document == recovery(first)
        assert kept.tags == {"first": str(first)}

    together([partial(work, 10.0 + number) for number in range(4)])
    assert registry.versions(name) == (1, 2, 3, 4)
    assert registry.aliases(name)["champion"] in (1, 2, 3, 4)


class TestChampions:
    """What is promoted is exported, too."""

    def test_promotion_puts_a_version_in_charge_everywhere(
        self, registry: Registry, job: str, tmp_path: Path
    ) -> None:
        for rate in (1000.0, 2000.0):
            registry.register(f"{job}.capacity", capacity(rate), tags={})
        champions.promote(registry, tmp_path, job=job, kind="capacity", version=2)
        loaded = Champions.load(tmp_path, job)
        assert loaded.versions == {"capacity": 2}
        assert isinstance(loaded.capacity, CapacityModel)
        assert loaded.capacity.to_json() == capacity(2000.0)["model"]
        assert isinstance(loaded.engine, EngineInputs)
        assert registry.aliases(f"{job}.capacity")["champion"] == 2
        champions.promote(registry, tmp_path, job=job, kind="capacity", version=1)
        assert Champions.load(tmp_path, job).versions == {"capacity": 1}

    def test_what_is_not_there_changes_nothing(self, registry: Registry, job: str, tmp_path: Path) -> None:
        registry.register(f"{job}.capacity", capacity(), tags={})
        champions.promote(registry, tmp_path, job=job, kind="capacity", version=1)
        with pytest.raises(Misconfigured, match="has no version 5"):
            champions.promote(registry, tmp_path, job=job, kind="capacity", version=5)
        assert Champions.load(tmp_path, job).versions == {"capacity": 1}
        assert registry.aliases(f"{job}.capacity")["champion"] == 1

    @pytest.mark.parametrize("outcome", ["failed", "never checked"])
    def test_nobody_gets_around_the_checks(
        self, outcome: str, registry: Registry, job: str, tmp_path: Path
    ) -> None:
        registry.register(f"{job}.capacity", capacity(), tags={})
        champions.promote(registry, tmp_path, job=job, kind="capacity", version=1)
        data = {**capacity(2000.0), "checks": []}
        if outcome == "failed":
            data["checks"] = [
                *CHECKED,
                {"name": "monotone", "outcome": "failed", "said": "8 carry less than 4"},
            ]
        registry.register(f"{job}.capacity", data, tags={})
        with pytest.raises(Unsafe, match=r"8 carry less than 4|never checked"):
            champions.promote(registry, tmp_path, job=job, kind="capacity", version=2)
        assert registry.aliases(f"{job}.capacity")["champion"] == 1
        registry.promote(f"{job}.capacity", 2)  # as anybody can on MLflow's pages
        assert champions.refresh(registry, tmp_path, job) == ()
        assert Champions.load(tmp_path, job).versions == {"capacity": 1}

    def test_a_lost_or_stale_file_is_written_again(
        self, registry: Registry, job: str, tmp_path: Path
    ) -> None:
        registry.register(f"{job}.capacity", capacity(), tags={})
        registry.register(f"{job}.recovery", recovery(), tags={})
        assert champions.refresh(registry, tmp_path, job) == ()
        registry.promote(f"{job}.capacity", 1)  # interrupted before the export
        assert champions.refresh(registry, tmp_path, job) == ("capacity",)
        assert champions.refresh(registry, tmp_path, job) == ()
        champions.path_of(tmp_path, job, "capacity").write_text("{")
        assert champions.refresh(registry, tmp_path, job) == ("capacity",)
        registry.register(f"{job}.capacity", capacity(3000.0), tags={})
        registry.promote(f"{job}.capacity", 2)
        assert champions.refresh(registry, tmp_path, job) == ("capacity",)
        assert Champions.load(tmp_path, job).versions == {"capacity": 2}

    def test_a_folder_that_cannot_be_written_is_said(
        self, registry: Registry, job: str, tmp_path: Path
    ) -> None:
        registry.register(f"{job}.recovery", recovery(), tags={})
        (tmp_path / "champions").write_text("in the way")
        with pytest.raises(Misconfigured, match="cannot be written"):
            champions.promote(registry, tmp_path, job=job, kind="recovery", version=1)
