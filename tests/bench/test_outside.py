"""The arithmetic of the observer from outside, on readings that are made up, and the files that it reads."""

import math
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from stand_ins import plan
from waiting import until

from bench.real import learning, outside
from bench.real.journal import Journal
from bench.real.lab import LIVE, SALES
from bench.real.outside import Batch, Ended
from models.errors import NotReady

pytestmark = pytest.mark.fast

RATE_RPS = 100
TRIGGER_S = 1.0


def readings(*committed_s, until_s=60.0, silent=(math.inf, math.inf)):
    """A job that commits all that has arrived by a second before; its input is read four times a second."""
    batches = [Batch(n, at_s, int(RATE_RPS * (at_s - 1.0))) for n, at_s in enumerate(committed_s)]
    times = [0.25 * n for n in range(int(4 * until_s))]
    ends = [Ended(at_s, int(RATE_RPS * at_s)) for at_s in times if not silent[0] < at_s < silent[1]]
    return batches, ends


def seconds(first, last):
    return [float(at_s) for at_s in range(first, last)]


def seen(batches, ends, failed_at_s=20.5):
    found = outside.seen(batches, ends, failed_at_s=failed_at_s, trigger_s=TRIGGER_S)
    return round(found.downtime_s, 3), round(found.recovery_s, 3), round(found.band_s, 4)


def test_downtime_and_recovery():
    batches, ends = readings(*seconds(1, 21), *seconds(31, 60))
    # Each record waits for a second and for the next commit: 1.75 s at the readings, and a quarter more.
    assert seen(batches, ends) == (10.5, 10.5, 2.1875)


def test_a_recovery_lasts_until_the_lag_is_back_to_stay():
    """The first commit after the failure is of what had come 5 s before it, and the next one is late."""
    batches, ends = readings(*seconds(1, 21), 31.0, *seconds(36, 60))
    batches[20] = Batch(20, 31.0, 2_600)
    assert seen(batches, ends)[:2] == (10.5, 15.5)


def test_a_batch_that_ends_the_run_of_records_is_no_end_of_a_recovery():
    batches, ends = readings(*seconds(1, 21), *seconds(31, 40), until_s=40.0)
    assert seen(batches, ends)[1] == math.inf, "it was not seen for long enough"
    assert seen(*readings(*seconds(1, 21)))[:2] == (math.inf, math.inf)


def test_what_could_not_be_read_is_outside():
    batches, ends = readings(*seconds(1, 60), silent=(25.0, 30.0))
    assert seen(batches, ends)[:2] == (0.5, 9.5)


def test_without_input_there_is_nothing_to_compare():
    with pytest.raises(NotReady, match="nothing arrived"):
        outside.seen([], [Ended(1.0, 5), Ended(2.0, 5)], failed_at_s=3.0, trigger_s=1.0)


@pytest.mark.parametrize(
    ("learnt_s", "seen_s", "share"),
    [(12.0, 10.0, 0.2), (3.0, 2.1, 0.0), (4.0, 2.0, 1.0), (math.inf, 9.0, 1.0), (math.inf, math.inf, 0.0)],
)
def test_a_difference_of_a_second_is_none(learnt_s, seen_s, share):
    assert outside.difference(learnt_s, seen_s) == pytest.approx(share)


def test_the_files_of_a_checkpoint(tmp_path):
    for part in ("offsets", "commits"):
        (tmp_path / part).mkdir()
    reader = outside.Reader(SimpleNamespace(), plan(checkpoint=str(tmp_path)))
    assert (reader.planned(), reader.batches(-1)) == (-1, [])
    texts = ['v1\n{}\n{"orders": {"0": 5, "1": 7}}', 'v2\n{}\n0:{"orders": {"0": 6, "1": 7}}']
    for number, text in enumerate(texts):
        (tmp_path / "offsets" / str(number)).write_text(text)
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
    (tmp_path / "offsets" / "2").write_text(texts[0])
    (tmp_path / "commits" / ".1.crc").write_text("")
    assert reader.planned() == 2
    assert [(one.number, one.records) for one in reader.batches(-1)] == [(0, 12), (1, 13)]
    assert [one.number for one in reader.batches(0)] == [1]


@pytest.fixture
def started(tmp_path):
    """Processes with the mark of a folder of their own, by their words behind the program."""
    there = []

    def start(role, *words):
        marks = {"HEADROOM_OWNER": str(tmp_path), "HEADROOM_ROLE": role}
        command = [sys.executable, "-S", "-c", "import time; time.sleep(600)", *words]
        there.append(subprocess.Popen(command, env=marks))
        return there[-1]

    yield start
    for process in there:
        process.kill()
        process.wait()


def is_frozen(process):
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def test_signals_go_to_the_processes_that_are_meant(started, tmp_path):
    executors = [
        started("executor.orders", outside.EXECUTOR, "--executor-id", number, "--app-id", application)
        for application, number in (("app-1", "0"), ("app-2", "10"), ("app-2", "9"))
    ]
    driver, other = started("driver.orders"), started("driver.clicks")
    hand = outside.Hand(SimpleNamespace(owner=SimpleNamespace(id=str(tmp_path))))
    hand.strike("orders", "executor_freeze")
    until(lambda: is_frozen(executors[2]))
    assert not any(map(is_frozen, (*executors[:2], driver, other)))
    hand.heal()
    until(lambda: not is_frozen(executors[2]))
    before_s = time.time()
    assert before_s <= hand.strike("orders", "driver_kill") <= time.time()
    driver.wait(60.0)
    assert other.poll() is None
    with pytest.raises(NotReady, match="no process of orders"):
        hand.strike("orders", "driver_kill")


def row(job, teaches, *learnt, seen=(20.0, 40.0), when="steady"):
    names = ("kind", "downtime_s", "recovery_s")
    return {
        "job": job,
        "kind": teaches or "driver_kill",
        "when": when,
        "teaches": teaches,
        "learnt": [dict(zip(names, one, strict=True)) for one in learnt],
        "why": [] if learnt else ["nothing was learnt from driver_kill: it overlapped"],
        "seen": None if seen is None else {"downtime_s": seen[0], "recovery_s": seen[1]},
    }


def test_what_is_said_of_what_was_learnt(tmp_path):
    kept = Journal(tmp_path / "pieces")
    for number, one in enumerate(
        [
            row(LIVE, "executor_kill", ("executor_kill", 1.0, 2.0)),
            row(LIVE, "", seen=None),
            row(LIVE, "", ("live_out", 1.0, 2.0)),
            row(SALES, "driver_kill", ("driver_kill", 22.0, 39.5)),
            row(SALES, "broker_restart", ("driver_kill", 20.0, 40.0)),
        ]
    ):
        kept.add(learning.NAME, str(number), one)
    found = learning.report(kept)
    cells, names, *differences = found.figures
    assert (cells.value, cells.holds, names.value, names.holds) == (2, False, 1, False)
    assert [one.value for one in differences] == [100.0, 100.0], "of what was not learnt under its name"
    assert found.rows[1][3:] == ("nothing", "nothing", "driver_kill: it overlapped", "– (–)", "– (–)")
    assert found.rows[3][4:] == ("driver_kill", "–", "22.0 (20.0)", "39.5 (40.0)")
    assert learning.difference(row(SALES, "driver_kill", ("driver_kill", 22.0, 39.5)), "downtime_s") == 0.1
    assert learning.report(Journal(tmp_path / "none")) is None
