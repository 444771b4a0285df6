"""How is a piece of state written down so that the very same comes back?

As strict JSON, which every database takes: objects with string keys, lists, strings, numbers, true, false and
null. JSON has no infinities and no NaN; a recovery that never ended is infinite, so they are written as
`{"$number": "inf"}`. Anything else is refused with its place, rather than changed silently on its way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from .quantities import Misuse

NUMBER = "$number"


def written(name: str, value: Any) -> str:
    """The shortest text that `read` turns back into `value` (a tuple into a list)."""
    return json.dumps(_strict(name, value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read(text: str) -> Any:
    """What was written."""
    return json.loads(text, object_hook=_number)


def _strict(place: str, value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {NUMBER: str(float(value))}
    if isinstance(value, list | tuple):
        return [_strict(f"{place}[{index}]", each) for index, each in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key == NUMBER:
                raise Misuse(place, f"keys must be strings other than {NUMBER}, got {key!r}")
        return {key: _strict(f"{place}.{key}", each) for key, each in value.items()}
    raise Misuse(place, f"must be plain JSON, got {type(value).__name__}")


def _number(found: dict[str, Any]) -> Any:
    return float(found[NUMBER]) if NUMBER in found else found
