"""The `Deployments` of a cluster: one Deployment per driver, its executors as pods that Spark asks for.

Nothing is remembered here: the plan, the declared size, its epoch and our mark are annotations of the
Deployment, so that the next owner finds the same deployments. A change is a patch with the resourceVersion
that was read: of two writers one is refused. A size that does not carry our mark was set by another, and is
only reported.

Kubernetes starts a driver again that has died; a driver that gets SIGTERM ends between two batches.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from models import codec
from models.errors import HeadroomError, Misconfigured, NoRoom, NotReady, Unsafe
from models.ports import Plan, Rescaled, Status
from models.quantities import Unknown, executors
from profiling_jobs import plans
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver import before_start, older_pods
from profiling_jobs.driver.channel import ControlClient
from profiling_jobs.driver.launch_file import Ended, LaunchFile, write_json

from ...integrations.kubernetes_api import Conflict, KubernetesApi, Manifest
from ...integrations.kubernetes_watch import Watched
from ...integrations.spark_conf import job_conf
from ...settings.schema import KubernetesSettings, SparkSettings
from . import manifests, pods, quotas
from .manifests import COPY, EPOCH, INCARNATION, LAUNCH, MARK, OWNER, PLAN, ROLE, SCALE_OUT

POLL_S = 0.5
ANSWER_S = 2.0  # judgement: milliseconds, on a busy cluster a second
START_S = 120.0  # judgement: an image that is there starts in seconds
STOPPED = "stopped"
IN_VAIN = ("refused", "threw", "query failed")
"""How a driver ends that would end the same way again."""
RESTARTING = "restarting"
"""In place of our mark, at 0 replicas: wanted, and about to be started with the declared size."""


class KubernetesDeployments:
    """Jobs as pods of a cluster. An adapter of the port `Deployments`."""

    def __init__(
        self,
        api: KubernetesApi,
        brokers: Brokers,
        *,
        owner: str,
        folder: Path,
        settings: KubernetesSettings,
        spark: SparkSettings,
        check_lease: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._brokers = brokers
        self._owner = owner
        self._settings = settings
        self._spark = spark
        self._check_lease = check_lease
        self._sleep = sleep
        self._volume = manifests.Volume(folder.resolve())
        self._key = _key(folder / "driver-tokens.key")
        namespaces = dict.fromkeys((settings.namespace, settings.copies_namespace))
        drivers, own = {OWNER: owner, ROLE: "driver"}, {OWNER: owner}
        self._drivers = {one: Watched(api, "Deployment", one, labels=drivers) for one in namespaces}
        self._pods_of = {one: Watched(api, "Pod", one, labels=own) for one in namespaces}
        self._busy: set[str] = set()
        self._entering = threading.Lock()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read status and plans from a watch from now on, instead of asking each time."""
        with ExitStack() as stack:
            for one in (*self._drivers.values(), *self._pods_of.values()):
                stack.enter_context(one)
            yield

    # ---------------------------------------------------------------------------------------- the port

    def launch(self, plan: Plan) -> None:
        """Start a job. Returns once its Deployment is made: `status` says how it gets on."""
        plans.check(plan)
        with self._alone(plan.name):
            before = self._find(plan.name, asked=True)
            if before is not None and _wanted(before):
                raise Unsafe(f"{plan.name} was launched already: scale it, or stop it first")
            plans.check_neighbours(plan, [(_plan(one), _wanted(one)) for one in self._all()])
            before_start.check_checkpoint(plan)
            self._check_quota(plan, plan.scale_out, driver=True)
            epoch, incarnation = 0, 0
            if before is not None:
                epoch, incarnation = _epoch(before), _incarnation(before)
                self._remove(before)
                self._await_removed(plan.name)
            self._start(plan, epoch=epoch, incarnation=incarnation + 1)

    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        """Change the number of executors: under the running query, or by a restart from the checkpoint."""
        with self._alone(name):
            found = self._known(name, asked=True)
            plan = _plan(found)
            if epoch < _epoch(found):
                raise Unsafe(
                    f"{name}: epoch {epoch} is older than {_epoch(found)}, which was carried out already"
                )
            if scale_out < 1:
                raise Misconfigured(f"job.{plan.job}.scale_out", f"must be at least 1, got {scale_out}")
            if (status := self.status(name)).state in ("stopped", "failed"):
                raise NotReady(f"{name} does not run ({status.reason}): launch it first")
            if scale_out > plan.scale_out:
                self._check_quota(plan, scale_out - plan.scale_out)
            begun = time.monotonic()
            if _notes(found).get(MARK) == RESTARTING:
                path = "restart"  # one that was not finished: there is no driver to ask
            took = self._scale_live if path == "live" else self._restart
            took(found, scale_out, epoch)
            return Rescaled(path, plan.scale_out, scale_out, time.monotonic() - begun)

    def stop(self, name: str) -> None:
        """End it between two batches; one that takes more than a minute is cut short."""
        found = self._known(name, asked=True)
        if not _wanted(found) and not self._ask_pods(_plan(found)):
            return
        with self._alone(name):
            self._end(found)

    def status(self, name: str) -> Status:
        """State of a deployment now, also while its driver is dead."""
        found = self._known(name)
        plan = _plan(found)
        there = self._pods(plan)
        driver = pods.newest_driver(there)
        none = Unknown("its driver does not run")
        status = Status("stopped", plan.scale_out, 0, none, ours=_ours(found, self._owner))
        if _notes(found).get(MARK) == RESTARTING:
            return replace(status, state="restarting", reason="it is ended, to be started with another size")
        if not _wanted(found):
            return replace(status, reason=self._why_stopped(plan, found, there))
        if driver is None:
            has_run = pods.first_ran_s(found) is not None
            return replace(status, state="restarting" if has_run else "starting", reason=pods.not_made(found))
        return self._driven(status, plan, found, driver, there)

    def plan(self, name: str) -> Plan:
        """Plan of a deployment; `scale_out` is the declared one."""
        return _plan(self._known(name))

    def names(self) -> tuple[str, ...]:
        """Names of the deployments that run, or should."""
        return tuple(sorted(_name(one) for one in self._all() if _wanted(one)))

    # ----------------------------------------------------------------------------------- beyond the port

    def forget(self, name: str) -> None:
        """Stop a deployment, and delete everything of it but its checkpoint."""
        self.stop(name)
        with self._alone(name):
            self._remove(self._known(name, asked=True))

    def folder(self, name: str) -> Path:
        """Folder in which its driver writes `progress.jsonl` and other files."""
        return self._volume.driver(self.plan(name))

    def namespace(self, name: str) -> str:
        """Namespace of its pods."""
        return manifests.namespace(self._settings, self.plan(name))

    def driver_pod(self, name: str) -> Manifest | None:
        """The pod of its driver, while it lives."""
        return pods.newest_driver(self._ask_pods(self.plan(name)))

    def executor_pods(self, name: str) -> list[Manifest]:
        """The running executors, oldest first."""
        return pods.running_executors(self._ask_pods(self.plan(name)))

    def executor_names(self, name: str, application: str) -> tuple[str, Mapping[str, str]]:
        """Their namespace, and by Spark's number the pod of each executor of this run."""
        return self.namespace(name), pods.by_number(self._pods(self.plan(name)), application)

    def theirs(self, name: str) -> None:
        """None: no other system runs these jobs."""

    def page(self, name: str) -> tuple[str, str]:
        """The address of the driver's own page, and its run's name there."""
        found = self._known(name)
        driver = pods.newest_driver(self._pods(_plan(found)))
        if driver is None:
            raise NotReady(f"the driver of {name} does not run: try again")
        said = self._client(found, driver).status(timeout_s=ANSWER_S)
        if "application_id" not in said:
            raise NotReady(f"the driver of {name} has no Spark session yet: try again")
        return f"http://{driver['status']['podIP']}:{manifests.PAGE_PORT}", said["application_id"]

    # --------------------------------------------------------------------------------------- the status

    def _driven(
        self, status: Status, plan: Plan, found: Manifest, driver: Manifest, there: list[Manifest]
    ) -> Status:
        """Of one whose driver has a pod: by what it answers, or by why it does not. `status`: without it."""
        last = _last_words(driver)
        restarts = pods.restarts(driver) or pods.replaced(driver, found)
        coming = replace(status, state="restarting" if restarts else "starting")
        in_vain = last is not None and last.how in IN_VAIN and not last.batches

        def not_yet(reason: str, **known: Any) -> Status:
            if last is not None and in_vain:
                # Kubernetes starts it again all the same: it has failed until a query has started.
                return replace(status, state="failed", reason=last.reason)
            return replace(coming, reason=reason, **known)

        how, why = self._explained(driver)
        if how == "waiting":
            if last is not None and last.how == "finished":
                return replace(status, reason=last.reason)
            return not_yet(last.reason if last else why)
        try:
            said = self._client(found, driver).status(timeout_s=ANSWER_S)
        except NotReady as error:
            silent = Unknown(str(error))
            # It listens from its first second to its last: a driver that refuses is not up yet.
            if isinstance(error.__cause__, ConnectionRefusedError):
                return not_yet(str(error), executors_alive=silent, run_id=silent)
            return replace(
                status, state="running", executors_alive=silent, run_id=silent, reason=silent.reason
            )
        alive = len(said["executors"])
        if not said["queries"]:
            none = Unknown("no query has started yet")
            return not_yet(self._pending(plan, there), executors_alive=alive, run_id=none)
        reason = ""
        if alive != plan.scale_out:
            reason = self._pending(plan, there) or said["unsettled"]
        run_id = said["queries"][0]["run_id"]
        return replace(status, state="running", executors_alive=alive, run_id=run_id, reason=reason)

    def _why_stopped(self, plan: Plan, found: Manifest, there: list[Manifest]) -> str:
        if any(pods.role(one) == "driver" for one in there):
            return "its driver is about to end"
        if _notes(found).get(MARK) != STOPPED:
            return "its Deployment was set to 0 replicas by another: `kubectl scale` it to 1 again"
        ended = Ended.read(self._volume.driver(plan), incarnation=_incarnation(found))
        return "stopped" if ended is None else f"stopped {ended.reason}"

    def _pending(self, plan: Plan, there: list[Manifest]) -> str:
        """Why executors do not start; empty where none waits."""
        mine = [pod for pod in there if pods.role(pod) == "executor"]
        for pod in mine:
            how, why = self._explained(pod)
            if how == "waiting" and why:
                return f"executor pod {pods.name(pod)} waits: {why}"
        missing = plan.scale_out - len(mine)  # of a pod that a quota has refused there is no trace
        if missing <= 0 or (short := self._shortage(plan, missing)) is None:
            return ""
        return f"{executors(missing, 'are')} missing: {short.said('starting them', 'needs')}"

    def _explained(self, pod: Manifest) -> tuple[pods.Progress, str]:
        return pods.explained(pod, lambda: pods.events(self._api, pod))

    # ------------------------------------------------------------------------------------------ the paths

    def _start(self, plan: Plan, *, epoch: int, incarnation: int) -> None:
        """The Deployment is made first, since it owns the others, and its driver is started last."""
        name, namespace = manifests.driver_name(plan.name), manifests.namespace(self._settings, plan)
        files = f"{name}-{secrets.token_hex(4)}"
        launch_files = self._launch_files(plan, incarnation)  # first: it may refuse
        self._check_lease()  # an earlier launch may have been waited for
        annotations = {**self._annotations(plan, epoch, incarnation), LAUNCH: files}
        deployment = manifests.driver_deployment(
            plan,
            self._settings,
            self._spark,
            annotations={**annotations, MARK: STOPPED},
            owner=self._owner,
            volume=self._volume,
        )
        deployment["spec"].update(replicas=0, paused=True)
        made = self._api.create("Deployment", deployment)
        self._drivers[namespace].remember(made)
        owned = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": name,
            "uid": made["metadata"]["uid"],
        }
        about: Manifest = {
            "name": files,
            "namespace": namespace,
            "labels": manifests.labels(self._owner, plan, "driver"),
            "ownerReferences": [owned],
        }
        self._api.create("Secret", {"metadata": about, "stringData": {"token": self._token(plan.name)}})
        self._api.create("ConfigMap", {"metadata": about, "data": launch_files})
        self._patch(
            made, {"spec": {"replicas": 1, "paused": False}, "metadata": {"annotations": annotations}}
        )

    def _scale_live(self, found: Manifest, scale_out: int, epoch: int) -> None:
        plan = _plan(found)
        driver = pods.newest_driver(self._ask_pods(plan))
        if driver is None:
            raise NotReady(f"{plan.name}: its driver does not run: try again")
        client = self._client(found, driver)
        try:
            client.status()  # one that is silent now would be waited for in vain
        except NotReady as error:
            raise NotReady(f"{plan.name}: {error}") from error
        declared = self._declare(found, scale_out, epoch)
        try:
            client.scale(scale_out, timeout_s=self._spark.scale_timeout_s)
        except HeadroomError as error:
            why = self._pending(replace(plan, scale_out=scale_out), self._ask_pods(plan))
            if self._restarted(plan, driver):
                self._await_executors(plan.name, scale_out)
                return
            self._declare(declared, plan.scale_out, epoch)
            raise NotReady(f"{plan.name}: {why}: {error}" if why else str(error)) from error

    def _restart(self, found: Manifest, scale_out: int, epoch: int) -> None:
        """Restart with the new size, declared first, so that a retry with the same epoch continues."""
        plan = _plan(found)
        begun = _notes(found).get(MARK) == RESTARTING
        if begun or (_epoch(found), plan.scale_out) != (epoch, scale_out):
            found = self._declare(found, scale_out, epoch, ending=True)
            self._await_end(plan)
            annotations = self._annotations(replace(plan, scale_out=scale_out), epoch, _incarnation(found))
            self._patch(found, {"spec": {"replicas": 1}, "metadata": {"annotations": annotations}})
        self._await_executors(plan.name, scale_out)

    def _declare(self, found: Manifest, scale_out: int, epoch: int, *, ending: bool = False) -> Manifest:
        """Declare a size before it is changed: a driver that dies meanwhile comes back with it."""
        plan = replace(_plan(found), scale_out=scale_out)
        annotations = self._annotations(plan, epoch, _incarnation(found))
        changes: Manifest = {"metadata": {"annotations": annotations}}
        if ending:
            annotations[MARK] = RESTARTING
            changes["spec"] = {"replicas": 0}
        # One that an earlier version has launched does not say it.
        launched = _notes(found).get(LAUNCH, manifests.driver_name(plan.name))
        changed = self._patch(found, changes)
        about, files = changed["metadata"], self._launch_files(plan, _incarnation(found))
        self._api.patch("ConfigMap", about["namespace"], launched, {"data": files})
        return changed

    def _end(self, found: Manifest) -> None:
        """SIGTERM to the driver, which ends between two batches; executors go with their driver."""
        self._patch(found, {"spec": {"replicas": 0}, "metadata": {"annotations": {MARK: STOPPED}}})
        self._await_end(_plan(found))

    def _await_end(self, plan: Plan) -> None:
        """Wait for its pods, but not for one on a node that is gone: the next driver does not either."""
        until = time.monotonic() + manifests.STOP_S + START_S
        while left := [one for one in self._ask_pods(plan) if not older_pods.late(one, datetime.now(UTC))]:
            if time.monotonic() > until:
                names = ", ".join(map(pods.name, left))
                raise NotReady(
                    f"{plan.name} was told to stop, but {names} did not end: see `kubectl describe`"
                )
            self._sleep(POLL_S)

    def _remove(self, found: Manifest) -> None:
        """Delete this Deployment and what it owns, but not one that was created under its name since."""
        self._check_lease()
        about = found["metadata"]
        self._api.delete("Deployment", about["namespace"], about["name"], uid=about["uid"])
        self._drivers[about["namespace"]].ask()

    def _await_removed(self, name: str) -> None:
        until = time.monotonic() + START_S
        while self._find(name, asked=True) is not None:
            if time.monotonic() > until:
                raise NotReady(
                    f"the Deployment {manifests.driver_name(name)} of an earlier launch is still being "
                    "deleted: try again"
                )
            self._sleep(POLL_S)

    def _await_executors(self, name: str, scale_out: int) -> None:
        until = time.monotonic() + self._spark.scale_timeout_s
        while (status := self.status(name)).state != "running" or status.executors_alive != scale_out:
            if status.state in ("failed", "stopped"):
                raise NotReady(f"{name} did not come back: {status.reason}")
            if time.monotonic() > until:
                raise NotReady(
                    f"{name} restarted, but {status.executors_alive} of {executors(scale_out)} registered "
                    f"within {self._spark.scale_timeout_s:.0f} s: {status.reason}"
                )
            self._sleep(POLL_S)

    def _restarted(self, plan: Plan, driver: Manifest) -> bool:
        now = pods.newest_driver(self._ask_pods(plan))
        return now is None or pods.identity(now) != pods.identity(driver)

    # -------------------------------------------------------------------------------------------- objects

    def _annotations(self, plan: Plan, epoch: int, incarnation: int) -> dict[str, str]:
        return {
            PLAN: json.dumps(codec.to_json(plan)),
            SCALE_OUT: str(plan.scale_out),
            EPOCH: str(epoch),
            INCARNATION: str(incarnation),
            MARK: manifests.mark(self._owner, plan.name, plan.scale_out, epoch),
        }

    def _launch_files(self, plan: Plan, incarnation: int) -> dict[str, str]:
        launch = LaunchFile(
            plan=plan,
            brokers=self._brokers,
            folder=self._volume.driver(plan),
            incarnation=incarnation,
            project=self._volume.jobs,
            conf=job_conf(
                plan.name,
                settings=self._spark,
                place=manifests.spark_conf(plan, self._settings),
                conf=plan.conf,
            ),
            scale_timeout_s=self._spark.scale_timeout_s,
            control_port=manifests.CONTROL_PORT,
        )
        template = manifests.executor_template(plan, self._settings, owner=self._owner, volume=self._volume)
        return {"driver.json": json.dumps(codec.to_json(launch)), "executor.json": json.dumps(template)}

    def _patch(self, found: Manifest, changes: Manifest) -> Manifest:
        """Patch a Deployment; refused where it was changed since it was read, and without the Lease."""
        self._check_lease()
        about = found["metadata"]
        changes = {
            **changes,
            "metadata": {**changes.get("metadata", {}), "resourceVersion": about["resourceVersion"]},
        }
        try:
            changed = self._api.patch("Deployment", about["namespace"], about["name"], changes)
        except Conflict as error:
            # Kubernetes itself writes the status; what matters is whether what we read still holds.
            now = self._api.get("Deployment", about["namespace"], about["name"])
            if _declared_by(now) != _declared_by(found):
                raise NotReady(
                    f"{about['name']} was changed by another at the same time: try again"
                ) from error
            return self._patch(now, changes)
        self._drivers[about["namespace"]].remember(changed)
        return changed

    def _all(self) -> Iterator[Manifest]:
        for watched in self._drivers.values():
            yield from watched.all()

    def _known(self, name: str, *, asked: bool = False) -> Manifest:
        found = self._find(name, asked=asked)
        if found is None:
            there = ", ".join(map(_name, self._all())) or "none"
            raise Misconfigured("deployment", f"there is no '{name}' here; there is {there}")
        return found

    def _find(self, name: str, *, asked: bool) -> Manifest | None:
        """The Deployment; `asked`: as the API server has it now, for code that changes it."""
        if not plans.NAME.fullmatch(name):
            return None
        deployment = manifests.driver_name(name)
        for namespace, watched in self._drivers.items():
            found = self._api.find("Deployment", namespace, deployment) if asked else watched.find(deployment)
            if found is None:
                continue
            if found["metadata"].get("labels", {}).get(OWNER) != self._owner:
                raise Unsafe(
                    f"the Deployment {deployment} in {namespace} belongs to another owner: "
                    "name the job differently, or delete it"
                )
            return found
        return None

    def _pods(self, plan: Plan) -> list[Manifest]:
        """Its driver and executors, as far as they are not over; what sends a copy its records is none."""
        return _living(self._pods_of[manifests.namespace(self._settings, plan)].all({COPY: plan.name}))

    def _ask_pods(self, plan: Plan) -> list[Manifest]:
        """The pods as the API server has them now, for code that waits for them or acts on them."""
        return _living(self._pods_of[manifests.namespace(self._settings, plan)].ask({COPY: plan.name}))

    def _client(self, found: Manifest, driver: Manifest) -> ControlClient:
        address = driver["status"].get("podIP")
        if address is None:
            raise NotReady(f"the driver of {_plan(found).name} is still starting: try again")
        return ControlClient((address, manifests.CONTROL_PORT), token=self._token(_plan(found).name))

    def _token(self, name: str) -> str:
        """Token of a driver, derived so that no right to read Secrets is needed to know it again."""
        return hmac.new(self._key, name.encode(), "sha256").hexdigest()

    def _check_quota(self, plan: Plan, more: int, *, driver: bool = False) -> None:
        """Refuse what the namespace's quota cannot give to so many executors, and to their driver."""
        who = f"a driver and {executors(more)}" if driver else executors(more)
        if (short := self._shortage(plan, more, drivers=int(driver))) is not None:
            raise NoRoom(
                "kubernetes.namespace" if plan.role == "live" else "kubernetes.copies_namespace",
                f"{short.said(f'{who} for {plan.name}')}: raise it, or ask for fewer",
            )

    def _shortage(self, plan: Plan, more: int, *, drivers: int = 0) -> quotas.Shortage | None:
        needed = quotas.needs(self._settings, self._spark, executors=more, drivers=drivers)
        return quotas.shortage(self._api, manifests.namespace(self._settings, plan), needed)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        with self._entering:
            if name in self._busy:
                raise NotReady(f"{name} is being changed already: try again")
            self._busy.add(name)
        try:
            self._check_lease()
            yield
        finally:
            self._busy.discard(name)


def _key(path: Path) -> bytes:
    """The key that tokens are derived from, for this user only. Never a new one: drivers run with the old."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path, {"key": secrets.token_hex(32)})
    try:
        return bytes.fromhex(json.loads(path.read_text())["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unsafe(
            f"{path} cannot be read ({type(error).__name__}: {error}), and with another key the drivers that "
            "run could not be reached: restore it, or end them with `headroom cleanup` and delete it"
        ) from error


def _notes(found: Manifest) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def _name(found: Manifest) -> str:
    """Name of a deployment, from its label: a plan that cannot be read is an error of this one only."""
    return str(found["metadata"]["labels"][COPY])


def _plan(found: Manifest) -> Plan:
    notes = _notes(found)
    try:
        plan = codec.from_json(Plan, json.loads(notes[PLAN]), name="plan")
        return replace(plan, scale_out=int(notes[SCALE_OUT]))
    except (KeyError, ValueError, TypeError) as error:
        about = found["metadata"]
        raise Unsafe(
            f"the annotations of the Deployment {about['name']} in {about['namespace']} cannot be read "
            f"({type(error).__name__}: {error}): restore them, or delete the Deployment"
        ) from error


def _declared_by(found: Manifest) -> tuple[Any, ...]:
    notes = _notes(found)
    return notes.get(SCALE_OUT), notes.get(EPOCH), notes.get(PLAN), notes.get(MARK), found["spec"]["replicas"]


def _living(found: list[Manifest]) -> list[Manifest]:
    return [one for one in found if pods.role(one) in ("driver", "executor") and not pods.over(one)]


def _wanted(found: Manifest) -> bool:
    return bool(found["spec"].get("replicas", 1)) or _notes(found).get(MARK) == RESTARTING


def _epoch(found: Manifest) -> int:
    return manifests.noted(found, EPOCH, 0)


def _incarnation(found: Manifest) -> int:
    return manifests.noted(found, INCARNATION, 1)


def _ours(found: Manifest, owner: str) -> bool:
    marks: tuple[str, ...] = (STOPPED, RESTARTING)
    if replicas := found["spec"].get("replicas", 1):
        marks = (manifests.mark(owner, _plan(found).name, _plan(found).scale_out, _epoch(found)),)
    return _notes(found).get(MARK) in marks and replicas <= 1


def _last_words(driver: Manifest) -> Ended | None:
    """What the driver wrote last, as the message of its container."""
    try:
        return codec.from_json(Ended, json.loads(pods.last_message(driver)))
    except (KeyError, TypeError, ValueError):
        return None
