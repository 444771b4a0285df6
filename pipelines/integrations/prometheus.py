"""Processors that pods use, from a Prometheus server that collects the metrics of kubelets (cAdvisor).

    rate  =  Σ over the containers of a pod  rate(container_cpu_usage_seconds_total[2m])

It is asked for a short stretch that ends now (`/api/v1/query_range`), and the newest number of each pod
counts. What it has no number for is Unknown, never zero. Where it does not answer, it is not asked again for
a while: a server that hangs must not delay what else is read of the jobs.
"""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Mapping
from typing import Any

from models.errors import Misconfigured, NotReady
from models.quantities import Unknown

SETTING = "kubernetes.prometheus_url"
METRIC = "container_cpu_usage_seconds_total"
WINDOW = "2m"  # Prometheus advises four scrapes; that of kubelets is 30 s in kube-prometheus
RECENT_S = 60.0  # judgement: what it knows arrives some seconds late; older numbers say nothing about now
STEP_S = 15.0
ANSWER_S = 2.0  # judgement: milliseconds
AGAIN_S = 30.0  # judgement: as long as a scrape
NOT_THERE = Unknown(f"Prometheus has no {METRIC} of its pod in the last {RECENT_S:g} s")


class Prometheus:
    """The HTTP API of one server. Safe from several threads."""

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._monotonic = monotonic
        self._turn = threading.Lock()
        self._silent: tuple[float, str] = (-math.inf, "")
        """Until when it is not asked, and why."""

    def processors(self, namespace: str, pods: Collection[str]) -> Mapping[str, float | Unknown]:
        """How many processors each of these pods uses, as a mean of two minutes."""
        if not pods:
            return {}
        with self._turn:
            until_s, why = self._silent
        if self._monotonic() < until_s:
            return dict.fromkeys(pods, Unknown(why))
        try:
            known = self.ask(expression(namespace, pods))
        except (Misconfigured, NotReady) as error:
            with self._turn:
                self._silent = self._monotonic() + AGAIN_S, str(error)
            return dict.fromkeys(pods, Unknown(str(error)))
        return {pod: known.get(pod, NOT_THERE) for pod in pods}

    def ask(self, query: str) -> Mapping[str, float | Unknown]:
        """The newest number of the last minute, by the label `pod` of each series."""
        end_s = self._clock()
        body = {"query": query, "start": end_s - RECENT_S, "end": end_s, "step": STEP_S}
        request = urllib.request.Request(
            f"{self._url}/api/v1/query_range", data=urllib.parse.urlencode(body).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refused(error.code, _error(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotReady(f"Prometheus at {self._url} does not answer properly ({error})") from error
        try:
            if said["status"] == "success" and said["data"]["resultType"] == "matrix":
                series = said["data"]["result"]
                return {one["metric"].get("pod", ""): _newest(one["values"]) for one in series}
            told = said.get("error", said["status"])
        except (KeyError, TypeError, ValueError, AttributeError):
            told = "its answer is not that of Prometheus' API"
        raise Misconfigured(SETTING, f"{self._url}: {told}")

    def _refused(self, status: int, told: str) -> Misconfigured | NotReady:
        """503 is an evaluation that timed out, 422 one that cannot be done, 400 a wrong question."""
        if status in (429, 500, 502, 503, 504):
            return NotReady(f"Prometheus at {self._url} answered {status} ({told}): it is asked again")
        return Misconfigured(
            SETTING, f"{self._url} answered {status} ({told}): is it the address of a Prometheus server?"
        )


def expression(namespace: str, pods: Collection[str]) -> str:
    """Without the cgroup of the whole pod (no container), which would be counted twice. Names need no escape:
    they are letters, digits, dashes and dots.
    """
    names = "|".join(sorted(pods)).replace(".", "[.]")
    which = f'namespace="{namespace}",pod=~"{names}",container!="",container!="POD"'
    return f"sum by (pod) (rate({METRIC}{{{which}}}[{WINDOW}]))"


def _newest(values: list[Any]) -> float | Unknown:
    """The newest number; Prometheus writes them as text, also NaN and +Inf, which are none."""
    for _, text in reversed(values):
        if math.isfinite(found := float(text)):
            return found
    return NOT_THERE


def _error(answer: urllib.error.HTTPError) -> str:
    try:
        told = json.load(answer)
        return f"{told['errorType']}: {told['error']}"
    except (OSError, ValueError, KeyError, TypeError):
        return answer.reason
