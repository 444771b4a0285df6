"""Prints the part of requirements.lock that some packages need: themselves and what they depend on.

    python deploy/locked.py requirements.lock pyspark pandas           these two
    python deploy/locked.py requirements.lock headroom --without pyspark   ours, but for one

What depends on what is in the comments `# via` that uv writes. For the Dockerfiles, which need neither
everything of the lock file nor a second one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

PROJECT = "headroom"


def needed(lock: str, wanted: Collection[str], *, without: Collection[str] = ()) -> str:
    """The entries of the lock file that are needed for `wanted`, in the same order."""
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    names = [re.split(r"[=@ ]", entry, maxsplit=1)[0] for entry in entries]
    parents = {
        name: set(
            re.findall(r"^\s+#(?: via)? +(?!via$)(\S+(?: \(pyproject\.toml:dev\))?)", entry, re.MULTILINE)
        )
        for name, entry in zip(names, entries, strict=True)
    }
    if unknown := set(wanted) - {PROJECT} - set(names):
        raise SystemExit(f"not in the lock file: {', '.join(sorted(unknown))}")
    found = set(wanted)
    while more := {
        name for name in names if name not in found and name not in without and parents[name] & found
    }:
        found |= more
    return "".join(entry for name, entry in zip(names, entries, strict=True) if name in found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print them."""
    parser = argparse.ArgumentParser(prog="deploy/locked.py", description=main.__doc__)
    parser.add_argument("lock", type=Path)
    parser.add_argument("packages", nargs="+", help=f"their names; `{PROJECT}`: what we depend on ourselves")
    parser.add_argument("--without", nargs="*", default=[], help="leave these out, and what only they need")
    chosen = parser.parse_args(arguments)
    sys.stdout.write(needed(chosen.lock.read_text(), chosen.packages, without=chosen.without))


if __name__ == "__main__":
    main()
