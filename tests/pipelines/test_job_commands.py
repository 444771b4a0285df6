"""`headroom pause`, `pin`, `resume`, `history`, `explain`, as a user calls them on a store of ticks."""

import json
import os
import pwd
import time
from contextlib import nullcontext
from types import SimpleNamespace

import evaluations
import pytest
from command import headroom as called
from evaluations import TWO_JOBS, instruction, record

from models.ports import Control
from pipelines.command_line import directives
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.processes.owner import Owner
from pipelines.settings import times

TOML = TWO_JOBS
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def store(project):
    with SqliteStore(project / ".headroom" / "headroom.sqlite") as store:
        yield store


def evaluation(at_s, *, do="hold", to=None, would=None, reason="fits", **changes):
    given = {
        "instruction": instruction(do, to=to, would=would, reason=reason),
        "observation": {"arrival_rps": 1912.0, "throughput_rps": 1900.0, "lag_records": 5737.0},
        "lag_s": 3.0,
        "promise": {"target_s": 60.0, "confidence": 0.95},
    }
    return evaluations.evaluation(at_s, **given | changes)


def headroom(*arguments):
    result = called(*arguments)
    if "--json" not in arguments and result.exit_code != 2:
        assert max(map(len, result.output.splitlines()), default=0) <= 100
    text = " ".join(result.output.split())
    return SimpleNamespace(code=result.exit_code, text=text, output=result.output)


@pytest.fixture
def serving(project, store, monkeypatch):
    """A server whose next evaluations are those of `serving.ticks`, one each time that a command waits."""
    found = SimpleNamespace(ticks=[], waits=0)

    def sleep(seconds):
        found.waits += 1
        assert found.waits < 10_000, "waits for ever"
        if found.ticks:
            at_s, said = time.time() + 60.0 * found.waits, found.ticks.pop(0)
            record(store, evaluation(at_s, orders=said, reason=f"tick {found.waits}"))

    monkeypatch.setattr(directives, "sleep", sleep)
    with Owner(project / ".headroom", command="headroom serve"):
        yield found


class TestDirectives:
    PAUSED = {"pause": {"who": ME, "why": "deploying 4.2", "until_s": None}}  # noqa: RUF012

    def test_a_pause_is_kept_with_who_and_why_and_ends_by_itself(self, store, serving):
        serving.ticks = [self.PAUSED]
        said = headroom("pause", "orders", "--why", "deploying 4.2", "--for", "2h")
        assert said.code == 0
        (kept,) = store.directives("orders", now_s=time.time())
        assert (kept.kind, kept.who, kept.why) == ("pause", ME, "deploying 4.2")
        assert kept.until_s - kept.since_s == 7200
        assert f"orders is paused until {times.shown(kept.until_s)} (2 h); in force since" in said.text
        assert store.directives("orders", now_s=kept.until_s + 1) == ()

    def test_a_tick_that_was_under_way_is_not_the_one_that_obeys(self, store, serving):
        serving.ticks = [{}, self.PAUSED]
        found = headroom("pause", "orders", "--why", "deploying 4.2", "--json")
        assert found.code == 0
        newest_s = store.evaluations("orders")[-1][0]
        assert json.loads(found.output)["in_force_since_s"] == pytest.approx(newest_s, abs=0.01)

    @pytest.mark.parametrize(
        ("evaluated", "options", "said"),
        [
            ([], [], "was not evaluated for"),
            ([{}] * 3, [], "3 ticks since then have not obeyed it, the last one says “tick 3”"),
            ([{}], ["--for", "30s"], "before any tick: give a longer --for"),
        ],
    )
    def test_what_no_tick_obeys_is_exit_code_1_with_the_reason(
        self, store, serving, evaluated, options, said
    ):
        serving.ticks = list(evaluated)
        result = headroom("pause", "orders", "--why", "x", *options)
        assert result.code == 1
        assert "the pause of orders is stored and not in force: " in result.text
        assert said in result.text
        assert "is paused" not in result.text

    def test_ctrl_c_says_that_it_is_stored(self, store, serving, monkeypatch):
        def interrupt(seconds):
            raise KeyboardInterrupt

        monkeypatch.setattr(directives, "sleep", interrupt)
        result = headroom("pin", "orders", "3", "--why", "x")
        assert result.code == 130
        assert "No longer waiting: the pin of orders to 3 executors is stored" in result.text
        assert len(store.directives("orders", now_s=time.time())) == 1

    def test_a_server_that_does_not_know_the_job_is_told_at_once(self, store, serving, monkeypatch):
        client = SimpleNamespace(status=lambda: {"jobs": {"clicks": {}}})
        monkeypatch.setattr(directives, "Client", lambda folder: client)
        result = headroom("pause", "orders", "--why", "x")
        assert (result.code, serving.waits) == (1, 0)
        assert "`headroom serve` does not know orders, it was started with other settings" in result.text

    def test_without_waiting_it_says_when_the_next_tick_comes(self, store):
        pause = ("pause", "orders", "--why", "x", "--no-wait")
        assert "nothing was evaluated yet, start `headroom serve`" in headroom(*pause).text
        record(store, evaluation(time.time() - 3600))
        assert "the last one was 1 h ago" in headroom(*pause).text
        now_s = time.time() // 60 * 60 + 61  # a minute that has just begun, for a loop that runs ahead
        record(store, evaluation(now_s))
        found = headroom(*pause, "--json")
        assert found.code == 0
        assert 0 < json.loads(found.output)["next_tick_s"] - now_s <= 61

    @pytest.mark.parametrize(
        ("owner", "remedy"),
        [
            ("", "start `headroom serve`"),
            ("headroom serve --no-pages", "which evaluates nothing: start it anew without --no-pages"),
        ],
    )
    def test_where_nothing_evaluates_it_is_stored_and_says_so(self, store, project, owner, remedy):
        with Owner(project / ".headroom", command=owner) if owner else nullcontext():
            paused = headroom("pause", "orders", "--why", "x")
            said = [paused.text, headroom("explain", "orders").text, headroom("history", "orders").text]
        assert paused.code == 1
        assert "stored and not in force: no server evaluates jobs now; it takes effect when one" in said[0]
        assert all(remedy in one for one in said), said

    def test_a_server_that_evaluates_nothing_is_named(self, store, serving):
        for command in ("pause orders --why x", "explain orders", "history orders"):
            said = headroom(*command.split()).text
            assert "`headroom serve` runs: what it prints, or the ticks on Dagster's page, say why" in said

    def test_what_is_replaced_and_what_is_beside_it_is_told(self, store):
        headroom("pin", "orders", "6", "--why", "sale")
        headroom("pause", "orders", "--why", "first")
        said = headroom("pause", "orders", "--why", "second").text
        assert f"It replaces the pause by {ME}" in said
        assert "“first”" in said
        assert f"Also in force: the pin to 6 executors by {ME}" in said
        again = headroom("pin", "orders", "7", "--why", "larger sale").text
        assert "A pause outranks a pin" in again
        kept = {one.kind: one.value for one in store.directives("orders", now_s=time.time())}
        assert kept == {"pause": None, "pin": 7}

    def test_resume_ends_everything_and_says_what(self, store, serving):
        serving.ticks = [{"pin": {"who": ME, "why": "sale"}}, self.PAUSED, {}]
        headroom("pin", "orders", "6", "--why", "sale")
        headroom("pause", "orders", "--why", "deploying 4.2")
        state = {
            "control": {
                "foreign": {"since_s": 1_795_000_000.0, "found": 3, "ours": 5},
                "quarantined": [
                    {"scale_out": 7, "since_s": 1.0, "until_s": time.time() + 900, "direction": "out",
                     "why": "it had not taken effect"},
                    {"scale_out": 8, "since_s": 1.0, "until_s": 2.0, "direction": "out", "why": "long over"},
                ],
            }
        }  # fmt: skip
        store.save_control(Control("orders", 1, state), expected_epoch=None)
        said = headroom("resume", "orders", "--why", "done")
        assert said.code == 0
        assert f"Ended: the pin to 6 executors by {ME}" in said.text
        assert f"Ended: the pause by {ME}" in said.text
        assert "Ours again: the 3 executors that were set from outside" in said.text
        assert "Allowed again: 7 executors and more" in said.text
        assert "long over" not in said.text
        assert store.directives("orders", now_s=time.time() + 3600) == ()
        assert [row["what"] for row in store.audit("orders")] == ["pin", "pause", "resume"]
        assert store.audit("orders")[-1]["why"] == "done"

    def test_resuming_what_nobody_holds_is_no_error_and_is_heard_by_a_clock_that_runs_ahead(self, store):
        ahead_s = time.time() + 7200  # a simulated day passes quickly
        record(store, evaluation(ahead_s))
        said = headroom("resume", "orders", "--why", "to be sure")
        assert (said.code, "there was nothing to end" in said.text) == (0, True)
        assert store.audit("orders")[-1]["at_s"] == ahead_s

    def test_a_pin_that_would_not_be_carried_out(self, store):
        said = headroom("pin", "orders", "9", "--why", "x")
        assert said.code == 2
        assert "9 is outside of job.orders's bounds, 1 to 8" in said.text
        assert store.audit("orders") == ()
        assert "nothing is changed" in headroom("pin", "clicks", "2", "--why", "x").text

    def test_under_sudo_the_person_is_named(self, store, monkeypatch):
        monkeypatch.setattr(os, "getuid", lambda: 0)
        monkeypatch.setenv("SUDO_USER", "anna")
        headroom("pause", "orders", "--why", "x")
        assert store.audit("orders")[0]["who"] == "anna (as root)"


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["pause", "ordres", "--why", "x"], "did you mean orders?"),
            (["explain", "clikcs"], "did you mean clicks?"),
            (["history", "xyz"], "there is clicks, orders"),
            (["pause", "orders"], "--why"),
            (["pause", "orders", "--why", "  "], "--why: is empty"),
            (["pause", "orders", "--why", "x", "--for", "2 weeks"], "not a duration: write for example"),
            (["pause", "orders", "--why", "x", "--for", "1h", "--until", "18:00"], "give one of them"),
            (["pause", "orders", "--why", "x", "--until", "2020-01-01 10:00"], "is over, it is"),
            (["pin", "orders", "0", "--why", "x"], "0 is not in the range"),
            (["pin", "orders", "two", "--why", "x"], "not a valid integer"),
            (["history", "orders", "--since", "soon"], "--since: 'soon' is not a moment"),
            (["history", "orders", "--limit", "0"], "0 is not in the range"),
            (["explain", "orders", "--at", "2099-01-01"], "still to come"),
        ],
    )
    def test_it_is_one_sentence_and_exit_code_2(self, store, arguments, said):
        record(store, evaluation(time.time()))
        result = headroom(*arguments)
        assert result.code == 2
        assert said in result.text
        assert "Traceback" not in result.text

    def test_where_nothing_was_ever_evaluated(self, project):
        for command in ("explain", "history"):
            result = headroom(command, "orders")
            assert result.code == 2
            assert "there is no .headroom/headroom.sqlite" in result.text
        assert not (project / ".headroom").exists(), "asking must not make anything"

    def test_a_broken_file_does_not_keep_anybody_from_pausing(self, project, store):
        record(store, evaluation(time.time()))
        (project / "headroom.toml").write_text(TOML + "scale_out_mx = 3\n")
        for command in ("pause orders --why x --no-wait", "explain orders", "history orders"):
            result = headroom(*command.split())
            assert result.code == 0, result.text
            assert "scale_out_mx" in result.text
            assert "going on with what is stored" in result.text
        assert headroom("pause", "nobody", "--why", "x").code == 2
        record(store, evaluation(time.time(), job="old"))  # one that has left the file
        assert headroom("explain", "old").code == 0


class TestHistory:
    def test_a_line_each_the_newest_last(self, store):
        start_s = times.moment_s("2026-11-17 23:58", now_s=2e9, toward="past")
        record(
            store,
            evaluation(start_s, reason="hold 4 executors: forecast 2k rps fits 4k"),
            evaluation(start_s + 60, do="scale", to=6, reason="scale out from 4 to 6 executors: more load"),
            evaluation(start_s + 120, scale_out=6, alarms=["no size keeps the promise"]),
            evaluation(start_s + 180, mode="recommend", would=2),
        )
        said = headroom("history", "orders")
        assert said.code == 0
        lines = said.output.splitlines()
        assert lines[0] == "orders: 4 evaluations, Tue 17 Nov 2026 – Wed 18 Nov 2026, times in CET"
        assert lines[2].split() == "23:58:00 1,912 3.0 4 hold forecast 2k rps fits 4k".split()
        assert lines[3].split()[:6] == ["23:59:00", "1,912", "3.0", "4", "4", "→"]
        assert "── Wed 18 Nov 2026 ──" in lines[4]
        assert lines[6].split() == ["ALARM", *"no size keeps the promise".split()]
        assert "would 4 → 2" in lines[7]
        assert len(headroom("history", "orders", "--limit", "1").output.splitlines()) == 3
        assert len(headroom("history", "orders", "--changes").output.splitlines()) == 7
        since = times.shown(start_s + 120)[:16]
        assert headroom("history", "orders", "--since", since).text.startswith("orders: 2 evaluations")

    def test_neighbours_that_are_alike_share_a_line(self, store):
        start_s = times.moment_s("2026-11-17 12:00", now_s=2e9, toward="past")
        loads = (1912.0, 1850.0, 2010.0)
        for number, rps in enumerate(loads):
            why = f"hold 4 executors: forecast {number}–1.{number}k rps fits 4k"
            seen = {"arrival_rps": rps, "throughput_rps": rps, "lag_records": 0.0}
            record(store, evaluation(start_s + 60 * number, reason=why, observation=seen))
        record(store, evaluation(start_s + 180, reason="hold 4 executors: cool-down"))
        found = headroom("history", "orders").output.splitlines()
        assert found[2].split()[:6] == ["12:00:00", "1,850–2,010", "3.0", "4", "hold", "×3"]
        assert found[3].endswith("cool-down")
        assert len(headroom("history", "orders", "--every").output.splitlines()) == 6
        assert len(json.loads(headroom("history", "orders", "--json").output)["evaluations"]) == 4

    def test_numbers_ranges_and_durations_do_not_make_a_reason_another_one(self, store):
        start_s = times.moment_s("2026-11-17 12:00", now_s=2e9, toward="past")
        for number, (ago, rate) in enumerate((("28 min 30 s", "714–1.3k"), ("29 min", "1.2k"), ("2 h", "9"))):
            why = f"hold 4 executors: fewer were too few {ago} ago, forecast {rate} records/s"
            record(store, evaluation(start_s + 60 * number, reason=why))
        (line,) = headroom("history", "orders").output.splitlines()[2:]
        assert "×3" in line

    def test_an_alarm_that_goes_on_is_shown_once_with_its_newest_numbers(self, store):
        start_s = times.moment_s("2026-11-17 12:00", now_s=2e9, toward="past")
        for number, held in enumerate(("5 min", "5 min 30 s", "6 min")):
            record(store, evaluation(start_s + 60 * number, alarms=[f"held for {held} already"]))
        first, alarm = headroom("history", "orders").output.splitlines()[2:]
        assert ("×3" in first, alarm.endswith("ALARM    held for 6 min already")) == (True, True)

    def test_nothing_is_exit_code_1(self, store):
        assert headroom("history", "orders").code == 1
        record(store, evaluation(time.time() - 7200))
        result = headroom("history", "orders", "--since", "1h")
        assert (result.code, "nothing was evaluated since" in result.text) == (1, True)

    def test_what_another_version_has_written(self, store):
        store.record_evaluation("orders", interval=1, at_s=time.time(), evaluation={"schema": 99})
        assert "another version" in headroom("history", "orders").text
        result = headroom("explain", "orders")
        assert (result.code, "another version" in result.text) == (2, True)


class TestExplain:
    def test_the_newest_and_the_one_in_force_at_a_moment(self, store):
        now_s = time.time()
        record(store, evaluation(now_s - 600, reason="as it was"), evaluation(now_s - 5, reason="as it is"))
        said = headroom("explain", "orders")
        assert said.code == 0
        assert "as it is" in said.text
        assert times.shown(now_s - 5) in said.text
        for title in ("What was seen", "Why 4", "Why not one less", "What would change it"):
            assert f"\n{title}\n" in said.output
        assert "as it was" in headroom("explain", "orders", "--at", "8m").text
        before = headroom("explain", "orders", "--at", "2h")
        assert (before.code, "nothing was evaluated up to" in before.text) == (1, True)
        assert json.loads(headroom("explain", "orders", "--at", "2h", "--json").output)["why_not"]
        assert max(map(len, said.output.splitlines())) <= 100

    def test_as_json_with_the_whole_evaluation_and_in_words_when_it_is_old(self, store):
        record(store, evaluation(time.time() - 3600))
        assert "this may be out of date" in headroom("explain", "orders").text
        record(store, evaluation(time.time(), do="scale", to=6))
        data = json.loads(headroom("explain", "orders", "--json").output)
        assert (data["done"], data["chosen"]) == ("goes from 4 to 6 executors", 6)
        assert data["evaluation"]["instruction"]["to"] == 6
