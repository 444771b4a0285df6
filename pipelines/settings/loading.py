"""Reads headroom.toml into the models of pipelines/settings/schema.py.

Every mistake is reported at once, each with its path, its line, what is accepted and the nearest valid name.
An environment variable overrides a value: `HEADROOM_SPARK_SLOTS` for `[spark] slots`,
`HEADROOM_JOB_ORDERS_MODE` for `[job.orders] mode`. `SettingsFile` is the file of a running server: it is read
again when it has changed.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from models.errors import Misconfigured
from profiling_jobs.jobs import JOBS

from .checks import (
    of_applications,
    of_job,
    of_labels,
    of_names,
    of_notify,
    of_services,
    of_web,
)
from .schema import (
    LIVE_KEYS,
    BrokerSettings,
    DeploymentSettings,
    JobSettings,
    KubernetesSettings,
    MlflowSettings,
    NotifySettings,
    RetentionSettings,
    Section,
    Settings,
    SparkSettings,
    StoreSettings,
    WebSettings,
)

JOB_NAME = re.compile(r"[a-z][a-z0-9-]{0,38}")
"""Job names become labels, keys, folders and model names: the strictest of them decides."""

SECTIONS: dict[str, type[Section]] = {
    "deployment": DeploymentSettings,
    "brokers": BrokerSettings,
    "spark": SparkSettings,
    "kubernetes": KubernetesSettings,
    "store": StoreSettings,
    "mlflow": MlflowSettings,
    "web": WebSettings,
    "notify": NotifySettings,
    "retention": RetentionSettings,
}
HEADROOM_SETTINGS = "HEADROOM_SETTINGS"
"""The environment variable that names the settings in force of the server."""
_PREFIXES = tuple(f"HEADROOM_{name.upper()}_" for name in (*SECTIONS, "job"))
_WORDS = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "have at least 1 character": "not be empty",
    "a valid dictionary": "a table",
    "a valid tuple": "a list",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "a string",
}
AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong with the file."""

    path: str
    line: int | None
    problem: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.path}: {self.problem}"


class WrongSettings(Misconfigured):
    """All that is wrong with the file, a line each."""

    def __init__(self, file: str, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__(file, "; ".join(str(m) for m in mistakes))
        self.mistakes = mistakes

    @property
    def first(self) -> str:
        """The first mistake, and how many more there are."""
        more = len(self.mistakes) - 1
        return f"{self.mistakes[0]}{f' (and {more} more)' if more else ''}"


def load(file: Path, *, environment: Mapping[str, str]) -> Settings:
    """The settings in `file`, or every mistake in it as one error."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a mark in front
    except FileNotFoundError as missing:
        raise Misconfigured(
            str(file),
            "there is no such file; write one with `headroom init SCRIPT`, or name the right --file",
        ) from missing
    except (OSError, UnicodeDecodeError) as unreadable:
        raise Misconfigured(str(file), f"cannot be read: {unreadable}") from unreadable
    return parse(text, file=str(file), environment=environment)


def parse(text: str, *, file: str = "headroom.toml", environment: Mapping[str, str]) -> Settings:
    """The settings in the text of a file, or every mistake in it as one error."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        at = int(line.group(1)) if line else None
        raise WrongSettings(file, (Mistake("the file", at, f"is not valid TOML: {error}"),)) from error
    except RecursionError as error:
        deep = "has tables or lists nested too deep to be read: no setting needs more than three levels"
        raise WrongSettings(file, (Mistake("the file", None, deep),)) from error
    reader = _Reader(lines(text), environment)
    found = {name: reader.section(name, kind, tables.get(name, {})) for name, kind in SECTIONS.items()}
    brokers, spark = found["brokers"], found["spark"]
    if isinstance(brokers, BrokerSettings) and isinstance(spark, SparkSettings):
        reader.all_wrong(of_services(brokers, spark))
        if getattr(found["deployment"], "kind", None) == "kubernetes" and brokers.bootstrap is None:
            reader.wrong("brokers.bootstrap", "must name your brokers: in a cluster none are started")
    if isinstance(found["web"], WebSettings):
        reader.all_wrong(of_web(found["web"]))
    if isinstance(found["notify"], NotifySettings):
        reader.all_wrong(of_notify(found["notify"]))
    jobs = reader.jobs(tables.get("job", {}))
    if isinstance(found["deployment"], DeploymentSettings):
        reader.all_wrong(of_labels(jobs, found["deployment"].kind))
        reader.all_wrong(of_applications(jobs, found["deployment"].kind))
    for name in tables.keys() - {*SECTIONS, "job"}:
        near = "; did you mean job.NAME?" if name == "jobs" else _nearest(name, (*SECTIONS, "job.NAME"))
        reader.wrong(name, f"no such section{near}")
    reader.unused_environment()
    if reader.mistakes:
        raise WrongSettings(file, tuple(sorted(reader.mistakes, key=lambda m: (m.line or 0, m.path))))
    return Settings.model_validate({**found, "jobs": jobs})


class _Reader:
    """Validates the sections and collects all mistakes."""

    def __init__(self, lines: Mapping[str, int], environment: Mapping[str, str]) -> None:
        self.lines = lines
        self.environment = {k: v for k, v in environment.items() if k.startswith(_PREFIXES)}
        self.variables: list[str] = []
        self.mistakes: list[Mistake] = []

    def wrong(self, path: str, problem: str) -> None:
        line = self.lines.get(path) or self.lines.get(path.rpartition(".")[0])
        self.mistakes.append(Mistake(path, line, problem))

    def all_wrong(self, problems: Iterable[tuple[str, str]]) -> None:
        for path, problem in problems:
            self.wrong(path, problem)

    def jobs(self, tables: Any) -> dict[str, JobSettings]:
        if not isinstance(tables, dict):
            self.wrong("job", "must be tables [job.NAME]")
            return {}
        self.all_wrong(of_names(tables))
        jobs = {}
        for name, table in tables.items():
            path = f"job.{name}"
            if not JOB_NAME.fullmatch(name):
                self.wrong(path, "a job's name matches [a-z][a-z0-9-]{0,38}: lower case, digits and hyphens")
                continue
            job = self.section(path, JobSettings, table, complete=_completed)
            if job is None:
                continue
            self.all_wrong(of_job(job, path))
            # Copies of an attached job begin with its present size.
            if job.attach and job.executors:
                job = job.model_copy(update={"scale_out": job.executors})
            jobs[name] = job
        return jobs

    def section(
        self,
        path: str,
        kind: type[AnySection],
        table: Any,
        *,
        complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    ) -> AnySection | None:
        """The validated section; None where the table has a mistake."""
        if not isinstance(table, dict):
            self.wrong(path, f"must be a table [{path}]")
            return None
        before = len(self.mistakes)
        values = {key: _with_tuples(value) for key, value in table.items()}
        overridden = self._overrides(path, kind)
        for key, (variable, text) in overridden.items():
            try:
                values[key] = _with_tuples(_from_text(text, kind, key))
            except (tomllib.TOMLDecodeError, RecursionError):
                problem = (
                    f"got {text[:200]!r} from the environment variable {variable}, which is not a TOML value"
                )
                self.mistakes.append(Mistake(f"{path}.{key}", None, problem))
                values.pop(key, None)
        try:
            section = kind.model_validate(complete(values))
        except ValidationError as invalid:
            for error in invalid.errors():
                key = str(error["loc"][0])
                problem = _problem(error, kind)
                if key in overridden:
                    problem = f"{problem} (from the environment variable {overridden[key][0]})"
                    self.mistakes.append(Mistake(f"{path}.{key}", None, problem))
                else:
                    self.wrong(f"{path}.{key}", problem)
            return None
        for key in _variables(kind):  # the variable may begin as ours do
            self.environment.pop(getattr(section, key) or "", None)
        return section if len(self.mistakes) == before else None

    def _overrides(self, path: str, kind: type[Section]) -> dict[str, tuple[str, str]]:
        """Key -> the environment variable that overrides it, and its text."""
        variables = {key: variable_of(f"{path}.{key}") for key in kind.model_fields}
        self.variables += variables.values()
        return {
            key: (variable, self.environment.pop(variable))
            for key, variable in variables.items()
            if variable in self.environment
        }

    def unused_environment(self) -> None:
        for variable in self.environment:
            near = difflib.get_close_matches(variable, self.variables, n=1, cutoff=0.8)
            meant = f"; did you mean {near[0]}?" if near else ""
            self.wrong(variable, f"this environment variable belongs to no setting{meant}")


def _completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is set of a job, on top of what our benchmark job that `build` names is always measured with."""
    fixed = next((job for job in JOBS.values() if job.build == given.get("build")), None)
    if fixed is None:
        return dict(given)
    keys = ("trigger_s", "max_offsets_per_trigger", "state_partitions", "longest_window_s", "event_time")
    conf = MappingProxyType({**fixed.conf, **given.get("conf", {})})
    return {**{key: getattr(fixed, key) for key in keys}, **given, "conf": conf}


def variable_of(path: str) -> str:
    """The environment variable that overrides the value at `path`."""
    return "HEADROOM_" + re.sub(r"[.-]", "_", path).upper()


def _problem(error: ErrorDetails, kind: type[Section]) -> str:
    """A pydantic error in the words of the file: what is accepted, what was given, the nearest name."""
    key, given = str(error["loc"][0]), error["input"]
    if error["type"] == "extra_forbidden":
        return f"no such key{_nearest(key, tuple(kind.model_fields))}"
    if error["type"] == "missing":
        return f"is missing; {kind.model_fields[key].description}"
    if key in _variables(kind):  # not quoted: it may be the secret itself
        return "must be the name of an environment variable, and not what it holds"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "literal_error":
        accepted = re.findall(r"'([^']*)'", error["ctx"]["expected"])
        near = difflib.get_close_matches(str(given), accepted, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"must be one of {', '.join(accepted)}, got {given!r}{meant}"
    must = re.sub(r"^(Input|String) should", "must", error["msg"])
    for theirs, ours in _WORDS.items():
        must = must.replace(theirs, ours)
    inside = "".join(f"{name}: " for name in error["loc"][1:] if isinstance(name, str))
    return f"{inside}{must}, got {list(given) if isinstance(given, tuple) else given!r}"


@functools.cache
def _variables(kind: type[Section]) -> frozenset[str]:
    """The keys that name an environment variable with a secret."""
    return frozenset(
        key
        for key, schema in kind.model_json_schema()["properties"].items()
        if any(one.get("secret") for one in schema.get("anyOf", [schema]))
    )


def secrets(settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that the settings name, the longest first: what no message may show."""
    named = {
        getattr(getattr(settings, name), key)
        for name, kind in SECTIONS.items()
        for key in _variables(kind)
        if not key.startswith("username")
    }
    names = {*named, "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"} - {None}
    return tuple(sorted({environment.get(name, "") for name in names} - {""}, key=len, reverse=True))


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"


def _from_text(text: str, kind: type[Section], key: str) -> Any:
    """A value out of an environment variable: a string where one is wanted, else as TOML would read it."""
    schema = kind.model_json_schema()["properties"][key]
    if any(one.get("type") == "string" for one in schema.get("anyOf", [schema])):
        return text
    return tomllib.loads(f"value = {text}")["value"]


def _with_tuples(value: Any) -> Any:
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


class SettingsFile:
    """The settings in force of a running server, which follow headroom.toml as far as they can.

    The keys in LIVE_KEYS take effect at once; `say` names the others that differ, which need a restart. While
    the file is wrong, the last good settings stay in force. They are kept in `kept` for the processes that
    Dagster starts, which must not read a file that is half edited.
    """

    def __init__(
        self,
        settings: Settings,
        file: Path | None = None,
        *,
        kept: Path | None = None,
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed`: called after other settings have come into force."""
        self.settings = settings
        self._file, self._kept, self._environment = file, kept, environment or {}
        self._say, self._changed = say, changed
        self._seen = _stamp(file)
        self._waiting: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._keep()

    def refresh(self) -> Settings:
        """The settings in force, after a look at the file."""
        with self._lock:
            stamp = _stamp(self._file)
            if self._file is None or stamp == self._seen:
                return self.settings
            self._seen = stamp
            try:
                new = load(self._file, environment=self._environment)
            except Misconfigured as wrong:
                why = str(wrong).removeprefix(f"{self._file}: ")
                self._say(f"{self._file.name} has changed and is wrong, the settings from before stay: {why}")
                return self.settings
            in_force, taken, waiting = taken_over(self.settings, new)
            if taken:
                self.settings = in_force
                self._keep()
                self._say(f"{self._file.name} has changed, from the next tick on: {', '.join(taken)}")
                self._changed()
            if waiting and waiting != self._waiting:
                needs = "needs" if len(waiting) == 1 else "need"
                named = ", ".join(f"`{path}`" for path in waiting)
                self._say(f"{self._file.name} has changed: {named} {needs} `headroom serve` to be restarted")
            self._waiting = waiting
            return self.settings

    def _keep(self) -> None:
        if self._kept is not None:
            partial = self._kept.with_suffix(".partial")
            partial.touch(mode=0o600)
            partial.write_text(self.settings.model_dump_json(indent=1), encoding="utf-8")
            partial.replace(self._kept)


def taken_over(old: Settings, new: Settings) -> tuple[Settings, tuple[str, ...], tuple[str, ...]]:
    """The old settings with what is live in the new ones, as `path = value`, and the paths of the others."""
    taken, waiting, jobs = [], [], dict(old.jobs)
    for name, kind in SECTIONS.items():
        before, after = getattr(old, name), getattr(new, name)
        waiting += [
            f"{name}.{key}" for key in kind.model_fields if getattr(before, key) != getattr(after, key)
        ]
    waiting += [f"job.{name}" for name in sorted(old.jobs.keys() ^ new.jobs.keys())]
    for name in old.jobs.keys() & new.jobs.keys():
        before, after = old.jobs[name], new.jobs[name]
        changes = {
            key: getattr(after, key)
            for key in JobSettings.model_fields
            if getattr(before, key) != getattr(after, key)
        }
        live = {key: value for key, value in changes.items() if key in LIVE_KEYS}
        jobs[name] = before.model_copy(update=live)
        taken += [f"job.{name}.{key} = {json.dumps(value)}" for key, value in live.items()]
        waiting += [f"job.{name}.{key}" for key in changes.keys() - live.keys()]
    return old.model_copy(update={"jobs": jobs}), tuple(sorted(taken)), tuple(sorted(waiting))


def in_force(file: Path, *, environment: Mapping[str, str]) -> Settings:
    """The settings of the server that has started this process; without one those of the file."""
    kept = environment.get(HEADROOM_SETTINGS)
    if kept is None:
        return load(file, environment=environment)
    try:
        return Settings.model_validate_json(Path(kept).read_text(encoding="utf-8"))
    except (OSError, ValidationError) as gone:
        raise Misconfigured(kept, "cannot be read; restart `headroom serve`, which writes it") from gone


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def lines(text: str) -> dict[str, int]:
    """Path -> line, for the plain `[table]` and `key = value` lines that such files are made of."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = re.sub(r"[\"'\s]", "", header.group(1))
            found.setdefault(table, number)
            for depth in range(1, table.count(".") + 1):  # [jobs.orders] is the first line of `jobs`, too
                found.setdefault(table.rsplit(".", depth)[0], number)
        elif assignment := re.match(r"\s*([A-Za-z0-9_.\"'-]+)\s*=", line):
            name = re.sub(r"[\"']", "", assignment.group(1))
            found.setdefault(f"{table}.{name}" if table else name, number)
    return found
