"""One probe on one copy of a job.

    warm-up    more input than it can take, for the longest window or state TTL at least, until it is steady
    settling   a low rate (never zero), until lag is back in its band and two small batches were seen
    lead-in    a backlog of one full batch, then the rate that is asked, until lag has stopped falling
    measured   `probe_s` at that rate, and at least five commits; twice as long where that decides nothing,
               for another probe would cost far more

Settling and lead-in are left out where nothing is to be learnt from them: the small batches of this size are
known, and the rate is beyond what the warm-up has shown.

*Steady*: the last batches, cut in two parts of at least two batches and STEADY_S each, show rates (records
over processing time) that differ by no more than STEADY_SHARE. The lead-in comes from above: a job near its
capacity needs a backlog to have batches large enough to keep up.

What was offered is what the broker has counted; a source that reports something else spoils the probe. So
does every doubt of its `Watch`: the result is then invalid, with the reason and without a number.

A probe is a generator: it stops at every `yield` until SAMPLE_S have passed, so that several run side by
side in one thread, on a real clock or a stepped one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from models.arguments import number
from models.errors import Misconfigured, NotReady
from models.ports import Clock
from models.probing import Facts, Probe, Result, judge
from models.quantities import Unknown, executors

from ..telemetry.latency import LatencyWindow
from ..telemetry.timeline import Done, Watch
from .copies import Copy

STEADY_S = 8.0  # judgement: with two batches at least, the least that a trend shows in
STEADY_SHARE = 0.10  # judgement: three times the noise of such a part
SAMPLE_S = 1.0  # judgement: batches take seconds
SPEED_S = 10.0  # judgement: so long a span, or three batches, for the speed of this moment


class Readings:
    """One copy since `began_s`."""

    def __init__(self, watch: Watch, *, began_s: float, trigger_s: float) -> None:
        self._watch, self._began_s, self._trigger_s = watch, began_s, trigger_s

    def steady_rps(self, now_s: float) -> float | Unknown:
        """What it processes, once that does not change any more."""
        done = list(self._watch.timeline.commits(self._began_s, now_s))
        late = _last_part(done)
        early = _last_part(done[: len(done) - len(late) + 1]) if late else []
        if not early:
            return Unknown("too few batches yet")
        first, second = (self._busy_rps(part) for part in (early, late))
        if second <= 0.0 or abs(second - first) > STEADY_SHARE * max(first, second):
            return Unknown(f"{first:,.0f} records/s became {second:,.0f}")
        return second

    def _busy_rps(self, done: list[Done]) -> float:
        """Records over processing time; over all time where the trigger of a batch is unknown."""
        busy_s = sum(seconds for _, seconds in self.batches(done[0].at_s, done[-1].at_s))
        return (done[-1].records - done[0].records) / (busy_s or done[-1].at_s - done[0].at_s)

    def speed_rps(self, now_s: float) -> float:
        """What it processes at the moment; 0 before anything is known."""
        span_s = max(SPEED_S, 3.0 * self.batch_s())
        start_s = max(self._began_s, now_s - span_s) - 1.0
        seen = self._watch.timeline.throughput_rps(start_s, now_s, clip=True)
        return 0.0 if isinstance(seen, Unknown) else seen

    def lag(self) -> float:
        """Records that wait; before the first commit all that has arrived."""
        lag = self._watch.lag_records
        if not isinstance(lag, Unknown):
            return lag
        point = self._watch.timeline.last
        return 0.0 if isinstance(point, Unknown) else float(point.arrived)

    def backlog(self) -> tuple[float, float]:
        """Records that waited when the last batch was over, and the rate at which others came while it ran.

        What came then is no backlog, however long a batch takes. Only where batches are limited is any left.
        """
        done = self._watch.timeline.commits(self._began_s, math.inf)[-2:]
        left = self.troughs(done[-1].at_s, math.inf) if len(done) == 2 else []
        came_rps = self._watch.timeline.arrival_rps(done[0].at_s, done[1].at_s) if left else 0.0
        if not left or isinstance(came_rps, Unknown):
            return self.lag(), 0.0
        return max(0.0, left[-1] - came_rps * (done[1].at_s - done[0].at_s)), came_rps

    def shortest_batch_s(self) -> float:
        """0 before there are two."""
        return min((seconds for _, seconds in self.batches(self._began_s, math.inf)), default=0.0)

    def batch_s(self) -> float:
        """How long the last batches took; 0 before there are two."""
        recent = self._watch.timeline.commits(-math.inf, math.inf)[-4:]
        gaps = sorted(two.at_s - one.at_s for one, two in pairwise(recent))
        return gaps[len(gaps) // 2] if gaps else 0.0

    def troughs(self, from_s: float, to_s: float) -> list[float]:
        """Lag right after each commit."""
        timeline = self._watch.timeline
        found = []
        for done in timeline.commits(from_s, to_s):
            after = timeline.lag_records(done.at_s, done.at_s + 2.0 * SAMPLE_S)
            if after.size and not math.isnan(float(after[0])):
                found.append(float(after[0]))
        return found

    def batches(self, from_s: float, to_s: float) -> tuple[tuple[int, float], ...]:
        """Records and processing seconds of each batch, from its trigger to its commit.

        A late batch starts at the commit of the one before. One in time starts at the boundary of the trigger
        interval before it was planned, as Spark aligns them to the epoch; where that time is unknown, the
        batch is left out.
        """
        found = []
        for before, batch in pairwise(self._watch.timeline.commits(from_s, to_s)):
            start_s = before.at_s
            if self._trigger_s > 0.0:
                if isinstance(batch.planned_at_s, Unknown):
                    continue
                boundaries = math.floor(batch.planned_at_s / self._trigger_s + 1e-9)
                start_s = max(start_s, boundaries * self._trigger_s)
            found.append((batch.records - before.records, batch.at_s - start_s))
        return tuple(found)

    def latency_ms(self, start_s: float, end_s: float) -> float | None:
        """95th percentile over the records that were committed in a stretch."""
        window = LatencyWindow(window_s=end_s - start_s)
        for point in self._watch.timeline.points(self._began_s, end_s):
            sample = point.sample
            window.update(
                sample.at_s,
                head=sample.head,
                log_start=sample.log_start,
                committed=sample.committed,
                commits=sample.commits,
            )
        found = window.p95_ms()
        return None if isinstance(found, Unknown) else found


def _last_part(done: list[Done]) -> list[Done]:
    """The last batches, two at least and STEADY_S long; empty where there are not so many."""
    for start in range(len(done) - 3, -1, -1):
        if done[-1].at_s - done[start].at_s >= STEADY_S:
            return done[start:]
    return []


STOP_S = 5.0  # judgement: a copy holds its executors until its batch is over
LIGHT_SHARES = (0.4, 0.8)  # of the capacity: latency at ease and shortly before it rises; judgement
LIGHT_S = 10.0  # judgement: a percentile over records needs no more
LIGHT_COMMITS = 3  # two whole batches; judgement: it says how old records become, not how many are processed
SURELY = 1.1  # of what the warm-up shows: beyond what a steady warm-up may be off, a rate is not sustained
LOW_SHARE = 0.1  # of what it can process: an idle query would plan no batches at all
FULL_S = 10.0  # judgement: a backlog of so much input, where batches have no limit
TWICE = 2.0  # judgement: and no more looks than these two, or one of them would see what it likes by chance
FEWEST_COMMITS = 5  # four whole batches: one slow batch is then at most a quarter of the rate; judgement
START_S = 240.0  # of a new copy; measured: 14–46 s until the first batch on an idle machine
MORE_S = 120.0  # judgement: so much longer than planned a warm-up may take
MORE_BATCHES = 8  # judgement: twice what the test of steadiness needs
SETTLE_S = 120.0  # judgement: the backlog of a warm-up is worth some 20 s
SMALL_SHARE = 0.5  # of the largest batch: the overhead then shows
SMALL_BATCHES = 2  # judgement: one alone may be an odd one
PREFILL_S = 20.0  # judgement
STALLED = 2.0  # times the usual batch without a commit; judgement
AGREE_SHARE = 0.02  # source against broker; as far as the verdict's own counts may differ
ANSWER_S = 6.0  # the source asks the broker once a second

Steps = Generator[None, None, None]


@dataclass(frozen=True)
class Rules:
    """The settings of the job that probes need."""

    longest_window_s: float = 0.0
    """Longest window or state TTL."""
    warm_up_s: float = 0.0
    """Shortest warm-up of a new copy. (A probe's own `warm_up_s` is what it is planned to cost beside its
    measured stretch: with the start of a copy, settling and lead-in.)"""
    trigger_s: float = 0.0
    limit_records: int | None = None
    """`max_offsets_per_trigger`."""
    most_rps: float = math.inf
    """The highest rate worth asking: what a job can do beyond it is not measured."""

    def __post_init__(self) -> None:
        number("Rules.longest_window_s", self.longest_window_s, at_least=0.0)


class _Spoilt(Exception):
    """The probe is invalid."""


class OverBudget(_Spoilt):
    """The budget of the probe is used up."""


Ended = TypeVar("Ended")


def finish(
    steps: Generator[None, None, Ended], clock: Clock, *, look: Callable[[], None] = lambda: None
) -> Ended:
    """Let a probe run to its end; `look` is called after each step."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: Ended = finished.value
            return result
        clock.sleep(SAMPLE_S)
        look()


class ProbeRun:
    """One probe on one copy, which starts with a warm-up unless it is warm at its size."""

    def __init__(
        self,
        probe: Probe,
        copy: Copy,
        *,
        clock: Clock,
        rules: Rules,
        latency: bool = False,
        left_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`latency`: also measure the latency at LIGHT_SHARES of the capacity that the warm-up shows.

        `left_s`: how long it may still run.
        """
        self.probe = probe
        self.light: tuple[Result, ...] = ()
        """What was measured there; its time counts as the probe's."""
        self.out_of_budget = False
        self.unsteady = False
        """It did not come to rest within its warm-up, as where others use the machine."""
        self.capacity_rps: float | Unknown = Unknown("the warm-up is not over")
        """What it processed at the end of the warm-up, with more input than it could take."""
        self._copy, self._clock, self._rules = copy, clock, rules
        self._watch, self._source = copy.watch, copy.source
        self.batches: tuple[tuple[int, float], ...] = ()
        """Records and processing seconds of its batches, small ones and full ones."""
        self._fresh, self._latency, self._left_s = not copy.measured, latency, left_s
        self._new = self._fresh and not copy.rescaled
        self._complete = copy.measured
        self._commanded: float | None = None
        self._doubted_from = self._warm_s = clock.now_s()
        self._began_s = self._doubted_from if copy.loaded_from_s is None else copy.loaded_from_s
        self._readings = Readings(self._watch, began_s=self._began_s, trigger_s=rules.trigger_s)

    def steps(self) -> Generator[None, None, Result]:
        """Until the result; it never raises for what happens to the copy, only for a wrong setting."""
        try:
            if not (yield from self._warm_up()):
                none = Unknown("it was not measured")
                return judge(self.probe, Facts(none, none, (), (), warm_up_over=False, restarted=False))
            shown_rps = self.capacity_rps
            assert not isinstance(shown_rps, Unknown), "the warm-up has shown it"
            if self._fresh or self._latency or self.probe.rate_rps < SURELY * shown_rps:
                yield from self._settle()
                for share in LIGHT_SHARES if self._latency else ():
                    yield from self._light(share * min(shown_rps, self._rules.most_rps))
                yield from self._lead_in()
            else:
                yield from self._at_rate()
            facts = yield from self._measure()
        except (_Spoilt, NotReady) as spoilt:
            self.out_of_budget = isinstance(spoilt, OverBudget)
            return Result(self.probe, "invalid", reason=str(spoilt) or "it could not be run")
        return judge(self.probe, facts)

    def ready(self, *, at_rate: bool = True) -> Generator[None, None, str]:
        """Warm up, and wait until the copy runs at the probe's rate. Returns what went wrong, or nothing."""
        try:
            if not (yield from self._warm_up()):
                return "the warm-up was not over; allow a longer warm_up_s"
            if at_rate:
                yield from self._settle()
                yield from self._lead_in()
        except (_Spoilt, NotReady) as spoilt:
            return str(spoilt)
        return ""

    # ------------------------------------------------------------------------------------ the four stages

    def _warm_up(self) -> Generator[None, None, bool]:
        rules, timeline = self._rules, self._watch.timeline
        # Of a copy that was rescaled only new executors are cold, and that shows: it is not steady.
        at_least_s = max(rules.longest_window_s, rules.warm_up_s if self._new else 0.0)
        patience_s = START_S if self._fresh else 0.0
        working_s, called_s = self._began_s, self._clock.now_s()
        while True:
            self._saturate()
            yield from self._pass()
            now_s = self._clock.now_s()
            first = timeline.first_commit_after(self._began_s)
            if isinstance(first, Unknown):
                if now_s - self._began_s > max(patience_s, MORE_S):
                    raise _Spoilt(
                        f"no batch was committed within {now_s - self._began_s:.0f} s: "
                        f"{self._watch.status.reason or 'see the log of its driver'}"
                    )
                continue
            working_s = first.at_s if self._fresh else self._began_s
            if self._complete and now_s - working_s >= at_least_s:
                rate = self._readings.steady_rps(now_s)
                if not isinstance(rate, Unknown):
                    self.capacity_rps, self._warm_s = rate, now_s
                    self._copy.loaded_from_s = self._began_s
                    return True
            if now_s - max(working_s, called_s) > at_least_s + max(
                MORE_S, MORE_BATCHES * self._readings.batch_s()
            ):
                self.unsteady = True
                if not self._complete:
                    raise _Spoilt(self._missing())
                return False

    def _settle(self) -> Steps:
        low = max(1.0, LOW_SHARE * self._readings.speed_rps(self._clock.now_s()))
        self._copy.loaded_from_s = None
        self._command(low)
        began_s = self._clock.now_s()
        while self._readings.lag() > low * self._band_s():
            yield from self._pass()
            if self._clock.now_s() - began_s > max(SETTLE_S, 4.0 * self._readings.batch_s()):
                raise _Spoilt(f"lag did not come back into its band at {low:,.0f} records/s")
        # The overhead of a batch shows in small ones beside large ones.
        until_s = began_s + SETTLE_S + 4.0 * self._rules.trigger_s
        while self._clock.now_s() < until_s and not self._saw_small_batches(began_s):
            yield from self._pass()

    def _saw_small_batches(self, since_s: float) -> bool:
        now_s = self._clock.now_s()
        largest = max((records for records, _ in self._readings.batches(self._began_s, now_s)), default=0)
        small = [n for n, _ in self._readings.batches(since_s, now_s) if 0 < n <= SMALL_SHARE * largest]
        return len(small) >= SMALL_BATCHES

    def _light(self, rate_rps: float) -> Steps:
        """The latency at a rate below the capacity; nothing where the job falls behind at it."""
        # The first batches at this rate are over then.
        start_s = self._command(rate_rps) + self._band_s()
        while self._clock.now_s() < start_s:
            yield from self._pass()
        at_least_s = max(min(LIGHT_S, self.probe.probe_s), LIGHT_COMMITS * self._rules.trigger_s)
        facts = yield from self._seen(self._clock.now_s(), at_least_s, newest=1.0, commits=LIGHT_COMMITS)
        offered, processed = facts.achieved_rps, facts.processed_rps
        if isinstance(offered, Unknown) or isinstance(processed, Unknown) or facts.latency_ms is None:
            return
        if min(offered, processed) <= 0.0 or self._readings.lag() > rate_rps * self._band_s():
            return
        light = Result(
            replace(self.probe, rate_rps=rate_rps),
            "sustained",
            offered_rps=offered,
            throughput_rps=min(offered, processed),
            latency_ms=facts.latency_ms,
            executor_seconds=0.0,
            measured_s=facts.measured_s,
        )
        self.light = (*self.light, light)

    def _lead_in(self) -> Steps:
        rate, began_s = self.probe.rate_rps, self._clock.now_s()
        full = min(
            FULL_S * rate, math.inf if self._rules.limit_records is None else self._rules.limit_records
        )
        twice = 2.0 * max(rate, self._readings.speed_rps(self._clock.now_s()))
        self._command(min(twice, max(rate, self._rules.most_rps)))
        while self._readings.lag() < full and self._clock.now_s() - began_s < PREFILL_S:
            yield from self._pass()
        from_s = self._command(rate)
        longest_s = max(PREFILL_S, 0.5 * self.probe.probe_s)
        while True:
            yield from self._pass()
            now_s = self._clock.now_s()
            troughs = self._readings.troughs(from_s, now_s)
            if len(troughs) >= 3 and troughs[-1] >= 0.95 * troughs[-2]:
                return
            if now_s - from_s > longest_s and (len(troughs) >= 2 or now_s - from_s > 3.0 * longest_s):
                return

    def _at_rate(self) -> Steps:
        """The backlog of the warm-up stays; until its rate has given way to that of the probe."""
        from_s = self._command(self.probe.rate_rps)
        while self._clock.now_s() < from_s:
            yield from self._pass()

    def _measure(self) -> Generator[None, None, Facts]:
        start_s, once_s = self._clock.now_s(), self._stretch_s
        facts = yield from self._seen(start_s, once_s)
        undecided = judge(self.probe, facts).verdict == "invalid" and not facts.restarted
        if undecided and self._clock.now_s() - start_s < TWICE * once_s:
            facts = yield from self._seen(start_s, TWICE * once_s)
        return facts

    @property
    def _stretch_s(self) -> float:
        """Length of the measured stretch: enough commits fit into it with any trigger interval."""
        return max(self.probe.probe_s, FEWEST_COMMITS * self._rules.trigger_s)

    def _seen(
        self, start_s: float, at_least_s: float, *, newest: float = 0.5, commits: int = FEWEST_COMMITS
    ) -> Generator[None, None, Facts]:
        """The facts to be judged, once the stretch is as long as that, and so many batches are in it.

        `newest`: the share of the stretch whose latency counts. In the first half of one that began with a
        backlog some of that may still have been worked off.
        """
        timeline = self._watch.timeline
        # Batches that are late are longer than the trigger interval.
        longest_s = TWICE * (self._stretch_s + FEWEST_COMMITS * self._rules.trigger_s)
        while True:
            yield from self._pass()
            now_s = self._clock.now_s()
            done = timeline.commits(start_s, now_s)
            stalled = not done or now_s - done[-1].at_s > STALLED * self._readings.batch_s() + 2.0 * SAMPLE_S
            enough = len(done) >= commits and not stalled
            if now_s - start_s >= (at_least_s if enough else longest_s):
                break
        if stalled:  # something is wrong that was not noticed yet, such as an executor that is frozen
            raise _Spoilt("no batch was committed any more towards the end of the measured stretch")
        end_s = now_s
        said = self._source.achieved(start_s, end_s).achieved_rps
        while isinstance(said, Unknown) and self._clock.now_s() - end_s < ANSWER_S:
            yield from self._pass()
            said = self._source.achieved(start_s, end_s).achieved_rps
        counted = timeline.arrival_rps(start_s, end_s)
        if isinstance(said, Unknown):
            counted = said
        elif not isinstance(counted, Unknown) and abs(said - counted) > AGREE_SHARE * max(said, counted):
            raise _Spoilt(
                f"the source says {said:,.0f} records/s, the broker has counted {counted:,.0f}: "
                "another producer writes into the topic, or the source is wrong"
            )
        self.batches = self._readings.batches(self._warm_s, end_s)
        times_s, lag = timeline.spread_lag(start_s, end_s)
        return Facts(
            achieved_rps=counted,
            processed_rps=timeline.processed_rps(start_s, end_s),
            lag_times_s=times_s,
            lag_records=lag,
            warm_up_over=True,
            restarted=timeline.restarted(start_s, end_s),
            latency_ms=self._readings.latency_ms(end_s - newest * (end_s - start_s), end_s),
            measured_s=end_s - start_s,
        )

    # ------------------------------------------------------------------------------------------- its parts

    def _pass(self) -> Steps:
        yield
        now_s = self._clock.now_s()
        self._watch.look(now_s)
        if self._watch.status.state == "failed":
            raise Misconfigured(f"the job of {self._watch.name}", self._watch.status.reason)
        if not self._complete:  # executors register one by one, offsets are not there yet
            self._complete = self._all_there()
            # The look took a moment, and its doubts carry the time at which the broker answered: a reading
            # in which an executor that was given up is gone for the first time is no loss.
            self._doubted_from = self._clock.now_s() + 1e-3
            if self._watch.status.state in ("restarting", "stopped"):
                raise _Spoilt(f"its driver ended before the first batch: {self._watch.status.reason}")
        elif doubt := self._watch.doubt(self._doubted_from):
            raise _Spoilt(doubt)
        if self._left_s() <= 0.0:
            raise OverBudget("the budget in executor-seconds was used up in the middle of the probe")

    def _all_there(self) -> bool:
        if isinstance(self._watch.timeline.first_commit_after(self._began_s), Unknown):
            return False
        return self._watch.status.executors_alive == self._watch.scale_out and not self._watch.sees_more

    def _missing(self) -> str:
        """Why the copy was not complete within its warm-up."""
        if self._watch.sees_more:
            return "executors that were given up had not left when the warm-up should have been over"
        status, wanted = self._watch.status, executors(self._watch.scale_out, "were")
        alive = "?" if isinstance(status.executors_alive, Unknown) else status.executors_alive
        why = status.reason or "see the log of its driver"
        return f"only {alive} of {wanted} there when the warm-up should have been over: {why}"

    def _command(self, rate_rps: float) -> float:
        if self._commanded is not None and rate_rps == self._commanded:
            return self._clock.now_s()
        self._commanded = rate_rps
        return self._source.set_rate(rate_rps)

    def _saturate(self) -> None:
        """Saturate the copy, but bound the backlog, which has to be worked off afterwards."""
        speed, limit = self._readings.speed_rps(self._clock.now_s()), self._rules.limit_records
        # With an interval trigger a batch is late only with more than the interval's input.
        full = (FULL_S + 2.0 * self._rules.trigger_s) * (speed or self.probe.rate_rps)
        if limit is None:  # a batch takes all that waits, and while it runs as much comes again
            full += 4.0 * self._readings.shortest_batch_s() * speed
            waits, came_rps = self._readings.lag(), 0.0
        else:
            full = max(min(full, 2.0 * limit), 1.0)
            waits, came_rps = self._readings.backlog()
            waits = max(waits, self._readings.lag() - 2.0 * limit)  # known before this batch is over
        if waits < 0.5 * full:
            wanted = max(2.0 * speed, 2.0 * came_rps, self.probe.rate_rps)
        elif waits > full:
            wanted = max(1.0, (0.5 if waits < 2.0 * full else LOW_SHARE) * speed)
        else:
            return
        wanted = min(wanted, self._rules.most_rps)
        if self._commanded is None or not 0.8 <= wanted / self._commanded <= 1.25:
            self._command(wanted)

    def _band_s(self) -> float:
        usual = max(2.0 * self._rules.trigger_s, 2.0 * self._readings.batch_s(), 2.0)
        return usual + SAMPLE_S
