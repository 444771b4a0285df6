"""`headroom status`, `open`, `init`, `onboard`, `--version`, and what every command has in common."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
import webbrowser
from types import SimpleNamespace

import click
import pytest
from command import headroom

from pipelines.command_line import onboard, stages
from pipelines.settings import loading
from pipelines.web.access import make_token
from profiling_jobs.orders import run_order
from tests.pipelines.test_drill_command import TOML, serving


class TestStatus:
    def test_a_job_that_runs_with_its_orders(self, project):
        with serving(project) as service:
            run_order(service.server, "launch", "enrichment")
            service.environment.flow("orders", 600.0)
            with service.environment.hurried(), service.environment.taking_part():
                service.environment.clock.sleep(5.0)
            service.server.evaluate("enrichment")
            assert headroom("pause", "enrichment", "--why", "a look", "--no-wait").exit_code == 0
            with service.environment.hurried(), service.environment.taking_part():
                service.environment.clock.sleep(60.0)
            service.server.evaluate("enrichment")
            result = headroom("status")
            found = json.loads(headroom("status", "--json").stdout)
        assert result.exit_code == 1, "nothing is known of the promise without models"
        gone = json.loads(headroom("status", "--json").stdout)["jobs"]["enrichment"]
        assert (gone["state"], gone["promise"]) == (None, "not evaluated"), "its server has ended"
        header, row = (line.split() for line in result.output.splitlines())
        assert header[:2] == ["job", "size"]
        assert row[:2] == ["enrichment", "2"]
        assert row[-1] == "pause"
        assert max(map(len, result.output.splitlines())) <= 80
        job = found["jobs"]["enrichment"]
        assert (job["state"], job["scale_out"], job["promise"]) == ("running", 2, "not known")
        assert job["load_rps"] == pytest.approx(600.0, rel=0.3)
        assert (job["in_force"], job["ticked_ago_s"] < 60.0) == (["pause"], True)

    def test_a_job_that_was_taken_out_of_the_file_while_it_runs_is_not_left_silently(self, project):
        with serving(project) as service:
            run_order(service.server, "launch", "enrichment")
            (project / "headroom.toml").write_text(TOML.replace("[job.enrichment]", "[job.other]"))
            said = "enrichment is not in headroom.toml any more, and runs: `headroom stop enrichment` ends it"
            assert said in " ".join(headroom("status").output.split())
            service.server.context.file.settings = loading.load(project / "headroom.toml", environment={})
            found = json.loads(headroom("status", "--json").stdout)
            assert (found["removed"], list(found["jobs"])) == (["enrichment"], ["other"])
            assert json.loads(headroom("status", "other", "--json").stdout)["removed"] == []
            assert headroom("stop", "enrichment").exit_code == 0
            assert headroom("stop", "odd").exit_code == 2
            assert json.loads(headroom("status", "--json").stdout)["removed"] == []

    def test_of_jobs_that_the_file_does_not_name_those_that_can_be_stopped_here_are_told(
        self, project, monkeypatch
    ):
        states = {"theirs": ("running", True), "ended": ("stopped", False), "broken": ("failed", False)}
        jobs = {name: {"state": state, "elsewhere": at} for name, (state, at) in states.items()}
        said = {"jobs": jobs, "removed": ["gone"], "orders": []}
        monkeypatch.setattr("pipelines.operating.status.server_status", lambda folder, **more: (said, ""))
        assert json.loads(headroom("status", "--json").stdout)["removed"] == ["broken", "gone"]

    def test_what_keeps_the_server_from_evaluating_is_told(self, project, monkeypatch):
        said = {"jobs": {}, "orders": [], "problem": "the disk is full: nothing is evaluated"}
        monkeypatch.setattr("pipelines.operating.status.server_status", lambda folder, **more: (said, ""))
        assert "the disk is full: nothing is evaluated" in headroom("status").output
        assert json.loads(headroom("status", "--json").stdout)["problem"] == said["problem"]

    def test_without_a_server_it_says_so(self, project):
        result = headroom("status")
        assert result.exit_code == 1
        said = "no server runs for .headroom, nothing is evaluated: start it with `headroom serve`"
        assert said in " ".join(result.output.split())
        assert "not evaluated" in result.output
        assert headroom("status", "enrich").exit_code == 2


class TestInit:
    def test_what_the_script_spells_out_stands_in_the_file(self, project):
        (project / "clicks.py").write_text(
            'reader.option("subscribe", "clicks,views")\nwriter.option("topic", "answers")\n'
            'writer.trigger(processingTime="1 second")\n'
        )
        (project / "headroom.toml").unlink()
        assert headroom("init", "clicks.py").exit_code == 0
        job = loading.load(project / "headroom.toml", environment={}).jobs["clicks"]
        assert (job.inputs, job.outputs) == ({"clicks": "clicks", "views": "views"}, {"results": "answers"})
        assert (job.trigger_s, job.mode) == (1.0, "recommend")
        assert headroom("check").exit_code == 0
        again = headroom("init", "clicks.py", "--json")
        assert (again.exit_code, "is there and stays" in json.loads(again.stdout)["error"]) == (2, True)

    def test_what_it_does_not_spell_out_is_to_be_filled_in(self, project):
        (project / "My Job.py").write_text("main()")
        result = headroom("init", "My Job.py", "--file", "new.toml")
        assert result.exit_code == 1
        written = (project / "new.toml").read_text()
        assert 'inputs = {events = "FILL-IN"}' in written
        assert '# {results = "TOPIC"} if it writes to Kafka' in written
        assert "[job.my-job]" in written
        assert "headroom serve --file new.toml --launch my-job" in " ".join(result.output.split())
        checked = headroom("check", "--file", "new.toml")
        assert checked.exit_code == 1
        assert "job.my-job.inputs.events: is not filled in" in checked.output

    def test_the_options_of_the_script_get_what_their_names_say(self, project):
        (project / "clicks.py").write_text(
            "for name in ('--in', '--out', '--checkpoint', '--bootstrap-servers', '--region'):\n"
            "    parser.add_argument(name, required=True)\n"
            "parser.add_argument('--verbose', action='store_true')\n"
        )
        (project / "headroom.toml").unlink()
        result = headroom("init", "clicks.py")
        assert result.exit_code == 1
        assert "does not spell out inputs, outputs, --region" in " ".join(result.output.split())
        job = tomllib.loads((project / "headroom.toml").read_text())["job"]["clicks"]
        assert " ".join(job["args"]) == (
            "--in {input_topic} --out {output_topic} --checkpoint {checkpoint} --bootstrap-servers {brokers} "
            "--region FILL-IN"
        )
        told = headroom("check").output
        for key in ("inputs.events", "outputs.results", "args"):
            assert f"job.clicks.{key}: " in told
        started = headroom("serve", "--launch", "clicks")
        assert (started.exit_code, "job.clicks.args: has FILL-IN in it" in started.output) == (2, True)

    @pytest.mark.parametrize(
        ("window", "length_s", "event_time"),
        [
            ('F.window("timestamp", "10 minutes", "1 minute")', 600.0, "kafka-timestamp"),
            ('window(F.col("at"), "30 seconds")', 30.0, "at"),
            ("window(moment, length)", 0.0, None),
        ],
    )
    def test_the_windows_of_the_script(self, project, window, length_s, event_time):
        (project / "clicks.py").write_text(f'reader.option("subscribe", "clicks")\ngroups = {window}\n')
        (project / "headroom.toml").unlink()
        assert headroom("init", "clicks.py").exit_code == 0
        job = loading.load(project / "headroom.toml", environment={}).jobs["clicks"]
        assert (job.longest_window_s, job.event_time) == (length_s, event_time)
        assert job.max_offsets_per_trigger is None

    def test_the_largest_batch_of_the_script(self, project):
        (project / "clicks.py").write_text('a.option("subscribe", "b").option("maxOffsetsPerTrigger", 700)')
        (project / "headroom.toml").unlink()
        assert headroom("init", "clicks.py").exit_code == 0
        job = loading.load(project / "headroom.toml", environment={}).jobs["clicks"]
        assert job.max_offsets_per_trigger == 700

    def test_a_name_for_each_topic_also_where_theirs_are_alike(self, project):
        (project / "clicks.py").write_text("spark.readStream")
        (project / "headroom.toml").unlink()
        result = headroom("init", "clicks.py", "--input", "a.b,a-b", "--input", "a_b", "--output", "c")
        assert result.exit_code == 0, result.output
        job = loading.load(project / "headroom.toml", environment={}).jobs["clicks"]
        assert job.inputs == {"a_b": "a.b", "a_b_2": "a-b", "a_b_3": "a_b"}
        assert job.args[:4] == ("{input:a_b}", "{input:a_b_2}", "{input:a_b_3}", "{output_topic}")

    def test_the_script_is_named_from_the_folder_of_the_file(self, project):
        (project / "conf").mkdir()
        (project / "clicks.py").write_text('spark.readStream.option("subscribe", "clicks")')
        assert headroom("init", "clicks.py", "--file", "conf/headroom.toml").exit_code == 0
        assert headroom("check", "--file", "conf/headroom.toml").exit_code == 0

    def test_an_existing_file_is_written_over_with_force_only(self, project):
        (project / "clicks.py").write_text('spark.readStream.option("subscribe", "clicks")')
        before = (project / "headroom.toml").read_text()
        assert headroom("init", "clicks.py", "--yes").exit_code == 2
        assert (project / "headroom.toml").read_text() == before
        assert headroom("init", "clicks.py", "--yes", "--force").exit_code == 0
        assert "[job.clicks]" in (project / "headroom.toml").read_text()

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["absent.py"], "'absent.py' does not exist"),
            ([], "Missing argument 'SCRIPT'"),
            (["broken.py"], "broken.py: is no Python program that could run (line 2: "),
            (["job.jar"], "job.jar: is no Python program"),
            (["clicks.py", "--input", "a b"], "--input: 'a b' is no name of a topic"),
            (["clicks.py", "--brokers", "here"], "--brokers: 'here' is no address of a broker: write HOST"),
            (["clicks.py", "--job", "9"], "name it with --job"),
        ],
    )  # fmt: skip
    def test_what_it_cannot_use_is_one_sentence_and_nothing_is_written(self, project, arguments, said):
        (project / "clicks.py").write_text('spark.readStream.option("subscribe", "clicks")')
        (project / "broken.py").write_text("spark.readStream\ndef (:\n")
        (project / "job.jar").write_bytes(b"PK\x03\x04\x00\x00")
        (project / "headroom.toml").unlink()
        result = headroom("init", *arguments)
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())
        assert not (project / "headroom.toml").exists()

    def test_what_may_not_work_is_a_warning(self, project):
        (project / "clicks.py").write_text('x.option("subscribe", "clicks")')
        (project / "headroom.toml").unlink()
        result = headroom("init", "clicks.py", "--brokers", "127.0.0.1:1", "--json")
        assert result.exit_code == 0
        source, *_, brokers = json.loads(result.stdout)["warnings"]
        assert source.startswith("clicks.py has no readStream: ")
        assert brokers.startswith("nothing listens on 127.0.0.1:1 → ")
        assert loading.load(project / "headroom.toml", environment={}).brokers.bootstrap == "127.0.0.1:1"
        assert (
            "warning: nothing listens"
            in headroom("init", "clicks.py", "--brokers", "127.0.0.1:1", "--force").output
        )

    def test_on_a_terminal_it_asks_for_what_is_not_given(self, project, monkeypatch):
        monkeypatch.setattr("pipelines.command_line.options.on_terminal", lambda: True)
        (project / "clicks.py").write_text('spark.readStream.option("subscribe", "clicks")')
        (project / "headroom.toml").unlink()
        answers = [
            "absent.py",
            "clicks.py",
            "",
            "answers, not these",
            "answers,others",
            "here",
            "127.0.0.1:1",
        ]
        result = headroom("init", input="\n".join(answers))
        assert result.exit_code == 0, result.output
        for said in (
            "'absent.py' does not exist",
            "[clicks]",
            "'not these' is no name",
            "'here' is no address",
        ):
            assert said in result.output
        found = loading.load(project / "headroom.toml", environment={})
        job = found.jobs["clicks"]
        assert (job.inputs, found.brokers.bootstrap) == ({"events": "clicks"}, "127.0.0.1:1")
        assert job.outputs == {"answers": "answers", "others": "others"}
        given = ("--input", "a", "--output", "b", "--brokers", "127.0.0.1:1", "--force")
        for unasked in (("clicks.py", "--force", "--yes"), ("clicks.py", *given)):
            assert headroom("init", *unasked, input="").exit_code == 0


def _step(name, code, done, said="{}"):
    @click.command(name, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments):
        done.append((name, *arguments))
        click.echo(said)
        raise click.exceptions.Exit(code)

    return command


class TestOnboard:
    @pytest.fixture
    def done(self, project, monkeypatch):
        """The steps that were run; each answers as `codes` says."""
        done, codes = [], {"record": 0, "profile": 0, "drill": 1, "model": 0}
        steps = {name: _step(name, code, done, f'{{"{name}": 1}}') for name, code in codes.items()}
        monkeypatch.setattr(stages, "STEPS", steps)
        return done

    @staticmethod
    def names(done):
        found = [one[0] for one in done]
        done.clear()
        return found

    def test_the_four_steps_in_a_row_and_where_it_ended(self, done):
        result = headroom("onboard", "enrichment", "--for", "5m")
        assert result.exit_code == 0
        assert re.search(r"record +6 min +– +5 min of orders\n", result.output)
        assert re.search(
            r"\[2/4\] headroom profile enrichment: about \d+ min, \d+ min to the end", result.output
        )
        assert [one[-2:] for one in done if "--for" in one] == [("--for", "5m")]
        assert self.names(done) == ["record", "profile", "drill", "model"]
        stages.STEPS["profile"] = _step("profile", 1, done)
        ended = headroom("onboard", "enrichment", "--from", "profile")
        assert (ended.exit_code, self.names(done)) == (1, ["profile"])
        assert "go on with: headroom onboard enrichment --from profile" in ended.output

    def test_one_that_was_interrupted_goes_on_there_within_a_day(self, done, monkeypatch):
        right = stages.STEPS["profile"]
        stages.STEPS["profile"] = _step("profile", 1, done)
        assert headroom("onboard", "enrichment").exit_code == 1
        assert self.names(done) == ["record", "profile"]
        stages.STEPS["profile"] = right
        with monkeypatch.context() as later:
            now_s = time.time()
            later.setattr(onboard, "time", SimpleNamespace(time=lambda: now_s + 90_000.0))
            planned = json.loads(headroom("onboard", "enrichment", "--dry-run", "--json").stdout)
            assert planned["done_before"] == []
        again = headroom("onboard", "enrichment")
        assert again.exit_code == 0
        assert "goes on where it was interrupted, after record" in " ".join(again.output.split())
        assert self.names(done) == ["profile", "drill", "model"]
        assert headroom("onboard", "enrichment").exit_code == 0
        assert len(self.names(done)) == 4, "one that is over begins anew"

    def test_a_dry_run_prints_what_it_will_take_and_does_nothing(self, done, project):
        shown = headroom("onboard", "enrichment", "--dry-run")
        assert (shown.exit_code, done) == (0, [])
        for said in (
            "record",
            "2 min of orders",
            "executor_kill, driver_kill on a copy with 2 executors",
            "in all",
            "No server runs for .headroom, and record needs one",
        ):
            assert said in " ".join(shown.stdout.split())
        assert not (project / ".headroom").exists()
        found = json.loads(headroom("onboard", "enrichment", "--dry-run", "--json").stdout)
        assert [one["step"] for one in found["steps"]] == ["record", "profile", "drill", "model"]
        for one in found["steps"][1:3]:
            assert 0 < one["executor_seconds"] < one["most_executor_seconds"] == 200_000
        refused = headroom("onboard", "nobody", "--dry-run")
        assert (refused.exit_code, "there is enrichment" in refused.output) == (2, True)

    def test_as_json_it_is_one_object_with_what_each_step_has_found(self, done):
        result = headroom("onboard", "enrichment", "--json")
        assert result.exit_code == 0
        found = json.loads(result.stdout)
        assert found["found"] == {name: {name: 1} for name in stages.STEPS}
        assert all(one[-1] == "--json" for one in done)
        stages.STEPS["model"] = _step("model", 1, done)
        ended = headroom("onboard", "enrichment", "--json", "--from", "drill")
        assert (ended.exit_code, json.loads(ended.stdout)["ended_at"]) == (1, "model")

    def test_on_a_terminal_it_asks_first(self, done, monkeypatch):
        monkeypatch.setattr("pipelines.command_line.options.on_terminal", lambda: True)
        refused = headroom("onboard", "enrichment", input="n\n")
        assert (refused.exit_code, done) == (1, [])
        assert "nothing was begun" in refused.output
        assert headroom("onboard", "enrichment", input="\n").exit_code == 0
        assert headroom("onboard", "enrichment", "--yes", input="").exit_code == 0
        assert len(self.names(done)) == 8


def test_open_prints_where_the_pages_are(project, monkeypatch):
    assert headroom("open", "--json").exit_code == 2
    with serving(project) as service:
        no_pages = headroom("open", "--json")
        assert "without --no-pages" in json.loads(no_pages.stdout)["fix"]
        home = service.pages.prepare_home()
        own = "http://127.0.0.1:1"
        where = {"pages": own, "dagster": f"{own}/dagster", "mlflow": "http://models:5000"}
        (home / "pages.json").write_text(json.dumps({"pid": _pid(service), **where}))
        make_token(service.folder, service.settings.web)
        token = (service.folder / "web" / "token").read_text()

        def address(*words):
            return json.loads(headroom("open", *words, "--json").stdout)["address"]

        assert address() == f"{own}/?token={token}"
        assert address("enrichment") == f"{own}/job/enrichment?token={token}"
        decisions = f"{own}/dagster/assets/decision?partition=enrichment&token={token}"
        assert address("enrichment", "--dagster") == decisions
        assert address("--dagster") == f"{own}/dagster/?token={token}"
        assert address("--mlflow") == "http://models:5000/"  # another server's: it gets no token
        opened = []
        monkeypatch.setattr(webbrowser, "open", lambda page: opened.append(page) or True)
        assert headroom("open").stdout == f"{own}/?token={token}\n"
        page = service.folder / "web" / "open.html"
        assert opened == [page.as_uri()]  # a command line is seen by every user
        assert (page.stat().st_mode & 0o777, token in page.read_text()) == (0o600, True)


def _pid(service):
    return json.loads((service.folder / "owner.lock").read_text())["pid"]


def test_a_dry_run_of_cleanup_ends_nothing(project):
    assert headroom("cleanup", "--dry-run").output == "nothing is running\n"
    with serving(project) as service:
        run_order(service.server, "launch", "enrichment")
        assert "add --end-owner" in headroom("cleanup", "--dry-run").output
        found = headroom("cleanup", "--dry-run", "--end-owner")
        assert re.search(r"process \d+: would be ended", found.output)
        assert service.environment.deployments.names() == ("enrichment",)


def test_the_version(project):
    assert re.fullmatch(r"headroom \d+\.\d+\.\d+\n", headroom("--version").output)


@pytest.mark.parametrize(
    ("arguments", "error", "fix"),
    [
        (["explain", "nobody"], "job.nobody: is not in headroom.toml", "there is enrichment"),
        (["history"], "Missing argument 'JOB'.", "see `headroom history --help`"),
        (
            ["status", "--file", "x"],
            "x: there is no such file",
            "write one with `headroom init SCRIPT`, or name the right --file",
        ),
    ],
)
def test_under_json_an_error_is_json(project, arguments, error, fix):
    result = headroom(*arguments, "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout) == {"schema": 1, "error": error, "fix": fix}


def test_ctrl_c_is_130(project):
    program = "import os, signal; from pipelines.command_line import main, status\n"
    program += "status.time = __import__('types').SimpleNamespace(time=lambda: 0.0, sleep=lambda s: "
    program += "os.kill(os.getpid(), signal.SIGINT)); main(['status', '--watch'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert "Traceback" not in done.stderr


def test_no_color_holds_on_a_terminal(monkeypatch):
    from pipelines.command_line import page

    calls = {"isatty": lambda: True, "write": lambda text: None, "flush": lambda: None}
    terminal = SimpleNamespace(encoding="utf-8", **calls)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    said = []
    monkeypatch.setattr(page.click, "echo", lambda text="", **more: said.append(text))
    page.paragraph("wrong", colour="red")
    assert said == ["  wrong"]
