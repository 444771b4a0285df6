"""What becomes of an ordered change: one attempt to carry it out, and what the next tick makes of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from temporary_store import TemporaryStore

from models import control
from models.control import Blackout, Directives, Pause, Settings, State
from models.control.state import Change
from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import NO_MARK, Directive, Lease, Rescaled, Status
from models.promise import Promise
from models.quantities import Unknown
from profiling_jobs.control_loop import applying
from profiling_jobs.control_loop.applying import LEASE_S, Followed, apply, followed, marked, pending
from profiling_jobs.control_loop.context import Loop
from profiling_jobs.control_loop.memory import Memory, Outcome, Tick, outcome, save, save_outcome

pytestmark = pytest.mark.fast

SETTINGS = Settings(promise=Promise(180.0), max_scale_out=12, mode="apply")
NOW_S = 1_000.0
NOT_READ = Unknown("not read")
CHANGE = Change("decision", 4, 6, NOW_S - 5.0, "because", NOT_READ, NOT_READ, NOT_READ, NOT_READ, epoch=7)


@dataclass
class Job:
    """A deployment that does as it is told."""

    declared: int = 4
    alive: int | Unknown = 4
    refuses: Exception | None = None
    silent: Exception | None = None
    scaled: list[tuple[int, int]] = field(default_factory=list)
    slow_s: float = 0.0

    def status(self, name: str) -> Status:
        if self.silent is not None:
            raise self.silent
        return Status("running", self.declared, self.alive, "run-1")

    def scale(self, name: str, scale_out: int, *, epoch: int, path: Any) -> Rescaled:
        time.sleep(self.slow_s)
        if self.refuses is not None:
            raise self.refuses
        self.scaled.append((scale_out, epoch))
        before, self.declared, self.alive = self.declared, scale_out, scale_out
        return Rescaled(path, before, scale_out, 5.0)


class Clock:
    now = NOW_S

    def now_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None: ...


def state(change: Change | None = CHANGE) -> State:
    return replace(control.start(SETTINGS), change=change)


def world(job: Job | None = None, *, change: Change | None = CHANGE, said: Outcome | None = None) -> Loop:
    store = TemporaryStore()
    save(store, "orders", Memory(state(change), epoch=9), expected_epoch=None)
    if said is not None:
        save_outcome(store, "orders", said)
    nothing: Any = None
    return Loop(store, job or Job(), nothing, lambda job: Unknown("none"), Clock())  # type: ignore[arg-type]


def attempt(loop: Loop, **changes: Any) -> Any:
    given = {"epoch": 7, "settings": SETTINGS, "holder": "run-1", **changes}
    return apply("orders", loop=loop, **given)


def said(state: Any, **changes: Any) -> Outcome:
    return replace(Outcome(7, 4, 6, state, NOW_S - 4.0, NOW_S - 4.0), **changes)


def test_an_order_is_carried_out_and_written_down() -> None:
    job = Job()
    loop = world(job)
    done = attempt(loop)
    assert (done.did, done.before, done.to, done.path) == ("scaled", 4, 6, "live")
    assert job.scaled == [(6, 7)]
    told = outcome(loop.store, "orders")
    assert (told.state, told.epoch, told.tries, told.path, told.took_s) == ("done", 7, 1, "live", 5.0)
    again = attempt(loop, holder="run-2")
    assert (again.did, job.scaled) == ("nothing", [(6, 7)])


def test_it_is_carried_out_the_way_the_decision_was_made_for() -> None:
    loop = world()
    done = attempt(loop, settings=replace(SETTINGS, path="restart"))
    assert (done.did, done.path) == ("scaled", "restart")
    assert "restart" in done.reason


@pytest.mark.parametrize(
    ("loop", "changes", "reason"),
    [
        (world(change=None), {}, "no longer ordered"),
        (world(change=replace(CHANGE, epoch=8)), {}, "epoch 8 has taken its place"),
        (world(said=said("done")), {}, "is done already"),
        (world(said=said("refused")), {}, "is refused already"),
        (world(said=said("done", epoch=8)), {}, "epoch 8 of orders is done already"),
        (world(), {"settings": replace(SETTINGS, mode="recommend")}, "mode recommend: nothing is touched"),
        (world(change=replace(CHANGE, at_s=NOW_S - 200.0)), {}, "was ordered 200 s ago"),
        (world(Job(declared=5)), {}, "the size was set to 5 executors meanwhile, and not by us"),
        (world(Job(declared=6, alive=6)), {}, "has 6 executors already"),
    ],
)
def test_what_is_no_longer_to_be_done_is_left_alone(loop: Loop, changes: Any, reason: str) -> None:
    done = attempt(loop, **changes)
    assert done.did == "nothing"
    assert reason in done.reason
    assert loop.deployments.scaled == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "window", "did"),
    [
        (CHANGE, Blackout("payday"), "nothing"),
        (CHANGE, Blackout("payday", scale_out_allowed=True), "scaled"),
        (replace(CHANGE, to=3), Blackout("payday", scale_out_allowed=True), "nothing"),
        (replace(CHANGE, origin="pin"), Blackout("payday"), "scaled"),
        (replace(CHANGE, to=3, origin="rollback"), Blackout("payday", scale_out_allowed=True), "scaled"),
        (replace(CHANGE, to=3, origin="reassert"), Blackout("payday", scale_out_allowed=True), "scaled"),
        (replace(CHANGE, to=3, origin="rollback"), Blackout("payday"), "nothing"),
        (replace(CHANGE, to=6, origin="reassert"), Blackout("payday"), "nothing"),
    ],
)
def test_a_blackout_that_has_begun_meanwhile(change: Change, window: Blackout, did: str) -> None:
    loop = replace(world(change=change), blackout=lambda job, now_s: window)
    assert attempt(loop).did == did


def test_a_rollback_that_had_to_wait_is_not_too_old() -> None:
    change = replace(CHANGE, before=6, to=4, origin="rollback", at_s=NOW_S - 900.0)
    assert attempt(world(Job(declared=6, alive=6), change=change)).did == "scaled"


def test_a_pause_is_obeyed_unless_the_change_is_half_done() -> None:
    pause = Directive("orders", "pause", "ann", "wait", since_s=0.0)
    loop = world()
    loop.store.direct(pause)
    assert attempt(loop).reason == "paused by ann: wait"
    half = world(Job(declared=6, alive=4), said=said("begun"))
    half.store.direct(pause)
    assert attempt(half).did == "scaled"
    assert outcome(half.store, "orders").tries == 2


@pytest.mark.parametrize(
    ("error", "did"),
    [
        (NotReady("busy"), "later"),
        (Unsafe("too old"), "refused"),
        (Misconfigured("spark.slots", "full"), "refused"),
    ],
)
def test_what_the_deployment_says_is_kept(error: Exception, did: str) -> None:
    loop = world(Job(refuses=error))
    assert attempt(loop).did == did
    told = outcome(loop.store, "orders")
    assert (told.state, told.problem) == (did, str(error))
    assert loop.store.claim(Lease("orders", 7, "somebody", NOW_S + 9.0), now_s=NOW_S)  # nobody holds it


def test_a_deployment_that_is_silent_or_gone() -> None:
    assert attempt(world(Job(silent=NotReady("silent")))).did == "later"
    assert attempt(world(Job(silent=Misconfigured("deployment", "there is none")))).did == "refused"


def test_while_one_attempt_holds_the_lease_no_other_acts() -> None:
    loop = world()
    assert loop.store.claim(Lease("orders", 7, "run-0", NOW_S + 9.0), now_s=NOW_S)
    assert attempt(loop).did == "later"
    assert loop.deployments.scaled == []  # type: ignore[attr-defined]
    newer = world()
    assert newer.store.claim(Lease("orders", 8, "run-0", NOW_S + 9.0), now_s=NOW_S)
    newer.store.release(Lease("orders", 8, "run-0", NOW_S + 9.0))
    assert attempt(newer).did == "later"


def test_a_change_that_takes_long_keeps_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "LEASE_S", 0.15)
    loop = world(Job(slow_s=0.3))
    claims: list[float] = []
    claim = loop.store.claim

    def counted(lease: Lease, *, now_s: float) -> bool:
        claims.append(lease.until_s)
        if len(claims) == 2:  # the first time that it is to be prolonged
            raise NotReady("the store is busy")
        return claim(lease, now_s=now_s)

    loop.store.claim = counted  # type: ignore[method-assign]
    assert attempt(loop).did == "scaled"
    assert len(claims) >= 3
    assert not [t for t in threading.enumerate() if t.name.startswith("headroom-lease")]


@pytest.mark.parametrize(
    ("told", "after_s", "key"),
    [
        (None, 0.0, "orders:7:wait0"),
        (None, LEASE_S, "orders:7:wait1"),
        (said("done"), 0.0, None),
        (said("refused"), 0.0, None),
        (said("begun"), 0.0, None),
        (said("begun"), LEASE_S, "orders:7:begun1"),
        (said("later", tries=3), 0.0, "orders:7:later3"),
        (said("done", epoch=6), 0.0, "orders:7:wait0"),
    ],
)
def test_what_has_to_be_launched(told: Outcome | None, after_s: float, key: str | None) -> None:
    tick = Tick("orders", SETTINGS, world(), Memory(state()), told, NOW_S - 4.0 + after_s)
    found = pending(state(), tick)
    assert (None if found is None else found["key"]) == key
    assert pending(state(None), tick) is None


# Whose size it is


SET_SIX = Outcome(7, 4, 6, "done", begun_at_s=90.0, at_s=100.0)


@pytest.mark.parametrize(
    ("scale_out", "ours", "resumed_at_s", "carries", "found"),
    [
        (4, None, 0.0, True, NO_MARK),  # what control expects needs no mark
        (6, None, 0.0, True, False),
        (6, None, 0.0, NO_MARK, NO_MARK),
        (6, SET_SIX, 0.0, NO_MARK, False),
        (6, SET_SIX, 0.0, False, NO_MARK),  # set by us once, by others since
        (6, SET_SIX, 100.0, NO_MARK, NO_MARK),  # what was before a resume says nothing of after it
        (6, SET_SIX, 100.0, True, False),
        (6, replace(SET_SIX, state="refused"), 0.0, NO_MARK, NO_MARK),
        (5, SET_SIX, 0.0, NO_MARK, NO_MARK),
        (Unknown("not read"), SET_SIX, 0.0, True, NO_MARK),
    ],
)
def test_a_size_is_ours_where_we_have_set_it_or_it_carries_our_mark(
    scale_out: Any, ours: Outcome | None, resumed_at_s: float, carries: Any, found: Any
) -> None:
    said = marked(
        Directives(resumed_at_s=resumed_at_s),
        scale_out=scale_out,
        state=replace(control.start(SETTINGS), applied=4),
        ours=ours,
        status=Status("running", scale_out, 4, "run-1", ours=carries),
    )
    assert said.foreign_edit == found


# What the next tick makes of an ordered change


PAUSED = Directives(pause=Pause("ann", "wait"))


ORDERED = Change("decision", 4, 6, 60.0, "because", NOT_READ, NOT_READ, NOT_READ, NOT_READ, epoch=7)


def ordered(origin: Any = "decision", **changes: Any) -> State:
    change = replace(ORDERED, origin=origin, **changes)
    return replace(control.start(SETTINGS), change=change, applied=6)


def follow(
    before: State, *, said: Directives | None = None, now_s: float = 120.0, **outcome: Any
) -> Followed:
    became = Outcome(7, 4, 6, begun_at_s=90.0, at_s=100.0, **outcome) if outcome else None
    return followed(before, outcome=became, said=said or Directives(), now_s=now_s)


def test_a_change_that_waits_still_stands() -> None:
    assert follow(ordered()) == Followed(ordered())


def test_a_rollback_stands_also_while_paused() -> None:
    for said, now_s in ((PAUSED, 120.0), (None, 400.0)):
        assert follow(ordered("rollback"), said=said, now_s=now_s).state.ordered is not None


def test_a_rollback_has_all_its_time_once_nothing_forbids_it() -> None:
    waiting = follow(ordered("rollback"), said=PAUSED, now_s=400.0).state
    assert waiting.change is not None
    assert waiting.change.at_s == 400.0
    assert follow(waiting, now_s=460.0).state == waiting


def test_what_was_begun_is_measured_from_then_and_stands_although_paused() -> None:
    found = follow(ordered(), said=PAUSED, state="later", problem="the driver is silent")
    assert found.state.ordered is not None
    assert found.state.ordered.at_s == 90.0
    assert found.trouble == ("the change from 4 to 6 executors has not worked yet: the driver is silent",)


def test_what_was_refused_is_reported_to_control() -> None:
    change = follow(ordered(), state="refused", problem="no room").state.change
    assert change is not None
    assert change.refused == "no room"


@pytest.mark.parametrize(
    "state",
    [control.start(SETTINGS), ordered(problem="failed"), ordered(took_effect_at_s=100.0)],
)
def test_what_is_over_is_no_longer_ordered(state: State) -> None:
    assert follow(state) == Followed(state)
    assert state.ordered is None
