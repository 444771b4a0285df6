"""The codec: frozen values to JSON and back, what it refuses, and what it shows to people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import codec
from models.arguments import Array
from models.quantities import Interval, Misuse, Unknown

pytestmark = pytest.mark.fast


@dataclass(frozen=True)
class Circle:
    kind: ClassVar[str] = "circle"
    size: float


@dataclass(frozen=True)
class Square:
    kind: ClassVar[str] = "square"
    size: float
    turned: bool = False


@dataclass(frozen=True)
class Everything:
    schema: ClassVar[int] = 3
    number: float
    count: int
    yes: bool
    word: str
    maybe: float | Unknown
    marked: bool | Unknown
    inner: Interval | None
    pairs: tuple[tuple[float, int], ...]
    times: Mapping[str, float]
    sizes: Mapping[int, str]
    shape: Circle | Square
    side: Literal["left", "right"] = "left"
    memory: object = field(default=None, metadata=codec.GIVEN)
    _cache: int = 0


numbers = st.floats(allow_nan=False)
unknown = st.builds(Unknown, st.text(max_size=5))
everything = st.builds(
    Everything,
    number=numbers,
    count=st.integers(-(2**40), 2**40),
    yes=st.booleans(),
    word=st.text(max_size=5),
    maybe=numbers | unknown,
    marked=st.booleans() | unknown,
    inner=st.none() | st.builds(Interval, st.just(1.0), st.just(2.0), st.floats(2.0), st.just(0.9)),
    pairs=st.lists(st.tuples(numbers, st.integers(1, 9)), max_size=3).map(tuple),
    times=st.dictionaries(st.text(max_size=3), numbers, max_size=3),
    sizes=st.dictionaries(st.integers(0, 9), st.text(max_size=3), max_size=3),
    shape=st.builds(Circle, numbers) | st.builds(Square, numbers, st.booleans()),
    side=st.sampled_from(["left", "right"]),
)
ONE = Everything(1.0, 2, True, "x", 3.0, Unknown("not read"), None, (), {}, {}, Circle(1.0))


def through_text(value: object) -> Any:
    return codec.loads(codec.dumps("value", codec.to_json(value)))


@settings(max_examples=40)
@given(everything)
def test_what_is_written_comes_back(value: Everything) -> None:
    assert codec.from_json(Everything, through_text(value)) == value


def test_the_text_is_strict_json_with_one_word_for_infinity() -> None:
    data = {"last_s": -math.inf, "shape": codec.to_json(Square(1.5))}
    assert codec.dumps("data", data) == (
        '{"last_s":{"$number":"-inf"},"shape":{"kind":"square","size":1.5,"turned":false}}'
    )


def test_a_version_is_written_and_fields_that_are_given_or_private_are_not() -> None:
    data = codec.to_json(ONE)
    assert data["schema"] == 3
    assert not {"memory", "_cache"} & set(data)
    again = codec.from_json(Everything, data, memory="kept elsewhere")
    assert (again.memory, again.number) == ("kept elsewhere", 1.0)


def test_numpy_values_are_numbers_and_lists() -> None:
    @dataclass(frozen=True, eq=False)
    class Band:
        rates: Array

    Band.__annotations__["rates"] = Array
    data = codec.to_json(Band(np.array([[1.0, np.nan]])))
    assert math.isnan(data["rates"][0][1])
    again = codec.from_json(Band, codec.loads(codec.dumps("band", data)))
    np.testing.assert_array_equal(again.rates, [[1.0, np.nan]])
    assert codec.to_json(np.int64(3)) == 3


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({"schema": 2}, r"state\.schema: must be 3, got 2"),
        ({"number": "inf"}, r"state\.number: must be a number"),
        ({"number": True}, r"state\.number"),
        ({"count": 1.5}, r"state\.count: must be a whole number"),
        ({"yes": 1}, r"state\.yes: must be true or false"),
        ({"maybe": None}, r"state\.maybe"),
        ({"side": "up"}, r"state\.side: must be one of"),
        ({"pairs": [[1.0]]}, r"state\.pairs: must be a list of 2"),
        ({"pairs": 3}, r"state\.pairs: must be a list"),
        ({"times": []}, r"state\.times: must be an object"),
        ({"shape": {"kind": "oval", "size": 1.0}}, r"state\.shape\.kind"),
        ({"inner": {"low": 1.0}}, r"state\.inner: lacks mid, high, confidence"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(changed: dict[str, Any], place: str) -> None:
    with pytest.raises(Misuse, match=place):
        codec.from_json(Everything, codec.to_json(ONE) | changed, name="state")


def test_people_see_null_for_infinity_and_as_many_digits_as_they_read() -> None:
    seen = {
        "at_s": 1_700_000_060.123456,
        "rate": np.float64(1234.5678),
        "never": math.inf,
        "why": Unknown("no"),
    }
    assert codec.readable(seen, digits=5) == {
        "at_s": 1_700_000_060.123,
        "rate": 1234.6,
        "never": None,
        "why": {"unknown": "no"},
    }
    assert codec.readable((0.1 + 0.2, Circle(math.nan))) == [0.1 + 0.2, {"kind": "circle", "size": None}]
