"""How many tasks a batch has: counted once, and the same for decisions, searches and models."""

from dataclasses import replace

import pytest
from simulated_service import ORDERS

from models.quantities import Unknown
from pipelines.environments import base, batch_tasks
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading
from profiling_jobs.orders import run_order

TOML = f"""{ORDERS}
scale_out_max = 8
probe_s = 60
profile_scale_outs = [1]
profile_most_probes = 1
profile_budget_executor_s = 1000
"""


def settings(more=""):
    return loading.parse(TOML + more, environment={})


@pytest.fixture
def real(tmp_path):
    """A simulated world that says it is a real one: the twin's topics have partitions, too."""
    with base.opened(settings(), tmp_path) as there:
        yield replace(there, kind="local")


def sizes(server):
    return server.context.control_settings("orders").sizes


@pytest.mark.fast
@pytest.mark.parametrize(
    ("more", "partitions", "tasks"),
    [
        ("", {"events": 12}, 12),
        ("state_partitions = 12", {"events": 12}, 12),
        ("state_partitions = 24", {"events": 12}, 24),  # two waves of state for each one of the source
        ("state_partitions = 4", {"events": 12}, 12),
        ("state_partitions = 200", {"events": 12}, None),  # steps at other sizes
        ('conf = {"spark.sql.shuffle.partitions" = "6"}', {"events": 4}, None),
        ('inputs = {events = "in", clicks = "clicks"}', {"events": 12, "clicks": 4}, 16),
    ],
)
def test_the_tasks_of_a_batch(more, partitions, tasks):
    toml = TOML.replace('inputs = {events = "in"}\n', "") if more.startswith("inputs") else TOML
    job = loading.parse(toml + more, environment={}).jobs["orders"]
    found = batch_tasks.counted(job, partitions)
    assert batch_tasks.if_known(found) == tasks
    assert isinstance(found, Unknown) == (tasks is None)


def test_decisions_take_the_sizes_at_which_the_waves_change(real, tmp_path):
    with InProcessServer(real, settings(), tmp_path) as server:
        assert sizes(server) == tuple(range(1, 9))  # there is no topic yet
        real.broker.create("in", partitions=12)
        assert sizes(server) == (1, 2, 3, 4, 6, 8)
    assert batch_tasks.known(real.store, "orders") == 12


def test_while_the_broker_is_away_what_was_counted_before_holds(real, tmp_path):
    batch_tasks.learnt(real, "orders", settings().jobs["orders"], {"events": 12})
    with InProcessServer(real, settings(), tmp_path) as server:
        assert sizes(server) == (1, 2, 3, 4, 6, 8)


def test_partitions_that_are_added_while_it_runs_are_noticed_and_told(real, tmp_path):
    lines = []
    real.broker.create("in", partitions=6)
    with InProcessServer(real, settings(), tmp_path, say=lines.append) as server:
        assert sizes(server) == (1, 2, 3, 6, 8)
        real.broker.delete("in")
        real.clock.sleep(batch_tasks.AGAIN_S)
        assert sizes(server) == (1, 2, 3, 6, 8)  # it cannot be read: as before
        real.broker.create("in", partitions=12)
        assert lines == []
        real.clock.sleep(batch_tasks.AGAIN_S)
        assert sizes(server) == (1, 2, 3, 4, 6, 8)
    assert lines == ["orders: 12 tasks a batch now, 6 tasks a batch before"]
    assert batch_tasks.known(real.store, "orders") == 12


def test_a_search_counts_with_what_its_copies_have(real, tmp_path):
    real.broker.create("in", partitions=6)
    with InProcessServer(real, settings(), tmp_path) as server:
        run_order(server, "profile", "orders")
    assert real.store.document("orders", "profiling")["state"]["settings"]["tasks"] == 6
    assert batch_tasks.known(real.store, "orders") == 6


def test_simulated_executors_have_no_waves(tmp_path):
    with base.opened(settings(), tmp_path) as there, InProcessServer(there, settings(), tmp_path) as server:
        there.broker.create("in", partitions=12)
        assert sizes(server) == tuple(range(1, 9))
        assert isinstance(batch_tasks.known(there.store, "orders"), Unknown)
