"""Cases for tests of what a function refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


def refused(ask: Callable[..., Any], right: dict[str, Any], **wrong: list[Any]) -> Iterator[Any]:
    """Calls of `ask` with one wrong argument each."""
    for argument, values in wrong.items():
        for value in values:
            yield pytest.param(ask, right | {argument: value}, argument, id=f"{argument}={value}"[:40])
