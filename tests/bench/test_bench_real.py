"""`make bench-real` on the stepped twin: every part runs, is resumed, and tells what it saw."""

import json
import math
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import samples
from memory_registry import MemoryRegistry

from bench.real import drills, dynamic_allocation, journal, learning, outside, promises, report
from bench.real.__main__ import PARTS, main, measure, write
from bench.real.counting import Counted
from bench.real.lab import LIVE, SALES, Lengths, settings
from models.errors import NotReady
from models.ports import Injection, Status
from models.quantities import Interval, Unknown
from profiling_jobs.telemetry.timeline import Timeline

SHORT = Lengths(
    sizes=(1, 2),
    unseen=3,
    probe_s=20.0,
    most_probes=2,
    sustain_s=60.0,
    overload_s=30.0,
    together=((1, 2),),
    word_count_rps=500.0,
    online_step_s=20.0,
    online_shares=(0.2, 0.5, 0.35),
    drill_shares=(0.3, 0.5),
    day_s=300.0,
)
ALONE = {promises.NAME, learning.NAME}
"""Parts that have tests of their own."""


@pytest.fixture
def folder(tmp_path, no_latency):
    return tmp_path


def run(folder, *names, **options):
    measure(
        list(names) or [name for name in PARTS if name not in ALONE],
        folder=folder / "world",
        lengths=SHORT,
        kind="simulated",
        results=folder / "real.json",
        **options,
    )
    return json.loads((folder / "real.json").read_text())["parts"]


def value(part, name):
    (found,) = [one["value"] for one in part["figures"] if one["name"].startswith(name)]
    return found


def test_all_parts_and_what_they_tell(folder, capsys):
    parts = run(folder)
    assert set(parts) == set(PARTS) - ALONE
    assert value(parts["capacity"], "error of the predicted one") < 10.0
    assert value(parts["sustain"], "sizes that sustain 95 %") == 2
    assert value(parts["sustain"], "sizes that do not sustain 120 %") == 2
    assert value(parts["online"], "enrichment: limit detected") == 1
    assert value(parts["drills"], "cells of kind and rate") == 6
    assert len(parts["drills"]["rows"]) == len(drills.cells(SHORT)) == 9
    assert value(parts["rescales"], "kafka sink: records lost") == 0
    assert "minutes, less what was measured before" in capsys.readouterr().out
    measured = (folder / "world" / "pieces.jsonl").read_text()

    assert run(folder) == parts  # nothing is measured twice
    assert (folder / "world" / "pieces.jsonl").read_text() == measured

    again = run(folder, "sustain", again=["sustain"])
    assert [one["name"] for one in again["sustain"]["figures"]] == [
        one["name"] for one in parts["sustain"]["figures"]
    ]
    assert (folder / "world" / "pieces.jsonl").read_text() != measured


@pytest.mark.long
def test_promises_of_a_live_job_beside_the_largest_size(folder, monkeypatch):
    """And beside Spark's allocation; the twin has none, and keeps the size that the job is launched with."""
    monkeypatch.setattr(promises, "DAYS", dict.fromkeys(promises.DAYS, 1))
    monkeypatch.setattr(promises, "registry", lambda lab: MemoryRegistry())
    monkeypatch.setattr(dynamic_allocation, "possible", lambda lab: True)
    part = run(folder, promises.NAME)[promises.NAME]
    arms = [row[0] for row in part["rows"]]
    assert arms[:4] == ["headroom"] * 2 + ["static-max"] * 2, "two failures a day, none left out"
    assert arms[4:] == [promises.DYNAMIC] * 2
    assert {row[2] for row in part["rows"] if row[0] == "static-max"} == {4}
    assert value(part, "saved beside") > 0.0
    assert value(part, "recoveries inside") >= 50.0
    costs = {arm: value(part, f"{arm}: executor-seconds") for arm in promises.DAYS}
    assert costs["static-max"] == pytest.approx(4 * SHORT.day_s)
    assert 0.98 < costs[promises.DYNAMIC] / costs["static-max"] < 1.0, "a killed executor is not there"
    assert {row[4:6] == ["–", promises.SIZED_BY_SPARK] for row in part["rows"][4:]} == {True}


class HandOnTheTwin:
    """Failures of the simulated cluster that its port `Failures` does not know of."""

    def __init__(self, here):
        self._cluster, self._undo = here.clock._cluster, []

    def strike(self, job, kind):
        with self._cluster.turn:
            _, undo = self._cluster._cause(self._cluster.job(job), kind)
            self._undo.append(undo)
            self._cluster._act()
            return self._cluster.now_s

    def heal(self):
        with self._cluster.turn:
            while self._undo:
                self._undo.pop()()


class ReaderOfTheTwin:
    def __init__(self, here, plan):
        self._here, self._plan, self._cluster = here, plan, here.clock._cluster

    @property
    def _checkpoint(self):
        return self._cluster.job(self._plan.name).checkpoint

    def batches(self, after):
        done = [one for one in self._checkpoint.commits if one.batch > after]
        records = [sum(int(ends.sum()) for ends in one.after.values()) for one in done]
        return [outside.Batch(one.batch, one.at_s, count) for one, count in zip(done, records, strict=True)]

    def planned(self):
        return self._checkpoint.batch + (self._cluster.job(self._plan.name).batch is not None)

    def ended(self):
        if self._here.broker.away:
            return None
        return sum(self._here.broker.ends(list(self._plan.inputs.values())).values())

    def close(self):
        pass


@pytest.fixture
def hurt_from_outside(monkeypatch):
    monkeypatch.setattr(outside, "possible", lambda here: True)
    monkeypatch.setattr(outside, "Hand", HandOnTheTwin)
    monkeypatch.setattr(outside, "Reader", ReaderOfTheTwin)


def test_what_is_learnt_from_failures_that_nobody_has_announced(folder, hurt_from_outside):
    part = run(folder, learning.NAME)[learning.NAME]
    assert value(part, "situations") == len(learning.CELLS)
    assert value(part, "failures of a stranger's job") == len(learning.STRANGERS)
    assert {row[0] for row in part["rows"]} == {LIVE, SALES}


@pytest.mark.fast
def test_the_failures_of_a_day_are_the_same_in_every_arm():
    days = [promises.failures(day, count=8) for day in range(3)]
    assert days == [promises.failures(day, count=8) for day in range(3)]
    kinds = Counter(kind for day in days for _, kind in day)
    assert kinds == dict.fromkeys(promises.KINDS, 8)
    assert promises.load_share(721.0, day_s=1200.0) == 2.0 * promises.load_share(719.0, day_s=1200.0)


def a_day(timeline, *, undisturbed_since_s=-math.inf, **parts):
    """A day of the live job, which has these samples."""
    sampler = SimpleNamespace(reading=lambda name: nullcontext(timeline))
    given = {
        "_job": settings().jobs[LIVE],
        "_server": SimpleNamespace(context=SimpleNamespace(sampler=sampler)),
        "_lab": SimpleNamespace(say=print),
        "_undisturbed_since_s": undisturbed_since_s,
        "_evaluation": {},
        "_arm": "headroom",
    }
    day = object.__new__(promises._Day)
    vars(day).update(given | parts)
    return day


def behind(lag_s, *, rate_rps=100):
    """Samples of every second, with this lag in seconds of input at each."""
    timeline = Timeline()
    for at, waiting_s in enumerate(lag_s):
        head, waiting = 10_000 + at * rate_rps, int(waiting_s * rate_rps)
        done = samples.offsets(head - waiting)
        read = {"committed": done, "lag_records": waiting, "run_id": "run"}
        timeline.add(samples.sample(float(at), samples.offsets(head), **read))
    return timeline


@pytest.mark.fast
def test_a_failure_is_not_measured_by_the_lag_of_a_start_or_of_the_recovery_before():
    """Else the job would have to fall as far behind as then to be seen to fail at all."""
    timeline = behind([40.0] * 50 + [2.0] * 50)
    assert a_day(timeline)._before(timeline, 99.0).band_s > 40.0
    assert a_day(timeline, undisturbed_since_s=50.0)._before(timeline, 99.0).band_s < 5.0


@pytest.mark.fast
def test_a_failure_that_cannot_be_caused_just_now_is_caused_a_second_later():
    class Failures:
        tried = 0

        def inject(self, name, kind):
            self.tried += 1
            if self.tried == 1:
                raise NotReady("no executor is registered: try again")
            return Injection("1", name, kind, "executor 0", 60.0)

        def left_over(self):
            return ()

        def clear(self, id):
            raise AssertionError(f"{id} was never caused")

    there = Status("running", 2, 2, "run")
    here = SimpleNamespace(failures=Failures(), deployments=SimpleNamespace(status=lambda name: there))
    day = a_day(behind([2.0] * 61), _here=here, _due=[(20.0, "executor_kill"), (170.0, "driver_kill")])
    assert day._caused(60.0) is None
    assert len(day._due) == 2
    row, before, _ = day._caused(60.0)
    assert (row["kind"], row["scale_out"], row["band_s"]) == ("executor_kill", 2, before.band_s)
    assert [kind for _, kind in day._due] == ["driver_kill"]


def failure(kept=True, *, predicted=None, measured_s=20.0):
    """A row of the journal. `predicted`: probability, low, mid and high."""
    said = {"unknown": "no models yet"}
    if predicted is not None:
        said = dict(zip(("probability", "low", "mid", "high"), predicted, strict=True))
    return {
        "kind": "driver_kill",
        "scale_out": 2,
        "rate_rps": 500.0,
        "lag_records": 100.0,
        "predicted_s": said,
        "failed_at_s": 1_000.0,
        "downtime_s": 10.0,
        "recovery_s": measured_s,
        "kept": kept,
    }


def figures(folder, pieces):
    kept = journal.Journal(folder / "pieces")
    for name, executor_s, rows in pieces:
        kept.add(promises.NAME, name, {"executor_seconds": executor_s, "failures": rows})
    found = promises.report(journal.Journal(folder / "pieces"))
    return {one.name: one for one in found.figures}, found


@pytest.mark.fast
def test_what_is_said_of_promises(tmp_path):
    sure, even = (1.0, 10.0, 20.0, 30.0), (0.5, 10.0, 30.0, 60.0)
    rows = [
        failure(predicted=sure),
        failure(predicted=even, measured_s=50.0),
        failure(False, predicted=even, measured_s=float("inf")),
        failure(predicted=None),
    ]
    figure, found = figures(tmp_path, [("headroom, day 1", 2_000.0, rows)])
    kept = figure["promises kept where one was stated"]
    assert kept.value == pytest.approx(100.0 * 2 / 3)
    # Stated 2/3 on average; two even chances of three scatter by sqrt(2/4)/3.
    assert kept.at_least == pytest.approx(100.0 * (2 / 3 - 2 * 0.5**0.5 / 3))
    assert figure["failures without a prediction"].holds is False
    assert figure["recoveries inside the predicted 90 %"].value == 50.0  # of all failures
    assert figure["mean error of the predicted median"].value == pytest.approx(100.0 * (0 + 0.4 + 1) / 3)
    assert figure["headroom: promises kept"].value == 75.0
    assert [row[-2:] for row in found.rows][2:] == [("never", "NO"), ("20.0", "yes")]


@pytest.mark.fast
def test_the_first_day_is_compared_with_every_arm_that_was_measured(tmp_path):
    ours = [
        ("headroom, day 2", 9_000.0, [failure(False)]),
        ("headroom, day 1", 2_400.0, [failure(), failure()]),
        ("static-max, day 1", 4_800.0, [failure(), failure()]),
    ]
    figure, _ = figures(tmp_path, ours)
    assert figure["executor-seconds beside static-max"].value == 0.5
    assert figure["saved beside the largest size"].value == 50.0
    assert figure["headroom: promises kept"].value == pytest.approx(100.0 * 2 / 3)
    assert figure["headroom: broken promises of the first day"].value == 0
    assert not any(promises.DYNAMIC in name for name in figure)

    left = promises.not_caused("driver_kill", 4)
    figure, found = figures(tmp_path, [(f"{promises.DYNAMIC}, day 1", 3_200.0, [failure(), left])])
    assert figure[f"executor-seconds beside {promises.DYNAMIC}"].value == 0.75
    assert figure[f"executor-seconds beside {promises.DYNAMIC}"].holds
    assert figure[f"{promises.DYNAMIC}: promises kept"].value == 50.0
    assert figure[f"more broken promises than {promises.DYNAMIC}"].value == -1
    assert figure[f"more broken promises than {promises.DYNAMIC}"].holds
    assert figure["failures of the live job"].value == 3
    assert found.rows[-1][-2:] == ("not caused", "NO")


@pytest.mark.fast
@pytest.mark.parametrize(("ours", "theirs", "holds"), [(0, 0, True), (1, 1, False), (1, 2, True)])
def test_promises_are_to_be_broken_less_often_than_by_spark(tmp_path, ours, theirs, holds):
    figure, _ = figures(
        tmp_path,
        [
            ("headroom, day 1", 1.0, [failure(False)] * ours + [failure()]),
            (f"{promises.DYNAMIC}, day 1", 1.0, [failure(False)] * theirs + [failure()]),
        ],
    )
    assert figure[f"more broken promises than {promises.DYNAMIC}"].holds is holds


def test_what_was_finished_before_it_stopped_is_kept(folder, monkeypatch):
    def stop(lab):
        raise KeyboardInterrupt

    monkeypatch.setattr(drills, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        run(folder, "capacity", "drills")
    monkeypatch.undo()
    kept = journal.Journal(folder / "world" / "pieces.jsonl")
    assert list(kept.of("capacity")) == ["profile", "unseen"]


@pytest.mark.fast
def test_a_part_that_is_measured_elsewhere_leaves_the_others(tmp_path):
    results = tmp_path / "real.json"
    known = {"capacity": report.Report("how much", []).to_json()}
    results.write_text(json.dumps({"parts": known}))
    write(journal.Journal(tmp_path / "empty"), results)
    assert json.loads(results.read_text())["parts"] == known


@pytest.mark.fast
def test_pieces_are_there_for_the_next_one_but_for_what_was_forgotten_or_is_torn(tmp_path):
    kept = journal.Journal(tmp_path / "pieces")
    kept.add("drills: invalid", "1", {})
    kept.add("drills", "one", {})
    kept.forget("drills")
    kept.add("drills", "two", {"never": float("inf")})
    with (tmp_path / "pieces").open("a") as file:
        file.write('{"part": "dri')
    journal.Journal(tmp_path / "pieces").add("drills", "three", {})
    again = journal.Journal(tmp_path / "pieces")
    assert list(again.of("drills")) == ["two", "three"]
    assert again.get("drills", "two")["never"] == float("inf")
    assert not again.of("drills: invalid")
    assert '"one"' in (tmp_path / "pieces").read_text()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("measured_s", "predicted_s", "error"),
    [(40.0, 30.0, 0.25), (10.0, 5.0, 0.25), (float("inf"), 60.0, 1.0), (40.0, float("inf"), 1.0)],
)
def test_the_error_of_a_drill(measured_s, predicted_s, error):
    assert drills.error(measured_s, Interval(0.0, predicted_s, float("inf"), 0.9)) == pytest.approx(error)
    assert drills.error(measured_s, Unknown("no models")) == 1.0


@pytest.mark.fast
def test_records_are_counted_not_collected():
    asked = Counter({b"1": 1, b"2": 2, b"3": 1, b"5": 1})
    answered = Counter({b"1": 3, b"2": 1, b"4": 1, b"5": 1})
    found = Counted.of(asked, answered)
    assert (found.lost, found.twice, found.unasked) == (2, 2, 1)


@pytest.mark.fast
def test_the_table_stands_between_its_markers(tmp_path):
    one = report.Report("Is it true?", [report.Figure("error", 3.14159, "%", at_most=15.0)], ("a",), [("x",)])
    readme = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    text = report.into(readme, [report.Report.from_json(one.to_json())], "Measured here.")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| error | 3.14 % | ≤ 15: ok |" in text
    with pytest.raises(SystemExit, match="measurements"):
        report.into("nothing", [one], "")


@pytest.mark.fast
def test_the_list_and_a_wrong_name(capsys):
    assert main(["--list"]) == 0
    assert all(name in capsys.readouterr().out for name in ("capacity",))
    with pytest.raises(SystemExit) as refused:
        main(["capcity"])
    assert refused.value.code == 2
    assert "capcity" in capsys.readouterr().err
