"""`make bench-real` on the stepped twin: every part runs, is resumed, and tells what it saw."""

import json
from collections import Counter

import pytest
from memory_registry import MemoryRegistry

from bench.real import drills, journal, promises, report
from bench.real.__main__ import PARTS, main, measure, write
from bench.real.counting import Counted
from bench.real.lab import Lengths
from models.quantities import Interval, Unknown

SHORT = Lengths(
    sizes=(1, 2),
    unseen=3,
    probe_s=20.0,
    most_probes=2,
    sustain_s=60.0,
    overload_s=30.0,
    together=((1, 2),),
    word_count_rps=500.0,
    online_step_s=20.0,
    online_shares=(0.2, 0.5, 0.35),
    drill_shares=(0.3, 0.5),
    day_s=300.0,
)


@pytest.fixture
def folder(tmp_path, no_latency):
    return tmp_path


def run(folder, *names, **options):
    measure(
        list(names) or [name for name in PARTS if name != promises.NAME],
        folder=folder / "world",
        lengths=SHORT,
        kind="simulated",
        results=folder / "real.json",
        **options,
    )
    return json.loads((folder / "real.json").read_text())["parts"]


def value(part, name):
    (found,) = [one["value"] for one in part["figures"] if one["name"].startswith(name)]
    return found


def test_all_parts_and_what_they_tell(folder, capsys):
    parts = run(folder)
    assert set(parts) == set(PARTS) - {promises.NAME}
    assert value(parts["capacity"], "error of the predicted one") < 10.0
    assert value(parts["sustain"], "sizes that sustain 95 %") == 2
    assert value(parts["sustain"], "sizes that do not sustain 120 %") == 2
    assert value(parts["online"], "enrichment: limit detected") == 1
    assert value(parts["drills"], "cells of kind and rate") == 6
    assert len(parts["drills"]["rows"]) == len(drills.cells(SHORT)) == 9
    assert value(parts["rescales"], "kafka sink: records lost") == 0
    assert "minutes, less what was measured before" in capsys.readouterr().out
    measured = (folder / "world" / "pieces.jsonl").read_text()

    assert run(folder) == parts  # nothing is measured twice
    assert (folder / "world" / "pieces.jsonl").read_text() == measured

    again = run(folder, "sustain", again=["sustain"])
    assert [one["name"] for one in again["sustain"]["figures"]] == [
        one["name"] for one in parts["sustain"]["figures"]
    ]
    assert (folder / "world" / "pieces.jsonl").read_text() != measured


def test_promises_of_a_live_job_beside_the_largest_size(folder, monkeypatch):
    monkeypatch.setattr(promises, "DAYS", {"headroom": 1, "static-max": 1})
    monkeypatch.setattr(promises, "registry", lambda lab: MemoryRegistry())
    part = run(folder, promises.NAME)[promises.NAME]
    arms = [row[0] for row in part["rows"]]
    assert arms == ["headroom", "headroom", "static-max", "static-max"], "two failures a day, none left out"
    assert {row[2] for row in part["rows"] if row[0] == "static-max"} == {4}
    assert value(part, "saved beside") > 0.0
    assert value(part, "recoveries inside") >= 50.0


@pytest.mark.fast
def test_the_failures_of_a_day_are_the_same_in_every_arm():
    days = [promises.failures(day, count=8) for day in range(3)]
    assert days == [promises.failures(day, count=8) for day in range(3)]
    kinds = Counter(kind for day in days for _, kind in day)
    assert kinds == dict.fromkeys(promises.KINDS, 8)
    assert promises.load_share(721.0, day_s=1200.0) == 2.0 * promises.load_share(719.0, day_s=1200.0)


def test_what_was_finished_before_it_stopped_is_kept(folder, monkeypatch):
    def stop(lab):
        raise KeyboardInterrupt

    monkeypatch.setattr(drills, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        run(folder, "capacity", "drills")
    monkeypatch.undo()
    kept = journal.Journal(folder / "world" / "pieces.jsonl")
    assert list(kept.of("capacity")) == ["profile", "unseen"]


@pytest.mark.fast
def test_a_part_that_is_measured_elsewhere_leaves_the_others(tmp_path):
    results = tmp_path / "real.json"
    known = {"capacity": report.Report("how much", []).to_json()}
    results.write_text(json.dumps({"parts": known}))
    write(journal.Journal(tmp_path / "empty"), results)
    assert json.loads(results.read_text())["parts"] == known


@pytest.mark.fast
def test_pieces_are_there_for_the_next_one_but_for_what_was_forgotten_or_is_torn(tmp_path):
    kept = journal.Journal(tmp_path / "pieces")
    kept.add("drills: invalid", "1", {})
    kept.add("drills", "one", {})
    kept.forget("drills")
    kept.add("drills", "two", {"never": float("inf")})
    with (tmp_path / "pieces").open("a") as file:
        file.write('{"part": "dri')
    journal.Journal(tmp_path / "pieces").add("drills", "three", {})
    again = journal.Journal(tmp_path / "pieces")
    assert list(again.of("drills")) == ["two", "three"]
    assert again.get("drills", "two")["never"] == float("inf")
    assert not again.of("drills: invalid")
    assert '"one"' in (tmp_path / "pieces").read_text()


@pytest.mark.fast
@pytest.mark.parametrize(
    ("measured_s", "predicted_s", "error"),
    [(40.0, 30.0, 0.25), (10.0, 5.0, 0.25), (float("inf"), 60.0, 1.0), (40.0, float("inf"), 1.0)],
)
def test_the_error_of_a_drill(measured_s, predicted_s, error):
    assert drills.error(measured_s, Interval(0.0, predicted_s, float("inf"), 0.9)) == pytest.approx(error)
    assert drills.error(measured_s, Unknown("no models")) == 1.0


@pytest.mark.fast
def test_records_are_counted_not_collected():
    asked = Counter({b"1": 1, b"2": 2, b"3": 1, b"5": 1})
    answered = Counter({b"1": 3, b"2": 1, b"4": 1, b"5": 1})
    found = Counted.of(asked, answered)
    assert (found.lost, found.twice, found.unasked) == (2, 2, 1)


@pytest.mark.fast
def test_the_table_stands_between_its_markers(tmp_path):
    one = report.Report("Is it true?", [report.Figure("error", 3.14159, "%", at_most=15.0)], ("a",), [("x",)])
    readme = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    text = report.into(readme, [report.Report.from_json(one.to_json())], "Measured here.")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| error | 3.14 % | ≤ 15: ok |" in text
    with pytest.raises(SystemExit, match="measurements"):
        report.into("nothing", [one], "")


@pytest.mark.fast
def test_the_list_and_a_wrong_name(capsys):
    assert main(["--list"]) == 0
    assert all(name in capsys.readouterr().out for name in ("capacity",))
    with pytest.raises(SystemExit) as refused:
        main(["capcity"])
    assert refused.value.code == 2
    assert "capcity" in capsys.readouterr().err
