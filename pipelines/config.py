"""Is my headroom.toml right, and what does it say?

Reads the file into the frozen sections of pipelines/settings.py. Every mistake is reported at once, each with
its path, its line, what is accepted and the nearest valid name. An environment variable overrides a value:
`HEADROOM_SPARK_SLOTS` for `[spark] slots`, `HEADROOM_JOB_ORDERS_MODE` for `[job.orders] mode`.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from profiling_jobs.errors import Misconfigured

from .benchmark_defaults import completed
from .config_checks import of_job, of_names, of_services
from .declaring import Rule, rule_of
from .settings import (
    BrokerSettings,
    DeploymentSettings,
    JobSettings,
    MlflowSettings,
    Settings,
    SparkSettings,
)

JOB_NAME = re.compile(r"[a-z][a-z0-9-]{0,38}")
"""Job names become labels, keys, folders and model names: the strictest of them decides."""

SECTIONS = {
    "deployment": DeploymentSettings,
    "brokers": BrokerSettings,
    "spark": SparkSettings,
    "mlflow": MlflowSettings,
}


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


def load(file: Path, *, environment: Mapping[str, str]) -> Settings:
    """The settings in `file`, or every mistake in it as one error."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a mark in front
    except FileNotFoundError as missing:
        raise Misconfigured(
            str(file), "there is no such file; create it with one [job.NAME] table"
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
    reader = _Reader(_lines(text), dict(environment))
    sections = {name: reader.section(name, kind, tables.get(name, {})) for name, kind in SECTIONS.items()}
    reader.all_wrong(of_services(sections["brokers"], sections["spark"]))
    jobs = reader.jobs(tables.get("job", {}))
    for name in tables.keys() - {*SECTIONS, "job"}:
        near = "; did you mean job.NAME?" if name == "jobs" else _nearest(name, (*SECTIONS, "job.NAME"))
        reader.wrong(name, f"no such section{near}")
    reader.unused_environment()
    if reader.mistakes:
        raise WrongSettings(file, tuple(sorted(reader.mistakes, key=lambda m: (m.line or 0, m.path))))
    return Settings(**sections, jobs=jobs)


class _Reader:
    """Collects mistakes while the sections are read, so that all of them are said at once."""

    def __init__(self, lines: Mapping[str, int], environment: dict[str, str]) -> None:
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
            before = len(self.mistakes)
            job = self.section(path, JobSettings, table, complete=completed)
            if len(self.mistakes) == before:
                self.all_wrong(of_job(job, path))
            # Of what its owner has given it, copies begin with as much.
            jobs[name] = replace(job, scale_out=job.executors) if job.attach and job.executors else job
        return jobs

    def section(
        self,
        path: str,
        kind: type[Any],
        table: Any,
        *,
        complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    ) -> Any:
        if not isinstance(table, dict):
            self.wrong(path, f"must be a table [{path}]")
            table = {}
        hints = get_type_hints(kind)
        known = {f.name: f for f in fields(kind)}
        for name in table.keys() - known.keys():
            self.wrong(f"{path}.{name}", f"no such key{_nearest(name, tuple(known))}")
        values = {}
        for name, declared in known.items():
            values[name] = self.value(f"{path}.{name}", declared, hints[name], table)
        return kind(**complete({n: v for n, v in values.items() if v is not _DEFAULT}))

    def value(self, path: str, declared: Field[Any], hint: Any, table: Mapping[str, Any]) -> Any:
        rule = rule_of(declared)
        variable = variable_of(path)
        self.variables.append(variable)
        overridden = variable in self.environment
        try:
            if overridden:
                raw = _from_text(self.environment.pop(variable), hint)
            elif declared.name in table:
                raw = table[declared.name]
            elif rule.required:
                raise ValueError(f"is missing; {rule.help}")
            else:
                return _DEFAULT
            return _checked(raw, hint, rule)
        except ValueError as problem:
            if overridden:
                self.mistakes.append(Mistake(path, None, f"{problem} ({variable} says so)"))
            else:
                self.wrong(path, str(problem))
            return _DEFAULT

    def unused_environment(self) -> None:
        for variable in self.environment:
            near = difflib.get_close_matches(variable, self.variables, n=1, cutoff=0.8)
            meant = f"; did you mean {near[0]}?" if near else ""
            self.wrong(variable, f"this environment variable names no setting{meant}")


_DEFAULT = object()
_PREFIXES = tuple(f"HEADROOM_{name}_" for name in ("DEPLOYMENT", "BROKERS", "SPARK", "MLFLOW", "JOB"))


def variable_of(path: str) -> str:
    """The environment variable that overrides the value at `path`."""
    return "HEADROOM_" + re.sub(r"[.-]", "_", path).upper()


def _nearest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"


def _from_text(text: str, hint: Any) -> Any:
    """A value out of an environment variable: a string where one is wanted, else as TOML would read it."""
    if str in _alternatives(hint) or get_origin(hint) is Literal:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise ValueError(f"the environment says {text!r}, which is no value of this key") from None


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


def _checked(raw: Any, hint: Any, rule: Rule) -> Any:
    """`raw` as the type its key wants and within its bounds, or a ValueError that says what is accepted."""
    wanted = next(a for a in _alternatives(hint) if a is not types.NoneType)
    if get_origin(wanted) is tuple:
        item = get_args(wanted)[0]
        if not isinstance(raw, list | tuple):
            raise ValueError(f"must be a list, got {raw!r}")
        return tuple(_checked(one, item, rule) for one in raw)
    if get_origin(wanted) is Mapping:
        if not isinstance(raw, dict) or not all(isinstance(v, str) for v in raw.values()):
            raise ValueError(f"must be a table of strings, got {raw!r}")
        return types.MappingProxyType(dict(raw))
    if rule.choices:
        if isinstance(raw, str) and raw in rule.refused:
            raise ValueError(f"{raw!r} {rule.refused[raw]}")
        if raw not in rule.choices:
            near = difflib.get_close_matches(str(raw), rule.choices, n=1)
            hint_ = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"must be one of {', '.join(rule.choices)}, got {raw!r}{hint_}")
        return raw
    if wanted is str:
        if not isinstance(raw, str) or not raw:
            raise ValueError(f"must be a string that is not empty, got {raw!r}")
        return raw
    if wanted is bool:
        if not isinstance(raw, bool):
            raise ValueError(f"must be true or false, got {raw!r}")
        return raw
    return _number(raw, wanted, rule)


def _number(raw: Any, wanted: type, rule: Rule) -> int | float:
    if isinstance(raw, bool) or not isinstance(raw, int if wanted is int else (int, float)):
        raise ValueError(f"must be {'a whole number' if wanted is int else 'a number'}, got {raw!r}")
    if not math.isfinite(raw):
        raise ValueError(f"must be finite, got {raw!r}")
    if rule.at_least is not None and raw < rule.at_least:
        raise ValueError(f"must be at least {rule.at_least:g}, got {raw!r}")
    if rule.above is not None and raw <= rule.above:
        raise ValueError(f"must be greater than {rule.above:g}, got {raw!r}")
    if rule.at_most is not None and raw > rule.at_most:
        raise ValueError(f"must be at most {rule.at_most:g}, got {raw!r}")
    return raw if wanted is int else float(raw)


def _lines(text: str) -> dict[str, int]:
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
