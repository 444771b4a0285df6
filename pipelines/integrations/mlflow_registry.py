"""The `Registry` port on MLflow.

A version is a run (parameters, metrics, picture, the training data as a
dataset), a logged model (signature, example, our document) and a version of the registered model
`JOB.KIND`, tied together by their identifiers and described on the pages of mlflow_model. The document is
plain JSON; one tag of the version has its digest, another a signature by the key of this installation: what
is loaded was registered by us or signed by a person, or is refused.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from models.arguments import whole
from models.codec import dumps, loads
from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import ModelVersion
from models.quantities import Misuse, Unknown
from profiling_jobs.training.champions import (
    TAKEN,
    Document,
    check_registration,
    job_and_kind,
    rebuilt,
    signature,
    signature_refused,
)

from ..settings.schema import MlflowSettings
from . import mlflow_model
from .mlflow_store import MlflowStore, error_code, is_gone

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion as Kept

OURS = "headroom."
"""Before the tags that we set ourselves: headroom.digest, headroom.job, headroom.kind, …"""
PICTURE = "pictures"
NEWEST = "challenger"


class MlflowRegistry:
    """The models of every job, in the MLflow that the settings ask for."""

    def __init__(self, store: MlflowStore, *, experiment: str = "headroom") -> None:
        self._store = store
        self._experiment = experiment
        self._folder = store.folder
        """Where the key is."""

    @classmethod
    def of(cls, settings: MlflowSettings, folder: Path) -> MlflowRegistry:
        """The one of `[mlflow]`; nothing is imported or opened before it is used."""
        return cls(MlflowStore.of(settings, folder), experiment=settings.experiment)

    @staticmethod
    def page(name: str, version: int) -> str:
        """Where MLflow's pages show it, behind the address of the server."""
        return f"#/models/{name}/versions/{version}"

    def register(
        self,
        name: str,
        document: Document,
        *,
        tags: Mapping[str, str],
        picture: bytes = b"",
        about: str = "",
    ) -> ModelVersion:
        """Everything of one version, or a run that is marked as failed and no version."""
        job, kind = check_registration(name, document, tags=tags, picture=picture)
        with self._store.writing() as client:
            experiment_id = self._experiment_id(client, job)
            labels = {**tags, **_our_tags(job, kind, document)}
            with _run(client, experiment_id, name=kind, tags=labels) as run_id:
                parameters = mlflow_model.parameters(document)
                shown = _picture(client, run_id, kind, picture) if picture else ""
                model_id, signed = _logged_model(client, run_id, name, document, labels, parameters)
                _log_figures(client, run_id, model_id, name, document, parameters)
                _ensure_model(client, name)
                text = mlflow_model.of_the_version(
                    name,
                    document,
                    about=about,
                    run_id=run_id,
                    experiment_id=experiment_id,
                    model_id=model_id,
                    picture=shown,
                )
                with self._store.as_current():
                    made = client.create_model_version(
                        name,
                        source=f"models:/{model_id}",  # the pages link it by that
                        run_id=run_id,
                        model_id=model_id,
                        tags={**labels, f"{OURS}digest": signed, f"{OURS}model_id": model_id},
                        description=text,
                    )
            version = int(made.version)
            self._sign(client, name, version, document)
            client.set_logged_model_tags(
                model_id, {"mlflow.modelVersions": json.dumps([{"name": name, "version": str(version)}])}
            )
            client.set_registered_model_alias(name, NEWEST, str(version))
        return ModelVersion(name, version, loads(dumps("document", document)), dict(tags))

    def promote(self, name: str, version: int, *, alias: str = "champion") -> None:
        """One step in MLflow: readers see the old version or the new one."""
        job_and_kind(name)
        number = str(whole("version", version))
        with self._store.writing() as client:
            if _found(lambda: client.get_model_version(name, number)) is None:
                there = ", ".join(map(str, self._numbers(client, name))) or "none"
                raise Misconfigured(f"{name} version {version}", f"is not registered; there are: {there}")
            client.set_registered_model_alias(name, alias, number)

    def load(
        self, name: str, *, alias: str = "champion", version: int | None = None
    ) -> ModelVersion | Unknown:
        """The document of one version, checked against what was registered."""
        _, kind = job_and_kind(name)
        with self._store.reading() as client:
            if version is None:
                kept = _found(lambda: client.get_model_version_by_alias(name, alias))
                if kept is None:
                    return Unknown(f"{name} has no {alias} yet: fit it and promote a version")
            else:
                kept = _found(lambda: client.get_model_version(name, str(whole("version", version))))
                if kept is None:
                    return Unknown(f"{name} has no version {version}")
            found = self._signed(client, kept, kind)
        if isinstance(found, Unknown):
            return Unknown(f"{name} version {kept.version} cannot be used: {found.reason}")
        tags = {key: value for key, value in kept.tags.items() if not key.startswith(TAKEN)}
        return ModelVersion(name, int(kept.version), found, tags)

    def sign(self, name: str, version: int) -> Document:
        """Sign a version that others or an earlier Headroom have registered; returns its document.

        For a person who has looked at it. What could not be loaded is refused.
        """
        _, kind = job_and_kind(name)
        with self._store.writing() as client:
            kept = _found(lambda: client.get_model_version(name, str(whole("version", version))))
            if kept is None:
                raise Misconfigured(f"{name} version {version}", "is not registered")
            found = self._document(client, kept, kind)
            if isinstance(found, Unknown):
                raise Unsafe(f"{name} version {version} cannot be signed: {found.reason}")
            self._sign(client, name, version, found)
        return found

    def versions(self, name: str) -> tuple[int, ...]:
        job_and_kind(name)
        with self._store.reading() as client:
            return self._numbers(client, name)

    def aliases(self, name: str) -> Mapping[str, int]:
        job_and_kind(name)
        with self._store.reading() as client:
            model = _found(lambda: client.get_registered_model(name))
            return {} if model is None else {alias: int(number) for alias, number in model.aliases.items()}

    def names(self) -> tuple[str, ...]:
        """Every model that is registered under a name of ours."""
        found: list[str] = []
        token = None
        with self._store.reading() as client:
            while True:
                page = client.search_registered_models(page_token=token)
                for one in page:
                    with suppress(Misuse):
                        job_and_kind(one.name)
                        found.append(one.name)
                token = page.token
                if not token:
                    return tuple(sorted(found))

    def forget(self, name: str, *, keep: int, in_charge: Collection[int], most: int) -> int:
        """Delete the oldest versions that we have registered, with runs and files; at most so many.

        The newest `keep` stay, those in charge, and what an alias means. For an MLflow that is ours only.
        """
        forgotten = 0
        for version in self.versions(name)[:-keep]:
            if forgotten >= most:
                break
            if version in in_charge:
                continue
            # One at a time: who registers a model waits for no more than that.
            with self._store.writing() as client:
                kept = _found(partial(client.get_model_version, name, str(version)))
                if kept is not None and not kept.aliases and f"{OURS}digest" in kept.tags:
                    with suppress(Unsafe):  # its files are not ours
                        self._delete(client, kept)
                        forgotten += 1
        return forgotten

    # ------------------------------------------------------------------ parts

    def _delete(self, client: MlflowClient, kept: Kept) -> None:
        """Delete a version for good, itself last: what is cut short is done again.

        MLflow's own calls only mark run and model as deleted; the rest is what `mlflow gc` does.
        """
        model_id, run_id = kept.tags[f"{OURS}model_id"], str(kept.run_id)
        logged = _found(lambda: client.get_logged_model(model_id))
        run = _found(lambda: client.get_run(run_id))
        folders = [self._folder_of(model_id, logged.artifact_location)] if logged else []
        folders += [self._folder_of(run_id, run.info.artifact_uri)] if run else []
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        rows = client._tracking_client.store
        if logged is not None:
            rows._hard_delete_logged_model(model_id)
        if run is not None:
            rows._hard_delete_run(run_id)
        client.delete_model_version(kept.name, str(kept.version))

    def _folder_of(self, id: str, address: str) -> Path:
        """The folder of one run or model, which MLflow names by it; Unsafe where it is another one."""
        self._store.check_location(address)
        folder = Path(os.path.realpath(unquote(urlsplit(address).path))).parent
        if folder.name != id:
            raise Unsafe(f"the files of {id} are to lie in {folder}, which is not a folder of its own")
        return folder

    def _sign(self, client: MlflowClient, name: str, version: int, document: Document) -> None:
        signed = signature(self._folder, name=name, version=version, document=document)
        client.set_model_version_tag(name, str(version), f"{OURS}signature", signed)

    def _signed(self, client: MlflowClient, kept: Kept, kind: str) -> Document | Unknown:
        document = self._document(client, kept, kind)
        if isinstance(document, Unknown):
            return document
        signed = kept.tags.get(f"{OURS}signature")
        refused = signature_refused(
            self._folder, signed, name=kept.name, version=int(kept.version), document=document
        )
        return document if refused is None else refused

    def _numbers(self, client: MlflowClient, name: str) -> tuple[int, ...]:
        found: list[int] = []
        token = None
        while True:
            page = client.search_model_versions(f"name='{name}'", page_token=token)
            found += [int(one.version) for one in page]
            token = page.token
            if not token:
                return tuple(sorted(found))

    def _experiment_id(self, client: MlflowClient, job: str) -> str:
        name = f"{self._experiment}/{job}"
        there = client.get_experiment_by_name(name)
        if there is None:
            try:
                return str(client.create_experiment(name, self._store.artifact_location(job)))
            except Exception as error:
                if error_code(error) != "RESOURCE_ALREADY_EXISTS":  # another was quicker
                    raise
            there = client.get_experiment_by_name(name)
        if there is None or there.lifecycle_stage != "active":
            number = "" if there is None else there.experiment_id
            raise Misconfigured(
                "mlflow.experiment",
                f"{name} was deleted in MLflow: `mlflow experiments restore -x {number}`, or take another",
            )
        self._store.check_location(there.artifact_location)
        return str(there.experiment_id)

    def _document(self, client: MlflowClient, kept: Kept, kind: str) -> Document | Unknown:
        import mlflow.artifacts

        again = "fit it again and promote the new version; an exported champion stays in charge"
        model_id = kept.tags.get(f"{OURS}model_id") or kept.model_id
        signed = kept.tags.get(f"{OURS}digest")
        if not model_id or not signed:
            return Unknown(f"it was not registered by Headroom: {again}")
        logged = _found(lambda: client.get_logged_model(model_id))
        if logged is None:
            return Unknown(f"its run or its logged model was deleted in MLflow: {again}")
        try:
            self._store.check_location(logged.artifact_location)
        except Unsafe as elsewhere:
            return Unknown(str(elsewhere))
        place = f"data/{mlflow_model.FOLDER}/{mlflow_model.DOCUMENT}"
        address = f"{logged.artifact_location}/{place}"
        with tempfile.TemporaryDirectory() as folder:
            try:
                path = mlflow.artifacts.download_artifacts(
                    artifact_uri=address, dst_path=folder, tracking_uri=self._store.uri
                )
                text = Path(path).read_text(encoding="utf-8")
            except UnicodeDecodeError as damaged:
                return Unknown(f"its document is damaged ({damaged}): {again}")
            except Exception as error:
                if not is_gone(error):
                    raise NotReady(f"{address} cannot be fetched ({error})") from error
                return Unknown(f"its files are gone ({address}): {again}")
        document = mlflow_model.opened(text, name=kept.name, expected=signed)
        if isinstance(document, Unknown):
            return document
        model = rebuilt(document, kind=kind)
        return model if isinstance(model, Unknown) else document


def _our_tags(job: str, kind: str, document: Document) -> dict[str, str]:
    data = document["trained_on"]
    found = {"job": job, "kind": kind, "schema": document["schema"], "trained_on": data["digest"]}
    if "profile" in data:
        found["profile"] = data["profile"]
    return {f"{OURS}{key}": str(value) for key, value in found.items()}


@contextmanager
def _run(client: MlflowClient, experiment_id: str, *, name: str, tags: Mapping[str, str]) -> Iterator[str]:
    """A run that is finished when all went well, and failed otherwise."""
    from mlflow.entities import RunStatus

    run_id = client.create_run(experiment_id, run_name=name, tags=dict(tags)).info.run_id
    try:
        yield run_id
    except BaseException:
        with suppress(Exception):  # the first error is the one to report
            client.set_terminated(run_id, RunStatus.to_string(RunStatus.FAILED))
        raise
    client.set_terminated(run_id)


def _picture(client: MlflowClient, run_id: str, kind: str, picture: bytes) -> str:
    """Its path among the run's files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.png"
        path.write_bytes(picture)
        client.log_artifact(run_id, str(path), PICTURE)
    return f"{PICTURE}/{kind}.png"


def _logged_model(
    client: MlflowClient,
    run_id: str,
    name: str,
    document: Document,
    tags: Mapping[str, str],
    parameters: Mapping[str, str],
) -> tuple[str, str]:
    """Its identifier, and the digest of its document."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    kind = document["kind"]
    logged = client.create_logged_model(
        client.get_run(run_id).info.experiment_id,
        name=kind,
        source_run_id=run_id,
        tags=dict(tags),
        params=dict(parameters),
        model_type=f"headroom {kind}",
    )
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, step=0)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        signed = mlflow_model.save(
            path,
            name=name,
            document=document,
            identity={
                "artifact_path": logged.artifact_location,
                "model_uuid": logged.model_id,
                "run_id": run_id,
                "model_id": logged.model_id,
            },
        )
        client.log_model_artifacts(logged.model_id, str(path))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    return str(logged.model_id), signed


def _log_figures(
    client: MlflowClient,
    run_id: str,
    model_id: str,
    name: str,
    document: Document,
    parameters: Mapping[str, str],
) -> None:
    """Parameters and metrics of run and model, and the training data by its digest."""
    from mlflow.entities import Dataset, DatasetInput, Metric, Param

    (job, kind), data = job_and_kind(name), document["trained_on"]
    dataset = Dataset(
        name=f"{job} for {kind}",
        digest=str(data["digest"]).removeprefix("sha256:")[:36],  # as much as MLflow keeps
        source_type="headroom",
        source=json.dumps({"store": "headroom", "job": job}),
        profile=json.dumps({key: str(value) for key, value in data.items()}),
    )
    client.log_inputs(run_id, [DatasetInput(dataset)])
    now_ms = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[
            Metric(key, value, now_ms, 0, model_id=model_id, run_id=run_id)
            for key, value in mlflow_model.metrics(document).items()
        ],
        params=[Param(key, value) for key, value in parameters.items()],
    )


def _ensure_model(client: MlflowClient, name: str) -> None:
    try:
        client.create_registered_model(name, description=mlflow_model.of_the_model(name))
    except Exception as error:
        if error_code(error) != "RESOURCE_ALREADY_EXISTS":
            raise


def _found(ask: Any) -> Any:
    """What was asked for; None where MLflow says that it is not there."""
    try:
        return ask()
    except Exception as error:
        # An alias that is not there is an invalid parameter to MLflow.
        if error_code(error) in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "INVALID_PARAMETER_VALUE"):
            return None
        raise
