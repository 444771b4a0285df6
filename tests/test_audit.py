"""`make audit`: what is a finding, what is listed, and that it is skipped cleanly where nobody answers."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
assert spec is not None
assert spec.loader is not None
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)

FOUND = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["1.1"]}
REPORT = {
    "dependencies": [
        {"name": "good", "version": "2.0", "vulns": []},
        {"name": "ours", "skip_reason": "not found"},
        {"name": "bad", "version": "1.0", "vulns": [FOUND, {"id": "GHSA-2", "fix_versions": []}]},
    ]
}
ANSWERS = f"import json; print(json.dumps({REPORT!r})); raise SystemExit(1)"
OFFLINE = "import sys; sys.exit('WARNING: one\\n  × the index cannot be reached\\nhint: two')"
HANGS = "import subprocess; subprocess.run(['sleep', '600'])"


@pytest.mark.fast
def test_every_package_of_the_lock_is_asked_for_once():
    found = audit.pins((ROOT / "requirements.lock").read_text())
    names = [one.partition("==")[0] for one in found]
    assert len(names) == len(set(names)) > 100
    assert {"numpy", "dagster", "mlflow"} <= set(names)
    assert "pywin32" not in names, "nothing is installed of it here"
    assert all(re.fullmatch(r"[a-z0-9._-]+==[0-9][\w.]*", one) for one in found)


@pytest.mark.fast
def test_what_is_listed_with_its_reason_is_no_finding():
    both = ["bad 1.0: PYSEC-1, mended in 1.1", "bad 1.0: GHSA-2, no version mends it"]
    assert audit.concerning(REPORT, {}) == both
    known = audit.listed("# a comment\n\nCVE-1 only with its own server\n")
    assert audit.concerning(REPORT, known) == both[1:]
    with pytest.raises(ValueError, match="GHSA-2 has no reason"):
        audit.listed("GHSA-2 \n")
    audit.listed(audit.LISTED.read_text())


@pytest.mark.parametrize(
    ("program", "within_s", "why"),
    [
        (OFFLINE, 60.0, "the index cannot be reached"),
        ("", 60.0, "it printed nothing"),
        ("print('[]')", 60.0, "its answer names no dependencies"),
        (HANGS, 0.2, "no answer within 0.2 s"),
    ],
)
def test_without_an_answer_there_is_a_reason(program, within_s, why):
    assert audit.answer([sys.executable, "-c", program], within_s=within_s) == why


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """Makes a uv that runs this program instead; the newest answer is kept in the test's own folder."""
    monkeypatch.setattr(audit, "ANSWERED", tmp_path / "answered")

    def make(program):
        there = tmp_path / "uv"
        there.write_text(f"#!{sys.executable}\n{program}\n")
        there.chmod(0o700)
        return str(there)

    return make


def test_a_finding_is_red_and_no_answer_is_one_line(uv, capsys):
    assert audit.main(uv(ANSWERS), now_s=0.0) == 1
    assert "bad 1.0: PYSEC-1" in capsys.readouterr().out
    assert audit.main(uv(OFFLINE), now_s=0.0) == 0
    said = "audit skipped, known vulnerabilities were not looked for: the index cannot be reached\n"
    assert capsys.readouterr() == (said, "")


def test_nothing_found_is_asked_again_after_a_day(uv, capsys):
    clean = uv("print('{\"dependencies\": []}')")
    assert audit.main(clean, now_s=0.0) == 0
    at_s = os.stat(audit.ANSWERED).st_mtime
    capsys.readouterr()
    assert audit.main(uv(OFFLINE), now_s=at_s + 3600.0) == 0
    assert capsys.readouterr().out == ""
    assert audit.main(uv(OFFLINE), now_s=at_s + 90_000.0) == 0
    assert "audit skipped" in capsys.readouterr().out
