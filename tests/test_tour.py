"""docs/tour.md names files and what is in them; all of it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.fast

ROOT = Path(__file__).parent.parent
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
STOPS = re.findall(r"^\d+\. .*?(?=^\d+\. |^## |\Z)", TOUR, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_is_one_file_and_defines_what_the_tour_says_of_it(stop: str) -> None:
    (file,) = set(re.findall(r"`([\w/]+\.py)`", stop))
    sources = [ROOT / file, ROOT / "models" / "quantities.py", ROOT / "models" / "ports.py"]
    sources.append(ROOT / "models" / "optimise" / "question.py")
    for name in set(re.findall(r"`([A-Za-z_]\w*)`", stop)) - {"apply"}:
        assert any(
            re.search(rf"^(def|class) {name}\b", path.read_text(), re.MULTILINE) for path in sources
        ), name


def test_a_record_reaches_a_decision_in_eight_files() -> None:
    first, second = TOUR.split("## From a drill")
    assert len(re.findall(r"`[\w/]+\.py`", first)) == 8
    assert 4 <= len(re.findall(r"`[\w/]+\.py`", second)) <= 8
