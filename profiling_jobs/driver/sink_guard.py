"""Checks that a profiling copy does nothing outside its scratch topics.

Every streaming write of a script goes through `DataStreamWriter.start` (or `toTable`). There format, topic,
path, checkpoint and trigger are checked before anything runs. A sink that cannot be judged, such as a
function of the script's own, is refused unless the user declares that a copy has no effect; our own
`BatchFiles` writes into its folder alone. What a script does besides, with a database client or a batch
write, is not seen (`TRUSTED`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import Misconfigured, Unsafe
from models.ports import Plan

from .. import triggers
from ..brokers import addresses
from ..plans import folder_of, within
from .batch_files import BatchFiles

HARMLESS = frozenset({"console", "memory", "noop"})
BATCH_FILES = "batch files"  # no format of Spark's; what the guard calls our own sink
FILES = frozenset({"csv", "json", "orc", "parquet", "text", BATCH_FILES})
CHECKED = (
    "checked at every DataStreamWriter.start: format, Kafka brokers and topic, path, checkpoint; "
    "at every DataStreamReader.load: Kafka topics and consumer group"
)
TRUSTED = "trusted: whatever the program does besides streaming writes (batch writes, clients of its own)"
DECLARED = (
    "checked: checkpoint, inputs, and every sink whose topic or path can be seen; one that cannot be judged "
    "was declared to be without side effects"
)


def described(plan: Plan) -> str:
    """What is checked of a profiling copy and what is trusted."""
    return f"{DECLARED if plan.side_effects == 'none' else CHECKED}; {TRUSTED}"


@dataclass(frozen=True)
class Limits:
    """Where this deployment may read and write."""

    plan: Plan
    bootstrap: str
    scratch: str
    """A folder for file sinks of a profiling copy."""

    @property
    def _key(self) -> str:
        return f"job.{self.plan.job}"

    @property
    def _declared(self) -> bool:
        """Whether what cannot be judged was declared to be harmless. What can be judged is judged."""
        return self.plan.side_effects == "none"

    def check_write(self, form: str, options: Mapping[str, str], *, function: str | None = None) -> None:
        """Refuse a write that this deployment must not do. `options` with lower-case keys."""
        self._check_checkpoint(options.get("checkpointlocation"), form)
        if self.plan.role == "live":
            return
        form = form.lower()
        if function is not None or form not in HARMLESS | FILES | {"kafka"}:
            if self._declared:
                return
            what = f"a function of its own ({function})" if function else f"the format '{form}'"
            raise Unsafe(
                f"{self._key}: the profiling copy writes through {what}, which cannot be judged; if it has "
                f"no effect outside its scratch topics, say so: "
                f'{self._key}.profiling_side_effects = "none"'
            )
        if form == "kafka":
            self._check_kafka(options)
        elif form in FILES:
            self._check_path(options.get("path"), form)

    def check_read(self, form: str, options: Mapping[str, str]) -> None:
        """Refuse a profiling copy that reads something else than it was given."""
        if self.plan.role == "live" or form.lower() != "kafka":
            return
        mine = set(self.plan.inputs.values())
        topics = {topic.strip() for topic in options.get("subscribe", "").split(",") if topic.strip()}
        if "subscribe" not in options or not topics <= mine:
            how = f"subscribes to {', '.join(sorted(topics))}" if topics else "chooses its topics by itself"
            raise Unsafe(
                f"{self._key}.inputs: the profiling copy {how}, it was given {', '.join(sorted(mine))}: take "
                "the topic from an argument, {input_topic} or {input:NAME}"
            )
        for name in ("kafka.group.id", "groupidprefix"):
            if name in options and not options[name].startswith(self.plan.group):
                raise Unsafe(
                    f"{self._key}: the profiling copy reads with {name} = '{options[name]}', which may be "
                    f"the live one: remove it, or begin it with '{self.plan.group}'"
                )
        self._check_limit(options.get(triggers.LIMIT))

    def check_trigger(self, interval_s: float) -> None:
        """Refuse to profile with another trigger interval than was declared: its models would be wrong."""
        if self.plan.role == "profile" and (wrong := triggers.mismatch(self.plan.trigger_s, interval_s)):
            raise Misconfigured(f"{self._key}.trigger_s", wrong)

    def _check_limit(self, text: str | None) -> None:
        """Refuse to profile with other batches than were declared: predictions would step those."""
        if text is None or text.isdecimal():  # another spelling is Spark's to refuse
            found = None if text is None else int(text)
            if wrong := triggers.other_limit(self.plan.max_offsets_per_trigger, found):
                raise Misconfigured(f"{self._key}.max_offsets_per_trigger", wrong)

    def _check_checkpoint(self, location: str | None, form: str) -> None:
        if location is None:
            if form.lower() in HARMLESS:
                return
            raise Misconfigured(
                f"{self._key}.checkpoint",
                "a query has no checkpointLocation, so nothing is left of it after a failure: pass "
                "{checkpoint} to the script and set the option",
            )
        if not within(location, self.plan.checkpoint):
            raise Unsafe(
                f"{self._key}.checkpoint: a query keeps its checkpoint in {location}, but "
                f"{self.plan.checkpoint} was declared: pass {{checkpoint}} to the script, or correct it"
            )

    def _check_kafka(self, options: Mapping[str, str]) -> None:
        mine = set(self.plan.outputs.values())
        topic = options.get("topic")
        if topic is None and not self._declared:
            raise Unsafe(
                f"{self._key}.outputs: the profiling copy takes the topic from a column, so that it is "
                "not known where it writes: set the option 'topic', or, if it stays within its scratch "
                "topics, say so: "
                f'{self._key}.profiling_side_effects = "none"'
            )
        if topic is not None and topic not in mine:
            raise Unsafe(
                f"{self._key}.outputs: the profiling copy would write into '{topic}', it was given "
                f"{', '.join(sorted(mine)) or 'no topic'}: take it from an argument, {{output_topic}} or "
                "{output:NAME}"
            )
        brokers = options.get("kafka.bootstrap.servers", "")
        if addresses(brokers) != addresses(self.bootstrap):
            raise Unsafe(
                f"brokers.bootstrap: the profiling copy would write to {brokers}, it was given "
                f"{self.bootstrap}: take them from an argument, {{brokers}}"
            )

    def _check_path(self, path: str | None, form: str) -> None:
        given = [folder for output in self.plan.outputs.values() if (folder := folder_of(output)) is not None]
        if path is None or not any(within(path, folder) for folder in (self.scratch, *given)):
            what = form if form == BATCH_FILES else f"{form} files"
            raise Unsafe(
                f"{self._key}.outputs: the profiling copy would write {what} to {path}, its scratch "
                f"folder is {self.scratch}: take the path from {self._key}.outputs, {{output:NAME}}"
            )


def install(limits: Limits) -> None:
    """Check every streaming read and write of this process from now on."""
    from pyspark.sql.streaming import readwriter

    watch_options(readwriter.DataStreamReader)
    watch_options(readwriter.DataStreamWriter)
    _watch_functions(readwriter.DataStreamWriter)
    _check_starts(readwriter.DataStreamWriter, limits)
    _check_loads(readwriter.DataStreamReader, limits)


def noted(target: Any) -> dict[str, Any]:
    """What the program has set of this reader or writer: `format` and `options`, with lower-case keys."""
    notes: dict[str, Any] = target.__dict__.setdefault("_headroom", {"format": None, "options": {}})
    return notes


def spelt(options: Mapping[str, Any]) -> dict[str, str]:
    """As they are noted, and as Spark spells their values."""
    return {key.lower(): _text(value) for key, value in options.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def watch_options(kind: Any) -> None:
    """Remember what is set; Spark's own object is not asked, its inside changes with its versions."""
    of_option, of_options, of_format = kind.option, kind.options, kind.format
    of_trigger: Any = getattr(kind, "trigger", None)  # a reader has none

    def option(self: Any, key: str, value: Any) -> Any:
        noted(self)["options"][key.lower()] = _text(value)
        return of_option(self, key, value)

    def options(self: Any, **given: Any) -> Any:
        noted(self)["options"].update(spelt(given))
        return of_options(self, **given)

    def form(self: Any, source: str) -> Any:
        noted(self)["format"] = source
        return of_format(self, source)

    def trigger(self: Any, **given: Any) -> Any:
        noted(self)["trigger"] = triggers.interval_s(str(given.get("processingTime")))
        return of_trigger(self, **given)

    kind.option, kind.options, kind.format = option, options, form
    if of_trigger is not None:
        kind.trigger = trigger


def _watch_functions(kind: Any) -> None:
    of_foreach, of_batch = kind.foreach, kind.foreachBatch

    def foreach(self: Any, f: Any) -> Any:
        noted(self)["function"] = "foreach"
        return of_foreach(self, f)

    def foreach_batch(self: Any, func: Any) -> Any:
        notes = noted(self)
        notes.pop("function", None)
        if type(func) is BatchFiles:  # not one of its kind with a method of its own
            notes["format"], notes["folder"] = BATCH_FILES, func.folder
        else:
            notes["function"] = "foreachBatch"
        return of_batch(self, func)

    kind.foreach, kind.foreachBatch = foreach, foreach_batch


def _check_starts(kind: Any, limits: Limits) -> None:
    of_start = kind.start

    def start(self: Any, path: Any = None, format: Any = None, *more: Any, **options: Any) -> Any:
        notes = noted(self)
        given = {
            **notes["options"],
            **{key.lower(): _text(value) for key, value in options.items() if key not in NAMED},
            **({"path": str(path)} if path is not None else {}),
        }
        # Without a format Spark takes its default, which writes files.
        form = format or notes["format"] or "parquet"
        if form == BATCH_FILES:
            given["path"] = notes["folder"]
        limits.check_write(form, given, function=notes.get("function"))
        if (interval_s := notes.get("trigger", 0.0)) is not None:  # else: spelt in a way that is not known
            limits.check_trigger(interval_s)
        return of_start(self, path, format, *more, **options)

    def to_table(self: Any, tableName: str, *more: Any, **options: Any) -> Any:
        notes = noted(self)
        given = {**notes["options"], **spelt(options)}
        limits.check_write("table", given, function=f"toTable('{tableName}')")
        return of_table(self, tableName, *more, **options)

    of_table = kind.toTable
    kind.start, kind.toTable = start, to_table


NAMED = ("outputMode", "partitionBy", "queryName")


def _check_loads(kind: Any, limits: Limits) -> None:
    of_load = kind.load

    def load(self: Any, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> Any:
        notes = noted(self)
        given = {**notes["options"], **spelt(options)}
        limits.check_read(format or notes["format"] or "parquet", given)
        return of_load(self, path, format, schema, **options)

    kind.load = load
