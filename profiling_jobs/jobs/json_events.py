"""JSON records, hundreds of thousands per second.

They are made column by column: every field is an Arrow array, and a record is the join of its fields with
the text between them. The event time is the first field of every record and has thirteen digits, so that the
bytes of `EVENT_TIME_AT` can be replaced without parsing. A record arrives some time after it happened:
arrivals are evenly spaced, event times are therefore out of order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.arguments import number, whole

Whole = NDArray[np.int64]

RATE_RPS = 1000.0  # judgement: what one executor of the cheaper jobs keeps up with on a small machine
TYPICAL_DELAY_MS = 200.0  # judgement: mean of the exponential delay between happening and arriving
LONGEST_DELAY_MS = 2000  # judgement: well inside the lateness that the jobs allow
EVENT_TIME_AT = slice(len('{"event_time":'), len('{"event_time":') + 13)
EARLIEST_S = 1e9  # thirteen digits of milliseconds begin in 2001 …
LATEST_S = 9.99e9  # … and end in 2286

EVENTS = pa.schema(
    [("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("ms", tz="UTC"))]
)

_VARIANTS = 8  # judgement: enough that a broker's compression does not shrink all padding to nothing
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True)
class Decimals:
    """Numbers >= 0 with so many digits behind the point."""

    values: NDArray[np.float64]
    digits: int

    def text(self) -> pa.Array:
        """As JSON spells them. Through whole numbers, which are far quicker to spell."""
        scaled = np.rint(self.values * 10**self.digits).astype(np.int64)
        behind = pc.utf8_lpad(as_text(scaled % 10**self.digits), width=self.digits, padding="0")
        return pc.binary_join_element_wise(as_text(scaled // 10**self.digits), behind, ".")


def arrivals_ms(*, count: int, start_s: float, rate_rps: float) -> Whole:
    """When each of `count` records arrives at the broker, in epoch milliseconds."""
    whole("count", count, at_least=0)
    number("rate_rps", rate_rps, above=0.0)
    end_s = number("start_s", start_s, at_least=EARLIEST_S) + count / rate_rps
    number("start_s", end_s, at_most=LATEST_S)
    return (start_s * 1000.0 + np.arange(count) * (1000.0 / rate_rps)).astype(np.int64)


def event_times_ms(arrivals: Whole, random: np.random.Generator) -> Whole:
    """When each record happened: a little before it arrived."""
    delays = random.exponential(TYPICAL_DELAY_MS, arrivals.size)
    return arrivals - np.minimum(delays, LONGEST_DELAY_MS).astype(np.int64)


def encode(
    event_time_ms: Whole, fields: Mapping[str, str | Whole | Decimals | pa.Array], *, more: bool = False
) -> pa.Array:
    """One JSON text per row. A plain `str` stands in every row, an Arrow array of strings is quoted.

    Texts must not need escaping: they come from the generators' own alphabets. With `more` the object is left
    open for `padded`.
    """
    parts: list[pa.Array | str] = ['{"event_time":', as_text(event_time_ms)]
    for name, value in fields.items():
        if isinstance(value, str):
            parts.append(f',"{name}":"{value}"')
        elif isinstance(value, np.ndarray):
            parts += [f',"{name}":', as_text(value)]
        elif isinstance(value, Decimals):
            parts += [f',"{name}":', value.text()]
        else:
            parts += [f',"{name}":"', value, '"']
    return pc.binary_join_element_wise(*_merged(parts), "" if more else "}", "")


def padded(opened: pa.Array, *, to_bytes: int, random: np.random.Generator) -> pa.Array:
    """Records of about `to_bytes`, ±20 %, through a field `extra`, as Nexmark fills up its records."""
    closing = len(',"extra":""}')
    wanted = random.uniform(0.8 * to_bytes, 1.2 * to_bytes, len(opened)).astype(np.int64)
    missing = wanted - pc.binary_length(opened).to_numpy(zero_copy_only=False) - closing
    return pc.binary_join_element_wise(opened, ',"extra":"', texts(np.maximum(missing, 0), random), '"}', "")


def texts(lengths: Whole, random: np.random.Generator) -> pa.Array:
    """Random letters and digits of the given lengths."""
    longest = int(lengths.max(initial=0))
    letters = "".join(random.choice(list(_LETTERS), longest + _VARIANTS))
    pool = [letters[shift : shift + size] for size in range(longest + 1) for shift in range(_VARIANTS)]
    return pa.array(pool, pa.string()).take(
        pa.array(lengths * _VARIANTS + random.integers(0, _VARIANTS, lengths.size))
    )


def table(keys: Whole | pa.Array, values: pa.Array, arrived_ms: Whole) -> pa.Table:
    """The records as a topic has them, in order of arrival."""
    spelt = as_text(keys) if isinstance(keys, np.ndarray) else keys
    return pa.Table.from_arrays(
        [
            spelt.cast(pa.binary()),
            values.cast(pa.binary()),
            pa.array(arrived_ms).cast(pa.timestamp("ms", tz="UTC")),
        ],
        schema=EVENTS,
    )


def as_text(values: Whole) -> pa.Array:
    """Whole numbers as strings."""
    return pa.array(values).cast(pa.string())


def _merged(parts: list[pa.Array | str]) -> list[pa.Array | str]:
    """Neighbouring constants as one: each part costs a copy per row."""
    merged: list[pa.Array | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged
