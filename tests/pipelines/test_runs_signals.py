"""A run in the process of a command leaves its signals alone."""

import signal

import dagster as dg
import pytest

from pipelines.runs import signals_kept


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
