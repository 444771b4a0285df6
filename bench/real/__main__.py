"""`python -m bench.real [PART…]`: measure on real Kafka and Spark, print, write bench/real.json.

Everything that is finished is kept in the folder and not measured again; `--again PART` does. `--table`
writes what bench/real.json says into docs/measurements.md. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.__main__ import machine
from models.errors import HeadroomError
from pipelines.processes.owner import exit_on_signals

from . import capacity, drills, lab, learning, online, promises, report, rescales, sustain
from .journal import Journal
from .lab import Lengths

PARTS = {part.NAME: part for part in (capacity, drills, online, sustain, rescales, promises, learning)}
ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parents[1] / "real.json"
PAGE = ROOT / "docs" / "measurements.md"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.part) - set(PARTS):
        parser.error(f"there is no part called {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    if chosen.list:
        return _list(Lengths())
    if chosen.table:
        return _table()
    if chosen.report:
        return _report(chosen.folder)
    exit_on_signals()
    return measure(
        [
            name
            for name in PARTS
            if name in (*chosen.part, *chosen.again) or not (chosen.part or chosen.again)
        ],
        folder=chosen.folder,
        again=chosen.again,
        lengths=Lengths(),
    )


def measure(
    names: list[str],
    *,
    folder: Path,
    lengths: Lengths,
    again: list[str] | None = None,
    kind: str = "local",
    results: Path = RESULTS,
) -> int:
    """Run these parts in one environment, and report what all parts have shown so far."""
    say = lab.progress()
    journal = Journal(folder / "pieces.jsonl")
    for name in again or ():
        journal.forget(name)
    estimate = {name: PARTS[name].seconds(lengths) / 60.0 for name in names}
    parts = ", ".join(f"{name} {minutes:.0f}" for name, minutes in estimate.items())
    say(f"about {sum(estimate.values()):.0f} minutes, less what was measured before: {parts}")
    failed = ""
    try:
        with lab.opened(folder, lengths=lengths, say=say, kind=kind, journal=journal) as found:
            for name in names:
                say(f"{name}: {PARTS[name].ASKS}")
                PARTS[name].run(found)
                _tell(name, journal)
                write(journal, results)
    except HeadroomError as error:
        failed = f"stopped: {error}; what was finished is kept, run it again to go on"
        print(failed, file=sys.stderr)
    missed = write(journal, results)
    print(f"{missed} of the targets missed" if missed else "every target held, of what was measured")
    return 2 if failed else 1 if missed else 0


def _reports(journal: Journal) -> dict[str, report.Report]:
    """What the parts that were measured show so far."""
    return _reports_of(journal, journal.changes)


@functools.lru_cache(maxsize=1)
def _reports_of(journal: Journal, changes: int) -> dict[str, report.Report]:
    """Each drill is predicted without itself, which takes a second: once for what is in the journal."""
    found = {name: part.report(journal) for name, part in PARTS.items()}
    return {name: one for name, one in found.items() if one is not None}


def _tell(name: str, journal: Journal) -> None:
    found = _reports(journal).get(name)
    for line in found.lines() if found is not None else ():
        print(f"  {line}", flush=True)


def write(journal: Journal, results: Path) -> int:
    """All parts, whenever they were measured, also into another folder; how many targets are missed."""
    found = _reports(journal)
    before = json.loads(results.read_text())["parts"] if results.exists() else {}
    parts = before | {name: one.to_json() for name, one in found.items()}
    data: dict[str, Any] = {
        "machine": machine(),
        "parts": {name: parts[name] for name in PARTS if name in parts},
    }
    partial = results.with_suffix(".part")
    partial.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    os.replace(partial, results)
    return sum(f.holds is False for one in found.values() for f in one.figures)


def _report(folder: Path) -> int:
    """What was measured so far, without measuring anything."""
    journal = Journal(folder / "pieces.jsonl")
    for name in PARTS:
        _tell(name, journal)
    return 1 if write(journal, RESULTS) else 0


def _list(lengths: Lengths) -> int:
    for name, part in PARTS.items():
        print(f"{name:<10} {part.seconds(lengths) / 60.0:3.0f} min  {part.ASKS}")
    print(f"{sum(part.seconds(lengths) for part in PARTS.values()) / 60.0:14.0f} min in all")
    return 0


def _table() -> int:
    if not RESULTS.exists():
        print("nothing was measured yet: run `make bench-real` first", file=sys.stderr)
        return 2
    data = json.loads(RESULTS.read_text())
    on = data["machine"]
    size = f"{on['processors']} processors, {on['memory_gib']} GiB"
    kind = f"{size} ({on['system']}, Python {on['python']})"
    text = f"Measured on {kind}; not every part in the same run, so that capacities may differ between them."
    parts = [report.Report.from_json(one) for one in data["parts"].values()]
    PAGE.write_text(report.into(PAGE.read_text(encoding="utf-8"), parts, text), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.real", description="measure on real Kafka and Spark"
    )
    parser.add_argument("part", nargs="*", metavar="PART", help=f"default all: {', '.join(PARTS)}")
    parser.add_argument(
        "--again", action="append", default=[], choices=PARTS, help="measure this part once more"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(".headroom-bench"), help="where everything is kept"
    )
    parser.add_argument("--list", action="store_true", help="what there is, and how long it takes")
    parser.add_argument(
        "--report", action="store_true", help="what was measured so far, into bench/real.json"
    )
    parser.add_argument(
        "--table", action="store_true", help="write bench/real.json into docs/measurements.md"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
