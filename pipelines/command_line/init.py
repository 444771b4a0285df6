"""`headroom init`: a commented headroom.toml for a PySpark script."""

from __future__ import annotations

import ast
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import click

from models.errors import Misconfigured, Unsafe
from profiling_jobs import triggers
from profiling_jobs.plans import FILES

from ..settings import loading
from ..settings.checks import FILL_IN, TOPIC
from ..settings.concerns import concerns
from ..settings.schema import Settings
from . import options, page
from .doctor import services
from .doctor.findings import DEADLINE_S, Surroundings, examined

Found = TypeVar("Found")

NAME = re.compile(r"[^a-z0-9]+")
ADDRESS = re.compile(r"([^\s,:\[\]]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
NONE = "-"
SCRIPT = click.Path(path_type=Path, exists=True, dir_okay=False)
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

{brokers}
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
OUR_KAFKA = """\
# Your own brokers. Without this table a Kafka is started on this machine.
# [brokers]
# bootstrap = "localhost:9092"
"""
YOUR_KAFKA = """\
# Your own brokers. If they ask for a login: security_protocol, sasl_mechanism, username_from, password_from.
[brokers]
bootstrap = {bootstrap}
"""
KAFKAS_COLUMN, KAFKAS_TIME = "timestamp", "kafka-timestamp"


def _topic_names(text: str) -> tuple[str, ...]:
    """The topics of a list with commas; ValueError for what Kafka does not take as a name."""
    found = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    for one in found:
        if not (TOPIC.fullmatch(one) or one.startswith(FILES)):
            raise ValueError(f"{one!r} is no name of a topic: letters, digits, dots, hyphens and underscores")
    return found


def _addresses(text: str) -> str:
    """The brokers; ValueError where one lacks its port."""
    found = [one.strip() for one in text.split(",") if one.strip()]
    for one in found:
        if not ADDRESS.fullmatch(one):
            raise ValueError(f"{one!r} is no address of a broker: write HOST:PORT")
    return ",".join(found)


@click.command("init")
@click.argument("script", required=False, type=SCRIPT)
@click.option("--job", metavar="NAME", help="Name of the job. Default: the name of the script.")
@click.option("--input", "inputs", multiple=True, metavar="TOPIC", help="An input topic; may be repeated.")
@click.option("--output", "outputs", multiple=True, metavar="TOPIC", help="An output topic; may be repeated.")
@click.option(
    "--brokers", metavar="HOST:PORT,…", help="Your brokers. Default: a Kafka is started on this machine."
)
@click.option(
    "--file",
    default=Path("headroom.toml"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. An existing file is left alone.",
)
@click.option("--force", is_flag=True, help="Write over an existing file.")
@click.option("--yes", is_flag=True, help="Ask nothing on a terminal: take what the script spells out.")
@options.as_json("Print what was written as JSON; asks nothing.")
def command(
    script: Path | None,
    job: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    brokers: str | None,
    file: Path,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Write a commented headroom.toml for a script, with the topics, trigger interval and windows in it.

    On a terminal it asks for the script, the topics and the brokers that are not given.

    \b
    Exit code 0: it is written; there may be warnings.
    Exit code 1: it is written, and you have to fill in what was not found.
    """
    if file.exists() and not force:
        raise Unsafe(
            f"{file} is there and stays as it is: name another --file, add a [job.NAME] table to it, or "
            "write over it with --force"
        )
    asks = not yes and not as_json and options.on_terminal()
    if script is None:
        if not asks:
            raise click.UsageError("Missing argument 'SCRIPT'.")
        script = click.prompt("PySpark script", type=SCRIPT, err=True)
    text = _program(script)
    with options.value_of("--input"):
        read = _topic_names(",".join(inputs)) or _topics(READ, text)
    with options.value_of("--output"):
        written = _topic_names(",".join(outputs)) or _topics(WRITTEN, text)
    with options.value_of("--brokers"):
        given = _addresses(brokers or "")
    if asks:
        read = read if inputs else _asked("Input topics, several with commas", read, _topic_names)
        written = written if outputs else _asked("Output topics, - for none", written, _topic_names)
        if brokers is None:
            given = _asked("Brokers, HOST:PORT; - to start a Kafka here", (), _addresses)
    name = job or NAME.sub("-", script.stem.lower()).strip("-") or "job"
    found, missing = _file_of(name, script, text, read=read, written=written, brokers=given, file=file)
    try:
        settings = loading.parse(found.replace(FILL_IN, "filled-in"), environment={})
    except Misconfigured as wrong:
        raise Misconfigured("--job", f"{name!r} makes no valid file ({wrong}): name it with --job") from wrong
    file.write_text(found, encoding="utf-8")
    warnings = list(_warnings(name, settings, text, missing=missing, file=file))
    if as_json:
        options.print_json(file=str(file), job=name, missing=missing, warnings=warnings)
    else:
        _say(name, file, missing, warnings)
    options.answer_no(missing)


def _program(script: Path) -> str:
    """The text of a script that Python understands."""
    text = script.read_text(encoding="utf-8", errors="replace")
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as wrong:
        where = f"line {wrong.lineno}: {wrong.msg}" if isinstance(wrong, SyntaxError) else str(wrong)
        raise Misconfigured(
            str(script), f"is no Python program that could run ({where}): correct it, or name another script"
        ) from wrong
    return text


def _asked(question: str, found: tuple[str, ...], convert: Callable[[str], Found]) -> Found:
    """The answer; Enter takes what was found, and a hyphen is none."""

    def read(answer: str) -> Found:
        try:
            return convert("" if answer == NONE else answer)
        except ValueError as wrong:
            raise click.UsageError(str(wrong)) from wrong

    answer: Found = click.prompt(question, default=",".join(found) or NONE, value_proc=read, err=True)
    return answer


def _file_of(
    name: str,
    script: Path,
    text: str,
    *,
    read: tuple[str, ...],
    written: tuple[str, ...],
    brokers: str,
    file: Path,
) -> tuple[str, list[str]]:
    """The text of the file, and what has to be filled in."""
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
    # What the file names is looked for from its own folder.
    path = script if script.is_absolute() else Path(os.path.relpath(script, file.parent))
    return TEMPLATE.format(
        brokers=OUR_KAFKA if not brokers else YOUR_KAFKA.format(bootstrap=json.dumps(brokers)),
        job=name,
        script=json.dumps(str(path)),
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
    ), missing


def _warnings(
    name: str, settings: Settings, text: str, *, missing: Sequence[str], file: Path
) -> Iterator[str]:
    """What may not work with the file that was written."""
    if "readStream" not in {getattr(node, "attr", "") for node in ast.walk(ast.parse(text))}:
        yield (
            f"{settings.jobs[name].script} has no readStream: name the script that starts the streaming "
            "query, or check the topics if another module of yours reads them"
        )
    for one in concerns(name, settings, folder=file.resolve().parent):
        yield f"{one.path} {one.problem} → {one.fix}"
    if settings.brokers.bootstrap is None:
        return
    around = Surroundings(settings, file, Path(".headroom"), time.time())
    for found in examined(around, {"brokers": services.brokers}, deadline_s=DEADLINE_S):
        if found.state != "ok" and not ("inputs" in missing and "filled-in" in found.found):
            yield f"{found.found} → {found.fix}"


def _say(name: str, file: Path, missing: Sequence[str], warnings: Sequence[str]) -> None:
    if missing:
        page.paragraph(
            f"{file} is written. The script does not spell out {', '.join(missing)}: replace what begins "
            f"with {FILL_IN}.",
            indent=0,
        )
    else:
        page.paragraph(f"{file} is written: look at its args and topics.", indent=0)
    for one in warnings:
        page.paragraph(f"warning: {one}", indent=0, colour="yellow")
    named = "" if file == Path("headroom.toml") else f" --file {file}"
    page.paragraph(f"Then run `headroom check{named}` and `headroom serve{named} --launch {name}`.", indent=0)


def _topics(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = (topic.strip() for topics in pattern.findall(text) for topic in topics.split(","))
    return tuple(dict.fromkeys(topic for topic in found if TOPIC.fullmatch(topic)))


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
    names = [only] if len(topics) == 1 else _names(topics)
    named = zip(names, topics, strict=True)
    return "{" + ", ".join(f"{name} = {json.dumps(topic)}" for name, topic in named) + "}"


def _noted(setting: str, note: str) -> str:
    """A line of the file, with a note in the column of the others."""
    return f"{setting:<40} # {note}" if note else setting


def _arguments(way: str, topics: tuple[str, ...]) -> list[str]:
    return [f"{way}_topic"] if len(topics) == 1 else [f"{way}:{name}" for name in _names(topics)]


def _names(topics: tuple[str, ...]) -> list[str]:
    """A name for each topic, made from its own: `a.b` and `a-b` become a_b and a_b_2."""
    found: list[str] = []
    for topic in topics:
        name = NAME.sub("_", topic.lower()).strip("_") or "topic"
        taken = {name, *(f"{name}_{number}" for number in range(2, len(found) + 2))} - set(found)
        found.append(min(taken, key=lambda one: (len(one), one)))
    return found
