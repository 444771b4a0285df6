"""docs/configuration.md says what the declarations say."""

import re

import pytest

from pipelines.settings.page import PAGE, page

pytestmark = pytest.mark.fast


def test_the_committed_page_is_the_generated_one():
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs` and commit docs/configuration.md"


def test_the_glossary_explains_the_words_and_is_linked():
    glossary = (PAGE.parent / "glossary.md").read_text(encoding="utf-8")
    words = (
        "T_max promise headroom probe drill band champion provisional lag committed downtime recovery slot"
    )
    terms = " ".join(re.findall(r"^\| \*\*(.+?)\*\* \|", glossary, flags=re.MULTILINE))
    assert [word for word in (*words.split(), "scale-out") if word not in terms] == []
    assert "(glossary.md)" in page()
