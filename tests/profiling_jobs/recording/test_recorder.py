"""Each offset is recorded exactly once: the recorder may die, the disk be full, the broker be away."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import Unknown
from profiling_jobs.recording import recorder
from profiling_jobs.recording import recorder as slicing
from profiling_jobs.recording.recorded import Recorded, data_folder
from profiling_jobs.recording.recorder import Recorder, Request

FROM_S = 1_700_000_000.0


class Killed(BaseException):
    """SIGKILL, as far as an exception can be one."""


class Topic:
    """A topic in memory on a clock of its own: per partition the timestamps of its records.

    They arrive at these moments, unless their producers say anything else (`said`).
    """

    def __init__(self, timestamps: list[list[float]]) -> None:
        self.timestamps = timestamps
        self.arrived: dict[int, list[float]] = {}
        self.deleted = dict.fromkeys(range(len(timestamps)), 0)
        self.now = FROM_S - 0.5
        self.troubles: list[BaseException | None] = []
        self.partial = 0

    # ---- the clock

    def now_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.05)

    # ---- the broker

    def starts(self) -> dict[int, int]:
        return dict(self.deleted)

    def ends(self) -> dict[int, int]:
        arrived = {part: self.arrived.get(part, times) for part, times in enumerate(self.timestamps)}
        return {part: sum(at <= self.now for at in times) for part, times in arrived.items()}

    def said(self, part: int, stamp: Callable[[int, float], float]) -> None:
        """What producers say: number of the record in the partition and when it arrives -> its timestamp."""
        self.arrived[part] = self.timestamps[part]
        self.timestamps[part] = [stamp(number, at) for number, at in enumerate(self.arrived[part])]

    def at(self, at_s: float) -> dict[int, int]:
        left, ends = self.deleted, self.ends()
        return {
            part: next((index for index in range(left[part], ends[part]) if times[index] >= at_s), ends[part])
            for part, times in enumerate(self.timestamps)
        }

    # ---- what copies

    def copy(self, starts: dict[int, int], ends: dict[int, int], target: Path) -> None:
        trouble = self.troubles.pop(0) if self.troubles else None
        rows = [(part, offset) for part, start in starts.items() for offset in range(start, ends[part])]
        target.mkdir()
        table = pa.table(
            {
                "key": pa.array([b"%d" % part for part, _ in rows], pa.binary()),
                "value": pa.array([b"%0100d" % offset for _, offset in rows], pa.binary()),
                "timestamp": pa.array(
                    [round(self.timestamps[part][offset] * 1e6) for part, offset in rows],
                    pa.timestamp("us", tz="UTC"),
                ),
                "partition": pa.array([part for part, _ in rows], pa.int32()),
                "offset": pa.array([offset for _, offset in rows], pa.int64()),
            }
        )
        pq.write_table(table, target / "part-0.parquet")
        self.now += 0.5
        if trouble is not None:
            raise trouble


def recording(topic: Topic, folder: Path, **request: object) -> Recorder:
    asked = Request("orders", folder, duration_s=request.pop("duration_s", 20.0), **request)  # type: ignore[arg-type]
    return Recorder(asked, offsets=topic, copy=topic.copy, now_s=topic.now_s, sleep=topic.sleep)


def kill(topic: Topic, folder: Path) -> None:
    """Record a little of it, and be killed."""
    topic.troubles = [None, None, Killed()]
    with pytest.raises(Killed):
        recording(topic, folder).run()


def offsets(recorded: Recorded) -> list[tuple[int, int]]:
    found = []
    for piece in recorded.slices:
        for file in piece.files(recorded.folder):
            table = pq.ParquetFile(file).read(columns=["partition", "offset"])
            found += list(zip(*(table[name].to_pylist() for name in ("partition", "offset")), strict=True))
    return found


def steady(rate: float = 20.0, *, seconds: float = 25.0, partitions: int = 3) -> Topic:
    """Records from a little before to a little after what is asked for."""
    every = 1.0 / rate
    times = [FROM_S - 2.0 + every * index for index in range(int((seconds + 2.0) * rate))]
    return Topic([[at + part / 1000 for at in times] for part in range(partitions)])


def expected(topic: Topic, seconds: float = 20.0) -> list[tuple[int, int]]:
    return [
        (part, offset)
        for part, times in enumerate(topic.timestamps)
        for offset, at in enumerate(times)
        if FROM_S <= at < FROM_S + seconds
    ]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "FIRST_RECORDS", 40)
    monkeypatch.setattr(recorder, "SLICE_RECORDS", 130)


def test_whole_seconds_are_recorded_and_their_rate_is_known(tmp_path: Path) -> None:
    topic = steady()
    recorded = recording(topic, tmp_path / "r").run()
    assert recorded.ended == "complete"
    assert sorted(offsets(recorded)) == expected(topic)
    first, rate = recorded.rate_rps()  # type: ignore[misc]
    assert first == FROM_S
    assert rate.tolist() == [60.0] * 20
    assert Recorded.read(tmp_path / "r") == recorded
    assert recorded.covered_s == 20.0
    assert recording(topic, tmp_path / "r").run() == recorded, "there is nothing left to do"


def test_silence_is_a_rate_of_zero(tmp_path: Path) -> None:
    topic = Topic([[FROM_S + 93.5, FROM_S + 93.6, FROM_S + 120.2, FROM_S + 175.0], []])
    first, rate = recording(topic, tmp_path / "r", duration_s=180.0).run().rate_rps()  # type: ignore[misc]
    assert (first, rate.size, rate.sum(), rate[93]) == (FROM_S, 175, 3.0, 2.0), (
        "a few silent seconds at an end"
    )


def test_a_past_stretch_can_be_recorded_as_long_as_it_is_there(tmp_path: Path) -> None:
    topic = steady()
    topic.now = FROM_S + 500.0
    recorded = recording(topic, tmp_path / "r", from_s=FROM_S).run()
    assert sorted(offsets(recorded)) == expected(topic)


ends = st.sampled_from(["killed while copying", "killed before the entry", "broker away"])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.floats(-2, 25), max_size=60).map(sorted), min_size=1, max_size=4),
    st.lists(st.tuples(ends, st.integers(0, 4)), max_size=6),
)
def test_whatever_ends_it_each_offset_is_there_exactly_once(
    tmp_path_factory: pytest.TempPathFactory,
    arrivals: list[list[float]],
    deaths: list[tuple[str, int]],
) -> None:
    folder = tmp_path_factory.mktemp("recording") / "r"
    topic = Topic([[FROM_S + at for at in times] for times in arrivals])
    original = recorder.write_json
    for how, after in [*deaths, ("nothing", 0)]:
        topic.troubles = [None] * after
        try:
            if how == "killed while copying":
                topic.troubles.append(Killed())
            elif how == "broker away":
                topic.troubles += [RuntimeError("away")] * slicing.ATTEMPTS
            elif how == "killed before the entry":
                recorder.write_json = dying(original, after)
            recorded = recording(topic, folder, from_s=FROM_S).run()
        except (Killed, NotReady):
            continue
        finally:
            recorder.write_json = original
    assert recorded.ended == "complete"
    assert sorted(offsets(recorded)) == expected(topic)
    assert sum(recorded.arrivals.values()) == recorded.records == len(expected(topic))


def dying(write: Callable[..., None], after: int) -> Callable[..., None]:
    left = [after]

    def write_json(path: Path, data: object) -> None:
        if left[0] == 0:
            path.with_suffix(".json.part").write_text('{"half of')
            raise Killed
        left[0] -= 1
        write(path, data)

    return write_json


def test_a_full_disk_is_said_with_the_folder_and_how_far_it_came_and_it_goes_on_later(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    deep = RuntimeError("Job aborted due to stage failure: java.io.IOException: No space left on device")
    for trouble in (OSError(errno.ENOSPC, "No space left on device"), deep):
        topic.troubles = [None, trouble]
        with pytest.raises(NotReady, match=r"no room left in .*/r: \d+ records of orders until .* kept"):
            recording(topic, folder).run()
        kept = Recorded.read(folder)
        assert {path.name for path in (folder / "data").iterdir()} == {
            f"{piece.number:06d}" for piece in kept.slices
        }
    assert kept.records > 0
    assert sorted(offsets(recording(topic, folder).run())) == expected(topic)


def test_a_disk_that_will_be_full_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = steady()
    monkeypatch.setattr(slicing, "SPARE_BYTES", 2**60)
    with pytest.raises(NotReady, match="nothing was recorded yet"):
        recording(topic, tmp_path / "r").run()


def test_the_size_limit_is_kept_and_can_be_raised(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    recorded = recording(topic, folder, max_bytes=20_000).run()
    assert recorded.ended == "size limit"
    assert 0 < recorded.bytes <= 20_000
    files = [file for file in (folder / "data").rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) == recorded.bytes
    first, rate = recorded.rate_rps()  # type: ignore[misc]
    last = max(recorded.arrivals)  # the second in which it was cut short, which is not known
    assert (first, rate.size, rate.sum()) == (
        FROM_S,
        last - FROM_S,
        recorded.records - recorded.arrivals[last],
    )
    recorded = recording(topic, folder).run()
    assert (recorded.ended, sorted(offsets(recorded))) == ("complete", expected(topic))


def test_a_limit_below_the_first_slice_keeps_nothing(tmp_path: Path) -> None:
    recorded = recording(steady(), tmp_path / "r", max_bytes=10).run()
    assert (recorded.ended, recorded.records) == ("size limit", 0)
    assert isinstance(recorded.rate_rps(), Unknown)


def test_a_broker_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    topic = steady()
    topic.troubles = [None, RuntimeError("timed out"), RuntimeError("timed out"), None]
    assert sorted(offsets(recording(topic, tmp_path / "r").run())) == expected(topic)


def test_records_that_retention_took_first_are_counted_and_the_rate_is_unknown(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    kill(topic, folder)
    before = Recorded.read(folder).ends[1]
    topic.deleted[1] = before + 30
    topic.now = FROM_S + 10
    recorded = recording(topic, folder).run()
    assert recorded.missing == 30
    assert "retention deleted 30 records" in recorded.rate_rps().reason  # type: ignore[union-attr]
    assert len(offsets(recorded)) == len(expected(topic)) - 30


def test_when_retention_took_all_that_was_left_it_was_not_silent(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    kill(topic, folder)
    kept = Recorded.read(folder)
    topic.now = FROM_S + 60.0
    topic.deleted = topic.ends()
    recorded = recording(topic, folder).run()
    assert (recorded.ended, recorded.records) == ("complete", kept.records)
    assert recorded.missing == sum(topic.ends().values()) - sum(kept.ends.values()) > 0
    assert "retention deleted" in recorded.rate_rps().reason  # type: ignore[union-attr]
    assert Recorded.read(folder) == recorded
    assert recording(topic, folder).run() == recorded, "there is nothing left to do"


def until(topic: Topic, at_s: float) -> dict[int, int]:
    return {part: sum(at < at_s for at in times) for part, times in enumerate(topic.timestamps)}


@pytest.mark.parametrize(("gone_until_s", "seconds_missing"), [(-0.2, 0.0), (10.0, 10.5), (30.0, 25.5)])
def test_what_retention_took_before_a_topic_had_its_turn_was_not_silent(
    tmp_path: Path, gone_until_s: float, seconds_missing: float
) -> None:
    """What it took from before the recording is not missed."""
    topic, folder = steady(), tmp_path / "r"
    heads = until(topic, FROM_S - 0.5)
    topic.now = FROM_S + 40.0
    topic.deleted = until(topic, FROM_S + gone_until_s)
    recorded = recording(topic, folder, from_s=FROM_S, heads=heads).run()
    assert (recorded.ended, recorded.missing) == ("complete", 3 * 20 * seconds_missing)
    if seconds_missing:
        assert "retention deleted" in recorded.rate_rps().reason  # type: ignore[union-attr]
    else:
        assert sorted(offsets(recorded)) == expected(topic)


def test_a_topic_that_was_emptied_long_ago_was_silent(tmp_path: Path) -> None:
    topic, folder = Topic([[FROM_S - 900.0] * 5, [FROM_S - 900.0, FROM_S, FROM_S + 19.5]]), tmp_path / "r"
    topic.deleted = {0: 5, 1: 1}
    heads = {0: 5, 1: 1}
    topic.now = FROM_S + 40.0
    _, rate = recording(topic, folder, from_s=FROM_S, heads=heads).run().rate_rps()  # type: ignore[misc]
    assert (rate.size, rate.sum()) == (20, 2.0)


def test_a_broker_that_answers_late_takes_nothing_from_the_beginning(tmp_path: Path) -> None:
    topic = steady()
    ends, asked = topic.ends, []

    def late() -> dict[int, int]:
        if not asked:
            asked.append(topic.now)
            topic.now += 1.0
        return ends()

    topic.ends = late  # type: ignore[method-assign]
    recorded = recording(topic, tmp_path / "r", duration_s=10.0).run()
    of_its_time = [
        (part, offset)
        for part, times in enumerate(topic.timestamps)
        for offset, at in enumerate(times)
        if recorded.from_s <= at < recorded.until_s
    ]
    assert sorted(offsets(recorded)) == of_its_time


def test_a_broker_that_answers_after_the_end_adds_nothing_that_came_later(tmp_path: Path) -> None:
    """What its answer holds may have arrived while it was on its way."""
    topic = steady()
    ends = topic.ends

    def slowly() -> dict[int, int]:
        topic.now += 0.3
        return ends()

    topic.ends = slowly  # type: ignore[method-assign]
    recorded = recording(topic, tmp_path / "r").run()
    assert sorted(offsets(recorded)) == expected(topic)


def test_a_partition_that_is_added_is_recorded_from_its_beginning(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    kill(topic, folder)
    topic.timestamps.append([topic.now + 0.1 * index for index in range(20)])
    topic.deleted[3] = 0
    recorded = recording(topic, folder).run()
    assert sorted(offsets(recorded)) == expected(topic)
    assert recorded.partitions == 4


def test_a_topic_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    kill(topic, folder)
    topic.timestamps = [[], [], []]
    with pytest.raises(Unsafe, match="deleted and made again"):
        recording(topic, folder).run()


def test_two_recordings_do_not_share_a_folder(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    recording(topic, folder).run()
    with pytest.raises(Misconfigured, match="holds a recording of orders"):
        Recorder(Request("other", folder, 20.0), offsets=topic, copy=topic.copy).run()
    with pytest.raises(Misconfigured, match=r"duration_s.*begun for 20 s"):
        recording(topic, folder, duration_s=30.0).run()
    with recorder._alone(folder), pytest.raises(Unsafe, match="another process is recording"):
        recording(topic, folder).run()


def test_an_entry_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    topic, folder = steady(), tmp_path / "r"
    recorded = recording(topic, folder).run()
    (folder / "slices" / "000001.json").write_text("{")
    with pytest.raises(Unsafe, match=r"000001\.json cannot be read"):
        Recorded.read(folder)
    assert data_folder(folder, recorded.slices[-1].number).exists()


HOUR_S = 3600.0
AHEAD, BEHIND, NEVER = FROM_S + HOUR_S, FROM_S - 24 * HOUR_S, -0.001


def one(number: int, stray: float) -> Callable[[int, float], float]:
    return lambda index, at: stray if index == number else at


@pytest.mark.parametrize("stray", [AHEAD, BEHIND, 0.0, NEVER])
def test_one_stray_timestamp_neither_ends_a_recording_nor_counts_for_its_rate(
    tmp_path: Path, stray: float
) -> None:
    topic = steady()
    topic.said(1, one(90, stray))
    topic.said(2, one(20, stray))  # before the recording begins
    recorded = recording(topic, tmp_path / "r", from_s=FROM_S).run()
    assert (recorded.ended, recorded.missing, recorded.covered_s) == ("complete", 0, 20.0)
    assert set(offsets(recorded)) >= set(expected(steady(), seconds=19.5)) - {(1, 90)}
    first, rate = recorded.rate_rps()  # type: ignore[misc]
    assert (first, rate.size) == (FROM_S, 20)
    assert rate.sum() == pytest.approx(1199.0, abs=6.0), "the last look before the end may be 0.2 s old"


@pytest.mark.parametrize("off_s", [-600.0, 600.0])
def test_of_many_records_that_are_stamped_wrongly_no_rate_is_said(tmp_path: Path, off_s: float) -> None:
    topic = steady(seconds=60.0)
    topic.said(0, lambda number, at: at + off_s * (number % 10 == 0))  # one producer of ten
    recorded = recording(topic, tmp_path / "r").run()
    assert recorded.records == pytest.approx(1200, abs=30)
    reason = recorded.rate_rps().reason  # type: ignore[union-attr]
    assert "3.3 % of the records of orders are stamped" in reason
    assert "CreateTime" in reason
    assert "message.timestamp.type=LogAppendTime" in reason


@pytest.mark.parametrize("off_s", [-HOUR_S, -8.0, -0.4, 0.4, 2.0, HOUR_S])
def test_clocks_of_producers_that_are_off_change_neither_the_end_nor_a_rate_that_is_said(
    tmp_path: Path, off_s: float
) -> None:
    topic = steady(seconds=200.0)
    for part in range(3):
        topic.said(part, lambda number, at: at + off_s)
    recorded = recording(topic, tmp_path / "r").run()
    assert recorded.ended == "complete"
    assert topic.now < FROM_S + 30.0
    assert recorded.records == pytest.approx(1200, rel=0.1)
    rate = recorded.rate_rps()
    if abs(off_s) == HOUR_S:
        assert isinstance(rate, Unknown)
    else:
        assert not isinstance(rate, Unknown)
        assert set(rate[1]) == {60.0}
        assert rate[1].size >= 18 - abs(off_s)
