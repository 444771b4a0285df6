"""Orders as a client sees them: which details are accepted, and how their end is waited for."""

import time

import pytest

from models.errors import Misconfigured, NotReady
from profiling_jobs import orders
from profiling_jobs.orders import ServerBusy, parsed, wait_for


@pytest.mark.parametrize(
    ("what", "details", "message"),
    [
        ("dance", {}, r"^order: unknown order 'dance'; expected launch, stop, "),
        ("launch", {"now": True}, r"^launch\.now: unknown detail of this order; expected none"),
        ("probe", {"scale_out": 1}, r"^probe\.rate_rps: is missing"),
        ("record", {"seconds": "long"}, r"^record\.seconds: must be a valid number, got 'long'"),
        ("record", {"seconds": float("nan")}, r"^record\.seconds: must be a finite number"),
        ("record", {"seconds": 9, "max_bytes": 0}, r"^record\.max_bytes: must be greater than or equal to 1"),
        ("probe", {"scale_out": 1.5, "rate_rps": 1.0}, r"^probe\.scale_out: must be a valid integer"),
        ("probe", {"scale_out": True, "rate_rps": 1.0}, r"^probe\.scale_out: must be a valid integer"),
        ("probe", {"scale_out": 1, "rate_rps": 0}, r"^probe\.rate_rps: must be greater than 0, got 0"),
        ("profile", {"scale_outs": []}, r"^profile\.scale_outs: must have at least 1 item"),
        ("drill", {"live": 1}, r"^drill\.live: must be a valid boolean, got 1"),
    ],
)
def test_wrong_details_are_named_with_what_is_accepted(what, details, message):
    with pytest.raises(Misconfigured, match=message):
        parsed(what, details)


class BusyServer:
    """Answers with these states or errors, the last one for ever."""

    def __init__(self, *answers):
        self.answers, self.cancelled = list(answers), []

    def order(self, id, *, since=0):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return {"lines": [], "next": since, "state": "running", "result": None, **answer}

    def cancel(self, id):
        self.cancelled.append(id)


BUSY = ServerBusy("the server did not answer 'order' within 30 s")


def test_a_busy_server_is_asked_again():
    server = BusyServer({}, BUSY, BUSY, {}, {"state": "done", "result": {"probes": 9}})
    assert wait_for(server, "profile-orders-1", sleep=lambda seconds: None) == {"probes": 9}
    assert server.cancelled == []


def test_after_a_minute_the_waiting_ends_and_the_order_does_not(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    server = BusyServer(BUSY)

    def sleep(seconds):
        now_s[0] += seconds

    with pytest.raises(NotReady, match=r"within 30 s; order profile-orders-1 may go on: give it again"):
        wait_for(server, "profile-orders-1", sleep=sleep)
    assert now_s[0] > orders.PATIENCE_S
    assert server.cancelled == []


@pytest.mark.parametrize(
    ("wrong", "cancelled"),
    [
        (NotReady("order profile-orders-1 is unknown"), []),
        (OSError("the run's own storage is locked"), []),
        (SystemExit(143), ["profile-orders-1"]),
        (KeyboardInterrupt(), ["profile-orders-1"]),
    ],
)
def test_only_an_interrupt_cancels_the_order(wrong, cancelled):
    server = BusyServer(wrong)
    with pytest.raises(type(wrong)):
        wait_for(server, "profile-orders-1", sleep=lambda seconds: None)
    assert server.cancelled == cancelled
