"""Probes and searches on the stepped twin: what they find, and what can spoil them."""

import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from experiment_world import LIMIT, OVERHEAD_S, PARTITIONS, PLAN, ExperimentWorld, truth
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import offsets, sample

from models import codec, probing
from models.errors import Misconfigured, NotReady
from models.ports import Plan
from models.probing import Probe, Settings, estimates
from models.quantities import Unknown
from models.simulation.batches import Behaviour, Platform, contended
from models.simulation.cluster import SimulatedSource
from models.simulation.sampling import SimulatedMetrics
from models.simulation.topics import Topics
from pipelines.settings import job_plans
from pipelines.settings.schema import JobSettings
from profiling_jobs import plans
from profiling_jobs.experiments import profiling as dealing
from profiling_jobs.experiments.copies import DOCUMENT as COPIES
from profiling_jobs.experiments.copies import Copies, wait_until_caught_up
from profiling_jobs.experiments.probe import ProbeRun, Readings, Rules
from profiling_jobs.experiments.profiling import Profiling
from profiling_jobs.experiments.profiling_record import (
    is_plenty,
    measured,
    missing_for_decisions,
    overheads_s,
)
from profiling_jobs.telemetry import batch_costs
from profiling_jobs.telemetry.spark_page import StageTime, guesses
from profiling_jobs.telemetry.timeline import Timeline

LIVE = replace(PLAN, name="live", role="live", scale_out=1, checkpoint="/checkpoints/live")


def searched(world):
    """What is known of the capacities, without the points that were measured for their latency."""
    return tuple(one for one in measured(world.store, "enrichment") if one.executor_seconds)


def missing_of(world, peak_rps, *, one_size=False):
    return missing_for_decisions(
        world.store, "enrichment", one_size=one_size, peak_rps=peak_rps, limit_records=LIMIT
    )


class World(ExperimentWorld):
    """A simulated cluster on which one job is profiled."""

    def __init__(self, *, platform=None, source=SimulatedSource, **behaviour):
        given = {"warm_up_s": 8.0, "overhead_s": OVERHEAD_S} | behaviour
        super().__init__(Behaviour(**given), platform or Platform(slots=12), source=source)
        self.forgotten = []
        self.context = {"forget": self.forgotten.append}

    def probe(
        self, rate_rps, *, scale_out=2, rules=None, during=None, probe_s=60.0, left_s=None, template=PLAN
    ):
        """One probe on a copy of its own; `during(seconds since its begin)` is called every second."""
        copies = Copies(template, self.around, partitions=PARTITIONS)
        copy = copies.launch(scale_out)
        self.copy = copy
        run = ProbeRun(
            Probe(0, scale_out, rate_rps, warm_up_s=30.0, probe_s=probe_s),
            copy,
            clock=self.clock,
            rules=rules or Rules(limit_records=LIMIT, warm_up_s=30.0),
            **({} if left_s is None else {"left_s": left_s}),
        )
        began_s, steps = self.clock.now_s(), run.steps()
        try:
            while True:
                next(steps)
                self.clock.sleep(1.0)
                if during is not None:
                    during(self.clock.now_s() - began_s)
        except StopIteration as finished:
            return finished.value
        finally:
            self.took_s, self.batches = self.clock.now_s() - began_s, run.batches
            self.shown_rps = run.capacity_rps
            copies.clear()

    def profile(self, *, progress=lambda state, text: None, rules=None, template=PLAN, **settings):
        given = {"scale_outs": (1, 2, 4), "warm_up_s": 30.0, "probe_s": 60.0, "first_rate_rps": 1000.0}
        return Profiling(
            template,
            Settings(**(given | settings)),
            self.around,
            partitions=PARTITIONS,
            rules=rules or Rules(limit_records=LIMIT, warm_up_s=30.0),
            progress=progress,
        )


class LateExecutors(SimulatedMetrics):
    """What is said of executors was read some seconds ago; a sample takes a moment, as the broker does."""

    def __init__(self, world, *, late_s):
        super().__init__(world.cluster)
        self._clock, self._late_s, self._read = world.clock, late_s, []

    def sample(self, name):
        self._clock.sleep(0.02)
        now = super().sample(name)
        self._read.append((now.at_s, now.executors))
        old = [executors for at_s, executors in self._read if at_s <= now.at_s - self._late_s]
        return replace(now, executors=old[-1] if old else Unknown("not read yet"))


class TestOneProbe:
    @pytest.mark.parametrize("share", [0.3, 0.9, 0.97, 1.03, 1.2, 3.0])
    def test_a_rate_below_the_capacity_is_sustained_and_one_above_it_measures_it(self, share):
        result = World().probe(share * truth(2))
        assert (result.verdict, result.reason) == ("sustained" if share < 1.0 else "not sustained", "")
        assert result.throughput_rps == pytest.approx(min(share, 1.0) * truth(2), rel=0.01)
        assert share > 1.0 or result.measurement.duration_s == pytest.approx(60.0, abs=1.0)  # really watched

    def test_a_job_without_a_limit_is_measured_too(self):
        assert World().probe(0.8 * contended(2), rules=Rules()).verdict == "sustained"

    @pytest.mark.parametrize("rate_rps", [50.0, 800.0])
    def test_batches_that_take_long_whatever_their_size_are_filled_by_the_warm_up(self, rate_rps):
        """What comes while a batch of seven seconds runs is no backlog."""
        world, limit = World(overhead_s=7.0), 20_000
        template = replace(PLAN, max_offsets_per_trigger=limit)
        rules = Rules(limit_records=limit, warm_up_s=30.0)
        assert world.probe(rate_rps, rules=rules, template=template).verdict == "sustained"
        assert world.shown_rps == pytest.approx(limit / (7.0 + limit / contended(2)), rel=0.1)

    @pytest.mark.parametrize(("share", "verdict"), [(0.97, "sustained"), (1.05, "not sustained")])
    def test_a_stretch_that_decides_nothing_is_made_twice_as_long(self, share, verdict):
        result = World().probe(share * truth(2), probe_s=8.0)
        assert result.verdict == verdict, "8 s show six batches at most"
        assert result.measurement.duration_s == pytest.approx(16.0, abs=1.0)

    def test_latency_of_a_job_at_ease_is_that_of_its_batches(self):
        result = World().probe(0.3 * truth(2))
        assert result.latency_ms == pytest.approx(1000.0, rel=0.6)

    def test_the_warm_up_lasts_as_long_as_the_longest_window(self):
        short, long = World(), World()
        short.probe(1000.0)
        long.probe(1000.0, rules=Rules(limit_records=LIMIT, warm_up_s=30.0, longest_window_s=300.0))
        assert long.took_s - short.took_s >= 240.0

    @pytest.mark.parametrize("share", [0.3, 0.9, 1.2])
    @pytest.mark.parametrize("trigger_s", [1.0, 10.0, 60.0])
    @pytest.mark.parametrize("limit", [None, 20])
    def test_with_any_trigger_interval_it_shows_what_a_batch_costs(self, trigger_s, share, limit):
        """Small batches of the settling stage and full ones after it tell overhead and records apart."""
        world, per_batch = World(), limit and int(limit * trigger_s * contended(2) / 10)
        capacity = contended(2) if per_batch is None else per_batch / (OVERHEAD_S + per_batch / contended(2))
        result = world.probe(
            share * capacity,
            template=replace(PLAN, trigger_s=trigger_s, max_offsets_per_trigger=per_batch),
            rules=Rules(limit_records=per_batch, trigger_s=trigger_s, warm_up_s=30.0),
        )
        assert (result.verdict, result.reason) == ("not sustained" if share > 1.0 else "sustained", "")
        cost = batch_costs.fit(world.batches)
        assert cost.overhead_s == pytest.approx(OVERHEAD_S, rel=0.1)
        assert cost.capacity_rps == pytest.approx(contended(2), rel=0.05)


class Short(SimulatedSource):
    """Never faster than 700 records/s."""

    def __init__(self, cluster, topics):
        super().__init__(cluster, topics, highest_rps=700.0)


class Liar(Short):
    """And says that it was."""

    def achieved(self, from_s, to_s):
        said = super().achieved(from_s, to_s)
        return replace(said, achieved_rps=said.commanded_rps)


class Dumb(SimulatedSource):
    """Has lost its broker: it cannot tell what it has sent."""

    def achieved(self, from_s, to_s):
        return replace(super().achieved(from_s, to_s), achieved_rps=Unknown("the broker did not answer"))


class TestInvalidProbes:
    @pytest.mark.parametrize(
        ("source", "why"),
        [(Short, "never reached its rate"), (Liar, "the broker has counted"), (Dumb, "did not answer")],
    )
    def test_a_source_that_is_short_lies_or_cannot_tell(self, source, why):
        result = World(source=source).probe(1000.0)
        assert result.verdict == "invalid"
        assert result.throughput_rps is None
        assert why in result.reason

    @pytest.mark.parametrize("at_s", [40.0, 60.0, 80.0, 110.0])
    @pytest.mark.parametrize("kind", ["driver_kill", "driver_freeze", "broker_restart"])
    def test_whatever_dies_at_whatever_moment(self, kind, at_s):
        world = World(platform=Platform(slots=12, broker_restart_s=20.0))
        result = world.probe(1000.0, during=lambda now_s: self._inject(world, kind, at_s, now_s))
        assert result.verdict == "invalid"
        assert result.throughput_rps is None
        assert result.reason

    @pytest.mark.parametrize("kind", ["executor_kill", "executor_freeze", "all of a worker"])
    def test_executors_that_die_in_the_measured_stretch(self, kind):
        world = World(
            platform=Platform(slots=12, executor_start_s=40.0 if kind == "all of a worker" else 5.0)
        )

        def lose(now_s):
            if kind != "all of a worker":
                self._inject(world, kind, 105.0, now_s)
            elif now_s == 140.0:
                job = world.cluster.job(world.copy.plan.name)
                for executor in list(job.executors):
                    job.kill_executor(executor, world.cluster.now_s)

        result = world.probe(1000.0, during=lose)
        assert result.verdict == "invalid"
        assert "executor" in result.reason

    @pytest.mark.parametrize(
        ("behaviour", "why"),
        [
            ({"warm_up_s": 10_000.0}, "no batch was committed"),
            ({"capacity_rps": lambda executors: 20.0}, ""),  # a batch takes 100 s, more than the stretch
        ],
    )
    def test_a_job_that_finishes_no_batch_in_time(self, behaviour, why):
        result = World(**behaviour).probe(1000.0)
        assert (result.verdict, result.throughput_rps) == ("invalid", None)
        assert why in result.reason

    def test_executors_that_never_come_are_the_reason(self):
        world = World()

        def lose(now_s):
            job = world.cluster.job(world.copy.plan.name)
            for executor in list(job.executors)[1:]:
                job.kill_executor(executor, world.cluster.now_s)

        result = world.probe(1000.0, during=lose)
        assert result.verdict == "invalid"
        assert result.reason.startswith("only 1 of 2 executors were there when the warm-up should")

    def test_it_ends_when_the_budget_does(self):
        world = World()
        result = world.probe(1000.0, left_s=lambda: 100.0 - world.clock.now_s())
        assert result.verdict == "invalid"
        assert "budget" in result.reason
        assert world.took_s <= 101.0

    @staticmethod
    def _inject(world, kind, at_s, now_s):
        if now_s == at_s:
            world.cluster.inject(world.copy.plan.name, kind)


class TestProfiling:
    def test_it_finds_the_capacities_and_leaves_nothing_behind(self):
        world = World()
        state = world.profile().run()
        for size, found in estimates(state).items():
            assert not isinstance(found.capacity, Unknown)
            assert found.capacity.mid == pytest.approx(truth(size), rel=0.03)
        assert world.deployments.names() == ()
        assert world.scratch() == []
        assert world.store.document("enrichment", COPIES)["copies"] == {}
        assert sorted(world.forgotten) == sorted(set(world.forgotten))
        kept = [m for _, _, m in world.store.measurements("enrichment")]
        assert len([m for m in kept if m.executor_seconds]) == sum(r.valid for r in state.results)
        assert searched(world) == state.measurements
        light = [m for m in kept if not m.executor_seconds]
        assert len(light) == 6  # at two rates below each capacity, for the latency
        for one in light:
            assert one.sustained
            assert one.latency_ms < 3_000.0
            assert one.offered_rps / truth(one.scale_out) == pytest.approx(0.6, abs=0.25)

    @pytest.mark.parametrize("strategy", ["adaptive", "stepped"])
    def test_several_at_once_find_the_same_in_less_time(self, strategy):
        settings = {"strategy": strategy, "increment_rps": 400.0, "first_rate_rps": 400.0}
        one, many = World(), World()
        most = 0

        def count(state, text):
            nonlocal most
            most = max(most, len(many.deployments.names()))

        many.profile(parallel=3, progress=count, **settings).run()
        one.profile(parallel=1, **settings).run()
        assert most == (3 if strategy == "stepped" else 2)
        assert len(many.sources) <= 3
        assert many.clock.now_s() < 0.9 * one.clock.now_s()
        assert many.scratch() == []

    @pytest.mark.parametrize("crashes", [False, True])
    def test_a_single_executor_says_where_to_begin_and_is_asked_once(self, crashes):
        world = World()
        world.context["stages"] = lambda name: (StageTime(10_000, 12.5),)
        if crashes:
            self._crash(world, after_s=150.0, first_rate_rps=None)
        profiling = world.profile(first_rate_rps=None)
        assert profiling.resumed == crashes
        state = profiling.run()
        assert state.settings.first_guess == pytest.approx({size: size * truth(1) for size in (1, 2, 4)})
        assert estimates(state)[4].capacity.mid == pytest.approx(truth(4), rel=0.03)
        assert not world.profile(first_rate_rps=None).resumed  # it is over

    def test_what_the_single_executor_costs_counts(self):
        told, asked = World(), World()
        told.context["rescales_live"] = asked.context["rescales_live"] = False
        asked.context["stages"] = lambda name: (StageTime(10_000, 12.5),)
        first = told.profile(first_guess={4: 4.0 * truth(1)}, scale_outs=(4,)).run().results[0]
        second = asked.profile(first_rate_rps=None, scale_outs=(4,)).run().results[0]
        assert second.probe.rate_rps == pytest.approx(first.probe.rate_rps)
        assert 30.0 < second.cost - first.cost < 90.0

    def test_one_copy_is_given_all_the_sizes(self):
        anew, rescaled = World(), World()
        anew.context["rescales_live"] = False
        for world in (anew, rescaled):
            guess = {size: truth(size) for size in (1, 2, 4)}
            state = world.profile(first_guess=guess, most_probes=1).run()
            assert all(result.valid for result in state.results)
            for size, found in estimates(state).items():
                assert found.capacity.mid == pytest.approx(truth(size), rel=0.03)
        assert len(rescaled.sources) == 1
        assert len(anew.sources) == 3
        assert rescaled.clock.now_s() < anew.clock.now_s()

    def test_readings_that_are_some_seconds_old_show_executors_that_were_given_up(self):
        world = World()
        metrics = LateExecutors(world, late_s=6.0)
        copies = Copies(PLAN, replace(world.around, metrics=metrics), partitions=PARTITIONS)
        copy = copies.launch(2)
        for size in (2, 1):
            copy = copies.sized(size, copy)
            probe = Probe(0, size, 0.9 * truth(size), warm_up_s=30.0, probe_s=60.0)
            rules = Rules(limit_records=LIMIT, warm_up_s=10.0)
            run = ProbeRun(probe, copy, clock=world.clock, rules=rules)
            result = self._ended(run.steps(), world.clock)
            assert (result.verdict, result.reason) == ("sustained", "")
        copies.clear()

    def test_a_copy_is_warmed_up_once_at_each_size(self):
        """Seconds of each run: a new copy, the same under load, at ease, and rescaled."""
        world = World()
        copies = Copies(PLAN, world.around, partitions=PARTITIONS)
        copy, rules = copies.launch(2), Rules(limit_records=LIMIT, warm_up_s=60.0)

        def ready(*, at_rate=False):
            probe = Probe(0, copy.plan.scale_out, 500.0, warm_up_s=60.0, probe_s=60.0)
            run, began_s = ProbeRun(probe, copy, clock=world.clock, rules=rules), world.clock.now_s()
            assert self._ended(run.ready(at_rate=at_rate), world.clock) == ""
            copy.measured = True
            return world.clock.now_s() - began_s, run.capacity_rps

        new, loaded, (_, _), eased = ready(), ready(), ready(at_rate=True), ready()
        copy = copies.sized(4, copy)
        rescaled = ready()
        copies.clear()
        assert new[0] > 60.0
        assert loaded[0] <= 2.0
        assert 15.0 < eased[0] < 40.0
        assert 15.0 < rescaled[0] < 40.0, "its driver and half of its executors are warm"
        for _, found in (new, loaded, eased):
            assert found == pytest.approx(truth(2), rel=0.05)
        assert rescaled[1] == pytest.approx(truth(4), rel=0.1)

    @pytest.mark.parametrize("scouts", [True, False])
    def test_a_copy_that_is_not_steady_yet_is_kept(self, scouts, monkeypatch):
        world = World()
        if scouts:
            world.context["stages"] = lambda name: (StageTime(10_000, 12.5),)
        steady_rps = Readings.steady_rps

        def later(self, now_s):
            return Unknown("others use the machine") if now_s < 300.0 else steady_rps(self, now_s)

        monkeypatch.setattr(Readings, "steady_rps", later)
        given = {"scale_outs": (1,), "most_probes": 1, "first_rate_rps": None if scouts else 1000.0}
        state = world.profile(**given).run()
        assert len(world.sources) == 1, "a new one would be colder"
        assert estimates(state)[1].capacity.mid == pytest.approx(truth(1), rel=0.03)
        assert world.scratch() == []

    def test_with_default_settings_three_sizes_take_less_than_twelve_minutes(self):
        job = JobSettings(script="job.py", inputs={"events": "orders"}, max_offsets_per_trigger=LIMIT)
        search = job_plans.search("enrichment", job, None)
        world = World(platform=Platform(slots=8, driver_start_s=15.0))
        world.context["stages"] = lambda name: (StageTime(10_000, 12.5),)
        search = {**vars(search), "scale_outs": (1, 2, 4)}
        state = world.profile(rules=job_plans.rules(job), **search).run()
        assert world.clock.now_s() < 720.0
        for size, found in estimates(state).items():
            assert found.capacity.high / found.capacity.low - 1.0 <= 0.1
            assert found.capacity.low <= truth(size) <= found.capacity.high

    def test_a_copy_that_will_not_be_rescaled_gives_way_to_a_new_one(self, monkeypatch):
        world = World()

        def never(name, scale_out, *, epoch, path="live"):
            raise NotReady("the executors did not register")

        monkeypatch.setattr(world.deployments, "scale", never)
        state = world.profile(scale_outs=(1, 2), most_probes=1).run()
        assert all(result.valid for result in state.results)
        assert len(world.sources) >= 2
        assert world.deployments.names() == ()
        assert world.scratch() == []

    def test_a_copy_past_its_capacity_is_deleted_at_once(self):
        world, seen = World(), []

        def note(state, text):
            seen.append((text, world.deployments.names()))

        world.profile(scale_outs=(1,), strategy="stepped", increment_rps=400.0, progress=note).run()
        assert "not sustained" in seen[-1][0]
        assert world.deployments.names() == ()

    def test_what_waits_for_the_next_step_is_in_nobodys_way(self):
        world = World(platform=Platform(slots=7))
        given = {"strategy": "stepped", "first_rate_rps": 400.0, "increment_rps": 400.0}
        state = world.profile(scale_outs=(1, 2, 4, 5), parallel=3, executors_at_once=7, **given).run()
        assert all(result.valid for result in state.results)
        assert {result.probe.scale_out for result in state.results} == {1, 2, 4, 5}
        assert world.scratch() == []

    @pytest.mark.parametrize("strategy", ["adaptive", "stepped"])
    def test_the_budget_is_kept(self, strategy):
        for budget in (150.0, 700.0, 2500.0):
            world = World()
            held = [0.0]
            sleep = world.clock.sleep

            def counted(seconds, world=world, held=held, sleep=sleep):
                held[0] += seconds * sum(
                    job.declared for job in world.cluster.jobs.values() if job.state != "stopped"
                )
                sleep(seconds)

            world.clock.sleep = counted
            given = {"strategy": strategy, "increment_rps": 400.0, "parallel": 2}
            state = world.profile(budget_executor_seconds=budget, **given).run()
            assert state.done
            assert state.spent <= budget + 4
            assert held[0] <= budget + 4

    def test_a_live_job_on_the_same_brokers_is_not_touched(self):
        world = World()
        world.cluster.topics.flow("orders", 300.0, at_s=0.0)
        world.deployments.launch(LIVE)
        world.clock.sleep(60.0)
        state = world.profile(scale_outs=(1, 2)).run()
        job = world.cluster.job("live")
        assert (job.runs, job.state, job.declared) == (1, "running", 1)
        assert world.deployments.names() == ("live",)
        assert set(world.cluster.topics.topics()) == {"orders", "answers"}
        lag = world.cluster.topics["orders"].end(world.cluster.now_s).sum() - sum(
            ends.sum() for ends in job.checkpoint.committed.values()
        )
        assert lag <= 600.0
        assert all(r.valid for r in state.results)

    def test_a_size_for_which_a_live_job_leaves_no_room_is_given_up_and_the_others_go_on(self):
        world = World(platform=Platform(slots=8))
        world.deployments.launch(LIVE)
        world.clock.sleep(60.0)
        state = world.profile(scale_outs=(1, 3, 6, 8)).run()
        assert "7 free of 8" in state.given_up(8)
        assert all(result.valid for size in (1, 3, 6) for result in state.at(size))
        for size in (1, 3, 6):
            assert estimates(state)[size].capacity.mid == pytest.approx(truth(size), rel=0.03)
        assert world.deployments.names() == ("live",)

    def test_a_copy_without_room_beside_another_waits_and_says_why(self):
        world, said = World(platform=Platform(slots=4)), []
        settings = {"strategy": "stepped", "increment_rps": 400.0, "first_rate_rps": 400.0}
        state = world.profile(
            scale_outs=(2, 3), parallel=2, progress=lambda state, text: said.append(text), **settings
        ).run()
        for size in (2, 3):
            assert all(result.valid for result in state.at(size)), said
            assert not isinstance(estimates(state)[size].capacity, Unknown)
        waited = [text for text in said if "wait" in text]
        assert waited
        assert all("free of 4" in text for text in waited)

    def test_with_no_room_for_a_single_executor_every_size_is_given_up(self):
        world = World(platform=Platform(slots=1))
        world.context["stages"] = lambda name: (StageTime(10_000, 12.5),)
        world.deployments.launch(LIVE)
        state = world.profile(scale_outs=(1,), first_rate_rps=None).run()
        assert "0 free of 1" in state.given_up(1)

    @pytest.mark.parametrize("seconds", [20.0, 130.0, 250.0, 400.0])
    def test_after_a_crash_it_goes_on_where_it_stopped(self, seconds):
        world = World()
        self._crash(world, after_s=seconds)
        told = self._kept(world)
        again = world.profile()
        assert again.resumed
        assert len(again.state.results) == told
        state = again.run()
        assert {one.probe.number for one in state.results} == set(range(len(state.results)))
        for size, found in estimates(state).items():
            assert found.capacity.mid == pytest.approx(truth(size), rel=0.03)
        assert world.deployments.names() == ()
        assert world.scratch() == []

    def test_other_settings_begin_anew(self):
        world = World()
        self._crash(world, after_s=400.0)
        assert not world.profile(probe_s=50.0).resumed

    def test_a_search_of_one_size_leaves_what_is_known_of_the_others(self):
        world = World()
        first = world.profile().run()
        second = world.profile(scale_outs=(4,)).run()
        found = searched(world)
        others = [one for one in first.measurements if one.scale_out != 4]
        assert found == (*others, *second.measurements)
        assert set(overheads_s(world.store, "enrichment")) == {1, 2, 4}

    def test_a_size_that_was_not_saturated_again_is_known_from_before(self):
        world = World()
        first = world.profile().run()
        world.profile(scale_outs=(4,), budget_executor_seconds=400.0, first_rate_rps=100.0).run()
        assert searched(world) == first.measurements

    def test_a_single_saturated_size_is_enough_only_where_there_is_no_choice(self):
        world = World()
        world.profile(scale_outs=(1,)).run()
        load_rps = 0.5 * truth(1)
        said = missing_of(world, load_rps)
        assert said == "its capacity is known with 1 executor only, and 2 sizes show how it rises"
        assert missing_of(world, load_rps, one_size=True) == ""

    def test_an_overhead_that_the_capacity_rules_out_is_no_success(self):
        world = World()
        world.profile().run()
        assert missing_of(world, truth(1)) == ""
        # The batches were measured while another copy took the processors.
        document = world.store.document("enrichment", "profiling")
        slow = [[records, seconds + 3.0 * LIMIT / truth(2)] for records, seconds in document["batches"]["2"]]
        document = {**document, "batches": {**document["batches"], "2": slow}}
        world.store.save_document("enrichment", "profiling", document)
        assert re.match(
            r"the probes with 2 executors contradict each other: batches of .* cannot sustain",
            missing_of(world, truth(1)),
        )

    def test_a_job_that_keeps_up_with_many_times_its_load_is_not_asked_for_more(self):
        asked = []

        class Source(SimulatedSource):
            def set_rate(self, rate_rps):
                asked.append(rate_rps)
                return super().set_rate(rate_rps)

        world = World(source=Source)
        most_rps = 0.5 * truth(1)
        rules = Rules(limit_records=LIMIT, most_rps=most_rps)
        state = world.profile(most_rps=most_rps, rules=rules).run()
        assert [(one.probe.scale_out, one.verdict) for one in state.results] == [(1, "sustained")]
        assert max(asked) <= most_rps
        found, load_rps = measured(world.store, "enrichment"), most_rps / 50.0
        assert is_plenty(found, load_rps)
        assert not is_plenty(found, most_rps / 2.0)
        for peak_rps, missing in ((load_rps, False), (most_rps / 2.0, True), (Unknown("no load"), True)):
            said = missing_of(world, peak_rps)
            assert bool(said) is missing, said

    def test_an_interrupted_search_goes_on_after_one_of_a_single_size(self):
        world = World()
        self._crash(world, after_s=400.0)
        told = self._kept(world)
        world.profile(scale_outs=(4,), most_probes=2).run()
        again = world.profile()
        assert again.resumed
        assert len(again.state.results) == told
        again.run()
        sizes = {one.scale_out for one in measured(world.store, "enrichment")}
        assert sizes == set(overheads_s(world.store, "enrichment")) == {1, 2, 4}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_on_ctrl_c_and_on_any_exception_all_copies_are_stopped(self, error):
        world = World()

        def interrupt(state, text):
            if "sustained" in text:
                raise error

        with pytest.raises(error):
            world.profile(parallel=3, progress=interrupt).run()
        assert world.deployments.names() == ()
        assert world.scratch() == []

    def test_a_copy_of_a_job_that_writes_files_writes_them_beside_its_checkpoint(self):
        world = World()
        template = replace(PLAN, outputs={"results": "files:/data/answers", "plain": "/data/plain"})
        live = replace(template, name="live", role="live", checkpoint="/checkpoints/live")
        copies = Copies(template, world.around, partitions={**PARTITIONS, "plain": 2})
        plan = plans.check(copies.launch(2).plan)
        assert plan.outputs == {
            "results": f"files:{plan.checkpoint}.files/results",
            "plain": f"{plan.checkpoint}.files/plain",
        }
        plans.apart(plan, live)
        assert set(world.cluster.topics.topics()) == {"orders", "answers", plan.inputs["events"]}
        assert copies.clear() == ()
        assert world.scratch() == []
        assert world.forgotten == [plan.name]

    def test_no_topic_of_a_copy_keeps_its_records_for_days(self, monkeypatch):
        world, kept = World(), {}
        create = Topics.create

        def created(self, topic, *, partitions, kept_s=None):
            kept[topic] = kept_s
            create(self, topic, partitions=partitions, kept_s=kept_s)

        monkeypatch.setattr(Topics, "create", created)
        copies = Copies(PLAN, world.around, partitions=PARTITIONS)
        copies.launch(2)
        copies.clear()
        assert list(kept) == ["headroom.enrichment-p1.events", "headroom.enrichment-p1.out.results"]
        assert all(600.0 < kept_s < 86_400.0 for kept_s in kept.values())

    @pytest.mark.parametrize("runs", [True, False])
    def test_a_job_that_is_called_as_a_copy_would_be_is_left_alone(self, runs):
        world = World()
        other = replace(LIVE, name="enrichment-p1", job="enrichment-p1", checkpoint="/checkpoints/theirs")
        world.deployments.launch(other)
        if not runs:
            world.deployments.stop(other.name)
        copies = Copies(PLAN, world.around, partitions=PARTITIONS)
        assert copies.launch(2).plan.name == "enrichment-p2"
        assert copies.clear() == ()
        assert world.deployments.names() == ((other.name,) if runs else ())
        assert world.forgotten == ["enrichment-p2"]

    def test_what_was_written_down_as_a_copy_and_is_none_is_left_alone(self):
        world = World()
        other = replace(LIVE, name="enrichment-p1", job="enrichment-p1")
        world.deployments.launch(other)
        topics = {other.name: ["headroom.enrichment-p1.events"]}
        world.store.save_document("enrichment", COPIES, {"schema": 1, "made": 1, "copies": topics})
        assert Copies(PLAN, world.around, partitions=PARTITIONS).clear() == ()
        assert (world.deployments.names(), world.forgotten) == ((other.name,), [])
        assert world.store.document("enrichment", COPIES)["copies"] == {}

    def test_a_checkpoint_of_somebody_else_is_never_a_copys(self, tmp_path):
        world = World()
        (tmp_path / "enrichment-p1" / "commits").mkdir(parents=True)
        around = replace(world.around, checkpoint=lambda name: str(tmp_path / name))
        copies = Copies(PLAN, around, partitions=PARTITIONS)
        assert copies.launch(2).plan.name == "enrichment-p2"
        copies.clear()

    def test_a_setting_that_is_wrong_is_said_at_once(self):
        world = World()
        wrong = replace(PLAN, outputs={})
        with pytest.raises(Misconfigured, match="partitions of 'events'"):
            Copies(wrong, world.around, partitions={})

    @staticmethod
    def _ended(steps, clock):
        try:
            while True:
                next(steps)
                clock.sleep(1.0)
        except StopIteration as finished:
            return finished.value

    @staticmethod
    def _kept(world):
        """Number of results that are written down."""
        kept = world.store.document("enrichment", "profiling")["state"]
        return len(codec.from_json(probing.State, kept).results)

    @staticmethod
    def _crash(world, *, after_s, **settings):
        """As SIGKILL: nothing is stopped, nothing is deleted, nothing is written any more."""

        class Killed(BaseException):
            pass

        sleep = world.clock.sleep

        def until(seconds):
            if world.clock.now_s() >= after_s:
                raise Killed
            sleep(seconds)

        profiling = world.profile(**settings)
        profiling._copies.clear = lambda: ()
        world.clock.sleep = until
        with pytest.raises(Killed):
            profiling.run()
        world.clock.sleep = sleep


@pytest.mark.fast
def test_a_live_job_that_stands_still_without_input_is_behind_in_words():
    timeline = Timeline()
    for at in range(121):
        timeline.add(sample(float(at), offsets(50), committed=offsets(20), lag_records=30))
    given = {"trigger_s": 0.0, "max_lag_s": 90.0, "patience_s": 0.0, "say": print}
    clock = SimpleNamespace(now_s=lambda: 120.0)
    with pytest.raises(
        NotReady, match=r"^orders is behind, although no input arrives, and has not caught up"
    ):
        wait_until_caught_up("orders", lambda name: nullcontext(timeline), clock=clock, **given)


@dataclass(frozen=True)
class Sized:
    """What dealing sees of a copy."""

    plan: Plan


@pytest.mark.fast
class TestDealing:
    @settings(deadline=None)
    @given(st.lists(st.integers(1, 9), unique=True), st.lists(st.integers(1, 9), max_size=6))
    def test_on_the_way_no_more_is_held_than_before_or_after(self, wanted, there):
        probes = [Probe(number, size, 100.0, 30.0, 60.0) for number, size in enumerate(wanted)]
        free = [
            Sized(replace(PLAN, name=f"copy-{number}", scale_out=size)) for number, size in enumerate(there)
        ]
        found, needless = dealing.dealt(probes, free)
        assert sorted(probe.number for probe, _ in found) == list(range(len(probes)))
        used = [copy for _, copy in found if copy is not None]
        assert sorted([*used, *needless], key=str) == sorted(free, key=str)
        assert len(used) == min(len(probes), len(free))
        held = sum(copy.plan.scale_out for copy in used)
        most = max(held, sum(wanted))
        for probe, copy in found:
            assert copy is None or probe.scale_out == copy.plan.scale_out or probe.scale_out not in there
            held += probe.scale_out - (copy.plan.scale_out if copy else 0)
            assert held <= most


NOT_SEEN = Unknown("the warm-up was not over")


@pytest.mark.fast
class TestFirstGuess:
    @pytest.mark.parametrize(
        ("stages", "expected"),
        [
            ([StageTime(1000, 1.25)], {1: 800.0, 2: 1600.0, 4: 3200.0}),  # it grows with its slots
            # Both cost a millisecond per source record: they share the slots, or take turns.
            ([StageTime(1000, 1.0), StageTime(500, 1.0)], {1: 500.0, 2: 1000.0, 4: 2000.0}),
        ],
    )
    def test_stages_share_the_slots(self, stages, expected):
        assert guesses(stages, (1, 2, 4), one_rps=NOT_SEEN) == pytest.approx(expected)

    def test_what_one_executor_processed_counts_for_more_than_its_stages(self):
        small_batches = [StageTime(1000, 4.0), StageTime(500, 4.0)]  # most of it the state, not the records
        assert guesses(small_batches, (2, 4), one_rps=480.0) == pytest.approx({2: 960.0, 4: 1920.0})

    def test_nothing_read_says_nothing(self):
        assert isinstance(guesses([StageTime(0, 1.0)], (1,), one_rps=480.0), Unknown)
