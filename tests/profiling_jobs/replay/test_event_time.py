"""Events of a recording happen now; everything else in the record stays as it was."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import Misconfigured
from profiling_jobs.replay import event_time
from profiling_jobs.replay.event_time import JsonField, shift_by

pytestmark = pytest.mark.fast

AT = 1_700_000_000_123


def moved(text: str, by_ms: int = 5000, path: str = "at", unit: str = "ms") -> str:
    values = pa.array([text.encode()], pa.binary())
    shifted = JsonField(path, unit)(values, np.array([by_ms]))  # type: ignore[arg-type]
    assert shifted.type == pa.binary()
    return shifted.to_pylist()[0].decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'{{"at":{AT},"x":1}}', f'{{"at":{AT + 5000},"x":1}}'),
        (f'{{"x":1,"at": {AT}}}', f'{{"x":1,"at": {AT + 5000}}}'),
        # The first field, whatever stands nested behind it.
        (f'{{"at":{AT},"y":{{"z":1.10}}}}', f'{{"at":{AT + 5000},"y":{{"z":1.10}}}}'),
        # Not beyond doubt: these are parsed.
        (f'{{"y":{{"at":1}},"at":{AT}}}', f'{{"y":{{"at":1}},"at":{AT + 5000}}}'),
        (f'{{"at":"{AT}"}}', f'{{"at":"{AT + 5000}"}}'),
        (f'{{"at":{AT}.5}}', f'{{"at":{AT + 5000}.5}}'),
        ('{"at":17}', '{"at":5017}'),
        # No such field, or nothing that could be moved.
        (f'{{"y":{{"at":{AT}}}}}', f'{{"y":{{"at":{AT}}}}}'),
        (f'{{"text":"\\"at\\":{AT}"}}', f'{{"text":"\\"at\\":{AT}"}}'),
        (f'["at":{AT}', f'["at":{AT}'),
        ('{"at":null}', '{"at":null}'),
        ('{"at":"soon"}', '{"at":"soon"}'),
        ('{"at":true}', '{"at":true}'),
        ("", ""),
        ("not JSON", "not JSON"),
    ],
)
def test_the_field_is_moved_and_nothing_else(before: str, after: str) -> None:
    assert moved(before) == after


@pytest.mark.parametrize(
    ("unit", "before", "after"),
    [
        ("s", 1_700_000_000, 1_700_000_005),
        ("us", AT * 1000 + 7, AT * 1000 + 5_000_007),
        ("iso", "2026-11-18T23:59:58.500Z", "2026-11-19T00:00:03.500Z"),
        ("iso", "2026-11-18T23:59:58+02:00", "2026-11-19T00:00:03+02:00"),
        ("iso", "2026-11-18 23:59:58", "2026-11-19 00:00:03"),
    ],
)
def test_every_unit_is_moved_by_the_same_time(unit: str, before: object, after: object) -> None:
    assert json.loads(moved(json.dumps({"at": before}), unit=unit)) == {"at": after}


def test_a_nested_field_is_found_by_its_path() -> None:
    text = json.dumps({"at": AT, "payload": {"at": AT, "name": "Zoë"}})
    assert json.loads(moved(text, path="payload.at")) == {
        "at": AT,
        "payload": {"at": AT + 5000, "name": "Zoë"},
    }


documents = st.dictionaries(
    st.sampled_from(["at", "a", "b", "c"]),
    st.one_of(
        st.integers(AT - 10**9, AT + 10**9),
        st.integers(-5, 5),
        st.text(max_size=8),
        st.none(),
        st.dictionaries(st.sampled_from(["at", "z"]), st.integers(AT, AT + 9)),
        st.lists(st.integers(0, 9), max_size=3),
    ),
    max_size=4,
)


@given(
    st.lists(documents, min_size=1, max_size=8),
    st.integers(-(10**9), 10**9),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.integers(0, 3),
)
def test_in_place_or_parsed_the_answer_is_the_same(
    rows: list[dict[str, object]], by_ms: int, separators: tuple[str, str], offset: int
) -> None:
    texts = [json.dumps(row, separators=separators).encode() for row in rows]
    field = JsonField("at")
    shifts = np.full(len(texts), by_ms)
    values = pa.array([b"junk"] * offset + texts, pa.binary()).slice(offset)
    quick = [json.loads(text) for text in field(values, shifts).to_pylist()]
    parsed = [json.loads(field._parsed(text, by_ms) or b"") for text in texts]
    assert quick == parsed


def test_a_field_that_no_record_has_is_refused_before_anything_is_sent() -> None:
    values = pa.array([b'{"a":1}', b"junk", None], pa.binary())
    with pytest.raises(Misconfigured, match=r"event_time.*'at'"):
        JsonField("at").check(values)
    JsonField("a").check(values)


def upper(values: pa.Array, by_ms: event_time.Whole) -> pa.Array:
    return pa.array([value.upper() for value in values.to_pylist()], pa.binary())


def test_a_codec_of_ones_own_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_time, "upper", upper, raising=False)
    hook = shift_by("profiling_jobs.replay.event_time:upper")
    assert hook(pa.array([b"a"], pa.binary()), np.array([1])).to_pylist() == [b"A"]


@pytest.mark.parametrize("name", ["no.such.module:f", "profiling_jobs.replay.event_time:no_such", "", "a..b"])
def test_what_does_not_exist_is_misconfigured(name: str) -> None:
    with pytest.raises(Misconfigured, match="event_time"):
        shift_by(name)
