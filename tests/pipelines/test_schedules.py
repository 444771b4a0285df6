"""Profiles and drills come round by the job's own clock, and keep out of its blackouts."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from pipelines.orchestration.jobs import all_jobs, schedules
from pipelines.settings import loading

TOML = """
[job.my-orders]
build = "a:b"
inputs = {events = "in"}
profile_cron = "0 3 * * Sun"
drill_cron = "0 4 * * Sat"
time_zone = "Europe/Berlin"
blackouts = ["2026-11-22 00:00-24:00"]
[job.clicks]
build = "a:b"
inputs = {events = "clicks"}
"""


def found(more=""):
    jobs = loading.parse(TOML.replace("[job.clicks]", more + "\n[job.clicks]"), environment={}).jobs
    return {one.name: one for one in schedules(jobs, all_jobs(list(jobs)))}


def comes_round(schedule, at):
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
        return schedule(context)


def test_one_per_line_of_the_table_and_none_without():
    assert set(found()) == {"profile_my_orders", "drill_my_orders"}
    profile = found()["profile_my_orders"]
    assert (profile.cron_schedule, profile.execution_timezone) == ("0 3 * * Sun", "Europe/Berlin")
    assert profile.default_status == dg.DefaultScheduleStatus.RUNNING


def test_it_runs_for_its_job():
    run = comes_round(found()["profile_my_orders"], datetime(2026, 11, 29, 2, tzinfo=UTC))
    assert run.partition_key == "my-orders"
    assert run.run_key.startswith("my-orders:profile:2026-11-29T")


def test_it_is_left_out_in_a_blackout():
    left_out = comes_round(found()["profile_my_orders"], datetime(2026, 11, 22, 2, tzinfo=UTC))
    assert "blackout 2026-11-22 00:00-24:00 (Europe/Berlin)" in left_out.skip_message


@pytest.mark.parametrize(("more", "live"), [("", False), ("allow_live_drills = true", True)])
def test_drills_are_on_a_copy_unless_the_live_job_may_be_hurt(more, live):
    run = comes_round(found(more)["drill_my_orders"], datetime(2026, 11, 28, 3, tzinfo=UTC))
    assert run.run_config["ops"]["failure_drills"]["config"] == {"live": live, "by_itself": True}


def test_an_attached_job_with_its_program_comes_round_on_copies():
    theirs = found('attach = true\ncheckpoint = "/theirs"\n')
    assert set(theirs) == {"profile_my_orders", "drill_my_orders"}
    run = comes_round(theirs["drill_my_orders"], datetime(2026, 11, 28, 3, tzinfo=UTC))
    assert run.run_config["ops"]["failure_drills"]["config"]["live"] is False
