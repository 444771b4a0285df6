"""Objects that a watch keeps up to date: what reading them costs, and what a watch survives."""

import pytest
from api_server import ApiServer, Fault
from waiting import until

from models.errors import NotReady
from pipelines.integrations.kubernetes_watch import Watched

OURS = {"headroom.io/owner": "f00"}


def pod(name, **labels):
    return {"metadata": {"name": name, "namespace": "jobs", "labels": {**OURS, **labels}}}


def names(found):
    return sorted(one["metadata"]["name"] for one in found)


@pytest.fixture
def server():
    with ApiServer("jobs", "copies") as server:
        yield server


@pytest.fixture
def api(server):
    return server.connect(patience_s=0.2)


@pytest.fixture
def watched(server, api):
    api.create("Pod", pod("first", copy="orders"))
    with Watched(api, "Pod", "jobs", labels=OURS) as watched:
        until(lambda: watched._current)
        server.requests.clear()
        yield watched


def test_what_others_do_is_seen_without_a_request(server, api, watched):
    assert names(watched.all()) == ["first"]
    api.create("Pod", pod("second", copy="clicks"))
    api.create("Pod", {"metadata": {"name": "foreign", "namespace": "jobs", "labels": {}}})
    until(lambda: names(watched.all()) == ["first", "second"])
    assert names(watched.all({"copy": "clicks"})) == ["second"]
    api.patch("Pod", "jobs", "first", {"status": {"phase": "Failed"}})
    until(lambda: watched.find("first").get("status") == {"phase": "Failed"})
    api.delete("Pod", "jobs", "first")
    until(lambda: names(watched.all()) == ["second"])
    assert not [method for method, _ in server.requests if method == "GET"]


def test_what_is_not_known_is_asked_for(server, watched):
    assert watched.find("other") is None
    assert server.requests == [("GET", "/api/v1/namespaces/jobs/pods/other")]


def test_a_watch_that_breaks_off_is_taken_up_where_it_was(server, api, watched):
    server.end_watches()
    until(lambda: [path for _, path in server.requests])
    api.create("Pod", pod("second"))
    until(lambda: watched._current and names(watched.all()) == ["first", "second"])


def test_a_watch_that_has_expired_begins_anew_and_misses_no_deletion(server, api, watched):
    server.faults.append(Fault(503, method="GET", path="/pods", times=2))
    server.end_watches()
    api.delete("Pod", "jobs", "first")
    api.create("Pod", pod("second"))
    server.forget_history()
    until(lambda: watched._current and names(watched.all()) == ["second"])


def test_while_the_server_is_away_nothing_old_is_given_for_new(server, api, watched):
    server.away()
    until(lambda: not watched._current)
    with pytest.raises(NotReady, match="does not answer"):
        watched.all()
    server.back()
    until(lambda: watched._current)
    assert names(watched.all()) == ["first"]


def test_a_label_that_is_taken_away_ends_it_here(api, watched):
    api.patch("Pod", "jobs", "first", {"metadata": {"labels": {"headroom.io/owner": None}}})
    until(lambda: watched.all() == [])


def test_our_own_writes_are_seen_at_once_and_not_undone_by_older_news(api, watched):
    old = watched.find("first")
    written = api.patch("Pod", "jobs", "first", {"spec": {"nodeName": "node-1"}})
    watched.remember(written)
    watched._take("MODIFIED", old)
    assert watched.find("first")["spec"] == {"nodeName": "node-1"}


def test_what_was_not_there_when_asked_does_not_come_back_with_older_news(api, watched):
    old = watched.find("first")
    api.delete("Pod", "jobs", "first")
    assert watched.ask({"copy": "orders"}) == []
    watched._take("MODIFIED", old)
    assert watched.all() == []
