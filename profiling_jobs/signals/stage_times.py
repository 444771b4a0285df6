"""From one executor's stages, what would several of them sustain?

Each stage of a batch is an operator: it takes records from the one before (weight = its records per record
of the sources) and one slot works off r of them per second of task time. How many slots each gets, and the
rate then, is what bounded inverse DS2 answers. Fewer slots than stages take turns: 1 / Σ (w / r) per slot.

A first guess only: planning, shuffles and waves of tasks are not in it, so it lies above the truth.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.planning import bounded_inverse_ds2
from models.quantities import Unknown

from ..errors import NotReady

ANSWER_S = 5.0
NEWEST_JOBS = 20  # judgement: what is older was still warming up


@dataclass(frozen=True)
class StageTime:
    """One stage of the batches, added up over several of them."""

    records: int
    task_s: float


def guesses(stages: Sequence[StageTime], sizes: Iterable[int]) -> Mapping[int, float] | Unknown:
    """The rate that each number of slots would carry."""
    useful = [stage for stage in stages if stage.records > 0 and stage.task_s > 0.0]
    if not useful or stages[0].records == 0:
        return Unknown("the stages of the single-slot run have not read any records")
    rates = [stage.records / stage.task_s for stage in useful]
    weights = [stage.records / useful[0].records for stage in useful]
    taking_turns = 1.0 / sum(weight / rate for weight, rate in zip(weights, rates, strict=True))
    found: dict[int, float] = {}
    for size in sizes:
        answer = bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=size)
        found[size] = size * taking_turns if isinstance(answer, Unknown) else answer[1]
    return found


def read(page: str, application_id: str) -> tuple[StageTime, ...]:
    """The stages of the newest batches of an application, from its driver's page."""
    api = f"{page.rstrip('/')}/api/v1/applications/{application_id}"
    jobs = _get(f"{api}/jobs?status=succeeded")
    stages = {int(one["stageId"]): one for one in _get(f"{api}/stages?status=complete")}
    newest = sorted(jobs, key=lambda job: -int(job["jobId"]))[:NEWEST_JOBS]
    added: list[list[float]] = []
    for job in newest:
        done = [stages[number] for number in sorted(job["stageIds"]) if number in stages]
        if not done or not done[0]["inputRecords"]:
            continue  # not a batch, or one of which the page has forgotten a part
        for place, stage in enumerate(done):
            if place == len(added):
                added.append([0.0, 0.0])
            added[place][0] += stage["inputRecords"] + stage["shuffleReadRecords"]
            added[place][1] += stage["executorRunTime"] / 1000.0
    return tuple(StageTime(int(records), task_s) for records, task_s in added)


def _get(url: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found
    except (OSError, ValueError) as error:
        raise NotReady(f"the driver's page does not answer ({error}): try again") from error
