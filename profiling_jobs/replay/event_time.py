"""Moves the event times of recorded events to now, without parsing the records.

The event time inside a record is moved by as much as the record itself: by now − its broker timestamp. So
what was out of order, or late, stays so by as much. Where that timestamp cannot be right it is not moved, and
late: one event decades ahead, and a job drops all others as late. The field is named by its path in the JSON
value (`"event_time"`, `"payload.created_at"`) with its unit, or a function of the user's own does it,
`"package.module:function"`, called with the values and the milliseconds to move each by.

A whole number of a fixed number of digits at the top level is overwritten in place, all records at once. Only
where its place is beyond doubt: it is the record's first field, or the record has no nested object and the
name occurs once. All others are parsed. A record without the field stays as it is.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.errors import Misconfigured

from .replay_plan import Unit

Whole = NDArray[np.int64]
Shift = Callable[[pa.Array, Whole], pa.Array]

DIGITS = {"s": 10, "ms": 13, "us": 16}  # from 2001 to 2286
PER_MS = {"s": 1e-3, "ms": 1, "us": 1000}
SAMPLE = 1000  # judgement: a field that none of these has is a spelling mistake


@dataclass(frozen=True)
class JsonField:
    """A field of a JSON value that holds the event time."""

    path: str
    unit: Unit = "ms"

    def __post_init__(self) -> None:
        if not all(self.path.split(".")):
            raise Misconfigured("event_time", f"'{self.path}' is not the path of a field, as in a.b")
        if self.unit not in get_args(Unit):
            raise Misconfigured(
                "event_time_unit", f"must be one of {', '.join(get_args(Unit))}, got {self.unit!r}"
            )

    def __call__(self, values: pa.Array, by_ms: Whole) -> pa.Array:
        if not pa.types.is_binary(values.type) or values.null_count:
            values = pa.array(values.to_pylist(), pa.binary())
        elif values.offset:  # a buffer of its own, which begins with the first of them
            values = pa.concat_arrays([values])
        found = self._find(values)
        moved = values if found is None else self._overwritten(values, *found, by_ms)
        slow = range(len(values)) if found is None else np.flatnonzero(found[0] < 0)
        if not len(slow):
            return moved
        texts = moved.to_pylist()
        for row in slow:
            texts[row] = self._parsed(texts[row], int(by_ms[row]))
        return pa.array(texts, pa.binary())

    def check(self, values: pa.Array) -> None:
        sample = values.slice(0, SAMPLE).to_pylist()
        if sample and not any(self._holder(_loaded(text)) for text in sample):
            raise Misconfigured(
                "event_time", f"none of the first {len(sample)} records has a JSON field '{self.path}'"
            )

    def _find(self, values: pa.Array) -> tuple[Whole, Whole] | None:
        """Per record where its digits begin in the buffer (−1: in doubt) and the number they spell."""
        width = DIGITS.get(self.unit)
        if width is None or "." in self.path or not len(values):
            return None
        offsets = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1].astype(np.int64)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        if data.size == 0:
            return None
        name = json.dumps(self.path).encode() + b":"
        start = offsets[:-1] + 1 + len(name)
        opening = np.frombuffer(b"{" + name, np.uint8)
        heads = data[(offsets[:-1, None] + np.arange(opening.size)).clip(max=data.size - 1)]
        inside = (heads == opening).all(axis=1)
        if not inside.all():
            first = pc.find_substring(values, name).to_numpy(zero_copy_only=False).astype(np.int64)
            once = pc.count_substring(values, name).to_numpy(zero_copy_only=False) == 1
            flat = pc.count_substring(values, b"{").to_numpy(zero_copy_only=False) == 1
            opened = data[offsets[:-1].clip(max=data.size - 1)] == ord("{")
            start = np.where(inside, start, offsets[:-1] + first + len(name))
            inside |= (first >= 0) & once & flat & opened
        start = start + (data[start.clip(max=data.size - 1)] == ord(" "))
        inside &= start + width < offsets[1:]
        places = np.where(inside, start, 0)[:, None] + np.arange(width)
        digits = data[places.clip(max=data.size - 1)].astype(np.int64) - ord("0")
        behind = data[(start + width).clip(0, data.size - 1)]
        inside &= ((digits >= 0) & (digits <= 9)).all(axis=1) & (digits[:, 0] > 0)
        inside &= np.isin(behind, np.frombuffer(b",} ", np.uint8))
        # In floating point, which is exact here and far quicker: sixteen digits stay below 2⁵³ until 2255.
        number = (digits.astype(np.float64) @ (10.0 ** np.arange(width - 1, -1, -1))).astype(np.int64)
        return np.where(inside, start, -1), number

    def _overwritten(self, values: pa.Array, start: Whole, number: Whole, by_ms: Whole) -> pa.Array:
        width = DIGITS[self.unit]
        moved = number + np.rint(by_ms * PER_MS[self.unit]).astype(np.int64)
        start[(moved < 10 ** (width - 1)) | (moved >= 10**width)] = -1
        rows = start >= 0
        data = np.frombuffer(values.buffers()[2], np.uint8).copy()
        powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
        places = start[rows][:, None] + np.arange(width)
        data[places] = (moved[rows][:, None] // powers % 10 + ord("0")).astype(np.uint8)
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(values), [None, values.buffers()[1], pa.py_buffer(data)]
        )

    def _parsed(self, text: bytes | None, by_ms: int) -> bytes | None:
        document = _loaded(text)
        holder = self._holder(document)
        if not holder:
            return text
        name = self.path.split(".")[-1]
        try:
            holder[name] = self._moved(holder[name], by_ms)
        except (ValueError, TypeError, OverflowError):  # not a time
            return text
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()

    def _moved(self, at: Any, by_ms: int) -> Any:
        if self.unit == "iso":
            return _spelt_alike(str(at), datetime.fromisoformat(str(at)) + timedelta(milliseconds=by_ms))
        if isinstance(at, str):  # a number in quotes stays one
            return str(self._moved(int(at), by_ms))
        if isinstance(at, bool):
            raise TypeError(at)
        by = by_ms * PER_MS[self.unit]
        return at + by if isinstance(at, float) else int(at) + round(by)

    def _holder(self, document: Any) -> dict[str, Any]:
        """The object that has the field; empty when there is none."""
        *parents, name = self.path.split(".")
        for parent in parents:
            document = document.get(parent) if isinstance(document, dict) else None
        there = isinstance(document, dict) and document.get(name) is not None
        return document if there else {}


def shift_by(event_time: str, *, unit: Unit = "ms") -> Shift:
    """What moves the event times: a JSON path, or a function named `package.module:function`."""
    module, colon, name = event_time.partition(":")
    if not colon:
        return JsonField(event_time, unit)
    try:
        hook: Shift = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise Misconfigured("event_time", f"'{event_time}' cannot be imported: {error}") from error
    return hook


def _loaded(text: bytes | None) -> Any:
    try:
        return json.loads(text or b"")
    except ValueError:
        return None


def _spelt_alike(before: str, after: datetime) -> str:
    """With the same letter for the zone and as many digits behind the point."""
    digits = len(before.partition(".")[2].rstrip("Z").partition("+")[0].partition("-")[0])
    precision = "seconds" if digits == 0 else "milliseconds" if digits <= 3 else "microseconds"
    text = after.isoformat(sep=before[10:11] or "T", timespec=precision)
    return text.removesuffix("+00:00") + "Z" if before.endswith("Z") else text
