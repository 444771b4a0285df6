"""`python -m bench [NAME…]`: run the benchmarks, print them, write bench/results.json.

Every benchmark is a module of this package with `measure() -> Iterable[Figure]`. Each runs in a process
of its own, so that imports and peak memory are its own too. Exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
LONG = frozenset({"scale"})
"""Run only where they are named."""


def names() -> list[str]:
    return sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_"))


def machine() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def run_here(name: str) -> None:
    """Measure one benchmark in this process; its figures are the last line printed."""
    figures = list(importlib.import_module(f"bench.{name}").measure())
    print(json.dumps([asdict(f) | {"holds": f.holds} for f in figures]))


def run_apart(name: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--here", name], stdout=subprocess.PIPE, text=True, cwd=HERE.parent
    )
    if done.returncode:
        raise SystemExit(f"benchmark {name} ended with exit code {done.returncode}")
    figures: list[dict[str, object]] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="run the benchmarks")
    parser.add_argument(
        "name", nargs="*", help=f"which ones (default all but {', '.join(LONG)}): {', '.join(names())}"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(names()):
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    if arguments.here:
        run_here(*arguments.name)
        return 0
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"benchmarks": {}}
    results["machine"] = machine()
    missed = 0
    for name in arguments.name or [name for name in names() if name not in LONG]:
        started = time.monotonic()
        print(f"{name} …", flush=True)
        figures = run_apart(name)
        results["benchmarks"][name] = figures
        for figure in figures:
            bound = figure["at_most"] if figure["at_most"] is not None else figure["at_least"]
            sign = "≤" if figure["at_most"] is not None else "≥"
            target = "" if bound is None else f"  ({sign} {bound:g}: {'ok' if figure['holds'] else 'MISSED'})"
            print(f"  {figure['name']:<72} {figure['value']:>10.4g} {figure['unit']}{target}", flush=True)
            missed += figure["holds"] is False
        print(f"  {time.monotonic() - started:.0f} s", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{missed} of the targets missed" if missed else "every target held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
