"""`make audit`: known vulnerabilities of what requirements.lock installs here, found by pip-audit.

    .venv/bin/python .ci/audit.py UV

uv runs pip-audit in an environment of its own: it is no dependency of the project. A finding that does not
concern Headroom is listed in known-vulnerabilities.txt with the reason. Exit code 1: there is another one.
Without an answer in WITHIN_S (no network, no advisories) the audit is skipped with one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.markers import Marker

ROOT = Path(__file__).parent.parent
LOCK, LISTED = ROOT / "requirements.lock", ROOT / ".ci" / "known-vulnerabilities.txt"
ANSWERED = ROOT / ".venv" / ".audited"
"""What was asked when nothing was found last."""
WITHIN_S = 20.0
AGAIN_S = 86_400.0  # judgement: advisories come daily, and `make check` runs every few minutes
PIP_AUDIT = "pip-audit>=2.9,<3"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; (.+?))? \\$", re.MULTILINE)


def pins(lock: str) -> list[str]:
    """What the lock installs on this machine. pip-audit refuses a name that comes twice, with any marker."""
    return [
        f"{name}=={version}"
        for name, version, marker in PINNED.findall(lock)
        if not marker or Marker(marker).evaluate()
    ]


def listed(text: str) -> dict[str, str]:
    """Id -> why it does not concern us; ValueError for one without a reason."""
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            id, _, why = line.partition(" ")
            if not why.strip():
                raise ValueError(f"{LISTED.name}: {id} has no reason: write it behind the id")
            found[id] = why.strip()
    return found


def concerning(report: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    """The findings that are not listed, a line each."""
    return [
        f"{one['name']} {one['version']}: {found['id']}, "
        + (
            f"mended in {', '.join(found['fix_versions'])}"
            if found["fix_versions"]
            else "no version mends it"
        )
        for one in report["dependencies"]
        for found in one.get("vulns", ())
        if not {found["id"], *found.get("aliases", ())} & set(known)
    ]


def answer(command: Sequence[str], *, within_s: float) -> dict[str, Any] | str:
    """The report that a command prints as JSON, or why there is none."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            return f"no answer within {within_s:g} s"
        finally:  # uv has a child, which holds the pipes
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    try:
        report: dict[str, Any] = json.loads(out)
        return report if "dependencies" in report else "its answer names no dependencies"
    except (ValueError, TypeError):
        said = [line.strip(" ×") for line in err.splitlines() if line.strip() and line[:7] != "WARNING"]
        return said[0][:160] if said else "it printed nothing"


def main(uv: str, *, now_s: float) -> int:
    """The exit code."""
    lock, text = LOCK.read_text(), LISTED.read_text()
    known, asked = listed(text), hashlib.sha256((lock + text).encode()).hexdigest()
    if ANSWERED.exists() and ANSWERED.read_text() == asked and now_s - ANSWERED.stat().st_mtime < AGAIN_S:
        return 0
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(pins(lock)))
        file.flush()
        run = [uv, "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit"]
        how = ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--desc", "off", "--format", "json"]
        report = answer([*run, *how, "--requirement", file.name], within_s=WITHIN_S)
    if isinstance(report, str):
        print(f"audit skipped, known vulnerabilities were not looked for: {report}")
        return 0
    if found := concerning(report, known):
        print("known vulnerabilities in requirements.lock:", *found, sep="\n  ")
        print(f"lock a newer version (`make lock`), or say in .ci/{LISTED.name} why it does not concern us")
        return 1
    ANSWERED.write_text(asked)
    print(f"audit: no known vulnerability in {len(report['dependencies'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], now_s=time.time()))
