"""How does control's memory survive a restart? As plain JSON, restored by the types it is declared with.

Infinities are written as text, because JSON has none; `Unknown` is written as its reason.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from models.quantities import Misuse, Unknown

INFINITIES = {"inf": math.inf, "-inf": -math.inf}


def plain(value: Any) -> Any:
    """The same value in plain JSON types."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, float):
        value = float(value)
        return value if math.isfinite(value) else str(value)
    return int(value)


def restore(kind: Any, data: Any, *, name: str = "state") -> Any:
    """The value of type `kind` that `plain` wrote; whatever does not fit is refused by name."""
    if kind is Any:
        return data
    origin = get_origin(kind)
    if origin in (types.UnionType, Union):
        return _restore_one_of(get_args(kind), data, name)
    if origin is tuple:
        items = data if isinstance(data, list) else _refuse(name, "a list", data)
        inside = get_args(kind)
        if len(inside) == 2 and inside[1] is Ellipsis:
            return tuple(restore(inside[0], item, name=name) for item in items)
        return tuple(restore(k, item, name=name) for k, item in zip(inside, items, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        key, inside_kind = get_args(kind)
        return {key(k): restore(inside_kind, v, name=f"{name}.{k}") for k, v in data.items()}
    if origin is Literal:
        return data if data in get_args(kind) else _refuse(name, f"one of {get_args(kind)}", data)
    if kind is float:
        value = INFINITIES.get(data, data) if isinstance(data, str) else data
        if isinstance(value, bool) or not isinstance(value, int | float):
            _refuse(name, "a number", data)
        return float(value)
    if kind is int and isinstance(data, bool):
        return _refuse(name, "a whole number", data)
    if kind in (bool, str, int):
        return data if isinstance(data, kind) else _refuse(name, kind.__name__, data)
    return kind(**restore_fields(kind, data, name=name))


def _restore_one_of(kinds: tuple[Any, ...], data: Any, name: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    if isinstance(data, dict) and set(data) == {"unknown"} and Unknown in kinds:
        return Unknown(data["unknown"])
    rest = [k for k in kinds if k not in (type(None), Unknown)]
    if bool in rest and isinstance(data, bool):
        return data
    return restore(next(k for k in rest if k is not bool), data, name=name)


def restore_fields(kind: Any, data: Any, *, name: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a record, each restored by its declared type."""
    if not isinstance(data, Mapping):
        _refuse(name, "an object", data)
    wanted = [f.name for f in fields(kind) if f.name not in without]
    if missing := [field for field in wanted if field not in data]:
        raise Misuse(name, f"lacks {', '.join(missing)}")
    hints = _hints(kind)
    return {field: restore(hints[field], data[field], name=f"{name}.{field}") for field in wanted}


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _refuse(name: str, expected: str, data: Any) -> Any:
    raise Misuse(name, f"must be {expected}, got {data!r}")
