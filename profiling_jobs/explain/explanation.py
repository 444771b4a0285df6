"""One stored evaluation explained: why this size, why not one less, what would change it; and in one line.

Nothing is computed anew: it says what the tick knew then. The order is that of a tick: directives and windows
outrank a recovery under way, which outranks the decision and its limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from models.quantities import Unknown, executors, lasting

from ..control_loop.memory import Evaluation
from .what_would_change import Shown, limited, would_change
from .wording import (
    Size,
    between,
    brief_s,
    capital,
    count,
    in_plain_words,
    is_known,
    keeps,
    kind,
    known_or_why,
    line,
    lower_though_larger,
    percent,
    recovers,
    spoken,
    why_unknown,
)

LIMITED = {
    "cpu": "the processor limits it",
    "waiting": "it waits more than it computes, its slots limit it",
}


def seen(e: Evaluation) -> tuple[tuple[str, str], ...]:
    """Name and value of each; what could not be read says why."""
    o = e.observation
    found = [
        ("load", known_or_why(o.get("arrival_rps"), lambda rps: f"{count(rps)} records/s arrive")),
        ("work", known_or_why(o.get("throughput_rps"), lambda rps: f"{count(rps)} records/s are done")),
        ("lag", _lag(e)),
        ("executors", _executors(e)),
    ]
    if is_known(o.get("latency_ms")):
        found.append(("latency", f"{count(o['latency_ms'])} ms, and 5 % of the records take longer"))
    found.append(("forecast", _forecast(e)))
    return tuple(found)


def _lag(e: Evaluation) -> str:
    records = e.observation.get("lag_records")
    if not is_known(records):
        return f"unknown: {why_unknown(records)}"
    waiting = f"{count(records or 0.0)} records wait"
    return waiting if isinstance(e.lag_s, Unknown) else f"{waiting}, {lasting(e.lag_s)} of input"


def _executors(e: Evaluation) -> str:
    if isinstance(e.scale_out, Unknown):
        return f"unknown: {e.scale_out.reason}"
    parts = [f"{e.scale_out} declared"]
    alive, busiest = e.observation.get("executors_alive"), e.observation.get("hottest_share")
    parts.append(f"{alive} alive" if is_known(alive) else "how many are alive is unknown")
    if is_known(busiest):
        parts.append(f"the busiest is busy {percent(min(float(busiest or 0.0), 1.0))} of the time")
    if is_known(limit := e.observation.get("limited_by")) and limit in LIMITED:
        parts.append(LIMITED[limit])
    return ", ".join(parts)


def _forecast(e: Evaluation) -> str:
    if not is_known(e.forecast) or "peak" not in e.forecast:
        return f"unknown: {why_unknown(e.forecast)}"
    peak, by = e.forecast["peak"], e.forecast.get("by")
    text = (
        f"a peak of {count(peak['mid'])} records/s ({between(peak, count)}) within the next "
        f"{lasting(e.forecast['horizon_s'])}, by {e.forecast['model']}"
    )
    return f"{text}; it stands in: {e.forecast['instead']}" if by == "naive" else text


VERB = re.compile(
    r"(mode \w+, would scale to \d+ executors?: )?((hold|scale (out|in) from \d+ to) \d+ executors?:? )?"
)
"""What control's reasons begin with and another column says already."""


@dataclass(frozen=True)
class Line:
    """One evaluation in short."""

    at_s: float
    load: str
    """Records/s that arrive; ? where it could not be read."""
    lag: str
    """Seconds of input."""
    scale_out: str
    done: str
    """hold, `2 → 4` (ordered), `2 → 4 again` (brought back), `would 2 → 4` (recommended), paused, …"""
    why: str
    alarms: tuple[str, ...]


def in_short(e: Evaluation) -> Line:
    """The line of one evaluation."""
    rate = e.observation.get("arrival_rps")
    return Line(
        at_s=e.at_s,
        load=count(rate) if rate is not None and is_known(rate) else "?",
        lag="?" if isinstance(e.lag_s, Unknown) else brief_s(e.lag_s),
        scale_out="?" if isinstance(e.scale_out, Unknown) else str(e.scale_out),
        done=_done(e),
        why=_short_reason(e.reason),
        alarms=tuple(e.alarms),
    )


def _done(e: Evaluation) -> str:
    order, now = e.instruction, "?" if isinstance(e.scale_out, Unknown) else e.scale_out
    if order["do"] == "scale":
        return f"{now} → {order['to']}{' again' if e.reassert else ''}"
    if order.get("would") is not None:
        return f"would {now} → {order['would']}"
    if "pause" in e.orders:
        return "paused"
    if e.foreign:
        return "outside"
    if "pin" in e.orders:
        return "pinned"
    return "drill" if "drill" in e.orders else "hold"


def _short_reason(reason: str) -> str:
    """`forecast 31–36k rps fits 42k, …` of `hold 6 executors: forecast 31–36k rps fits 42k, …`."""
    limit, cut, wanted = reason.partition("; wanted: ")
    if cut and (to := re.match(r"scale (?:out|in) from \d+ to (\d+) executors?", wanted)):
        return f"{limit} (wanted {executors(int(to[1]))})"
    return _without_verb(reason)


def _without_verb(reason: str) -> str:
    """`although 3 would do: …` of `hold 4 executors although 3 would do: …`."""
    return VERB.sub("", reason, count=1) or reason


@dataclass(frozen=True)
class Explanation:
    """The answers, each in sentences; all texts, no markup."""

    done: str
    """What the tick did: `holds 4 executors`, `goes from 2 to 4 executors`, …"""
    reason: str
    seen: tuple[tuple[str, str], ...]
    """Name and value of what was read."""
    chosen: int | None
    """The size that is explained; None where none is known."""
    why: tuple[str, ...]
    why_not_less: tuple[str, ...]
    would_change: tuple[str, ...]
    failures: tuple[tuple[str, str], ...]
    """Kind of failure, and the recovery if it happened at this moment."""
    sizes: tuple[Size, ...]
    notes: tuple[str, ...]
    """On the sizes: why a larger one may come out lower."""
    alarms: tuple[str, ...]


def explained(e: Evaluation, *, shown: Shown, before: Evaluation | None = None) -> Explanation:
    """The answers of one evaluation. `before`: the newest one with a decision, only named."""
    chosen = _chosen(e)
    return Explanation(
        done=done(e),
        reason=in_plain_words(e.reason),
        seen=seen(e),
        chosen=chosen,
        why=tuple(_why(e, chosen, before, shown)),
        why_not_less=tuple(_why_not_less(e, chosen)),
        would_change=would_change(e, shown=shown),
        failures=tuple(
            (kind(name), known_or_why(taken, partial(_back, e))) for name, taken in e.recoveries.items()
        ),
        sizes=tuple(line(e, verdict) for verdict in e.decision.get("verdicts", ())),
        notes=lower_though_larger(e),
        alarms=tuple(dict.fromkeys([*e.alarms, *e.trouble])),
    )


def _back(e: Evaluation, taken: Mapping[str, Any]) -> str:
    """`back after 12 s (7.2 – 41), within the promised 120 s in 98 % of the cases`."""
    middle, share = taken["mid"], percent(taken["probability"])
    back = "not back within what was looked at" if middle is None else f"back after {brief_s(middle)} s"
    in_time = f"within the promised {e.promise['target_s']:g} s in {share} of the cases"
    return f"{back} ({between(taken, brief_s)}), {in_time}"


NEAR = 3  # judgement: so many sizes on either side are shown


def near(answers: Explanation) -> tuple[Size, ...]:
    """The sizes near the one that is explained; all of them where none is known."""
    if answers.chosen is None:
        return answers.sizes
    below = tuple(one for one in answers.sizes if one.scale_out <= answers.chosen)
    above = tuple(one for one in answers.sizes if one.scale_out > answers.chosen)
    return below[-NEAR - 1 :] + above[:NEAR]


def has_decided(e: Evaluation) -> bool:
    """Whether the optimiser was asked at this tick, and answered."""
    return is_known(e.decision) and "scale_out" in e.decision


def done(evaluation: Evaluation) -> str:
    """What the tick did, in one line."""
    order, now = evaluation.instruction, evaluation.scale_out
    if order["do"] == "scale":
        if isinstance(now, Unknown):
            return f"goes to {executors(order['to'])}"
        return f"goes from {now} to {executors(order['to'])}"
    if isinstance(now, Unknown):
        return "changes nothing; how many executors are declared is not known"
    if order.get("would") is not None:
        return f"would go from {now} to {executors(order['would'])} (mode {evaluation.mode} changes nothing)"
    return f"holds {executors(now)}"


def _chosen(evaluation: Evaluation) -> int | None:
    order, now = evaluation.instruction, evaluation.scale_out
    for size in (order["to"], order.get("would")):
        if size is not None:
            return int(size)
    return None if isinstance(now, Unknown) else now


# ---------------------------------------------------------------------------------------------------- why


def _why(e: Evaluation, chosen: int | None, before: Evaluation | None, shown: Shown) -> list[str]:
    found = []
    if e.reassert is not None:
        when = "now" if e.apply is not None else "as soon as nothing that outranks it stands in the way"
        came = f"It came back with {executors(e.reassert['found'])} where {e.reassert['ours']} were verified"
        found.append(f"{came}: it is brought back {when}.")
    if not has_decided(e):
        said = found + (_ordered(e, shown) or _under_way(e) or [f"{capital(e.reason)}."])
        if e.change and e.change["problem"]:
            said.append(f"The change to {executors(e.change['to'])} has failed: {e.change['problem']}.")
        if before is None:
            return said
        newest = f"The newest decision is of {shown(before.at_s)}"
        return [*said, f"{newest}: `headroom explain {e.job} --at …` with that moment shows it."]
    wanted = e.decision["scale_out"]
    limit = limited(e)
    if limit:
        found.append(f"Not what would be right for the load to come: that is {executors(wanted)}.")
        found.append(f"It is not done yet: {limit}.")
    elif chosen is not None and is_known(wanted) and wanted != chosen:
        found.append(f"{capital(e.reason)}.")
    elif not is_known(wanted):
        found.append(f"No size can be recommended: {why_unknown(wanted)}.")
    smallest = e.decision.get("smallest")
    if not limit and is_known(smallest) and smallest != wanted and is_known(wanted):
        found.append(f"{capital(_without_verb(e.decision['reason']))}.")
    found += keeps(e, chosen)
    return found


def _ordered(e: Evaluation, shown: Shown) -> list[str]:
    """A directive, a drill or a window that outranks a decision."""
    orders = e.orders
    if pause := orders.get("pause"):
        return [
            f"{pause['who']} has paused it{_until(pause, shown)}: {pause['why']}.",
            "Nothing is decided and nothing is changed meanwhile; measuring goes on.",
        ]
    if foreign := e.foreign:
        return [
            f"{capital(executors(foreign['found']))} were set from outside at {shown(foreign['since_s'])}, "
            f"where we had set {foreign['ours']}: that size stays until `headroom resume {e.job}`."
        ]
    if pin := orders.get("pin"):
        return [
            f"{pin['who']} has pinned it to {executors(pin['scale_out'])}{_until(pin, shown)}: {pin['why']}."
        ]
    if drill := orders.get("drill"):
        return [
            f"A drill is under way since {shown(drill['since_s'])}: {kind(drill['kind'])} is caused on "
            "purpose. Nothing is decided until the drill is over."
        ]
    blackout = orders.get("blackout")
    if blackout and not blackout["scale_out_allowed"]:
        return [f"A blackout window: {blackout['why']}. Nothing is changed in it."]
    if e.mode == "observe":
        return ["Its mode is observe: it is measured and learnt from, and nothing is decided."]
    return []


def _under_way(e: Evaluation) -> list[str]:
    change = e.change
    if change and not change["problem"]:
        asked = lasting(e.at_s - change["at_s"])
        return [
            f"The change from {change['before']} to {executors(change['to'])}, asked for {asked} ago, is "
            "being verified: the next decision waits for it."
        ]
    if incident := e.recovering:
        since = lasting(e.at_s - incident["failed_at_s"])
        return [
            f"It is coming back from {kind(incident['kind'])}, for {since} ({incident['why']}): nothing is "
            "taken away meanwhile, and executors are added only where that brings it back sooner."
        ]
    return []


# ------------------------------------------------------------------------------------------- why not less


def _why_not_less(e: Evaluation, chosen: int | None) -> list[str]:
    if chosen is None:
        return []
    if not has_decided(e):
        return ["Nothing was decided at this tick, so fewer were not looked at."]
    smaller = [v for v in e.decision.get("verdicts", ()) if v["scale_out"] < chosen]
    if not e.decision.get("verdicts"):
        return ["The sizes were not looked at one by one."]
    if not smaller:
        return [f"{capital(executors(chosen))} is the smallest size that may be taken."]
    less = max(smaller, key=lambda v: int(v["scale_out"]))
    name = executors(less["scale_out"])
    if less["status"] == "feasible":
        limit = limited(e)
        held = f"It comes later: {limit}." if limit else f"It is kept because: {_without_verb(e.reason)}."
        return [f"{capital(name)} would keep the promise. {held}"]
    found = []
    recovery = [x for x in less["excuses"] if x["condition"] == "recovery" and not x["measure"]]
    if recovery:
        found += recovers(e, less)
    found += [spoken(excuse) for excuse in less["excuses"] if excuse not in recovery]
    return [f"With {name}: {found[0][:1].lower()}{found[0][1:]}", *found[1:]] if found else []


# ------------------------------------------------------------------------------------------------- pieces


def _until(order: Mapping[str, Any], shown: Shown) -> str:
    return f" until {shown(order['until_s'])}" if is_known(order.get("until_s")) else ""
