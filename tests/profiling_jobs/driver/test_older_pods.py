"""A driver in a pod waits for the end of those that were made before it."""

from datetime import UTC, datetime, timedelta

import pytest

from models.errors import NotReady
from profiling_jobs.driver import older_pods

pytestmark = pytest.mark.fast

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(name, made_s, *, runs=True, ends_s=None):
    def at(seconds):
        return (NOW + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    about = {"name": name, "creationTimestamp": at(made_s)}
    if ends_s is not None:
        about["deletionTimestamp"] = at(ends_s)
    state = {"running": {}} if runs else {"terminated": {"exitCode": 0}}
    return {"metadata": about, "status": {"containerStatuses": [{"state": state}]}}


OWN = pod("own", -5)


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        (pod("old", -60, ends_s=80), True),
        (pod("old", -60), True),
        (pod("old", -60, runs=False, ends_s=80), False),
        (pod("old", -600, ends_s=-20), True),
        (pod("old", -600, ends_s=-40), False),  # its node is gone
        (pod("young", 0), False),
        (pod("an-equal", -5), True),
        (pod("z-equal", -5), False),
    ],
    ids=["ends", "runs", "ended", "is late", "is given up", "is younger", "same second", "same second, last"],
)
def test_an_older_one_that_runs_is_waited_for(other, waits):
    assert older_pods.older([OWN, other], "own", now=NOW) == ([other["metadata"]["name"]] if waits else [])


def test_it_is_said_once_and_ends_with_the_older_one():
    answers = [[OWN, pod("old", -60)], [OWN, pod("old", -60)], [OWN]]
    said, slept = [], []
    older_pods.await_end(
        "/pods", "own", say=said.append, ask=lambda path: answers.pop(0), now=lambda: NOW, sleep=slept.append
    )
    assert said == ["old still runs: waiting for its end"]
    assert len(slept) == 2


def test_a_list_without_this_pod_is_not_believed():
    with pytest.raises(NotReady, match="does not list this pod"):
        older_pods.older([pod("old", -60)], "own", now=NOW)
