"""What MLflow keeps of a model: enough for a reader, nothing that runs when it is loaded, and no crash."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import pickle
import pickletools
import socket
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from waiting import together
from web_page import served

from models.capacity import CapacityModel
from models.codec import dumps, loads
from models.downtime import DowntimeModel
from models.errors import Misconfigured, NotReady, Unsafe
from models.latency import LatencyModel
from models.ports import ModelVersion
from models.quantities import Measurement, Misuse, RecoveryEvent, Unknown
from models.workload import fit_forecast
from pipelines.command_line import main
from pipelines.integrations import mlflow_model
from pipelines.integrations.mlflow_registry import MlflowRegistry
from pipelines.integrations.mlflow_store import MlflowStore
from pipelines.orchestration import reconciling
from pipelines.settings import loading
from pipelines.settings.schema import MlflowSettings
from profiling_jobs.telemetry.batch_costs import EngineInputs
from profiling_jobs.training import champions
from profiling_jobs.training.champions import KINDS, Champions, digest, document, training

CHECKED = [{"name": "enough_points", "outcome": "passed", "said": "enough"}]
PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 16


def measurements() -> list[Measurement]:
    found = []
    for size, share in itertools.product((1, 2, 4), (0.5, 0.9, 1.2)):
        most = 1000.0 * size**0.9
        latency = 200.0 / (1.3 - share)
        rates = (most * share, most * min(share, 1.0))
        found.append(Measurement(size, *rates, share < 1.0, latency_ms=latency, duration_s=60.0))
    return found


def fitted() -> dict[str, Any]:
    capacity = CapacityModel.fit(measurements())
    rates = [900.0, 1000.0, 1100.0, 950.0] * 3
    return {
        "workload": fit_forecast(rates, step_s=30.0, horizon_s=300.0),
        "capacity": capacity,
        "latency": LatencyModel.fit(measurements(), capacity),
        "recovery": DowntimeModel.fit([RecoveryEvent("executor_kill", 4, 1.0, 12.0, 40.0)]),
    }


def documents() -> dict[str, dict[str, Any]]:
    return {
        kind: {"checks": CHECKED}
        | document(
            kind,
            model,
            trained_on=training([1.0], from_s=1_763_470_000.0, to_s=1_763_474_400.0, profile="1763474400"),
            figures={"held_out_error": 0.021, "coverage": {"low": 0.9}, "worst": math.inf},
            engine=EngineInputs({1: 0.4, 2: 0.5}, limit_records=20_000.0) if kind == "capacity" else None,
            checks=[{"name": "enough_points", "outcome": "passed", "said": "enough"}],
        )
        for kind, model in fitted().items()
    }


class Store:
    """One MLflow, and its things as somebody else would get at them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = MlflowRegistry.of(MlflowSettings(), folder)
        self.documents = documents()
        self.problems: list[BaseException] = []
        """Of those who opened it at once while it was new: creating it is slow, so it is done once."""
        together([self._opened] * 3)
        self._numbers = itertools.count(1)

    def _opened(self) -> None:
        try:
            assert MlflowRegistry.of(MlflowSettings(), self.folder).versions("orders.recovery") == ()
        except BaseException as problem:  # noqa: BLE001 - a test shows it
            self.problems.append(problem)

    def job(self) -> str:
        return f"orders-{next(self._numbers)}"

    def registered(self, kind: str = "recovery", **more: Any) -> str:
        """A version 1, with all that a version can have; the name of the model."""
        name = f"{self.job()}.{kind}"
        given = {"tags": {"epoch": "7"}, "picture": PNG, "about": "After a search of 16 probes.", **more}
        self.registry.register(name, self.documents[kind], **given)
        return name

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder / 'mlflow.sqlite'}"

    @property
    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def logged(self, name: str) -> Any:
        """The logged model of version 1."""
        return self.client.get_logged_model(
            self.client.get_model_version(name, "1").source.removeprefix("models:/")
        )

    def document_file(self, name: str) -> Path:
        folder = Path(self.logged(name).artifact_location.removeprefix("file://"))
        return folder / "data" / "headroom" / "document.json"

    @property
    def artifacts(self) -> str:
        return (self.folder / "mlflow-artifacts").as_uri()

    def moved(self, name: str, address: str) -> None:
        """As whoever reaches MLflow's pages can, with an experiment of his own."""
        with closing(sqlite3.connect(self.folder / "mlflow.sqlite")) as database, database:
            where = (address, self.logged(name).model_id)
            database.execute("UPDATE logged_models SET artifact_location = ? WHERE model_id = ?", where)

    def rewrite(self, name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """As another version of Headroom would have written it: with a digest that fits."""
        path = self.document_file(name)
        data = loads(path.read_text())
        change(data)
        path.write_text(dumps("data", data))
        signed = digest({"name": data["name"], "document": data["document"]})
        self.client.set_model_version_tag(name, "1", "headroom.digest", signed)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("mlflow"))


@pytest.fixture(scope="module", params=KINDS)
def name(request: pytest.FixtureRequest, store: Store) -> str:
    """A registered model of each kind."""
    return store.registered(request.param)


class TestWhatAReaderFinds:
    def test_the_version_says_what_it_is_and_shows_its_picture(self, store: Store, name: str) -> None:
        version = store.client.get_model_version(name, "1")
        job, kind = name.split(".")
        question = mlflow_model.QUESTIONS[kind].format(job=job)
        assert version.aliases == ["challenger"]
        assert version.tags.items() >= {"epoch": "7", "headroom.job": job, "headroom.kind": kind}.items()
        assert version.tags["headroom.trained_on"] == store.documents[kind]["trained_on"]["digest"]
        assert version.tags["headroom.profile"] == "1763474400"
        for said in (
            question,
            "After a search of 16 probes.",
            "of 2025-11-18 12:46 to 2025-11-18 14:00 UTC of profile 1763474400",
            f"![{name}](get-artifact?path=pictures/{kind}.png&run_uuid={version.run_id})",
            f"/runs/{version.run_id}/artifacts/pictures/{kind}.png)",
            "`held_out_error` **0.021** 0…1, mean relative error",
            f'load_model("models:/{name}@champion")',
        ):
            assert said in version.description
        assert question in store.client.get_registered_model(name).description

    def test_the_run_has_parameters_metrics_the_data_and_the_picture(self, store: Store, name: str) -> None:
        kind = name.split(".")[1]
        run = store.client.get_run(store.client.get_model_version(name, "1").run_id)
        assert run.info.status == "FINISHED"
        assert run.data.metrics == {"held_out_error": 0.021, "coverage/low": 0.9}
        assert run.data.params["figures/worst"] == "inf"
        assert run.data.params["trained_on/digest"] == store.documents[kind]["trained_on"]["digest"]
        shown = {"capacity": "form", "workload": "model", "latency": "slope"}
        shown["recovery"] = "events/executor_kill"
        assert shown[kind] in run.data.params
        (data,) = run.inputs.dataset_inputs
        assert data.dataset.digest in store.documents[kind]["trained_on"]["digest"]
        files = store.client.list_artifacts(run.info.run_id, "pictures")
        assert [file.path for file in files] == [f"pictures/{kind}.png"]
        experiment = store.client.get_experiment(run.info.experiment_id)
        assert experiment.name == f"headroom/{name.split('.')[0]}"
        assert experiment.artifact_location.startswith((store.folder / "mlflow-artifacts").as_uri())

    def test_the_logged_model_has_signature_example_and_document(self, store: Store, name: str) -> None:
        from mlflow.models import Model

        kind = name.split(".")[1]
        logged = store.logged(name)
        assert logged.status == "READY"
        assert {metric.key for metric in logged.metrics} == {"held_out_error", "coverage/low"}
        assert logged.params["schema"] == "1"
        assert json.loads(logged.tags["mlflow.modelVersions"]) == [{"name": name, "version": "1"}]
        described = Model.load(logged.artifact_location.removeprefix("file://"))
        assert described.signature.inputs.input_names() == list(mlflow_model.INPUT_COLUMNS[kind])
        assert "unknown" in described.signature.outputs.input_names()
        assert described.saved_input_example_info["artifact_path"] == "input_example.json"
        assert store.document_file(name).is_file()

    def test_mlflow_itself_can_ask_the_model(
        self, store: Store, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import mlflow

        kind = name.split(".")[1]
        model = fitted()[kind]
        path = store.logged(name).artifact_location
        loaded = mlflow.pyfunc.load_model(path)
        asked = loaded.input_example
        answers = loaded.predict(asked)
        assert len(answers) == len(asked) > 0
        rows = zip(asked.itertuples(index=False), answers.itertuples(index=False), strict=True)
        for question, answer in rows:
            if kind == "workload":
                forecast, step = model.predict(), int(question[0]) - 1
                known = (forecast.low[step], forecast.mid[step], forecast.high[step])
            else:
                found = model.interval(*question) if kind == "recovery" else model.predict(*question)
                known = (found.low, found.mid, found.high)
            np.testing.assert_allclose(answer[:3], known, rtol=1e-12)
            assert answer.unknown == ""

    def test_what_the_model_cannot_tell_is_a_reason_and_not_a_number(self, store: Store) -> None:
        from pandas import DataFrame

        answers = {kind: mlflow_model.Answers(kind, model) for kind, model in fitted().items()}
        asked: dict[str, Any] = {
            "workload": {"steps_ahead": [0, 11]},
            "capacity": {"scale_out": [0, 5000]},
            "latency": {"scale_out": [0, 5000], "rate_rps": [10.0, 10.0]},
            "recovery": {"kind": ["", "colour"]},
        }
        for kind, questions in asked.items():
            found = answers[kind].predict(DataFrame(questions))
            assert found.iloc[:, :3].isna().all(axis=None)
            assert (found["unknown"] != "").all()
        assert set(answers["latency"].predict(DataFrame(asked["latency"]))["normal"]) == {"unknown"}
        normal = answers["latency"].predict(DataFrame({"scale_out": [1, 1], "rate_rps": [500.0, 9e9]}))
        assert normal["normal"].tolist() == ["yes", "no"]


def pickles(folder: Path) -> list[str]:
    """Every file below the folder that can be read as a pickle, or is an archive that may hold one."""

    def is_pickle(content: bytes) -> bool:
        try:
            *_, (_, _, position) = pickletools.genops(content)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is none
            return False
        return bool(content) and position == len(content) - 1

    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if is_pickle(path.read_bytes()) or zipfile.is_zipfile(path)]


def test_no_pickle_is_written_from_fitting_to_deciding(store: Store, tmp_path: Path) -> None:
    import mlflow

    job = store.job()
    for kind, data in store.documents.items():
        made = store.registry.register(f"{job}.{kind}", data, tags={}, picture=PNG)
        champions.promote(store.registry, tmp_path, job=job, kind=kind, version=made.version)
        assert isinstance(store.registry.load(f"{job}.{kind}"), ModelVersion)
        mlflow.pyfunc.load_model(store.logged(f"{job}.{kind}").artifact_location)
    assert set(Champions.load(tmp_path, job).versions) == set(KINDS)
    assert pickles(store.folder) == pickles(tmp_path) == []
    kept = {path.suffix for path in store.folder.rglob("*") if path.is_file()}
    assert kept <= {".json", ".yaml", ".txt", ".png", "", ".sqlite", ".lock", ".key"}
    (tmp_path / "one").write_bytes(pickle.dumps([1.5]))
    assert pickles(tmp_path) == ["one"]  # it would have been found


# ---------------------------------------------------------------------------------- what may go wrong


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


BROKEN: dict[str, tuple[Callable[[Store, str], object], str]] = {
    "its files were removed": (lambda s, n: s.document_file(n).unlink(), "its files are gone"),
    "the document was edited": (lambda s, n: replaced(s.document_file(n), "{", ""), "document is damaged"),
    "a number was changed": (lambda s, n: replaced(s.document_file(n), "0.021", "0.1"), "its digest differs"),
    "no text": (lambda s, n: s.document_file(n).write_bytes(b"\xff\xfe"), "its document is damaged"),
    "the logged model was deleted": (
        lambda s, n: s.client.delete_logged_model(s.logged(n).model_id),
        "its run or its logged model was deleted",
    ),
    "the version was deleted": (lambda s, n: s.client.delete_model_version(n, "1"), "has no version 1"),
    "a newer document": (
        lambda s, n: s.rewrite(n, lambda d: d["document"].update(schema=2)),
        "newer Headroom (schema 2, this one reads 1): update this installation",
    ),
    "an older file": (lambda s, n: s.rewrite(n, lambda d: d.pop("schema")), "older Headroom (schema None"),
    "an older model": (
        lambda s, n: s.rewrite(n, lambda d: d["document"]["model"].update(schema=0)),
        "older Headroom (schema 0, this one reads 1): fit it again",
    ),
    "a model that is none": (
        lambda s, n: s.rewrite(n, lambda d: d["document"]["model"].pop("seen")),
        "cannot be rebuilt",
    ),
    "another model's": (lambda s, n: s.rewrite(n, lambda d: d.update(name="a.recovery")), "that of a"),
    "with figures of somebody else": (
        lambda s, n: s.rewrite(n, lambda d: d["document"]["figures"].update(held_out_error=0.001)),
        "its signature is not of this installation",
    ),
    "of an earlier Headroom": (
        lambda s, n: s.client.delete_model_version_tag(n, "1", "headroom.signature"),
        "it has no signature",
    ),
    "files elsewhere": (
        lambda s, n: s.moved(n, "file:///etc"),
        "to lie in /etc, which is not in MLflow's store",
    ),
    "files behind dots": (lambda s, n: s.moved(n, f"{s.artifacts}/../champions"), "not in MLflow's store"),
    "a path without a scheme": (
        lambda s, n: s.moved(n, "/etc"),
        "to lie in /etc, which is not in MLflow's store",
    ),
    "somebody else's": (
        lambda s, n: s.client.delete_model_version_tag(n, "1", "headroom.digest"),
        "was not registered by Headroom",
    ),
}


@pytest.fixture(scope="module")
def mendable(store: Store) -> dict[str, str]:
    """A model of each kind that these tests use in turn, for registering one is slow."""
    return {kind: store.registered(kind) for kind in ("recovery", "capacity")}


@pytest.fixture
def mended(request: pytest.FixtureRequest, store: Store, mendable: dict[str, str]) -> Iterator[str]:
    """One whose files, place and tags are put right after the test."""
    name = mendable[getattr(request, "param", "recovery")]
    document = store.document_file(name)
    before = {path: path.read_bytes() for path in (document, document.parents[2] / "MLmodel")}
    tags, place = store.client.get_model_version(name, "1").tags, store.logged(name).artifact_location
    yield name
    for path, content in before.items():
        path.write_bytes(content)
    for tag, value in tags.items():
        store.client.set_model_version_tag(name, "1", tag, value)
    store.moved(name, place)


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_used_is_said_and_the_exported_champion_stays(
    case: str, store: Store, mended: str, tmp_path: Path
) -> None:
    name = store.registered() if case.endswith("was deleted") else mended
    job = name.split(".")[0]
    champions.promote(store.registry, tmp_path, job=job, kind="recovery", version=1)
    break_it, said = BROKEN[case]
    break_it(store, name)
    found = store.registry.load(name, version=1)
    assert isinstance(found, Unknown)
    assert name in found.reason
    assert said in found.reason
    with pytest.raises((Misconfigured, Unsafe)):
        champions.promote(store.registry, tmp_path, job=job, kind="recovery", version=1)
    assert champions.refresh(store.registry, tmp_path, job) == ()
    assert isinstance(Champions.load(tmp_path, job).downtime, DowntimeModel)


def test_a_champion_of_somebody_else_takes_charge_once_a_person_has_signed_it(
    store: Store, tmp_path: Path
) -> None:
    """With five times the capacity it was in charge after the next start."""
    name = store.registered("capacity")
    job = name.split(".")[0]
    file = tmp_path / "headroom.toml"
    file.write_text(f"[job.{job}]\nattach = true\ninputs = {{a = 'a'}}\nexecutors = 1\ncheckpoint = '/c'\n")
    settings = loading.load(file, environment={})

    def times_five(data: dict[str, Any]) -> None:
        for one in data["document"]["model"]["measurements"]:
            one.update(offered_rps=5 * one["offered_rps"], throughput_rps=5 * one["throughput_rps"])

    store.rewrite(name, times_five)
    store.client.set_registered_model_alias(name, "champion", "1")
    (said,) = reconciling.compared(store.registry, store.folder, settings)
    assert f"run `headroom model {job} --kind capacity --sign 1`" in said
    assert Champions.load(store.folder, job).versions == {}
    before = store.registry.load(name, version=1)
    assert isinstance(before, Unknown)
    place = ["--file", str(file), "--folder", str(store.folder)]
    signed = CliRunner().invoke(main, ["model", job, "--sign", "1", *place])
    assert (signed.exit_code, "--sign needs one --kind" in signed.output) == (2, True)
    signed = CliRunner().invoke(main, ["model", job, "--kind", "capacity", "--sign", "1", *place])
    assert signed.exit_code == 0, signed.output
    assert f"{name} version 1 is signed." in signed.output
    assert "check enough_points passed: enough" in signed.output
    assert "It is in charge now." in signed.output
    assert Champions.load(store.folder, job).versions == {"capacity": 1}
    with pytest.raises(Misconfigured, match="is not registered"):
        store.registry.sign(name, 2)


def test_an_experiment_that_somebody_else_has_made_gets_none_of_our_files(
    store: Store, tmp_path: Path
) -> None:
    job = store.job()
    store.client.create_experiment(f"headroom/{job}", tmp_path.as_uri())
    with pytest.raises(Unsafe, match="not in MLflow's store"):
        store.registry.register(f"{job}.recovery", store.documents["recovery"], tags={})
    assert list(tmp_path.iterdir()) == []


def test_a_version_outlives_its_run(store: Store) -> None:
    name = store.registered()
    store.client.delete_run(store.client.get_model_version(name, "1").run_id)
    assert isinstance(store.registry.load(name, version=1), ModelVersion)
    store.registry.promote(name, 1)


def test_old_versions_go_for_good_and_those_in_use_stay(store: Store) -> None:
    name = store.registered()
    for _ in range(4):
        store.registry.register(name, store.documents["recovery"], tags={}, picture=PNG)
    store.registry.promote(name, 1)
    gone, kept = store.client.get_model_version(name, "2"), store.client.get_model_version(name, "3")
    files = store.document_file(name).parents[3].with_name(gone.tags["headroom.model_id"])
    pictures = Path(store.client.get_run(gone.run_id).info.artifact_uri.removeprefix("file://")).parent
    assert files.exists()
    assert pictures.exists()
    assert name in store.registry.names()
    assert store.registry.forget(name, keep=9, in_charge=(), most=9) == 0
    # Version 1 is the champion in MLflow, 3 is in charge of decisions, 5 is the newest.
    assert store.registry.forget(name, keep=1, in_charge=[3], most=1) == 1
    assert store.registry.versions(name) == (1, 3, 4, 5)
    assert store.registry.forget(name, keep=1, in_charge=[3], most=9) == 1
    assert store.registry.versions(name) == (1, 3, 5)
    assert not files.exists()
    assert not pictures.exists()
    with closing(sqlite3.connect(store.folder / "mlflow.sqlite")) as database:
        for table, key, one in (
            ("runs", "run_uuid", gone.run_id),
            ("params", "run_uuid", gone.run_id),
            ("logged_models", "model_id", gone.tags["headroom.model_id"]),
        ):
            (rows,) = database.execute(f"SELECT count(*) FROM {table} WHERE {key} = ?", (one,)).fetchone()
            assert rows == 0, table
    for version in (1, 3, 5):
        assert isinstance(store.registry.load(name, version=version), ModelVersion)
    assert store.client.get_run(kept.run_id).info.status == "FINISHED"
    assert store.registry.register(name, store.documents["recovery"], tags={}).version == 6


def test_no_file_is_deleted_that_is_not_of_the_version(store: Store, tmp_path: Path) -> None:
    name = store.registered()
    store.registry.register(name, store.documents["recovery"], tags={})
    (tmp_path / "photos").mkdir()
    for place in (
        tmp_path / "photos",
        store.folder / "mlflow-artifacts",
        store.folder / "mlflow-artifacts" / "x",
    ):
        store.moved(name, place.as_uri())
        assert store.registry.forget(name, keep=1, in_charge=(), most=9) == 0
    assert store.registry.versions(name) == (1, 2)
    assert (tmp_path / "photos").exists()


def test_a_registration_that_fails_leaves_no_version_and_a_failed_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    name = f"{store.job()}.recovery"
    with monkeypatch.context() as patch:
        patch.setattr(mlflow_model, "save", full)
        with pytest.raises(NotReady, match="No space left"):
            store.registry.register(name, store.documents["recovery"], tags={})
    assert store.registry.versions(name) == ()
    experiment = store.client.get_experiment_by_name(f"headroom/{name.split('.')[0]}")
    (run,) = store.client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    assert store.registry.register(name, store.documents["recovery"], tags={}).version == 1


def test_a_deleted_experiment_is_named_with_the_way_back(store: Store) -> None:
    name = store.registered()
    experiment = store.client.get_experiment_by_name(f"headroom/{name.split('.')[0]}")
    store.client.delete_experiment(experiment.experiment_id)
    with pytest.raises(Misconfigured, match=f"mlflow experiments restore -x {experiment.experiment_id}"):
        store.registry.register(name, store.documents["recovery"], tags={})
    store.client.restore_experiment(experiment.experiment_id)
    assert store.registry.register(name, store.documents["recovery"], tags={}).version == 2


def test_nothing_is_left_where_we_stand_and_nothing_phones_home(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow.telemetry.utils import is_telemetry_disabled

    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    store.registered()
    assert list(tmp_path.iterdir()) == []
    assert (mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None) == before
    assert mlflow.active_run() is None
    assert is_telemetry_disabled()
    assert os.environ["DO_NOT_TRACK"] == "true"


def test_the_store_is_for_its_owner_alone_and_quiet_and_several_may_open_a_new_one_at_once(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    assert store.problems == []
    store.registered()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")
    assert logging.getLogger("alembic").getEffectiveLevel() >= logging.WARNING
    assert (store.folder / "mlflow.lock").stat().st_mode & 0o077 == 0


def test_whoever_writes_too_long_is_not_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.integrations.mlflow_store.LOCK_S", 0.1)
    name = store.registered()
    with (
        MlflowStore(tracking_uri=None, folder=store.folder).writing(),
        pytest.raises(NotReady, match="has been writing"),
    ):
        store.registry.promote(name, 1)
    store.registry.promote(name, 1)


def of_another_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        database.execute("INSERT INTO alembic_version VALUES ('fedcba987654')")


@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (lambda p: p.write_bytes(b"no database " * 400), Unsafe, "is damaged"),
        (lambda p: (p.unlink(), p.mkdir()), Misconfigured, "cannot be opened"),
        (of_another_version, Unsafe, "another version of MLflow"),
    ],
)
def test_a_database_that_cannot_be_used_is_said(
    spoil: Callable[[Path], object], kind: type[Exception], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "mlflow.sqlite"
    path.write_bytes(b"")
    spoil(path)
    with pytest.raises(kind, match=said):
        MlflowRegistry.of(MlflowSettings(), tmp_path).load("orders.recovery")


def test_a_second_registry_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops every lock that the process holds on it."""
    path = tmp_path / "mlflow.sqlite"
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        MlflowStore(tracking_uri=None, folder=tmp_path)._looked_at()
        ended = subprocess.run([sys.executable, "-c", other, path], capture_output=True, text=True)
    assert "database is locked" in ended.stderr


class TestAServerOfOnesOwn:
    def test_one_that_does_not_answer_is_told_soon_and_without_the_password(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
            address = f"http://me:secret@127.0.0.1:{taken.getsockname()[1]}"
            registry = MlflowRegistry.of(MlflowSettings(tracking_uri=address), tmp_path)
            with pytest.raises(NotReady, match="does not answer") as told:
                registry.load("orders.capacity")
        assert "exported champions stay in charge" in str(told.value)
        assert "secret" not in str(told.value)
        assert list(tmp_path.iterdir()) == []

    def test_one_that_wants_a_password_says_where_to_put_it(self, tmp_path: Path) -> None:
        body = json.dumps({"error_code": "UNAUTHENTICATED", "message": "who are you"}).encode()
        with (
            served(401, body, "application/json") as address,
            pytest.raises(Misconfigured, match="MLFLOW_TRACKING_USERNAME"),
        ):
            MlflowRegistry.of(MlflowSettings(tracking_uri=address), tmp_path).load("orders.capacity")

    @pytest.mark.fast
    @pytest.mark.parametrize("address", ["my-server", "file:///tmp/mlruns", "./mlruns"])
    def test_an_address_that_is_none_is_named(self, address: str, tmp_path: Path) -> None:
        with pytest.raises(Misconfigured, match=r"mlflow\.tracking_uri"):
            MlflowRegistry.of(MlflowSettings(tracking_uri=address), tmp_path)


# ----------------------------------------------------------------------------------------------- pages


@pytest.mark.fast
def test_a_page_fits_what_mlflow_keeps_however_much_there_is_to_say() -> None:
    data = documents()["capacity"]
    data["figures"] = {f"error at size {size}": 0.01 * size for size in range(400)}
    ids = {"run_id": "r" * 32, "experiment_id": "1", "model_id": "m-1", "picture": "pictures/capacity.png"}
    text = mlflow_model.of_the_version("orders.capacity", data, about="long " * 900, **ids)
    assert len(text) <= 5000
    assert "How many records per second can orders" in text
    assert "![orders.capacity]" in text


@pytest.mark.fast
def test_figures_become_metrics_where_they_are_numbers_and_parameters_where_not() -> None:
    data = documents()["capacity"]
    data["figures"] = {"error (%)": 3, "fits": True, "never": math.inf, "form": {"best": "usl", "gap": 0.5}}
    assert mlflow_model.metrics(data) == {"error ___": 3.0, "form/gap": 0.5}
    parameters = mlflow_model.parameters(data)
    assert parameters["figures/fits"] == "True"
    assert parameters["figures/form/best"] == "usl"
    assert parameters["engine/overhead_s/2"] == "0.5"
    assert parameters["engine/limit_records"] == "20000.0"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda document, model: replaced(document, "0.021", "0.001"), "was changed since it was registered"),
        (lambda document, model: replaced(document, "orders-", "clicks-"), "is that of clicks-"),
        (lambda document, model: document.write_text("{}"), "damaged"),
        (lambda document, model: replaced(model, "digest:", "other:"), "no name or no digest"),
    ],
)
@pytest.mark.parametrize("mended", ["capacity"], indirect=True)
def test_a_model_that_cannot_be_used_is_an_error_for_mlflow(
    store: Store, mended: str, spoil: Callable[[Path, Path], object], said: str
) -> None:
    import mlflow

    document = store.document_file(mended)
    spoil(document, document.parents[2] / "MLmodel")
    with pytest.raises(Misuse, match=said):
        mlflow.pyfunc.load_model(store.logged(mended).artifact_location)
