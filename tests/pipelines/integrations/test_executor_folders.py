"""What is left of executors on the disk, in a folder that is made up here."""

import os

import pytest

from pipelines.integrations import spark

pytestmark = pytest.mark.fast

NOW_S = 1_800_000_000.0
LIVING = {("app-1-0000", "1"), ("app-1-0001", "0")}


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


def executor(work, application, number, *, age_s, log_age_s=0.0):
    folder = work / application / number
    folder.mkdir(parents=True)
    for name in ("kafka-clients.jar", "stdout", "stderr"):
        (folder / name).write_text("x")
        at_s = NOW_S - (age_s if name.endswith("jar") else log_age_s)
        os.utime(folder / name, (at_s, at_s))
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "more.jar").write_text("x")
    os.utime(folder, (NOW_S - age_s, NOW_S - age_s))
    return folder


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_of_one_that_has_gone_only_its_logs_are_kept_and_those_for_an_hour(work):
    lately = executor(work, "app-1-0000", "0", age_s=5000.0, log_age_s=100.0)
    long_ago = executor(work, "app-1-0000", "2", age_s=9000.0, log_age_s=4000.0)
    spark.clear(work, living=LIVING, now_s=NOW_S)
    assert left(lately) == ["stderr", "stdout"]
    assert not long_ago.exists()


def test_what_lives_is_not_touched_nor_what_is_only_about_to(work):
    living = executor(work, "app-1-0000", "1", age_s=90_000.0, log_age_s=90_000.0)
    other = executor(work, "app-1-0001", "0", age_s=90_000.0)
    coming = executor(work, "app-1-0000", "3", age_s=5.0)
    spark.clear(work, living=LIVING, now_s=NOW_S)
    for folder in (living, other, coming):
        assert left(folder) == ["artifacts", "kafka-clients.jar", "stderr", "stdout"]


def test_files_of_somebody_else_and_a_cluster_that_never_ran_are_left_alone(work):
    spark.clear(work, living=set(), now_s=NOW_S)
    executor(work, "driver-1", "0", age_s=5000.0)
    (work / "app-1-0000").mkdir()
    (work / "app-1-0000" / "note").write_text("x")
    os.utime(work / "app-1-0000" / "note", (0.0, 0.0))
    spark.clear(work, living=set(), now_s=NOW_S)
    assert len(left(work / "driver-1" / "0")) == 4
    assert left(work / "app-1-0000") == ["note"]
