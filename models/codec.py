"""Codec between frozen values and JSON, for everything that is stored, sent or shown.

    to_json(value)            dataclasses -> dicts, tuples -> lists, by their fields
    from_json(kind, data)     the same value again, by the declared types of its fields
    dumps(name, data), loads  plain data <-> strict JSON text
    readable(value)           for people: plain JSON, infinities as null, floats rounded

An `Unknown` is written as `{"unknown": reason}`. JSON has no infinities and no NaN: they stay floats in plain
data, and `dumps` writes them as `{"$number": "inf"}`.

A dataclass may declare two class variables. `schema` is the version of its JSON, written and checked; then no
field may be missing, while otherwise a missing one gets its default. `kind` is written too, and tells the
members of a union apart. Fields that begin with an underscore, and those made with `field(metadata=GIVEN)`,
are not written. A class with a `to_json` or `from_json` of its own is left to it.
"""

from __future__ import annotations

import functools
import json
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .quantities import Misuse, Unknown

T = TypeVar("T")
GIVEN: Mapping[str, Any] = {"given": True}
"""Metadata of a field that is not written, and handed to `from_json` by its name."""
NUMBER = "$number"
EXPECTED = {bool: "true or false", str: "text", int: "a whole number"}
CLOCK_S = 1e8
"""Larger numbers are times since 1970: rounded to milliseconds whatever the digits."""


def to_json(value: Any) -> Any:
    """The value as dicts, lists, text and numbers."""
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        kind: Any = type(value)
        shape = _shape(kind)
        return {**shape.tags, **{name: to_json(getattr(value, name)) for name in shape.written}}
    if isinstance(value, Mapping):
        return {str(key): to_json(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [to_json(each) for each in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return value.tolist()
    raise Misuse("value", f"has no JSON: {type(value).__name__}")


def from_json(kind: type[T], data: Any, *, name: str = "data", **given: Any) -> T:
    """The value of this type; Misuse where it does not fit. `given`: fields that are not in `data`."""
    found: T = _dataclass(kind, data, name, given) if given else _value(kind, data, name)
    return found


def dumps(name: str, data: Any) -> str:
    """The shortest text that `loads` turns back into `data`; what would be changed on its way is Misuse."""
    return json.dumps(_strict(name, data), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def loads(text: str) -> Any:
    """The data that was written."""
    return json.loads(text, object_hook=lambda found: float(found[NUMBER]) if NUMBER in found else found)


def readable(value: Any, *, digits: int = 17) -> Any:
    """Plain JSON with so many significant digits; an infinity or NaN is null."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if digits >= 17:
            return float(value)
        return round(float(value), 3) if abs(value) >= CLOCK_S else float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {str(key): readable(each, digits=digits) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [readable(each, digits=digits) for each in value]
    return readable(to_json(value), digits=digits)


def _strict(place: str, data: Any) -> Any:
    if data is None or isinstance(data, str | bool | int):
        return data
    if isinstance(data, float):
        return float(data) if math.isfinite(data) else {NUMBER: str(float(data))}
    if isinstance(data, list | tuple):
        return [_strict(f"{place}[{index}]", each) for index, each in enumerate(data)]
    if isinstance(data, Mapping):
        for key in data:
            if not isinstance(key, str) or key == NUMBER:
                raise Misuse(place, f"keys must be strings other than {NUMBER}, got {key!r}")
        return {key: _strict(f"{place}.{key}", each) for key, each in data.items()}
    raise Misuse(place, f"must be plain JSON, got {type(data).__name__}")


class _Shape:
    """What is written of a dataclass, and how its fields are declared."""

    def __init__(self, kind: Any) -> None:
        hints = get_type_hints(kind)
        constants = {name for name, hint in hints.items() if get_origin(hint) is ClassVar}
        self.tags = {name: getattr(kind, name) for name in ("schema", "kind") if name in constants}
        seen = [f for f in fields(kind) if not f.name.startswith("_") and "given" not in f.metadata]
        self.written = [f.name for f in seen]
        self.read = {f.name: hints[f.name] for f in seen if f.init}
        self.needed = [
            f.name
            for f in fields(kind)
            if f.init and (f.default is f.default_factory is MISSING or ("schema" in self.tags and f in seen))
        ]


@functools.cache
def _shape(kind: Any) -> _Shape:
    return _Shape(kind)


def _dataclass(kind: Any, data: Any, name: str, given: Mapping[str, Any]) -> Any:
    shape = _shape(kind)
    if not isinstance(data, Mapping):
        _refuse(name, "an object", data)
    for tag, expected in shape.tags.items():
        if data.get(tag, expected if tag == "kind" else None) != expected:
            _refuse(f"{name}.{tag}", repr(expected), data.get(tag))
    if missing := [each for each in shape.needed if each not in data and each not in given]:
        raise Misuse(name, f"lacks {', '.join(missing)}")
    values = {
        field: _value(declared, data[field], f"{name}.{field}")
        for field, declared in shape.read.items()
        if field in data and field not in given
    }
    return kind(**values, **given)


def _value(kind: Any, data: Any, name: str) -> Any:
    if kind is Any:
        return data
    if kind is float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            _refuse(name, "a number", data)
        return float(data)
    if kind in EXPECTED:
        fits = isinstance(data, kind) and (kind is bool or not isinstance(data, bool))
        return data if fits else _refuse(name, EXPECTED[kind], data)
    if kind is Path:
        return Path(_value(str, data, name))
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        return _one_of(inside, data, name)
    if origin is Literal:
        return data if data in inside else _refuse(name, f"one of {inside}", data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            _refuse(name, "an object", data)
        return {inside[0](key): _value(inside[1], each, f"{name}.{key}") for key, each in data.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        if not isinstance(data, list | tuple):
            _refuse(name, "a list", data)
        kinds = inside if origin is tuple and inside[1:] != (Ellipsis,) else (inside[0],) * len(data)
        if len(kinds) != len(data):
            _refuse(name, f"a list of {len(kinds)}", data)
        found = [_value(each, one, name) for each, one in zip(kinds, data, strict=True)]
        return found if origin is list else tuple(found)
    if origin is not None and origin.__name__ == "ndarray":
        import numpy as np

        return np.array(data, dtype=np.float64)
    if hasattr(kind, "from_json"):
        return kind.from_json(data)
    return _dataclass(kind, data, name, {})


def _one_of(kinds: tuple[Any, ...], data: Any, name: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    if isinstance(data, Mapping) and set(data) == {"unknown"} and Unknown in kinds:
        return Unknown(str(data["unknown"]))
    rest = [kind for kind in kinds if kind not in (type(None), Unknown)]
    problem = Misuse(name, f"must be one of {kinds}, got {data!r}")
    for kind in rest:
        try:
            return _value(kind, data, name)
        except Misuse as wrong:
            problem = wrong
    raise problem


def _refuse(name: str, expected: str, data: Any) -> Any:
    raise Misuse(name, f"must be {expected}, got {data!r}")
