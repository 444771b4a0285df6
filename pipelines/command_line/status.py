"""`headroom status`: each job in a line: size, load, lag, promise, last tick, and what is in force."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from models.errors import HeadroomError
from models.quantities import Unknown, lasting
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.explanation import Line, has_decided, in_short
from profiling_jobs.explain.wording import brief_s, verdict_on
from profiling_jobs.orders import ServerBusy

from ..integrations.stores.opening import find_store
from ..processes import owner
from ..server.client import START_IT, Client
from ..settings import times
from . import options, page, stored_job

EVERY_S = 2.0  # judgement: a tick comes every ten seconds at the most
HEADER = ("job", "size", "records/s", "lag s", "promise", "last tick", "in force")
COLOURS = {"kept": "green", "not kept": "red", "recovering": "yellow"}


@click.command("status")
@click.argument("job", required=False)
@click.option("--watch", is_flag=True, help=f"Refresh every {EVERY_S:g} s, until Ctrl-C.")
@options.file
@options.folder
@options.as_json("Print it as JSON; with --watch a line each time.")
def command(job: str | None, watch: bool, file: Path, folder: Path, as_json: bool) -> None:
    """Show every job, or only JOB: size, load, lag, whether the promise is kept, and what is in force.

    \b
    Exit code 0: the promise of every job is kept now.
    Exit code 1: a promise is not kept, or it is not known.
    """
    live = watch and not as_json and sys.stdout.isatty()
    with (
        Live(console=Console(highlight=False, markup=False), auto_refresh=False)
        if live
        else nullcontext() as on
    ):
        while True:
            found = looked(file, folder, job)
            if as_json:
                options.print_json(**found)
            elif on is not None:
                on.update(shown(found), refresh=True)
            else:
                page.show(shown(found))
            if not watch:
                break
            time.sleep(EVERY_S)
    options.answer_no(any(one["promise"] != "kept" for one in found["jobs"].values()))


def looked(file: Path, folder: Path, only: str | None = None) -> dict[str, Any]:
    """Status of the jobs, as plain JSON."""
    settings = stored_job.settings_with(only, file)
    running, problem = _server(folder)
    now_s = max(time.time(), running.get("now_s", 0.0))
    jobs = {}
    names = sorted(settings.jobs) if only is None else [only]
    with find_store(settings.store, folder) or nullcontext() as store:
        evaluated = {name: store.evaluations(name, limit=1) if store else () for name in names}
    for name, newest in evaluated.items():
        status = running.get("jobs", {}).get(name, {})
        jobs[name] = _job(newest[-1] if newest else None, status, now_s=now_s)
        if not running:  # what was evaluated last says nothing of now
            jobs[name]["promise"] = "not evaluated"
    theirs = running.get("jobs", {})
    runs = {
        name for name, one in theirs.items() if one["state"] != "stopped" and not one.get("elsewhere", False)
    }
    going_on = [one for one in running.get("orders", ()) if one["state"] == "running"]
    return {
        "at": times.shown(now_s),
        "server": None if problem else running.get("folder"),
        "problem": problem or running.get("problem", ""),
        "jobs": jobs,
        "removed": [] if only else sorted({*runs, *running.get("removed", ())} - set(settings.jobs)),
        "orders": [one for one in going_on if only in (None, one["job"])],
    }


def _server(folder: Path) -> tuple[Mapping[str, Any], str]:
    """Status that the server reports, or the reason why it reports none."""
    if owner.holder(folder) is None:
        return {}, f"no server runs for {folder}, nothing is evaluated: {START_IT}"
    try:
        return Client(folder, answer_s=5.0).status(), ""
    except ServerBusy as busy:
        return {"busy": True}, str(busy)
    except HeadroomError as error:
        return {}, str(error)


def _job(newest: tuple[float, Mapping[str, Any]] | None, status: Mapping[str, Any], *, now_s: float) -> Any:
    declared, alive = status.get("declared_scale_out"), status.get("executors_alive")
    row: dict[str, Any] = {
        "state": status.get("state"),
        "scale_out": declared if isinstance(declared, int) else None,
        "executors_alive": alive if isinstance(alive, int) else None,
        "load_rps": None,
        "lag_s": None,
        "promise": "not evaluated",
        "ticked_ago_s": None,
        "in_force": [],
        "why": "",
    }
    if newest is None:
        return row
    evaluation = stored_job.evaluation_of(newest[1])
    if evaluation is None:
        return row | {"why": "the last tick was written by another version of Headroom"}
    line: Line = in_short(evaluation)
    size = evaluation.scale_out
    rate = evaluation.observation.get("arrival_rps")
    return row | {
        "scale_out": row["scale_out"] or (None if isinstance(size, Unknown) else size),
        "load_rps": rate if isinstance(rate, int | float) else None,
        "lag_s": None if isinstance(evaluation.lag_s, Unknown) else evaluation.lag_s,
        "promise": _promise(evaluation, now_s=now_s),
        "ticked_ago_s": round(max(0.0, now_s - evaluation.at_s), 1),
        "in_force": [*evaluation.orders, *(["set from outside"] if evaluation.foreign else [])],
        "why": line.why,
    }


def _promise(evaluation: Evaluation, *, now_s: float) -> str:
    if now_s - evaluation.at_s > stored_job.LATE_TICKS * evaluation.interval_s:
        return "not evaluated"
    if evaluation.change:
        return "changing size"
    if evaluation.recovering:
        return "recovering"
    size = evaluation.scale_out
    verdict = None if isinstance(size, Unknown) else verdict_on(evaluation, size)
    if not has_decided(evaluation) or verdict is None:
        return "not known"
    return {"feasible": "kept", "infeasible": "not kept"}.get(str(verdict["status"]), "not known")


def shown(found: Mapping[str, Any]) -> Group:
    """Status of the jobs, as text for a terminal."""
    rows = []
    for name, one in found["jobs"].items():
        alive, size = one["executors_alive"], one["scale_out"]
        sized = "?" if size is None else str(size)
        if alive is not None and size is not None and alive != size and one["state"] is not None:
            sized = f"{alive} of {size}"
        state = one["state"] if one["state"] not in (None, "running") else ""
        ago = one["ticked_ago_s"]
        rows.append(
            (
                name,
                sized,
                "?" if one["load_rps"] is None else f"{one['load_rps']:,.0f}",
                "?" if one["lag_s"] is None else brief_s(one["lag_s"]),
                Text(one["promise"], style=COLOURS.get(one["promise"], "yellow")),
                "never" if ago is None else f"{lasting(ago)} ago",
                ", ".join([*([state] if state else []), *one["in_force"]]) or "–",
            )
        )
    lines = [Text(found["problem"], style="yellow")] if found["problem"] else []
    lines += [
        Text(f"{name} is not in headroom.toml any more, and runs: `headroom stop {name}` ends it")
        for name in found["removed"]
    ]
    for order in found["orders"]:
        share = "" if order["share"] is None else f" {order['share']:.0%}"
        lines.append(Text(f"{order['what']} of {order['job']}{share}: {order['stage']}"))
    return Group(page.columns(HEADER, rows, right="lrrrlrl"), *lines)
