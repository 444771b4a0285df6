"""The benchmark jobs' records: the same for the same seed, in the right mix, of the right size."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fresh_python import printed

from models.errors import Misconfigured
from profiling_jobs.jobs import JOBS, json_events, load, nexmark, top_speed_windowing, yahoo_streaming
from profiling_jobs.replay.event_time import JsonField

START_S = 1_763_000_000.0
JSON = sorted(set(JOBS) - {"word-count", "enrichment"})
NEXMARK = [name for name in JSON if name.startswith("nexmark")]


def records(name: str, **changes) -> pa.Table:
    return load(name).function("events")(**{"seed": 1, "count": 5000, "start_s": START_S, **changes})


def values(name: str, **changes) -> list[dict]:
    return [json.loads(value) for value in records(name, **changes)["value"].to_pylist()]


def largest_share(items) -> float:
    _, counts = np.unique(np.asarray(items), return_counts=True)
    return counts.max() / counts.sum()


@pytest.mark.parametrize("name", sorted(JOBS))
def test_the_same_seed_gives_the_same_records_and_another_others(name):
    assert records(name).equals(records(name))
    assert not records(name).equals(records(name, seed=2))
    assert not records(name).equals(records(name, hot_keys=True))


@pytest.mark.parametrize("name", sorted(JOBS))
@pytest.mark.parametrize("count", [0, 1, 49, 51])
def test_as_many_records_come_as_are_asked_for(name, count):
    table = records(name, count=count)

    assert table.schema.equals(json_events.EVENTS)
    assert table.num_rows == count
    assert all(column.null_count == 0 for column in table.columns)


@pytest.mark.parametrize("name", sorted(JOBS))
@pytest.mark.parametrize("rate_rps", [7.0, 1000.0, 250_000.0])
def test_records_arrive_at_the_rate_that_is_asked_for(name, rate_rps):
    arrived = records(name, rate_rps=rate_rps)["timestamp"].cast(pa.int64()).to_numpy()

    assert arrived[0] == START_S * 1000
    assert np.all(np.diff(arrived) >= 0)
    assert arrived[-1] - arrived[0] == pytest.approx(4999 / rate_rps * 1000, abs=1.5)


@pytest.mark.parametrize("name", JSON)
def test_the_event_time_can_be_cut_out_of_the_bytes_and_lies_before_the_arrival(name):
    table = records(name)
    arrived = table["timestamp"].cast(pa.int64()).to_numpy()
    happened = np.array([one["event_time"] for one in values(name)])
    cut = [int(value[json_events.EVENT_TIME_AT]) for value in table["value"].to_pylist()]

    assert cut == list(happened)
    assert np.all((arrived - happened >= 0) & (arrived - happened <= json_events.LONGEST_DELAY_MS))
    assert np.any(np.diff(happened) < 0), "they are out of order"


@pytest.mark.parametrize("name", NEXMARK)
def test_nexmark_has_two_percent_people_six_percent_auctions_and_the_rest_bids(name):
    kinds = [one["kind"] for one in values(name)]

    assert (kinds.count("person"), kinds.count("auction"), kinds.count("bid")) == (100, 300, 4600)


def test_nexmark_records_have_the_sizes_of_the_benchmark():
    sizes: dict[str, list[int]] = {}
    for value in records("nexmark-q1", count=50_000)["value"].to_pylist():
        sizes.setdefault(json.loads(value)["kind"], []).append(len(value))

    assert np.mean(sizes["person"]) == pytest.approx(200, rel=0.1)
    assert np.mean(sizes["auction"]) == pytest.approx(500, rel=0.1)
    assert np.mean(sizes["bid"]) == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "whom", "share"), [("auction", "seller", 0.75), ("bid", "auction", 0.5), ("bid", "bidder", 0.75)]
)
def test_nexmark_has_hot_sellers_auctions_and_bidders_when_asked_to(kind, whom, share):
    def hundred_people(hot_keys):  # one hot seller and bidder, three hot auctions
        events = values("nexmark-q1", hot_keys=hot_keys)
        chosen = [one[whom] for one in events if one["kind"] == kind]
        return np.array(chosen[: len(chosen) // 3])

    assert largest_share(hundred_people(True)) == pytest.approx(share, abs=0.08)
    assert largest_share(hundred_people(False)) < 0.1


@pytest.mark.parametrize(
    ("name", "field", "even"),
    [("yahoo-streaming", "ad_id", 0.01), ("top-speed-windowing", "car", 0.02), ("traffic", "vehicle", 0.01)],
)
def test_with_hot_keys_every_second_record_is_about_one_thing(name, field, even):
    for hot_keys in (True, False):
        keys = [key.decode() for key in records(name, hot_keys=hot_keys)["key"].to_pylist()]
        assert keys == [one[field] for one in values(name, hot_keys=hot_keys)]
        share = largest_share(keys)
        assert share == pytest.approx(0.5, abs=0.03) if hot_keys else share < even


def test_words_follow_zipf_until_one_of_them_is_hot():
    for hot_keys, share in (
        (False, 0.108),
        (True, 0.554),
    ):  # 1 / (ln 5832 + 0.577), and half of all plus its rest
        lines = records("word-count", hot_keys=hot_keys)["value"].to_pylist()
        words = [word for line in lines for word in line.decode().split()]
        assert len(words) == 10 * len(lines)
        assert largest_share(words) == pytest.approx(share, abs=0.01)
        assert len(set(words)) > 3000


def test_ads_are_seen_clicked_and_bought_equally_often_and_belong_to_a_campaign():
    events = values("yahoo-streaming")
    campaigns = yahoo_streaming.campaigns()
    kinds = [one["event_type"] for one in events]

    assert {one["ad_id"] for one in events} <= set(campaigns["ad_id"].to_pylist())
    assert [len(campaigns), len(pc.unique(campaigns["campaign_id"]))] == [1000, 100]
    assert all(
        kinds.count(kind) / 5000 == pytest.approx(1 / 3, abs=0.03) for kind in ("view", "click", "purchase")
    )


def test_a_car_travels_as_far_as_its_speed_takes_it():
    readings = {}
    for one in values("top-speed-windowing", count=20_000, hot_keys=True):
        readings.setdefault(one["car"], []).append((one["event_time"], one["distance_m"], one["speed_kmh"]))

    assert len(readings) == 200
    for rows in readings.values():
        at, metres, speed = np.array(sorted(rows)).T
        expected = np.diff(at) / 1000 * speed[1:] / 3.6
        # Readings of one and the same millisecond may stand in another order.
        clear = np.diff(at) > 0
        clear[:-1] &= clear[1:]
        np.testing.assert_allclose(np.diff(metres)[clear], expected[clear], atol=0.11)
        assert np.all(np.diff(metres) >= -1e-9)


def test_every_job_is_found_by_its_name_and_fits_the_plan():
    for job in JOBS.values():
        assert job.function().__name__ == job.build.partition(":")[2]
        assert job.conf["spark.sql.adaptive.enabled"] == "false"
    assert load("nexmark-q3").longest_window_s == nexmark.STATE_TTL_S
    assert load("nexmark-q5-long").longest_window_s == nexmark.LONG_WINDOW_S
    assert load("top-speed-windowing").longest_window_s == top_speed_windowing.SILENT_S
    with pytest.raises(Misconfigured, match="unknown benchmark job 'nexmark-q4'; expected enrichment"):
        load("nexmark-q4")


@pytest.mark.parametrize("name", sorted(JOBS))
def test_a_replay_finds_the_event_time_where_the_settings_say(name):
    arguments = {"seed": 1, "count": 10, "start_s": START_S}
    values = [value.decode() for value in load(name).function("events")(**arguments)["value"].to_pylist()]
    field = load(name).event_time

    if field is None:
        assert not any(value.startswith("{") for value in values)
    else:
        moved = JsonField(field)(pa.array([value.encode() for value in values]), np.full(10, 1_500))
        for before, after in zip(values, moved.to_pylist(), strict=True):
            assert json.loads(after) == {**json.loads(before), field: json.loads(before)[field] + 1_500}


def test_no_job_imports_spark_before_it_is_built():
    code = "from profiling_jobs.jobs import JOBS; [one.function() for one in JOBS.values()]; import sys; "
    assert printed(code + "print(int('pyspark' in sys.modules))") == 0
