"""Checks of the cluster of `[kubernetes]`: reachable, rights, what must be there, room, clock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from models.errors import HeadroomError, Misconfigured
from models.quantities import Unknown, executors

from ...environments.kubernetes import pods, quotas
from ...environments.kubernetes.belongings import belongings
from ...environments.kubernetes.manifests import COPY, OWNER, owner_label
from ...environments.kubernetes.spark_applications import APP_NAME, declared_of
from ...integrations.kubernetes_api import CHAOS, KINDS, Forbidden, KubernetesApi, NotFound
from ...integrations.prometheus import METRIC, Prometheus
from ...processes.owner import owner_id
from ...settings import job_plans
from ...settings.schema import KubernetesSettings
from .findings import Finding, Surroundings, ok, problem, warning

SKEW_S = 5.0  # judgement: two machines kept by NTP differ by far less
AT_ONCE = 4  # judgement: some eighty questions, to a server that may be 50 ms away; each costs a handshake
WHAT = "Kubernetes"


@dataclass(frozen=True)
class Right:
    """Verbs on a resource, and what they are needed for."""

    resource: str
    verbs: tuple[str, ...]
    purpose: str
    group: str = ""
    drills: bool = False
    """Only for failures, and only where they may be caused."""


WRITE = ("get", "list", "create", "patch", "delete")
RIGHTS = (
    Right("deployments", (*WRITE, "watch"), "run drivers", group="apps"),
    Right("pods", (*WRITE, "watch"), "run replays, and see drivers and executors"),
    Right("pods/log", ("get",), "say why a replay or recording failed"),
    Right("events", ("list",), "say why a pod waits"),
    Right("secrets", ("create",), "give each driver the token of its control channel"),
    Right("configmaps", ("create", "patch"), "give each driver its launch file"),
    Right("resourcequotas", ("list",), "see what is left for copies"),
    Right("persistentvolumeclaims", ("get",), "check the volume of pods"),
    Right("serviceaccounts", ("get",), "check the accounts of pods"),
    Right("podchaos", WRITE, "kill pods in drills", group="chaos-mesh.org", drills=True),
    Right("networkchaos", WRITE, "disturb the network in drills", group="chaos-mesh.org", drills=True),
    Right("stresschaos", WRITE, "use up processors in drills", group="chaos-mesh.org", drills=True),
)
"""In the namespaces of jobs and of copies; docs/kubernetes.md shows them."""
SPARK_APPLICATION_RIGHTS = (
    Right(
        "sparkapplications",
        ("get", "patch"),
        "rescale jobs of the Spark operator",
        group=KINDS["SparkApplication"].group,
    ),
    Right("pods", ("get", "list", "watch"), "see their drivers and executors"),
    Right("events", ("list",), "say why a pod waits"),
    Right("deployments", ("get", "list", "watch"), "see that no driver of ours is there", group="apps"),
    Right("resourcequotas", ("list",), "see what is left for their executors"),
)
"""In the namespace of live jobs, where the Spark operator runs any of them."""
LEASE = Right("leases", ("get", "create", "update"), "be the only owner", group="coordination.k8s.io")


def cluster(around: Surroundings) -> list[Finding]:
    """Check the cluster: rights, what pods need, room for them, and its clock."""
    if around.settings.deployment.kind != "kubernetes":
        return ok(WHAT, f"not needed, the deployment is {around.settings.deployment.kind}")
    settings = around.settings.kubernetes
    try:
        api = KubernetesApi.connect(settings, patience_s=0.0)
    except Misconfigured as wrong:
        return problem(WHAT, str(wrong), f"set {wrong.setting}")
    try:
        asked_s = time.time()
        version, at_s = api.version()
        found = [
            *_skew(at_s, asked_s=asked_s, answered_s=time.time()),
            *_missing_rights(api, settings, around),
            *_chaos_mesh(api, settings),
            *_spark_applications(api, settings, around),
            *_prometheus(settings),
        ]
        image = ""
        with suppress(Forbidden):  # the right that is missing is named above
            found += _mounted(api, settings, around)
            found += _room_for_copies(api, settings, around)
            found += _room_to_grow(api, settings, around)
            found += _removed(api, settings, around)
            wrong_image, image = _image(api, settings)
            found += wrong_image
    except HeadroomError as error:
        return problem(WHAT, str(error), "start the cluster, or correct kubernetes.context")
    finally:
        api.close()
    return found or ok(WHAT, f"{api.where}, {version}: every right is granted; {image}")


def _skew(at_s: float, *, asked_s: float, answered_s: float) -> list[Finding]:
    """Whether the server's clock, in whole seconds, was another than ours as it answered."""
    skew_s = max(at_s - answered_s, asked_s - (at_s + 1.0))
    if skew_s <= SKEW_S:
        return []
    return warning(WHAT, f"its clock differs from ours by {skew_s:.0f} s", "synchronise the clocks")


def _missing_rights(api: KubernetesApi, settings: KubernetesSettings, around: Surroundings) -> list[Finding]:
    live_drills = any(job.allow_live_drills for job in around.settings.jobs.values())
    ours = _ours(settings, around)
    asked = [(settings.own_namespace, LEASE)]
    if any(job.spark_application is not None for job in around.settings.jobs.values()):
        asked += [(settings.namespace, right) for right in SPARK_APPLICATION_RIGHTS]
    for namespace in ours:
        drilled = namespace == settings.copies_namespace or live_drills
        asked += [(namespace, right) for right in RIGHTS if drilled or not right.drills]
    if live_drills and settings.namespace not in ours:
        asked += [(settings.namespace, right) for right in RIGHTS if right.drills]
    wanted = [(namespace, right, verb) for namespace, right in asked for verb in right.verbs]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        granted = list(pool.map(lambda one: _may(api, *one), wanted))
    missing: dict[tuple[str, Right], list[str]] = {}
    for (namespace, right, verb), may in zip(wanted, granted, strict=True):
        if not may:
            missing.setdefault((namespace, right), []).append(verb)
    found: list[Finding] = []
    for (namespace, right), verbs in missing.items():
        seen = f"may not {', '.join(verbs)} {right.resource} in {namespace}, needed to {right.purpose}"
        found += problem(WHAT, seen, "apply deploy/kustomize, or grant it in a Role of that namespace")
    return found


def _may(api: KubernetesApi, namespace: str, right: Right, verb: str) -> bool:
    return api.may(verb, right.resource, group=right.group, namespace=namespace)


def _ours(settings: KubernetesSettings, around: Surroundings) -> tuple[str, ...]:
    """The namespaces where we run pods: not that of live jobs, where the Spark operator runs all of these."""
    operated = [job.spark_application is not None for job in around.settings.jobs.values()]
    live = () if operated and all(operated) else (settings.namespace,)
    return tuple(dict.fromkeys((*live, settings.copies_namespace)))


def _versions(api: KubernetesApi, kind: str) -> str:
    """What is wrong with the versions of a kind that the cluster has; empty where it is the one we use."""
    group, _, wanted = KINDS[kind].api_version.partition("/")
    there = api.versions(group)
    if wanted in there:
        return ""
    return f"the cluster has {group} in {', '.join(there) or 'no version'}, and {wanted} is needed"


def _chaos_mesh(api: KubernetesApi, settings: KubernetesSettings) -> list[Finding]:
    why = _versions(api, "PodChaos")
    try:
        for kind in () if why else ("PodChaos", "NetworkChaos", "StressChaos"):
            api.list(kind, settings.copies_namespace)
    except HeadroomError as error:
        why = str(error)
    if not why:
        return []
    return warning(
        WHAT,
        f"no failure can be caused: {why}",
        f"install Chaos Mesh 2.x ({CHAOS}); without it recoveries are learnt from real failures only",
    )


def _mounted(api: KubernetesApi, settings: KubernetesSettings, around: Surroundings) -> list[Finding]:
    """Check that the volume and the accounts of pods exist."""
    found: list[Finding] = []
    for namespace in _ours(settings, around):
        for setting in ("driver_account", "executor_account"):
            name = getattr(settings, setting)
            if api.find("ServiceAccount", namespace, name) is None:
                seen = f"there is no ServiceAccount {name} in {namespace}"
                found += problem(WHAT, seen, f"apply deploy/kustomize, or correct kubernetes.{setting}")
        claim = api.find("PersistentVolumeClaim", namespace, settings.claim)
        if claim is None:
            seen = f"there is no PersistentVolumeClaim {settings.claim} in {namespace}"
            found += problem(WHAT, seen, "apply deploy/kustomize, or correct kubernetes.claim")
        elif (phase := claim.get("status", {}).get("phase")) != "Bound":
            seen = f"the PersistentVolumeClaim {settings.claim} in {namespace} is {phase or 'not bound'}"
            found += problem(WHAT, seen, f"see `kubectl -n {namespace} describe pvc {settings.claim}`")
    return found


def _image(api: KubernetesApi, settings: KubernetesSettings) -> tuple[list[Finding], str]:
    """Report whether pods that use the image could run it; nothing is started to find out."""
    started = False
    for namespace in dict.fromkeys((settings.namespace, settings.copies_namespace)):
        for pod in api.list("Pod", namespace):
            uses = [one for one in pod["spec"].get("containers", ()) if one.get("image") == settings.image]
            if uses and (wrong := pods.image_problem(pod)):
                return problem(WHAT, f"pod {pods.name(pod)} in {namespace}: {wrong}", "build or push it"), ""
            started = started or (uses != [] and pods.state(pod) != "waiting")
    return [], "the image has run" if started else f"no pod has tried the image {settings.image} yet"


def _spark_applications(
    api: KubernetesApi, settings: KubernetesSettings, around: Surroundings
) -> list[Finding]:
    """Check that each exists, has a size that can be set, and is started again after a failure."""
    found: list[Finding] = []
    theirs = {job: named.spark_application for job, named in sorted(around.settings.jobs.items())}
    if any(theirs.values()) and (wrong := _versions(api, "SparkApplication")):
        return problem(WHAT, wrong, "install the Kubeflow Spark operator 2")
    for job, name in theirs.items():
        if name is None:
            continue
        try:
            application = api.get("SparkApplication", settings.namespace, name)
        except NotFound:
            seen = f"there is no SparkApplication {name} in {settings.namespace}"
            found += problem(WHAT, seen, f"`kubectl apply` it, or correct job.{job}.spark_application")
            continue
        if isinstance(declared := declared_of(application), Unknown):
            found += problem(WHAT, *declared.reason.split(": ", 1))
        if application["spec"].get("restartPolicy", {}).get("type") != "Always":
            seen = f"the SparkApplication {name} is not started again after every failure"
            found += warning(WHAT, seen, "set its spec.restartPolicy.type to Always")
    return found


def _removed(api: KubernetesApi, settings: KubernetesSettings, around: Surroundings) -> list[Finding]:
    """Jobs that were taken out of the settings while they ran: Kubernetes keeps them running."""
    mine = owner_label(owner_id(around.folder), settings)
    there = [one for one in belongings(api, settings, owner=mine, kinds=("Deployment",)) if one.wanted]
    left = sorted({one.job for one in there} - set(around.settings.jobs))
    found: list[Finding] = []
    for job in left:
        names = ", ".join(str(one) for one in there if one.job == job)
        seen = f"{job} is not in {around.file.name} any more, and still runs: {names}"
        found += warning(
            WHAT, seen, f"`headroom stop {job}` ends it under `headroom serve`; or name it again"
        )
    return found


def _room_to_grow(api: KubernetesApi, settings: KubernetesSettings, around: Surroundings) -> list[Finding]:
    """Check that the quota lets each running job grow to its largest size."""
    mine = owner_label(owner_id(around.folder), settings)
    found: list[Finding] = []
    if not api.list("ResourceQuota", settings.namespace):
        return found
    for name, job in sorted(around.settings.jobs.items()):
        labels = {OWNER: mine, COPY: name}
        if job.spark_application is not None:
            labels = {APP_NAME: job.spark_application}
        short = quotas.shortage_for(api, settings.namespace, labels, job.scale_out_max)
        if short is not None:
            seen = short.said(f"growing {name} to {executors(job.scale_out_max)}", "needs")
            found += warning(WHAT, f"{seen} more", f"raise it, or lower job.{name}.scale_out_max")
    return found


def _prometheus(settings: KubernetesSettings) -> list[Finding]:
    if settings.prometheus_url is None:
        return []
    without = "the busy share of executors stands for their processor time"
    try:
        if Prometheus(settings.prometheus_url).ask(f"count({METRIC})"):
            return []
    except HeadroomError as error:
        return warning(WHAT, str(error), f"correct kubernetes.prometheus_url, or leave it out: {without}")
    seen = f"Prometheus at {settings.prometheus_url} has no {METRIC}"
    return warning(WHAT, seen, f"let it collect cAdvisor's metrics of the kubelets: until then {without}")


def _room_for_copies(api: KubernetesApi, settings: KubernetesSettings, around: Surroundings) -> list[Finding]:
    """Whether the quota has room for the largest copy that the profile of each job needs, and its source."""
    found: list[Finding] = []
    for name, job in sorted(around.settings.jobs.items()):
        if not (job.script or job.build):
            continue
        try:
            largest = max(job_plans.search(name, job, None).scale_outs)
        except Misconfigured:  # `headroom check` says so
            continue
        needed = quotas.needs(settings, around.settings.spark, executors=largest, drivers=1 + len(job.inputs))
        if (short := quotas.shortage(api, settings.copies_namespace, needed)) is not None:
            seen = short.said(f"a copy of {name} on {executors(largest)} with its source", "needs")
            fix = f"raise it, wait for the copies that run, or lower job.{name}.profile_scale_outs"
            found += warning(WHAT, seen, fix)
    return found
