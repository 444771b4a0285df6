"""Everything on a cluster that belongs to an owner, found by its label; and its removal.

ConfigMaps and Secrets go with the Deployment that owns them, executors with the pod of their driver. No
account may list Secrets: their names are in an annotation of the Deployment. The Lease stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.errors import NotReady
from profiling_jobs.chaos import CHAOS_KINDS, FORCED

from ...integrations.kubernetes_api import KINDS as RESOURCES
from ...integrations.kubernetes_api import Forbidden, KubernetesApi, NoSuchKind
from ...processes.owner import owner_id
from ...settings.schema import KubernetesSettings
from .lease import OwnerLease
from .manifests import JOB, LAUNCH, OWNER, owner_label

KINDS = (*CHAOS_KINDS, "Deployment", "Pod")  # failures first: Chaos Mesh puts their pods right
GONE_S = 150.0  # judgement: a driver has 90 s to end its batch
POLL_S = 0.5


@dataclass(frozen=True)
class Belonging:
    """One object."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    owned: bool = False
    """It goes with another object: an executor must not go before the last batch of its driver has ended."""
    job: str = ""
    wanted: bool = False
    """A Deployment whose driver runs, or should."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name} in {self.namespace}"


def belongings(
    api: KubernetesApi, settings: KubernetesSettings, *, owner: str, kinds: Sequence[str] = KINDS
) -> tuple[Belonging, ...]:
    """All of an owner, in the order in which they can be removed."""
    return tuple(_all(api, settings, owner, kinds))


def remove(
    api: KubernetesApi,
    settings: KubernetesSettings,
    *,
    owner: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Belonging, ...]:
    """Remove all of it, and wait until nothing is left; what that was."""
    found = belongings(api, settings, owner=owner)
    for one in (each for each in found if not each.owned):
        api.delete(one.kind, one.namespace, one.name, uid=one.uid)
    until_s = clock() + GONE_S
    while left := belongings(api, settings, owner=owner):
        if clock() > until_s:
            names = ", ".join(map(str, left))
            raise NotReady(
                f"{names} did not go within {GONE_S:.0f} s: see `kubectl describe`"
                + "".join(map(_let_go, (one for one in left if one.kind in CHAOS_KINDS)))
            )
        sleep(POLL_S)
    return found


def remove_all(settings: KubernetesSettings, folder: Path) -> tuple[Belonging, ...]:
    """The same for the owner of a folder, which must not be at work."""
    mine = owner_label(owner_id(folder), settings)
    api = KubernetesApi.connect(settings)
    try:
        with OwnerLease(api, settings.own_namespace, owner=mine):
            return remove(api, settings, owner=mine)
    finally:
        api.close()


def _all(
    api: KubernetesApi, settings: KubernetesSettings, owner: str, kinds: Sequence[str]
) -> Iterator[Belonging]:
    namespaces = tuple(dict.fromkeys((settings.namespace, settings.copies_namespace)))
    for kind in kinds:
        for namespace in namespaces:
            try:
                there = api.list(kind, namespace, labels={OWNER: owner})
            except NoSuchKind:
                continue  # no Chaos Mesh
            except Forbidden:
                if kind in CHAOS_KINDS:
                    continue  # no right to cause failures there, so there are none of ours
                raise
            for one in there:
                about = one["metadata"]
                yield Belonging(
                    kind,
                    namespace,
                    about["name"],
                    about["uid"],
                    owned=bool(about.get("ownerReferences")),
                    job=about["labels"].get(JOB, ""),
                    wanted=kind == "Deployment" and bool(one["spec"].get("replicas", 1)),
                )
                if kind == "Deployment" and (files := about.get("annotations", {}).get(LAUNCH)):
                    for of_it in ("ConfigMap", "Secret"):
                        yield Belonging(of_it, namespace, files, owned=True)


def _let_go(failure: Belonging) -> str:
    plural = RESOURCES[failure.kind].plural
    return (
        f". Chaos Mesh has not put the pods of {failure.name} right: to give up waiting, `kubectl -n "
        f"{failure.namespace} annotate {plural} {failure.name} {FORCED}`"
    )
