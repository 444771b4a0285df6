"""Checks of a plan: whether it can run, and whether a profiling copy may run beside the live job.

A profiling copy is the same program on scratch topics. It has nothing in common with the live job except
that it may read the same input: its outputs, its checkpoint and its consumer group are its own. `apart`
checks what the plans say; profiling_jobs/driver/sink_guard.py checks what the program then does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from models.errors import Misconfigured, Unsafe
from models.ports import Function, Plan, Query, Script

JOB = re.compile(r"[a-z][a-z0-9-]{0,38}")
NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")  # a Kubernetes label is the narrowest place it goes into
COPY = re.compile(r"(?P<job>.+)-[pd]\d+")  # what profiling and drills call copies of a job
FILES = "files:"  # before the folder of an output that profiling_jobs/driver/batch_files.py writes
PLACEHOLDER = re.compile(r"\{(input_topic|output_topic|checkpoint|brokers|input:[^{}]+|output:[^{}]+)\}")


def folder_of(output: str) -> str | None:
    """The folder of an output that goes into files; None for one that is a topic."""
    return output.removeprefix(FILES) if "/" in output or output.startswith(FILES) else None


def check(plan: Plan) -> Plan:
    """The plan itself; Misconfigured or Unsafe names the first setting that is wrong."""
    if not JOB.fullmatch(plan.job):
        raise Misconfigured("job", f"'{plan.job}' must match {JOB.pattern}: it becomes a folder and a label")
    key = f"job.{plan.job}"
    if not NAME.fullmatch(plan.name):
        raise Misconfigured(f"{key}: the deployment's name", f"'{plan.name}' must match {NAME.pattern}")
    if plan.scale_out < 1:
        raise Misconfigured(f"{key}.scale_out", f"must be at least 1 executor, got {plan.scale_out}")
    if not plan.inputs:
        raise Misconfigured(f"{key}.inputs", "names no topic: a job without input cannot fall behind")
    if not plan.checkpoint:
        raise Misconfigured(f"{key}.checkpoint", "is empty: without one nothing is left after a failure")
    if plan.trigger_s < 0:
        raise Misconfigured(f"{key}.trigger_s", f"must not be negative, got {plan.trigger_s}")
    if plan.max_offsets_per_trigger is not None and plan.max_offsets_per_trigger < 1:
        raise Misconfigured(
            f"{key}.max_offsets_per_trigger", f"must be at least 1, got {plan.max_offsets_per_trigger}"
        )
    if isinstance(plan.program, Function) and not re.fullmatch(r"[\w.]+:\w+", plan.program.name):
        raise Misconfigured(
            f"{key}.build", f"'{plan.program.name}' is not of the form package.module:function"
        )
    if isinstance(plan.program, Script):
        arguments(plan, brokers="")
    _check_folders(plan, key)
    if plan.role == "profile" and set(plan.inputs.values()) & set(plan.outputs.values()):
        raise Unsafe(f"{plan.name} would write into the topic that it reads: give it outputs of its own")
    return plan


def apart(copy: Query, live: Query) -> None:
    """Refuse a profiling copy that could touch what a live job writes."""
    if copy.role != "profile" or live.role != "live":
        return
    key = f"job.{live.job}"
    shared = set(copy.outputs.values()) & (set(live.outputs.values()) | set(live.inputs.values()))
    if shared:
        raise Unsafe(
            f"{key}.outputs: the profiling copy {copy.name} would write into {', '.join(sorted(shared))}, "
            f"a topic of the live job {live.name}: give the copy scratch topics"
        )
    for folder in _folders(copy):
        if any(overlaps(folder, other) for other in (*_folders(live), live.checkpoint)):
            raise Unsafe(
                f"{key}.outputs: the profiling copy {copy.name} would write into {folder}, a folder of the "
                f"live job {live.name}: give the copy a scratch folder"
            )
    if overlaps(copy.checkpoint, live.checkpoint):
        raise Unsafe(
            f"{key}.checkpoint: the profiling copy {copy.name} would share {live.checkpoint} with the live "
            f"job {live.name}: give the copy a checkpoint of its own"
        )
    if copy.group == live.group:
        raise Unsafe(
            f"{key}: the profiling copy {copy.name} would commit to {live.group}, the consumer group of the "
            f"live job {live.name}: give the copy another name"
        )


def check_neighbours(plan: Plan, others: Iterable[tuple[Plan, bool]]) -> None:
    """Refuse a plan that would get in the way of another deployment: its plan, and whether it runs."""
    for other, runs in others:
        if other.name == plan.name:
            continue
        apart(plan, other)
        apart(other, plan)
        if not overlaps(plan.checkpoint, other.checkpoint):
            continue
        if runs:
            raise Unsafe(
                f"job.{plan.job}.checkpoint: {plan.checkpoint} is in use by {other.name}: two queries "
                "would destroy it; give each its own"
            )
        if other.job != plan.job:
            raise Misconfigured(
                f"job.{plan.job}.checkpoint",
                f"{plan.checkpoint} belongs to another query, job '{other.job}': name a new folder",
            )


def overlaps(one: str, other: str) -> bool:
    """Whether two folders are the same, or one lies in the other."""
    first, second = _folder(one), _folder(other)
    return first == second or first.startswith(second + "/") or second.startswith(first + "/")


def within(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies in it."""
    inner, outer = _folder(path), _folder(folder)
    return inner == outer or inner.startswith(outer + "/")


def arguments(plan: Plan, *, brokers: str) -> list[str]:
    """The arguments of a script, with the placeholders filled in."""
    if not isinstance(plan.program, Script):
        return []
    key = f"job.{plan.job}"

    def only(topics: Mapping[str, str], setting: str, placeholder: str) -> str:
        if len(topics) == 1:
            return next(iter(topics.values()))
        raise Misconfigured(
            f"{key}.args",
            f"{{{placeholder}_topic}} needs exactly one of {key}.{setting}, there are {len(topics)}: "
            f"write {{{placeholder}:NAME}}",
        )

    def named(topics: Mapping[str, str], setting: str, name: str) -> str:
        if name in topics:
            return topics[name]
        known = ", ".join(topics) or "none"
        raise Misconfigured(f"{key}.args", f"'{name}' is not in {key}.{setting} ({known})")

    def folder_or_topic(output: str) -> str:
        return folder_of(output) or output

    def filled(match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(":")
        if kind == "input":
            return named(plan.inputs, "inputs", name)
        if kind == "output":
            return folder_or_topic(named(plan.outputs, "outputs", name))
        if kind == "input_topic":
            return only(plan.inputs, "inputs", "input")
        if kind == "output_topic":
            return folder_or_topic(only(plan.outputs, "outputs", "output"))
        return plan.checkpoint if kind == "checkpoint" else brokers

    return [PLACEHOLDER.sub(filled, argument) for argument in plan.program.args]


def _folders(plan: Query) -> list[str]:
    return [folder for output in plan.outputs.values() if (folder := folder_of(output)) is not None]


def _check_folders(plan: Plan, key: str) -> None:
    """Those that we write ourselves lie on a file system, apart from each other and from the checkpoint."""
    taken = [plan.checkpoint]
    for name, output in plan.outputs.items():
        if not output.startswith(FILES):
            continue
        folder = output.removeprefix(FILES)
        if not folder.startswith("/"):
            raise Misconfigured(
                f"{key}.outputs.{name}",
                f"'{output}' must be {FILES} and the absolute path of a folder, which driver and executors "
                f"share: for example {FILES}/data/{plan.job}",
            )
        if any(overlaps(folder, other) for other in taken):
            raise Misconfigured(
                f"{key}.outputs.{name}",
                f"{folder} overlaps with the checkpoint or with another output: name a folder of its own",
            )
        taken.append(folder)


def _folder(path: str) -> str:
    """One spelling per folder: `file:` and doubled slashes say nothing, links lead somewhere."""
    if re.match(r"(?!file:)[a-z][a-z0-9+.-]*:", path):
        scheme, _, rest = path.partition(":")
        return f"{scheme}:/" + re.sub(r"/+", "/", rest).strip("/")
    return os.path.realpath(re.sub(r"^file:/*", "/", path))
