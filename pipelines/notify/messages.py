"""Messages: what of an evaluation, a drill or a loop that stands still is told, and what is a repetition.

Pure: the documents go in, messages come out. An alarm that lasts is raised again every half hour; `not_again`
counts these, and lets one pass each `repeat_after_s`. What happens once, as a change of the size, has no key
and always passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from models.control.step import trouble_key
from models.quantities import Json, counted, executors, lasting
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.explanation import done, in_short
from profiling_jobs.explain.wording import in_plain_words, kind

from ..settings.schema import NotifyEvent

TITLES: Mapping[str, str] = {
    "alarm": "alarm",
    "change": "change of size",
    "promise": "promise broken",
    "drill": "drill failed",
    "loop": "evaluations",
    "test": "test",
}
LONGEST = 2000  # characters; judgement: what a phone shows
STILL = "still"
"""Key of the message that nothing is evaluated."""
CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")


@dataclass(frozen=True)
class Message:
    """One message."""

    event: NotifyEvent | Literal["test"]
    job: str
    """Empty where it is about all of them."""
    text: str
    at_s: float
    key: str = ""
    """Messages of a job with the same key are repetitions; empty for what happens once."""
    repeated: int = 0
    """How many like it were only counted since the last one."""
    held_back: int = 0
    """How many others were held back since the last message, because there were too many within an hour."""

    @property
    def title(self) -> str:
        """One line."""
        return ": ".join(("Headroom", *filter(None, (self.job,)), TITLES[self.event]))

    @property
    def body(self) -> str:
        """The text with the counts."""
        notes = [self.text]
        if self.repeated:
            notes.append(f"The same was raised {counted(self.repeated, 'time')} since the last message.")
        if self.held_back:
            notes.append(f"Held back, as there were too many: {counted(self.held_back, 'message')}.")
        return "\n".join(notes)

    def to_json(self) -> dict[str, Any]:
        """As webhooks and commands get it."""
        return {
            "schema": 1,
            "event": self.event,
            "job": self.job or None,
            "title": self.title,
            "text": self.text,
            "at_s": self.at_s,
            "at": datetime.fromtimestamp(self.at_s, UTC).isoformat(timespec="seconds"),
            "repeated": self.repeated,
            "held_back": self.held_back,
        }


def slack(message: Message) -> dict[str, str]:
    """The message as Slack's incoming webhooks take it, with what is markup to Slack escaped."""
    text = f"*{message.title}*\n{message.body}"
    return {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def scrubbed(message: Message, secrets: Sequence[str]) -> Message:
    """The message without these secrets and without credentials in addresses, at most LONGEST long.

    Its text may quote the error of another system.
    """
    text = message.text
    for secret in secrets:
        text = text.replace(secret, "***")
    text = CREDENTIALS.sub("***@", text)
    return replace(message, text=text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


# ------------------------------------------------------------------------------------------ what is told


def of_evaluation(e: Evaluation, *, before: Evaluation | None) -> Iterator[Message]:
    """What is told of one evaluation. `before`: the one before it."""
    for alarm in e.alarms:
        yield Message("alarm", e.job, in_plain_words(alarm), e.at_s, key=f"alarm {trouble_key(alarm)}")
    if e.instruction["do"] == "scale":
        yield Message("change", e.job, f"{done(e)}: {in_plain_words(in_short(e).why)}", e.at_s)
    known = None if before is None or before.foreign is None else before.foreign["since_s"]
    if e.foreign is not None and e.foreign["since_s"] != known:
        found, ours = executors(e.foreign["found"]), e.foreign["ours"]
        text = f"the size was set to {found} where Headroom had set {ours}: held until `headroom resume`"
        yield Message("change", e.job, text, e.at_s)
    yield from _broken_promises(e, before)


def _broken_promises(e: Evaluation, before: Evaluation | None) -> Iterator[Message]:
    """Told when the time is over, and again when the job has caught up."""
    promised = lasting(e.promise["target_s"]) if e.promise else ""
    if _late(e) and not (before is not None and _late(before) == _late(e)):
        failed_at_s, after = _late(e)
        behind = lasting(e.at_s - failed_at_s)
        text = f"not caught up {behind} after {kind(after)}, within {promised} is promised"
        yield Message("promise", e.job, text, e.at_s)
    for fact in e.learnt:
        took_s = fact.get("recovery_s")  # null: it never came back, which an alarm tells
        if fact["fact"] != "event" or took_s is None or not e.covers(fact["kind"]):
            continue
        if took_s > e.promise["target_s"]:
            text = f"caught up {lasting(took_s)} after {kind(fact['kind'])}, within {promised} is promised"
            yield Message("promise", e.job, text, e.at_s)


def _late(e: Evaluation) -> tuple[Any, ...]:
    """When which failure was that the job should have recovered from by now; empty without one."""
    incident = e.recovering
    if incident is None or not e.covers(incident["kind"]):
        return ()
    late = e.at_s - incident["failed_at_s"] > e.promise["target_s"]
    return (incident["failed_at_s"], incident["kind"]) if late else ()


def of_drill(order: Json, *, at_s: float) -> Message | None:
    """What is told of an order to drill that has ended, as `Server.order` shows it; None if it went well."""
    if order["state"] == "failed":
        return Message("drill", str(order["job"]), f"no drill: {order['error']['message']}", at_s)
    if order["state"] != "done":
        return None
    rows = order["result"]["drills"]
    valid = {_cell(row) for row in rows if "invalid" not in row}
    # One that was invalid is tried again: what counts is whether the last attempt was valid.
    last = {_cell(row): row for row in rows if _cell(row) not in valid}
    failed = [row for row in rows if not row["kept"] and _cell(row) in valid and "invalid" not in row]
    told = [str(row["said"]) for row in (*failed, *last.values())]
    return Message("drill", str(order["job"]), in_plain_words("; ".join(told)), at_s) if told else None


def _cell(row: Json) -> tuple[Any, ...]:
    return row["kind"], row["scale_out"], row["rate_rps"]


def of_silence(jobs: Mapping[str, str], *, silent_s: float, at_s: float) -> Message:
    """That jobs are not evaluated. `jobs`: name -> why, as far as it is known."""
    reasons = "; ".join(dict.fromkeys(filter(None, jobs.values())))
    why = reasons or "Dagster asks for none: see `headroom status`, and whether its sensors are switched on"
    text = f"{', '.join(jobs)} not evaluated for {lasting(silent_s)}: {why}"
    return Message("loop", "", text, at_s, key=STILL)


def of_return(*, at_s: float) -> Message:
    """That all jobs are evaluated again."""
    return Message("loop", "", "every job is evaluated again", at_s)


# ------------------------------------------------------------------------------------------- how often


@dataclass(frozen=True)
class Counted:
    """When a message with this key has passed last, and how many were counted since."""

    at_s: float
    more: int = 0


def not_again(
    message: Message, told: MutableMapping[str, Counted], *, repeat_after_s: float
) -> Message | None:
    """The message with the count of its repetitions; None where it is one itself. `told` is updated."""
    if not message.key:
        return message
    last = told.get(message.key)
    if last is not None and 0.0 <= message.at_s - last.at_s < repeat_after_s:  # or the clock was set back
        told[message.key] = replace(last, more=last.more + 1)
        return None
    told[message.key] = Counted(message.at_s)
    return replace(message, repeated=0 if last is None else last.more)
