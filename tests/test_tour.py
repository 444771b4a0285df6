"""docs/tour.md names files and what is in them; all of it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parent.parent
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
NAMES = re.findall(r"`([A-Za-z_][\w./]*)`", TOUR)
FILES = [name for name in NAMES if name.endswith(".py")]


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(FILES)))
def test_a_name_is_defined_in_a_file_of_the_tour_or_where_its_words_come_from(name: str) -> None:
    sources = [ROOT / file for file in FILES]
    sources += [ROOT / "models" / "quantities.py", ROOT / "models" / "observation.py"]
    sources += [ROOT / "models" / "optimise" / "verdict.py", ROOT / "models" / "ports.py"]
    assert any(re.search(rf"^(def|class) {name}\b", path.read_text(), re.MULTILINE) for path in sources), name


def test_it_is_no_longer_than_eight_files() -> None:
    steps = re.findall(r"^\d+\. .*?(?=^\d+\. |^$|\Z)", TOUR, re.MULTILINE | re.DOTALL)
    assert len(steps) == 8
    assert {len(set(re.findall(r"`([\w/]+\.py)`", step))) for step in steps} == {1}
