from __future__ import annotations

import pytest

from models.errors import Misconfigured
from pipelines.integrations import java


@pytest.fixture(scope="session")
def real_java() -> java.Java:
    """A Java, or a skipped test that says why."""
    try:
        return java.find()
    except Misconfigured as error:
        pytest.skip(str(error))
