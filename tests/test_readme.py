"""Every example in the README and in docs/ runs, and prints what the page says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {"README.md": README} | {
    f"docs/{page.name}": page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))
}
PYTHON = [
    found
    for page in PAGES.values()
    for found in re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", page, re.DOTALL)
]
COMMANDS = [
    found
    for page in PAGES.values()
    for found in re.findall(r"```console\n\$ headroom ([^\n]*)\n(.*?)```", page, re.DOTALL)
]


@pytest.mark.parametrize(("code", "printed"), PYTHON)
def test_a_python_example(code: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (printed, "")


@pytest.mark.parametrize(("arguments", "printed"), COMMANDS)
def test_a_command_example(arguments: str, printed: str) -> None:
    headroom = Path(sys.executable).parent / "headroom"
    wide = {**os.environ, "COLUMNS": "100"}  # as the pages show it
    done = subprocess.run(
        [headroom, *arguments.split()], cwd=ROOT, env=wide, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (printed.strip(), "")


@pytest.mark.fast
def test_there_are_examples_and_every_target_of_make_is_there() -> None:
    assert len(PYTHON) >= 2
    assert COMMANDS
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|\$ )make ([a-z-]+)", README)) - {"demo"} <= targets


@pytest.mark.fast
@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGES[page]) if "://" not in link]
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.fast
def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 1200
