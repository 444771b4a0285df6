"""The door's own pages: every job at `/`, and each at `/job/NAME` with forms for pause, pin and resume.

They are read from the store and asked of the server at each request, in a thread: a store or a server that
does not answer keeps no other page waiting. What is given in a form is stored as `headroom pause` stores it.
Everything is written into the pages by jinja2 with its escaping on, and a Content-Security-Policy lets the
browser run no script at all.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from aiohttp import web

from models.errors import HeadroomError, Misconfigured
from models.ports import LATE_TICKS, Store
from models.quantities import Misuse, RecoveryEvent, executors, lasting, percent
from profiling_jobs.explain.explanation import near
from profiling_jobs.explain.wording import between, brief_s, capital, count, kind

from ..integrations.stores.opening import find_store, open_store
from ..operating import directives, stored_job
from ..operating.status import Dated, executors_in_words, going_on, job_status, server_status, status_of
from ..operating.stored_job import LOOKED_BACK, StoredJob
from ..settings import loading, times
from ..settings.schema import Settings
from . import timeline

ANSWER_S = 2.0  # judgement: of the server; the pages do without it
PATIENCE_S = 2.0  # judgement: with a store that others keep locked
AGAIN_S = 15  # judgement: a tick comes once a minute
MOST_READ = 300  # evaluations for one table; judgement: each takes less than a millisecond
SPANS = {"1h": 3600.0, "6h": 21_600.0, "24h": 86_400.0}
SPAN = "6h"
SHOWN = 20  # judgement: drills and failures, and what has happened, in a table
STYLE = "/headroom.css"
JOB = "/job/"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
}
FIELDS = {"--why": "The reason", "N": "The size", "until": "The end", "what": "The order"}
"""Setting that an error names -> the field of the form."""
COLOURS = {"kept": "kept", "keeps it": "kept", "not kept": "not-kept", "does not": "not-kept"}
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Wrong:
    """A form that was refused, with what was typed."""

    sentence: str
    typed: Mapping[str, str]


class NoSuchJob(HeadroomError):
    """Neither the settings nor the store know this job."""


class Home:
    """`links`: the title of Dagster's and MLflow's pages -> their address, with a `/` at its end, and what
    they show.
    """

    def __init__(self, folder: Path, links: Mapping[str, tuple[str, str]], *, read_only: bool) -> None:
        self._folder, self._links, self._read_only = folder, links, read_only
        self._style = (FOLDER / "headroom.css").read_text(encoding="utf-8")
        loader = jinja2.FileSystemLoader(FOLDER / "templates")
        self._templates = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
        )

    def has(self, path: str) -> bool:
        """Whether this is one of these pages."""
        return path in ("/", STYLE) or path.startswith(JOB)

    async def answer(self, request: web.Request) -> web.Response:
        """The page, or where a form leads to. The request has passed the rules of the door."""
        form = request.method == "POST" and request.path.startswith(JOB)
        if request.method not in ("GET", "HEAD") and not form:
            return _html(self._page("sentence.html", sentence="Here is nothing to send to."), status=405)
        if request.path == STYLE:
            return web.Response(text=self._style, content_type="text/css", headers=HEADERS)
        try:
            if request.path == "/":
                return _html(await asyncio.to_thread(self._home))
            name = request.path.removeprefix(JOB)
            if form:
                return await self._ordered(request, name)
            return _html(await asyncio.to_thread(self._job, name, request.query.get("span", SPAN)))
        except NoSuchJob as absent:
            return _html(self._page("sentence.html", sentence=str(absent)), status=404)
        except (HeadroomError, OSError) as error:  # the settings or the store cannot be read
            return _html(self._page("sentence.html", sentence=str(error)), status=503)

    async def _ordered(self, request: web.Request, name: str) -> web.Response:
        try:
            form = await request.post()
        except (ValueError, LookupError):
            return _html(self._page("sentence.html", sentence="The form cannot be read."), status=400)
        given = {key: value for key, value in form.items() if isinstance(value, str)}
        try:
            await asyncio.to_thread(self._give, name, given)
        except NoSuchJob:
            raise
        except (HeadroomError, Misuse) as refused:
            wrong = Wrong(_in_words(refused), given)
            return _html(await asyncio.to_thread(self._job, name, SPAN, wrong), status=400)
        # Loaded again, this page sends nothing a second time.
        return web.Response(status=303, headers={"Location": f"{_link(name)}#in-force"})

    # ------------------------------------------------------------------------------------------- in a thread

    def _settings(self) -> Settings:
        """Those in force of the server that has started the door."""
        kept = {loading.HEADROOM_SETTINGS: str(self._folder / "settings.json")}
        return loading.in_force(Path(), environment=kept)

    def _home(self) -> str:
        found: dict[str, Any] = {"jobs": {}, "removed": (), "orders": (), "problem": "", "at": ""}
        try:
            settings = self._settings()
            found = status_of(
                settings,
                self._folder,
                look_back=max(1, min(LOOKED_BACK, MOST_READ // max(1, len(settings.jobs)))),
                answer_s=ANSWER_S,
                patience_s=PATIENCE_S,
            )
        except (HeadroomError, OSError) as error:
            found["problem"] = str(error)
        promises = Counter(one["promise"] for one in found["jobs"].values())
        rows = [_row(name, one) for name, one in found["jobs"].items()]
        return self._page(
            "home.html",
            links=[(title, link, what) for title, (link, what) in self._links.items()],
            problem=found["problem"],
            notes=going_on(found),
            jobs=sorted(rows, key=lambda row: row["colour"] != "not-kept"),
            summary=", ".join(f"{many} {promise}" for promise, many in promises.most_common()),
            at=found["at"],
            again_s=AGAIN_S,
        )

    def _job(self, name: str, span: str, wrong: Wrong | None = None) -> str:
        settings = self._settings()
        job = settings.jobs.get(name)
        running, problem = server_status(self._folder, answer_s=ANSWER_S)
        with find_store(settings.store, self._folder, patience_s=PATIENCE_S) or nullcontext() as store:
            there = None if store is None else stored_job.stored(name, job, store, self._folder)
            if job is None and (there is None or not there.known):
                raise NoSuchJob(f"There is no job {name}.")
            now_s = max(time.time() if there is None else there.now_s, running.get("now_s", 0.0))
            found = () if store is None else store.evaluations(name, limit=LOOKED_BACK)
            in_force = [] if there is None else _in_force(there)
            recoveries = [] if store is None else _recoveries(store.events(name))
            target_s = None if job is None else job.recovery_target_s
            drawn = _timeline(store, name, span, now_s=now_s, target_s=target_s)
        status = job_status(name, found, running, now_s=now_s)
        going = [one for one in running.get("orders", ()) if one["state"] == "running"]
        gone = [name] if job is None and status["state"] not in (None, "stopped") else []
        return self._page(
            "job.html",
            name=name,
            here=_link(name),
            links=self._links_of(name),
            problem=problem or running.get("problem", ""),
            notes=going_on({"removed": gone, "orders": [one for one in going if one["job"] == name]}),
            job=_row(name, status),
            why_not=status["why"] if found else "Nothing was evaluated yet.",
            in_force=in_force,
            wrong="" if wrong is None else wrong.sentence,
            typed={**dict.fromkeys(("what", "why", "until", "size"), ""), **(wrong.typed if wrong else {})},
            read_only=self._read_only,
            least=1 if job is None else job.scale_out_min,
            most=None if job is None else job.scale_out_max,
            recoveries=recoveries,
            colours=COLOURS,
            at=times.shown(now_s),
            **drawn,
            **self._explained(found, now_s=now_s),
        )

    def _links_of(self, name: str) -> list[tuple[str, str]]:
        links = {title: link for title, (link, _) in self._links.items()}
        if "Dagster" in links:
            links["Dagster"] += f"assets/decision?partition={quote(name, safe='')}"
        if "MLflow" in links:
            links["MLflow"] += "#/models"
        return list(links.items())

    def _explained(self, found: Sequence[Dated], *, now_s: float) -> dict[str, Any]:
        """What the template says of the newest evaluation."""
        if not found or (explained := stored_job.explained(found)) is None:
            nothing = dict.fromkeys(("evaluated", "target", "confidence"), "")
            return {"answers": None, "sizes": (), "models": (), **nothing}
        e, answers = explained
        old_s = max(0.0, now_s - e.at_s)
        evaluated = f"Evaluated {times.shown(e.at_s)}, {lasting(old_s)} ago; every {lasting(e.interval_s)}; "
        evaluated += f"mode {e.mode}."
        if old_s > LATE_TICKS * e.interval_s:
            evaluated += f" Nothing was evaluated for {lasting(old_s)}: this may be out of date."
        mlflow, _ = self._links.get("MLflow", ("", ""))
        return {
            "answers": answers,
            "sizes": near(answers),
            "evaluated": evaluated,
            "target": f"{e.promise['target_s']:g} s",
            "confidence": f"{100 * e.promise['confidence']:g} %",
            "models": [
                {
                    "name": f"{model} {version}",
                    "link": mlflow and f"{mlflow}#/models/{quote(f'{e.job}.{model}')}/versions/{version}",
                    "needs": e.provisional.get(model, ""),
                }
                for model, version in sorted(e.models.items())
            ],
        }

    def _give(self, name: str, given: Mapping[str, str]) -> None:
        """Store a pause, a pin or a resume, as the commands of these names do."""
        settings = self._settings()
        job = settings.jobs.get(name)
        with (open_store if job else find_store)(settings.store, self._folder) or nullcontext() as store:
            there = None if store is None else stored_job.stored(name, job, store, self._folder)
            if there is None or (job is None and not there.known):
                raise NoSuchJob(f"There is no job {name}.")
            who, why = f"{stored_job.who()} (home page)", given.get("why", "")
            match given.get("what"):
                case "resume":
                    directives.resume(there, who=who, why=why)
                case "pause" | "pin" as what:
                    until_s = _until_s(given.get("until", ""), now_s=there.now_s)
                    size = _size(given.get("size", "")) if what == "pin" else None
                    directives.give(there, what, who=who, why=why, until_s=until_s, value=size)
                case _:
                    raise Misconfigured("what", "is pause, pin or resume")

    def _page(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(values)


def _html(text: str, *, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/html", headers=HEADERS)


def _link(name: str) -> str:
    return JOB + quote(name, safe="")


def _row(name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """Status of one job, as the table and the head of its page show it."""
    promise, models, ago = one["promise"], len(one["models"]), one["ticked_ago_s"]
    in_charge = f"{models} in charge" if models else "none"
    provisional = f", provisional: {', '.join(one['provisional'])}" if one["provisional"] else ""
    state = [] if one["state"] in (None, "running") else [one["state"]]
    return {
        "name": name,
        "link": _link(name),
        "promise": promise if one["probability"] is None else f"{promise} ({percent(one['probability'])})",
        "colour": COLOURS.get(promise, "other"),
        "executors": executors_in_words(one),
        "load": "?" if one["load_rps"] is None else count(one["load_rps"]),
        "lag": "?" if one["lag_s"] is None else f"{brief_s(one['lag_s'])} s",
        "ticked": "never" if ago is None else f"{lasting(ago)} ago",
        "models": in_charge + provisional,
        "in_force": ", ".join([*state, *one["in_force"]]),
        "alarms": one["alarms"],
    }


def _in_force(there: StoredJob) -> list[str]:
    """What people have ordered, what was set from outside, and which sizes are barred: a sentence each."""
    given = there.store.directives(there.name, now_s=there.now_s)
    found = [f"{capital(directives.in_words(one))}." for one in given]
    if any(one.kind == "pin" for one in given):
        found += directives.doubts(there)
    if edit := directives.foreign_edit(there):
        size = capital(executors(int(edit["found"]), "were"))
        found.append(f"{size} set from outside, where we had set {edit['ours']}: kept until a resume.")
    for one in directives.quarantines(there):
        more = "more" if one.get("direction") == "out" else "fewer"
        size = capital(executors(int(one["scale_out"]), "are"))
        found.append(f"{size} barred until {times.shown(float(one['until_s']))}, and {more}: {one['why']}.")
    people = {"pause", "pin"}
    if people & {one.kind for one in given} != people & set(there.newest.get("orders") or ()):
        found.append(f"This is not in force yet. {there.next_tick()}")
    return found


def _timeline(
    store: Store | None, name: str, span: str, *, now_s: float, target_s: float | None
) -> dict[str, Any]:
    """What the template says of the last hours."""
    span = span if span in SPANS else SPAN
    moments = {"since_s": now_s - SPANS[span], "until_s": now_s}
    points, marks = ([], []) if store is None else timeline.read(store, name, **moments)
    return {
        "drawing": timeline.draw(points, marks, target_s=target_s, **moments) if points else None,
        "happened": [(times.clock(mark.at_s), mark) for mark in marks[: -SHOWN - 1 : -1]],
        "spans": [
            {"name": one, "here": one == span, "link": f"{_link(name)}?span={one}#timeline"} for one in SPANS
        ],
        "zone": times.zone(now_s),
    }


def _recoveries(events: Sequence[tuple[RecoveryEvent, Mapping[str, Any]]]) -> list[dict[str, str]]:
    """The newest failures and changes of size, each with the recovery that was predicted for it."""
    found = []
    for event, details in events[: -SHOWN - 1 : -1]:
        rate, measured = details.get("rate_rps"), event.recovery_s
        found.append(
            {
                "when": times.shown(event.failed_at_s, seconds=False),
                "kind": kind(event.kind),
                "of": "a copy" if details.get("on") == "copy" else "the live job",
                "executors": str(event.scale_out),
                "load": "?" if rate is None else count(rate),
                "measured": f"{brief_s(measured)} s" if math.isfinite(measured) else "not back",
                "predicted": _predicted(details.get("predicted_recovery_s")),
            }
        )
    return found


def _predicted(said: Mapping[str, Any] | None) -> str:
    if said is None:
        return "–"
    if "mid" not in said:
        return f"nothing: {said.get('reason', 'it is not known why')}"
    ends = {name: said[name] if math.isfinite(said[name]) else None for name in ("low", "mid", "high")}
    middle = "longer than was looked at" if ends["mid"] is None else f"{brief_s(ends['mid'])} s"
    return f"{middle} ({between(ends, brief_s)})"


def _until_s(text: str, *, now_s: float) -> float | None:
    """When it ends; None: not by itself."""
    try:
        return times.moment_s(text, now_s=now_s, toward="future") if text.strip() else None
    except ValueError as wrong:
        raise Misconfigured("until", str(wrong)) from wrong


def _size(text: str) -> int:
    try:
        return int(text)
    except ValueError as wrong:
        raise Misconfigured("N", f"{text!r} is not a whole number") from wrong


def _in_words(refused: HeadroomError | Misuse) -> str:
    """An error with the name of the field instead of that of the setting."""
    if isinstance(refused, Misconfigured) and refused.setting in FIELDS:
        return f"{FIELDS[refused.setting]} {refused.problem}."
    return str(refused)
