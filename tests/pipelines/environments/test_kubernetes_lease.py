"""The Lease of an owner: one acts, another is refused, and one that is dead is replaced."""

from datetime import UTC, datetime, timedelta

import pytest
from api_server import ApiServer

from models.errors import Unsafe
from pipelines.environments.kubernetes.lease import DURATION_S, OwnerLease


class Time:
    """Stepped by those who sleep."""

    def __init__(self):
        self.now_s = 1000.0
        self.while_asleep = []

    def sleep(self, seconds):
        self.now_s += seconds
        for work in self.while_asleep:
            work()

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now_s)


@pytest.fixture
def server():
    with ApiServer("headroom") as server:
        yield server


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def lease(server, clock):
    times = {"clock": lambda: clock.now_s, "sleep": clock.sleep, "now": clock.now}
    return lambda holder: OwnerLease(server.connect(), "headroom", owner="f00", holder=holder, **times)


def test_a_second_is_refused_while_the_first_renews(lease, clock):
    first, second = lease("first"), lease("second")
    first.acquire()
    clock.while_asleep.append(first.renew)
    with pytest.raises(Unsafe, match="first owns the jobs"):
        second.acquire()
    first.check()


def test_one_that_is_dead_is_replaced_and_finds_out(lease, clock):
    first, second = lease("first"), lease("second")
    first.acquire()
    begun_s = clock.now_s
    second.acquire()
    assert DURATION_S <= clock.now_s - begun_s <= DURATION_S + 5.0
    second.check()
    with pytest.raises(Unsafe, match="taken over"):
        first.renew()
    with pytest.raises(Unsafe, match="nothing is changed"):
        first.check()


def test_one_that_cannot_renew_changes_nothing_any_more(lease, clock):
    first = lease("first")
    with pytest.raises(Unsafe, match="could not be renewed"):
        first.check()
    first.acquire()
    clock.now_s += DURATION_S - 1
    first.check()
    clock.now_s += 2
    with pytest.raises(Unsafe, match="could not be renewed"):
        first.check()
    first.renew()  # the API server is back, and no other has come
    first.check()


def test_what_is_released_is_free_at_once(lease, clock):
    first, second = lease("first"), lease("second")
    first.acquire()
    first.release()
    begun_s = clock.now_s
    second.acquire()
    assert clock.now_s == begun_s
    first.release()  # not its own any more
    second.renew()


def test_a_renewal_that_conflicts_with_another_is_refused(lease, server):
    first = lease("first")
    first.acquire()
    server.connect().patch("Lease", "headroom", first.name, {"spec": {"holderIdentity": "second"}})
    with pytest.raises(Unsafe, match="taken over"):
        first.renew()


def test_a_lease_that_was_only_edited_is_renewed_and_at_rest_that_is_one_request(lease, server):
    first = lease("first")
    first.acquire()
    server.connect().patch("Lease", "headroom", first.name, {"metadata": {"labels": {"team": "orders"}}})
    first.renew()
    server.requests.clear()
    first.renew()
    assert [method for method, _ in server.requests] == ["PUT"]
