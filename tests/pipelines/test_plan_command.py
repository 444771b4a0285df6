"""`headroom plan`, as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import headroom

from bench._truths_planning import JOBS, measured
from pipelines.command_line import COMMANDS

GRID = [(s, m) for s in (4, 8, 14, 22, 34, 48) for m in (512.0, 4_096.0)]
HEADER = "task_slots,memory_mb,sustained_rps\n"


@pytest.fixture
def write(tmp_path):
    def write(text, *, encoding="utf-8"):
        path = tmp_path / "runs.csv"
        path.write_text(text, encoding=encoding)
        return str(path)

    return write


@pytest.fixture
def runs(write):
    rows = measured(JOBS["sqrt"], GRID, noise=0.03, seed=1)
    return write(HEADER + "".join(f"{m.task_slots},{m.memory_mb:g},{m.sustained_rps:.0f}\n" for m in rows))


def plan(*arguments, **more):
    return headroom("plan", *arguments, **more)


class TestAnswers:
    def test_slots_per_candidate_the_choice_and_the_interval(self, runs):
        done = plan("--measurements", runs, "--target-rps", "5000000")
        assert done.exit_code == 0, done.output
        assert "5,500,000" in done.output
        for word in "linear|log1p|sqrt|512|4096|(sqrt)|90 % interval|times the largest".split("|"):
            assert word in done.output

    def test_json_holds_the_same(self, runs):
        done = plan("--measurements", runs, "--target-rps", "5e6", "--json")
        data = json.loads(done.stdout)
        assert done.exit_code == 0
        assert data["choice"] == "sqrt"
        assert data["asked_rps"] == pytest.approx(5.5e6)
        assert [p["memory_mb"] for p in data["profiles"]] == [512.0, 4_096.0]
        for profile in data["profiles"]:
            truth = JOBS["sqrt"].slots(5.5e6, profile["memory_mb"])
            assert profile["interval"]["low"] <= truth <= profile["interval"]["high"]
            assert profile["task_slots"] == profile["candidates"]["sqrt"]["task_slots"]
            assert set(profile["candidates"]) == {"linear", "log1p", "sqrt"}

    def test_undetermined_is_an_answer_with_all_candidates(self, write):
        few = write(HEADER + "4,512,100\n24,512,540\n48,512,1000\n48,512,1010\n")
        done = plan("--measurements", few, "--target-rps", "2000")
        assert done.exit_code == 0
        assert "undetermined" in done.output
        assert "measure more between the ends" in done.output
        data = json.loads(plan("--measurements", few, "--target-rps", "2000", "--json").stdout)
        assert data["choice"] == "undetermined"
        assert data["profiles"][0]["task_slots"] is None
        assert data["profiles"][0]["candidates"]["linear"]["task_slots"] > 48

    def test_standard_input_will_do(self):
        text = HEADER + "2,1,100\n4,1,205\n8,1,400\n"
        done = plan("--measurements", "-", "--target-rps", "900", input=text)
        assert done.exit_code == 0, done.output

    def test_columns_may_be_in_any_order_with_others_between(self, write, runs):
        text = Path(runs).read_text().splitlines()[1:]
        swapped = "run,sustained_rps,memory_mb,task_slots\n" + "".join(
            f"{i},{','.join(reversed(line.split(',')))}\n" for i, line in enumerate(text)
        )
        options = ("--target-rps", "5e6", "--json", "--measurements")
        before = plan(*options, runs).stdout
        assert plan(*options, write(swapped, encoding="utf-8-sig")).stdout == before

    def test_the_answer_is_no_when_nothing_reaches_the_rate(self, write):
        falling = write(HEADER + "2,512,100\n4,512,90\n8,512,80\n16,512,70\n")
        done = plan("--measurements", falling, "--target-rps", "1000")
        assert done.exit_code == 1
        assert "more slots do not raise the rate" in done.output


class TestWhatCannotRun:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", ("line 1", "column task_slots is missing", "task_slots,memory_mb,sustained_rps")),
            ("task_slots;memory_mb;sustained_rps\n1;2;3\n", ("line 1", "separated by commas")),
            ("task_slots,memory_mb\n1,2\n", ("line 1", "column sustained_rps is missing")),
            (HEADER, ("no measurements",)),
            (HEADER + "4,512,100\n\n8,512,many\n", ("line 4", "column sustained_rps", "'many' is not a num")),
            (HEADER + "4,512\n", ("line 2", "column sustained_rps", "is empty")),
            (HEADER + "0,512,100\n", ("line 2", "column task_slots", ">= 1")),
            (HEADER + "4.5,512,100\n", ("line 2", "column task_slots", "whole")),
            (HEADER + "4,-1,100\n", ("line 2", "column memory_mb")),
            (HEADER + "4,512,nan\n", ("line 2", "column sustained_rps", "finite")),
        ],
    )
    def test_a_bad_file_is_refused_with_line_and_column(self, write, text, words):
        done = plan("--measurements", write(text), "--target-rps", "1000")
        assert done.exit_code == 2
        assert all(word in done.output for word in words), done.output
        assert "Traceback" not in done.output

    def test_a_file_that_is_not_there_or_no_text(self, tmp_path):
        path = tmp_path / "runs.csv"
        path.write_bytes(b"\xff\xfe\x00\x01")
        assert plan("--measurements", str(path), "--target-rps", "1000").exit_code == 2
        done = plan("--measurements", "nowhere.csv", "--target-rps", "1000")
        assert (done.exit_code, "nowhere.csv" in done.output) == (2, True)

    @pytest.mark.parametrize("rps", ["0", "nan", "1 --margin -0.1", "1 --margin inf", ""])
    def test_a_question_that_cannot_be_is_refused(self, runs, rps):
        done = plan("--measurements", runs, *(f"--target-rps {rps}".split() if rps else ()))
        assert done.exit_code == 2
        assert "--margin" in done.output or "--target-rps" in done.output


class TestTheGroup:
    def test_help_lists_every_command_and_every_command_exists(self):
        done = headroom("--help")
        assert done.exit_code == 0
        wrong = headroom("plant")
        assert (wrong.exit_code, "did you mean plan?" in wrong.output) == (2, True)
        for name in COMMANDS:
            assert name in done.output
            shown = headroom(name, "--help")
            assert shown.exit_code == 0
            assert max(map(len, shown.output.splitlines())) <= 80

    def test_help_imports_no_command(self):
        code = (
            "import sys\nfrom pipelines.command_line import main\n"
            "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
            "heavy = {'numpy', 'dagster', 'pyspark', 'mlflow', 'pipelines.command_line.plan'}\n"
            "loaded = heavy & set(sys.modules)\n"
            "sys.exit(f'loaded {loaded}' if loaded else 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
