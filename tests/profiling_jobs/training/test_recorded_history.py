"""What was recorded counts for the history of the workload, also what nobody has brought to its end."""

import fcntl
from dataclasses import replace

import numpy as np
import pytest
from temporary_store import TemporaryStore

from models import codec
from models.quantities import Unknown
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.recording.recorded import LOCK, Slice, slice_file
from profiling_jobs.training import workload_history
from profiling_jobs.training import workload_history as recorded_history

pytestmark = pytest.mark.fast
BEGAN_S = 1_763_500_000
PIECE = Slice(0, {0: 0}, {0: 1}, 0, 0, 0, {}, ())


def recorded(place, own="events", *, rate=50, seconds=40, began_s=BEGAN_S, how=""):
    """A recording of so many seconds, the last of them seen by half."""
    folder = recorded_history.folder_of(place, "orders", began_s=began_s, own=own)
    (folder / "slices").mkdir(parents=True, exist_ok=True)
    head = {"schema": 1, "topic": own, "from_s": began_s, "until_s": began_s + 3600.0, "first": {"0": 0}}
    write_json(folder / "recording.json", head)
    arrivals = {began_s + second: rate for second in range(seconds)} | {began_s + seconds: rate // 2}
    piece = replace(PIECE, records=sum(arrivals.values()), arrivals=arrivals)
    write_json(slice_file(folder, 0), codec.to_json(piece))
    if how:
        write_json(folder / "ended.json", {"schema": 1, "how": how})
    return folder


@pytest.fixture
def store():
    return TemporaryStore()


def rates(store):
    grid = workload_history.history(store, "orders")
    return None if isinstance(grid, Unknown) else [rate for rate in grid.values if not np.isnan(rate)]


def test_what_the_death_of_its_owner_has_cut_short_counts_once(store, tmp_path):
    recorded(tmp_path)
    said = recorded_history.tell(store, "orders", tmp_path, inputs=["events"])
    assert said == ("orders: 40 s of recorded arrivals were added to its history",)
    assert rates(store) == [50.0] * 4
    assert recorded_history.tell(store, "orders", tmp_path, inputs=["events"]) == ()


def test_the_topics_of_a_job_are_added_where_all_were_recorded(store, tmp_path):
    recorded(tmp_path, "events", rate=50, seconds=40)
    recorded(tmp_path, "clicks-of-users", rate=30, seconds=20)
    recorded_history.tell(store, "orders", tmp_path, inputs=["events", "clicks-of-users"])
    assert rates(store) == [80.0] * 2


def test_without_one_of_its_topics_nothing_is_known(store, tmp_path):
    recorded(tmp_path)
    assert recorded_history.tell(store, "orders", tmp_path, inputs=["events", "clicks"]) == ()
    assert rates(store) is None


def test_one_that_is_still_written_is_looked_at_again(store, tmp_path):
    folder = recorded(tmp_path)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        recorded_history.tell(store, "orders", tmp_path, inputs=["events"])
        assert rates(store) == [50.0] * 4
        recorded(tmp_path, seconds=60)
    recorded_history.tell(store, "orders", tmp_path, inputs=["events"])
    assert rates(store) == [50.0] * 6


def test_one_that_is_gone_on_with_is_told_again(store, tmp_path):
    recorded(tmp_path, began_s=BEGAN_S - 1000)
    recorded(tmp_path)
    assert recorded_history.newest(tmp_path, "orders") == (
        BEGAN_S,
        {"events": tmp_path / "orders" / f"{BEGAN_S}-events"},
    )
    assert recorded_history.newest(tmp_path, "nobody") == (0, {})
    recorded_history.tell(store, "orders", tmp_path, inputs=["events"])
    recorded(tmp_path, seconds=60)
    assert recorded_history.tell(store, "orders", tmp_path, inputs=["events"]) == ()
    recorded_history.goes_on(store, "orders", began_s=BEGAN_S)
    assert recorded_history.tell(store, "orders", tmp_path, inputs=["events"]) == (
        "orders: 60 s of recorded arrivals were added to its history",
    )
    assert rates(store) == [50.0] * 10


@pytest.mark.parametrize("spoilt", ["{", "{}", '{"schema": 1}'])
def test_what_cannot_be_read_is_passed_over(store, tmp_path, spoilt):
    (recorded(tmp_path) / "recording.json").write_text(spoilt)
    recorded(tmp_path, began_s=BEGAN_S + 100)
    recorded_history.tell(store, "orders", tmp_path, inputs=["events"])
    assert rates(store) == [50.0] * 4


def test_where_nothing_was_recorded_nothing_is_said(store, tmp_path):
    assert recorded_history.tell(store, "orders", tmp_path / "absent", inputs=["events"]) == ()


DAY_S = 86_400


def days_ago(place, days, **more):
    return recorded(place, began_s=BEGAN_S - days * DAY_S, **more)


def left(place):
    return sorted(folder.name for folder in (place / "orders").iterdir())


def test_old_recordings_go_and_the_newest_of_each_input_stay(tmp_path):
    old = days_ago(tmp_path, 40, how="complete")
    kept = [
        days_ago(tmp_path, 39, own="clicks", how="complete"),  # the newest of its input, however old
        days_ago(tmp_path, 38, how="complete"),  # the newest that copies can be fed from
        days_ago(tmp_path, 37),  # the newest, which an order may continue
    ]
    before_s = BEGAN_S - 30 * DAY_S
    assert recorded_history.forget(tmp_path, "orders", before_s=before_s) == (old.name,)
    assert left(tmp_path) == sorted(folder.name for folder in kept)
    assert recorded_history.forget(tmp_path, "orders", before_s=before_s) == ()
    days_ago(tmp_path, 1, how="complete")
    kept_now = days_ago(tmp_path, 0, how="complete")
    recorded_history.forget(tmp_path, "orders", before_s=before_s)
    assert left(tmp_path) == sorted([kept[0].name, f"{BEGAN_S - DAY_S}-events", kept_now.name])


def test_a_recording_that_the_settings_name_stays_with_all_that_is_in_it(tmp_path):
    named = [days_ago(tmp_path, days, how="complete") for days in (50, 49)]
    days_ago(tmp_path, 48, how="complete")
    newest = days_ago(tmp_path, 0, how="complete")
    wanted = [named[0], named[1] / "data"]
    recorded_history.forget(tmp_path, "orders", before_s=BEGAN_S, wanted=wanted)
    assert left(tmp_path) == sorted(folder.name for folder in (*named, newest))


def test_one_that_cannot_be_read_is_as_old_as_its_name(tmp_path):
    (days_ago(tmp_path, 40) / "recording.json").write_text("{")
    days_ago(tmp_path, 0)
    assert len(recorded_history.forget(tmp_path, "orders", before_s=BEGAN_S - 30 * DAY_S)) == 1
    assert recorded_history.forget(tmp_path, "nobody", before_s=BEGAN_S) == ()
