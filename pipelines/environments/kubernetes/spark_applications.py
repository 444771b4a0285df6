"""Jobs that the Spark operator runs, as `SparkApplication` objects: only their size is changed here.

The declared size is `spec.executor.instances`. After every change of the spec the operator deletes the driver
and submits the application anew, so that a change of the size is a restart from the checkpoint:

    RUNNING → INVALIDATING → PENDING_RERUN → SUBMITTED → RUNNING

The size, its epoch and our mark are written in one patch with the resourceVersion that was read. A size that
does not fit the mark was set by another, and is only reported. An operator that is away misses a change for
good, so the driver that is to be replaced is written down, too: while that one runs, nothing has happened.

At rest pods are watched. The objects are not: the right to watch is one to read all of them. They are read
anew after LOOK_S, and before every change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from models.errors import Misconfigured, NoRoom, NotReady, Unsafe
from models.ports import Plan, Query, Rescaled, Status
from models.quantities import Unknown, executors

from ...integrations.kubernetes_api import Conflict, Forbidden, KubernetesApi, Manifest
from ...integrations.kubernetes_watch import Watched
from ...settings import job_plans, spark_timeouts
from ...settings.concerns import SPARKS_NETWORK_TIMEOUT_S
from ...settings.schema import JobSettings, KubernetesSettings
from ..attached import check_beside, their
from . import manifests, pods, quotas
from .deployments import KubernetesDeployments
from .manifests import EPOCH, MARK, SCALE_OUT

KIND = "SparkApplication"
APP_NAME = "sparkoperator.k8s.io/app-name"
"""The label that the operator puts on driver and executors: the name of the object."""
REPLACED = "headroom.io/replaced-driver"
"""The uid of the driver that ran when its size was set anew, and the size that it was started with."""
POLL_S = 1.0  # judgement: a restart takes a minute
LOOK_S = 15.0  # judgement: four requests a minute; the end of a driver is seen at once, by its pod

IMAGE_SETTINGS = ("spec.image", "spec.imagePullPolicy")


@dataclass(frozen=True)
class Theirs:
    """What another system sets of a job that it runs."""

    labels: Mapping[str, str]
    """Of its pods, by which they are known."""
    network_timeout_s: float
    """After which its driver gives a silent executor up."""


State = Literal["starting", "running", "restarting", "stopped", "failed", "unknown"]
STATES: Mapping[str, State] = {
    "": "starting",
    "SUBMITTED": "starting",
    "RUNNING": "running",
    "INVALIDATING": "restarting",
    "PENDING_RERUN": "restarting",
    "SUBMISSION_FAILED": "restarting",
    "FAILING": "restarting",
    "SUCCEEDING": "restarting",
    "RESUMING": "starting",
    "COMPLETED": "stopped",
    "SUSPENDING": "stopped",
    "SUSPENDED": "stopped",
    "FAILED": "failed",
}
"""`status.applicationState.state` -> ours. The operator decides whether a run that failed is repeated."""


class SparkApplicationDeployments:
    """Our deployments, and beside them the jobs of the operator. An adapter of the port `Deployments`."""

    def __init__(
        self,
        ours: KubernetesDeployments,
        api: KubernetesApi,
        jobs: Mapping[str, JobSettings],
        *,
        owner: str,
        settings: KubernetesSettings,
        timeout_s: float,
        check_lease: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`timeout_s`: after which a change of the size has failed."""
        self._ours = ours
        self._api = api
        self._owner = owner
        self._namespace = settings.namespace
        self._timeout_s = timeout_s
        self._check_lease = check_lease
        self._clock = clock
        self._sleep = sleep
        self._jobs = {name: job for name, job in jobs.items() if job.spark_application is not None}
        self._pods_of = Watched(api, "Pod", settings.namespace, labels={APP_NAME: ""})
        self._look_s = 0.0
        self._looked: dict[str, tuple[float, Manifest | None]] = {}
        """When the object of a job was read last, and what it was."""
        unread = Unknown("its SparkApplication says how many")
        self._queries = {name: their(name, job, executors=unread) for name, job in self._jobs.items()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read pods from a watch from now on, and objects at intervals, instead of asking each time."""
        if not self._jobs:
            yield
            return
        with self._pods_of:
            self._look_s = LOOK_S
            yield

    # ---------------------------------------------------------------------------------------- the port

    def launch(self, plan: Plan) -> None:
        """Start a job or copy of ours, apart from those of the operator."""
        if plan.name in self._jobs:
            job_plans.check_order(plan.name, self._jobs[plan.name], "launch")
        check_beside(plan, self._queries.values())
        self._ours.launch(plan)

    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        """Change the number of executors; of a job of the operator always by a restart."""
        if name not in self._jobs:
            return self._ours.scale(name, scale_out, epoch=epoch, path=path)
        if scale_out < 1:
            raise Misconfigured(f"job.{name}.scale_out", f"must be at least 1, got {scale_out}")
        found = self._find(name, asked=True)
        if found is None or (status := self._status(name, asked=True)).state in ("stopped", "failed"):
            why = self._missing(name) if found is None else status.reason
            raise NotReady(f"{name} does not run ({why}), so it is not rescaled")
        if epoch < _epoch(found):
            raise Unsafe(
                f"{name}: epoch {epoch} is older than {_epoch(found)}, which was carried out already"
            )
        before = declared_of(found)
        if isinstance(before, Unknown):
            raise Misconfigured(f"job.{name}.spark_application", before.reason)
        self._check_quota(name, scale_out)
        begun_s = self._clock()
        if (before, _epoch(found)) != (scale_out, epoch):
            self._set(name, found, scale_out, epoch)
        self._await(name, scale_out)
        return Rescaled("restart", before, scale_out, self._clock() - begun_s)

    def stop(self, name: str) -> None:
        """End a job or copy of ours."""
        if name in self._jobs:
            job_plans.check_order(name, self._jobs[name], "stop")
        self._ours.stop(name)

    def status(self, name: str) -> Status:
        """What it does now, by the operator's words and by its pods."""
        if name not in self._jobs:
            return self._ours.status(name)
        return self._status(name, asked=False)

    def _status(self, name: str, *, asked: bool) -> Status:
        found = self._find(name, asked=asked)
        if found is None:
            gone = Unknown(self._missing(name))
            return Status("stopped", gone, 0, gone, gone.reason, elsewhere=True)
        declared, there = declared_of(found), self._pods(name, asked=asked)
        driver = pods.newest_driver(there)
        says = found.get("status", {}).get("applicationState", {})
        said = says.get("state", "")
        state = STATES.get(said, "unknown")
        reason = f"the Spark operator says {said or 'nothing yet'}"
        if error := says.get("errorMessage"):
            reason += f": {error}"
        none = Unknown("its driver does not run")
        status = Status(state, declared, 0, none, reason, self._is_ours(name, found), elsewhere=True)
        if state in ("stopped", "failed"):
            return status
        if driver is None:
            return replace(status, state="restarting" if state == "running" else state)
        how, why = self._explained(driver)
        if how != "running":
            coming: State = "starting" if state == "running" else state
            return replace(status, state=coming, reason=f"its driver pod waits: {why}")
        mine = [one for one in there if _owned_by(one, driver)]
        alive = len(pods.running_executors(mine))
        status = replace(status, executors_alive=alive, run_id=driver["metadata"]["uid"])
        uid, started_with = _replaced(found)
        if driver["metadata"]["uid"] == uid and str(declared) != started_with:
            late = f"the Spark operator has not restarted it yet with the size that was set (it says {said})"
            return replace(status, state="restarting", reason=late)
        if state != "running":
            return status
        return replace(status, reason=self._pending(mine) if alive != declared else _edited(found, status))

    def plan(self, name: str) -> Query:
        """Where a job reads and keeps its checkpoint, for the metrics."""
        return self._queries.get(name) or self._ours.plan(name)

    def names(self) -> tuple[str, ...]:
        """Those that run, or should."""
        return tuple(sorted({*self._ours.names(), *self._jobs}))

    # ----------------------------------------------------------------------------------- beyond the port

    def page(self, name: str) -> tuple[str, str]:
        """Address of the page of its driver, and the run's name there."""
        if name not in self._jobs:
            return self._ours.page(name)
        found, driver = self._find(name), pods.newest_driver(self._pods(name))
        application = (found or {}).get("status", {}).get("sparkApplicationId")
        address = (driver or {}).get("status", {}).get("podIP")
        if found is None or not application or not address:
            raise NotReady(f"the driver of {name} does not run: try again")
        port = (found["spec"].get("sparkConf") or {}).get("spark.ui.port", manifests.PAGE_PORT)
        return f"http://{address}:{port}", application

    def namespace(self, name: str) -> str:
        """Where its pods are."""
        return self._namespace if name in self._jobs else self._ours.namespace(name)

    def driver_pod(self, name: str) -> Manifest | None:
        """The pod of its driver, while it lives."""
        if name not in self._jobs:
            return self._ours.driver_pod(name)
        return pods.newest_driver(self._pods(name, asked=True))

    def executor_pods(self, name: str) -> list[Manifest]:
        """The running executors, oldest first."""
        if name not in self._jobs:
            return self._ours.executor_pods(name)
        there = self._pods(name, asked=True)
        driver = pods.newest_driver(there)
        return (
            [] if driver is None else pods.running_executors(one for one in there if _owned_by(one, driver))
        )

    def theirs(self, name: str) -> Theirs | None:
        """What its owner and the operator have set, of a job of theirs."""
        if name not in self._jobs:
            return None
        found = self._find(name)
        if found is None:
            raise NotReady(self._missing(name))
        conf = found["spec"].get("sparkConf") or {}
        silence_s = spark_timeouts.seconds_of(str(conf.get(spark_timeouts.SILENCE, "")))
        return Theirs(
            {APP_NAME: self._object(name)},
            SPARKS_NETWORK_TIMEOUT_S if math.isnan(silence_s) else silence_s,
        )

    def executor_names(self, name: str, application: str) -> tuple[str, Mapping[str, str]]:
        """Their namespace, and by Spark's number the pod of each executor of this run."""
        if name not in self._jobs:
            return self._ours.executor_names(name, application)
        return self._namespace, pods.by_number(self._pods(name), application)

    def forget(self, name: str) -> None:
        """Of ours: stop it, and leave nothing of it but its checkpoint."""
        self._ours.forget(name)

    def folder(self, name: str) -> Any:
        """Of ours: where its driver writes."""
        return self._ours.folder(name)

    # --------------------------------------------------------------------------------------- one change

    def _set(self, name: str, found: Manifest, scale_out: int, epoch: int) -> None:
        """Set size, epoch and mark in one patch; refused where the object was changed since it was read."""
        notes = {
            SCALE_OUT: str(scale_out),
            EPOCH: str(epoch),
            MARK: manifests.mark(self._owner, name, scale_out, epoch),
        }
        changes: Manifest = {}
        if scale_out != (before := declared_of(found)):
            driver = pods.newest_driver(self._pods(name, asked=True))
            if driver is not None and _replaced(found)[0] != driver["metadata"]["uid"]:
                notes[REPLACED] = f"{driver['metadata']['uid']}/{before}"
            changes["spec"] = {"executor": {"instances": scale_out}}
        about = found["metadata"]
        while True:
            self._check_lease()
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            changes["metadata"] = {"annotations": notes, **version}
            try:
                self._api.patch(KIND, about["namespace"], about["name"], changes)
                return
            except Conflict as error:
                # The operator writes the status; what matters is whether what we read still holds.
                now = self._api.get(KIND, about["namespace"], about["name"])
                if _written(now) != _written(found):
                    raise NotReady(
                        f"the SparkApplication {about['name']} was changed by another at the same time: "
                        "try again"
                    ) from error
                found = now

    def _await(self, name: str, scale_out: int) -> None:
        until_s = self._clock() + self._timeout_s
        while (
            status := self._status(name, asked=True)
        ).state != "running" or status.executors_alive != scale_out:
            if status.state in ("failed", "stopped"):
                raise NotReady(f"{name} did not come back: {status.reason}")
            if self._clock() > until_s:
                raise NotReady(
                    f"{name} was given {executors(scale_out)}, but it is {status.state} with "
                    f"{status.executors_alive} after {self._timeout_s:.0f} s: {status.reason}. "
                    f"`kubectl -n {self._namespace} describe sparkapplication {self._object(name)}` says more"
                )
            self._sleep(POLL_S)

    def _check_quota(self, name: str, scale_out: int) -> None:
        """Refuse what the namespace's quota cannot give: a restart would not bring these executors."""
        try:
            short = quotas.shortage_for(self._api, self._namespace, {APP_NAME: self._object(name)}, scale_out)
        except Forbidden:  # quotas may not be seen there: the pods will say it
            return
        if short is not None:
            raise NoRoom(
                "kubernetes.namespace",
                f"{short.said(f'{executors(scale_out)} of {name}', 'need')} more: raise it, or ask for fewer",
            )

    # ------------------------------------------------------------------------------------------- objects

    def _object(self, name: str) -> str:
        return str(self._jobs[name].spark_application)

    def _find(self, name: str, *, asked: bool = False) -> Manifest | None:
        """The object; `asked`: as the API server has it now."""
        at_s, found = self._looked.get(name, (-math.inf, None))
        if asked or self._clock() - at_s >= self._look_s:
            found = self._api.find(KIND, self._namespace, self._object(name))
            self._looked[name] = self._clock(), found
        return found

    def _missing(self, name: str) -> str:
        return (
            f"there is no SparkApplication {self._object(name)} in {self._namespace}: `kubectl apply` it, or "
            f"correct job.{name}.spark_application"
        )

    def _is_ours(self, name: str, found: Manifest) -> bool:
        declared, notes = declared_of(found), found["metadata"].get("annotations", {})
        if isinstance(declared, Unknown):
            return False
        return bool(notes.get(MARK) == manifests.mark(self._owner, name, declared, _epoch(found)))

    def _pods(self, name: str, *, asked: bool = False) -> list[Manifest]:
        """Its driver and executors, as far as they are not over."""
        read = self._pods_of.ask if asked else self._pods_of.all
        return [one for one in read({APP_NAME: self._object(name)}) if not pods.over(one)]

    def _pending(self, there: list[Manifest]) -> str:
        """Why executors do not start; empty where none waits."""
        for pod in there:
            how, why = self._explained(pod)
            if how == "waiting":
                return f"executor pod {pods.name(pod)} waits: {why}"
        return ""

    def _explained(self, pod: Manifest) -> tuple[pods.Progress, str]:
        return pods.explained(pod, lambda: pods.events(self._api, pod), settings=IMAGE_SETTINGS)


def declared_of(found: Manifest) -> int | Unknown:
    """The size that its spec sets, where that is what sets it."""
    spec, name = found["spec"], found["metadata"]["name"]
    conf = spec.get("sparkConf") or {}
    dynamic = (spec.get("dynamicAllocation") or {}).get("enabled")
    if dynamic or str(conf.get("spark.dynamicAllocation.enabled")).lower() == "true":
        return Unknown(
            f"dynamic allocation is enabled in the SparkApplication {name}, so Spark sets its size: disable "
            "it, and set spec.executor.instances"
        )
    instances = spec["executor"].get("instances")
    if instances is None:
        return Unknown(f"spec.executor.instances is not set in the SparkApplication {name}: set it")
    return int(instances)


def _epoch(found: Manifest) -> int:
    return manifests.noted(found, EPOCH, 0)


def _replaced(found: Manifest) -> tuple[str, str]:
    uid, _, started_with = found["metadata"].get("annotations", {}).get(REPLACED, "").partition("/")
    return uid, started_with


def _written(found: Manifest) -> tuple[Any, ...]:
    """The object without its status, which the operator writes."""
    notes = found["metadata"].get("annotations", {})
    return found["spec"], notes.get(EPOCH), notes.get(MARK)


def _edited(found: Manifest, status: Status) -> str:
    """A sentence if its size was set by another since we set it; otherwise empty."""
    set_by_us = found["metadata"].get("annotations", {}).get(SCALE_OUT)
    if status.ours or set_by_us is None:
        return ""
    return f"spec.executor.instances was set to {status.declared_scale_out} by another; ours was {set_by_us}"


def _owned_by(pod: Manifest, driver: Manifest) -> bool:
    """Executors of an earlier run live on for a moment."""
    owners = pod["metadata"].get("ownerReferences", ())
    return any(one["uid"] == driver["metadata"]["uid"] for one in owners)
