"""`headroom init`: a commented headroom.toml for a PySpark script."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click

from models.errors import Misconfigured, Unsafe
from profiling_jobs import triggers

from ..settings import loading
from ..settings.checks import FILL_IN
from . import options, page

NAME = re.compile(r"[^a-z0-9]+")
READ = re.compile(r"""["']subscribe["']\s*[,=]\s*["']([^"'{}$]+)["']""")
WRITTEN = re.compile(r"""["']topic["']\s*[,=]\s*["']([^"'{}$]+)["']""")
OPTION = re.compile(r"--[a-z][a-z0-9_-]*")
MEANINGS = {
    "checkpoint": ("checkpoint",),
    "brokers": ("broker", "bootstrap", "server", "kafka"),
    "output": ("out", "sink", "target", "dest", "write"),
    "input": ("in", "source", "topic", "from", "read"),
}
"""What an option of a script gets, by words that its name begins with; the first that fits."""
LARGEST_BATCH = 10_000  # an example
TEMPLATE = """\
# Written by `headroom init`. Every key: docs/configuration.md. `headroom check` reads this file.

# Your own brokers. Without this table a Kafka is started on this machine.
# [brokers]
# bootstrap = "localhost:9092"

[job.{job}]
script = {script}
# What the script takes as arguments, in its order: profiling copies of it get other topics and checkpoints.
# With several topics {{input:NAME}} and {{output:NAME}}.
args = [{args}]
{inputs}
{outputs}
{trigger}
{limited}max_offsets_per_trigger = {limit:<8}       # what the script sets as maxOffsetsPerTrigger; without
                                         # it the first batch after a failure takes all the lag
state_partitions = 12                    # of a new checkpoint; Spark's own 200 are slow on few executors

# The promise: after a failure the job has caught up with its input within this time, with this probability.
recovery_target_s = 180
confidence = 0.95
failure_kinds = ["executor_kill", "driver_kill"]

# observe: only watch. recommend: decide and show. apply: decide and rescale.
mode = "recommend"
scale_out = 1
scale_out_max = 8

# Jobs with windows: the longest one, and where the time of the events comes from.
{windows}longest_window_s = {window_s:g}
{windows}event_time = "{event_time}"         # or the field of the events that holds their time
"""
KAFKAS_COLUMN, KAFKAS_TIME = "timestamp", "kafka-timestamp"


@click.command("init")
@click.argument("script", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--job", metavar="NAME", help="Name of the job. Default: the name of the script.")
@click.option("--input", "inputs", multiple=True, metavar="TOPIC", help="An input topic; may be repeated.")
@click.option("--output", "outputs", multiple=True, metavar="TOPIC", help="An output topic; may be repeated.")
@click.option(
    "--file",
    default=Path("headroom.toml"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="The file to write. An existing file is never changed.",
)
@options.as_json("Print what was written as JSON.")
def command(
    script: Path,
    job: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    file: Path,
    as_json: bool,
) -> None:
    """Write a commented headroom.toml for a script, with the topics, trigger interval and windows in it.

    \b
    Exit code 0: it is written.
    Exit code 1: it is written, and you have to fill in what was not found.
    """
    if file.exists():
        raise Unsafe(
            f"{file} is there and stays as it is: name another --file, or add a [job.NAME] table to it"
        )
    text = script.read_text(encoding="utf-8", errors="replace")
    name = job or NAME.sub("-", script.stem.lower()).strip("-") or "job"
    read, written = inputs or _topics(READ, text), outputs or _topics(WRITTEN, text)
    spelt = triggers.spelt_in(text)
    limit = max((one for one in triggers.limits_in(text) if one is not None), default=None)
    missing = [] if read else ["inputs"]
    window_s, column = triggers.longest_window(text) or (60.0, "")
    wanted = _options(text)
    if "output" in wanted.values() and not written:
        written, missing = (f"{FILL_IN}-OUT",), [*missing, "outputs"]
    places = {
        "input": iter(_arguments("input", read or (FILL_IN,))),
        "output": iter(_arguments("output", written)),
    }
    values = {option: next(places[kind], "") if kind in places else kind for option, kind in wanted.items()}
    arguments = [
        word for option, value in values.items() for word in (option, f"{{{value}}}" if value else FILL_IN)
    ] or [f"{{{one}}}" for one in (*places["input"], *places["output"], "checkpoint", "brokers")]
    missing += [option for option, value in values.items() if not value]
    output_note = "" if written else '{results = "TOPIC"} if it writes to Kafka'
    found = TEMPLATE.format(
        job=name,
        script=json.dumps(str(script)),
        args=", ".join(f'"{one}"' for one in arguments),
        inputs=_noted(
            f"inputs = {_table('events', read or (FILL_IN,))}", "" if read else "the topic that it reads"
        ),
        outputs=_noted(
            f"outputs = {_table('results', written)}",
            "the topic that it writes" if "outputs" in missing else output_note,
        ),
        trigger=f"trigger_s = {spelt[0]:g}"
        if spelt
        else _noted("trigger_s = 0", "the next batch starts as the last one ends"),
        limited="# " if limit is None else "",
        limit=limit or LARGEST_BATCH,
        windows="" if column else "# ",
        window_s=window_s,
        event_time=KAFKAS_TIME if column in ("", KAFKAS_COLUMN) else column,
    )
    try:
        loading.parse(found.replace(FILL_IN, "filled-in"), environment={})
    except Misconfigured as wrong:
        raise Misconfigured("--job", f"{name!r} makes no valid file ({wrong}): name it with --job") from wrong
    file.write_text(found, encoding="utf-8")
    if as_json:
        options.print_json(file=str(file), job=name, missing=missing)
    else:
        if missing:
            page.paragraph(
                f"{file} is written. The script does not spell out {', '.join(missing)}: replace what begins "
                f"with {FILL_IN}.",
                indent=0,
            )
        else:
            page.paragraph(f"{file} is written: look at its args and topics.", indent=0)
        named = "" if file == Path("headroom.toml") else f" --file {file}"
        page.paragraph(
            f"Then run `headroom check{named}` and `headroom serve{named} --launch {name}`.", indent=0
        )
    options.answer_no(missing)


def _topics(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(topic.strip() for found in pattern.findall(text) for topic in found.split(","))
    )


def _options(program: str) -> dict[str, str]:
    """The options that a script asks for -> what each is to be given; empty for what is not understood.

    Those of `add_argument` that have a default are left alone.
    """
    try:
        nodes = list(ast.walk(ast.parse(program)))
    except (SyntaxError, ValueError):
        return {}
    calls = [one for one in nodes if isinstance(one, ast.Call)]
    optional = [one for one in calls if {word.arg for word in one.keywords} & {"default", "action"}]
    left_alone = {id(argument) for one in optional for argument in one.args}
    found = {
        node.value: (node.lineno, node.col_offset)
        for node in reversed(nodes)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_alone
        if OPTION.fullmatch(node.value)
    }
    return {option: _meaning(option) for option in sorted(found, key=found.__getitem__)}


def _meaning(option: str) -> str:
    words = re.split("[-_]", option.strip("-"))
    fits = (kind for kind, names in MEANINGS.items() if any(word.startswith(names) for word in words))
    return next(fits, "")


def _table(only: str, topics: tuple[str, ...]) -> str:
    """`{events = "orders"}`; with several topics each by a name made from its own."""
    names = [only] if len(topics) == 1 else [_name(topic) for topic in topics]
    named = zip(names, topics, strict=True)
    return "{" + ", ".join(f"{name} = {json.dumps(topic)}" for name, topic in named) + "}"


def _noted(setting: str, note: str) -> str:
    """A line of the file, with a note in the column of the others."""
    return f"{setting:<40} # {note}" if note else setting


def _arguments(way: str, topics: tuple[str, ...]) -> list[str]:
    return [f"{way}_topic"] if len(topics) == 1 else [f"{way}:{_name(topic)}" for topic in topics]


def _name(topic: str) -> str:
    return NAME.sub("_", topic.lower()).strip("_")
