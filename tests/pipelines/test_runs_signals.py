"""Runs in a command's own process: signals stay as they were, and Dagster shows each run under its job."""

import signal

import dagster as dg
import pytest

from models.errors import NotReady
from pipelines.orchestration import runs
from pipelines.orchestration.pages import LOCATION
from pipelines.orchestration.runs import Runs, signals_kept

TOML = '[deployment]\nkind = "simulated"\n[job.orders]\nbuild = "a:b"\ninputs = {events = "in"}\n'


@dg.job
def nothing():
    pass


@pytest.fixture
def in_the_background():
    """As a shell starts `headroom demo --keep &`: Ctrl-C is for somebody else; SIGTERM ends the command."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, leave)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


def leave(number, frame):
    raise AssertionError("not called here")


@pytest.mark.usefixtures("in_the_background")
def test_a_command_in_the_background_can_be_ended_after_a_run():
    with signals_kept():
        assert nothing.execute_in_process().success
    assert signal.getsignal(signal.SIGTERM) is leave


def test_a_run_is_listed_under_its_job(tmp_path, monkeypatch):
    """As Dagster's page of a job asks for its runs; what becomes of the run is no matter."""
    monkeypatch.setattr(runs.os, "environ", {**runs.os.environ})
    (tmp_path / "headroom.toml").write_text(TOML)
    monkeypatch.setattr(runs, "addresses", lambda folder: {"code_socket": "/nowhere.sock"})
    there = Runs(tmp_path / "headroom.toml", tmp_path / ".headroom")
    try:
        with pytest.raises(NotReady, match="headroom serve"):
            there.job("optimization", "orders")
    finally:
        there.close()
    with dg.DagsterInstance.from_config(str(tmp_path / ".headroom" / "dagster")) as instance:
        label = {".dagster/repository": f"__repository__@{LOCATION}", "dagster/partition": "orders"}
        (run,) = instance.get_runs(dg.RunsFilter(job_name="optimization", tags=label))
    assert run.remote_job_origin.location_name == LOCATION
