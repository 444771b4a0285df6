"""Five minutes at 95 % of the capacity that was found, and at 120 %.

Each size that was profiled, at rates of its own T_max, judged by the verdict of the probes. At 120 % a minute
is looked at first; only where that does not show it, the whole time.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from bench import Figure
from models import codec
from profiling_jobs.experiments.copies import Copy

from . import capacity
from .journal import Journal
from .lab import ENRICHMENT, Lab, Lengths
from .report import Report

NAME = "sustain"
ASKS = "Is 95 % of T_max sustained for 5 minutes, and 120 % not?"
BELOW, ABOVE = 0.95, 1.20
TRIES = 2  # an invalid probe shows nothing: once more
START_S = 130.0  # cold start, warm-up, settling, lead-in
AGAIN_S = 55.0


def seconds(lengths: Lengths) -> float:
    each = START_S + lengths.sustain_s + AGAIN_S + lengths.overload_s
    return len(lengths.together) * each


def run(lab: Lab) -> None:
    for group in lab.lengths.together:
        wanted = [size for size in group if not _finished(lab.journal, size)]
        if not wanted:
            continue
        if len(wanted) > 1:
            lab.say(f"copies on {' and '.join(map(str, wanted))} executors run at the same time")
        copies = [lab.copy(ENRICHMENT, size, beside=wanted) for size in wanted]
        lab.drive(*(_size(lab, copy, together=len(wanted)) for copy in copies))


def _finished(journal: Journal, size: int) -> bool:
    return all(journal.has(NAME, _piece(size, share)) for share in (BELOW, ABOVE))


def _piece(size: int, share: float) -> str:
    return f"{size} executors at {share:.0%}"


def _size(lab: Lab, copy: Copy, *, together: int) -> Generator[None, None, None]:
    size, lengths = copy.plan.scale_out, lab.lengths
    for share, stretches in (
        (BELOW, (lengths.sustain_s,) * TRIES),
        (ABOVE, (lengths.overload_s, *(lengths.sustain_s,) * TRIES)),
    ):
        if lab.journal.has(NAME, _piece(size, share)):
            continue
        rate = share * capacity.capacity_rps(lab.journal, size)
        tries: list[dict[str, Any]] = []
        for stretch_s in stretches:
            lab.say(f"{_piece(size, share)}, {rate:,.0f} records/s: {stretch_s:.0f} s")
            began_s = lab.now_s
            result = yield from lab.probe(copy, rate, probe_s=stretch_s).steps()
            tries.append(codec.to_json(result) | {"seconds": lab.now_s - began_s, "stretch_s": stretch_s})
            lab.say(f"{_piece(size, share)}: {result.verdict} {result.reason}")
            if result.verdict == "not sustained" or (result.sustained and stretch_s >= lengths.sustain_s):
                break
        data = {"size": size, "share": share, "rate_rps": rate, "together": together, "tries": tries}
        lab.journal.add(NAME, _piece(size, share), data)


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if not pieces:
        return None
    rows, right = [], {BELOW: 0, ABOVE: 0}
    for one in sorted(pieces.values(), key=lambda one: (one["size"], one["share"])):
        last = one["tries"][-1]
        wanted = "sustained" if one["share"] < 1.0 else "not sustained"
        right[one["share"]] += last["verdict"] == wanted
        rows.append(
            (
                one["size"],
                f"{one['share']:.0%}",
                f"{one['rate_rps']:,.0f}",
                "–" if last["throughput_rps"] is None else f"{last['throughput_rps']:,.0f}",
                f"{last['stretch_s']:.0f}",
                last["verdict"] + (f": {last['reason']}" if last["reason"] else ""),
                len(one["tries"]) - 1,
            )
        )
    counts = {share: sum(one["share"] == share for one in pieces.values()) for share in right}
    figures = [
        Figure(f"sizes that sustain 95 %, of {counts[BELOW]}", right[BELOW], "", at_least=counts[BELOW]),
        Figure(
            f"sizes that do not sustain 120 %, of {counts[ABOVE]}", right[ABOVE], "", at_least=counts[ABOVE]
        ),
    ]
    columns = (
        "executors",
        "of T_max",
        "offered, records/s",
        "processed",
        "watched, s",
        "verdict",
        "tries before",
    )
    beside = sorted({one["size"] for one in pieces.values() if one["together"] > 1})
    notes = [f"Copies on {' and '.join(map(str, beside))} executors ran at the same time."] if beside else []
    return Report(ASKS, figures, columns, rows, notes)
