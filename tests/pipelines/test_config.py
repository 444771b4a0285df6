"""A wrong headroom.toml is told with path, line, what is accepted and the nearest name, all at once."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from models.errors import Misconfigured, Unsafe
from pipelines.settings.concerns import concerns
from pipelines.settings.job_plans import check_order, control_settings
from pipelines.settings.loading import HEADROOM_SETTINGS, SettingsFile, WrongSettings, in_force, load, parse

pytestmark = pytest.mark.fast

ORDERS = """\
[spark]
slots = 6

[job.orders]
build = "my.jobs:orders"
inputs = {events = "orders"}
recovery_target_s = 90
"""


def mistakes(text, **environment):
    with pytest.raises(WrongSettings) as caught:
        parse(text, environment=environment)
    return [str(m) for m in caught.value.mistakes]


def test_a_small_file_says_what_it_says_and_the_rest_has_defaults():
    settings = parse(ORDERS, environment={})
    assert settings.spark.slots == 6
    assert settings.deployment.kind == "local"
    orders = settings.jobs["orders"]
    assert (orders.build, dict(orders.inputs)) == ("my.jobs:orders", {"events": "orders"})
    assert (orders.recovery_target_s, orders.confidence, orders.mode) == (90.0, 0.95, "recommend")
    assert settings.brokers.bootstrap is None
    folders = 'outputs = {out = "files:/data/o", old = "s3a://b/o"}\n'
    assert len(parse(ORDERS + folders, environment={}).jobs["orders"].outputs) == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("confidenc = 0.9", "line 8: job.orders.confidenc: no such key; did you mean confidence?"),
        ("mode = 'aply'", "line 8: job.orders.mode: must be one of observe, recommend, apply, got 'aply'"),
        ("confidence = 1.5", "line 8: job.orders.confidence: must be at most 0.9999, got 1.5"),
        ("scale_out_max = 2.5", "line 8: job.orders.scale_out_max: must be a whole number, got 2.5"),
        ("scale_out = 9", "line 8: job.orders.scale_out: needs scale_out_min <= scale_out <= scale_out_max"),
        ("failure_kinds = ['executor_kil']", "did you mean 'executor_kill'?"),
        ("failure_kinds = 'executor_kill'", "line 8: job.orders.failure_kinds: must be a list"),
        ("script = 'x.py'", "has both script and build: give one of them"),
        ("executors = 4", "line 8: job.orders.executors: goes with attach = true"),
        ("outputs = {out = 'orders'}", "line 8: job.orders.outputs: the topic 'orders' is also an input"),
        ("outputs = {out = 'files:out'}", "line 8: job.orders.outputs: out = 'files:out' needs an absolute"),
        ("outputs = {out = 3}", "line 8: job.orders.outputs: out: must be a string, got 3"),
        ("checkpoint = ''", "line 8: job.orders.checkpoint: must not be empty"),
        ("failure_kinds = []", "line 8: job.orders.failure_kinds: is empty"),
        ("outputs = {out = 'a lerts'}", "line 8: job.orders.outputs: out = 'a lerts' is not a topic name"),
        ("profile_scale_outs = [0, 2]", "line 8: job.orders.profile_scale_outs: must be at least 1, got 0"),
        ("drill_cron = '0 4 30 2 *'", "line 8: job.orders.drill_cron: '0 4 30 2 *' never comes"),
        ("longest_window_s = 10", "line 4: job.orders.event_time: is not set, and the job has windows"),
        ("scale_out_min = 9", "line 8: job.orders.scale_out_min: is 9, more than scale_out_max = 8"),
        ("[jobs.clicks]", "line 8: jobs: no such section; did you mean job.NAME?"),
        ("[brokers]\nbootstrap = 'kafka'", "line 9: brokers.bootstrap: 'kafka' is not of the form host:port"),
        (
            "[brokers]\nsecurity_protocol='SASL_SSL'\nsasl_mechanism='PLAIN'\nusername_from='U'",
            "line 8: brokers.password_from: is needed with security_protocol = 'SASL_SSL'",
        ),
        ("[brokers]\nsecurity_protocol = 'TLS'", "line 9: brokers.security_protocol: must be one of PLAIN"),
        ("[deployment]\nkind = 'kubernetes'", "brokers.bootstrap: must name your brokers: in a cluster none"),
    ],
)
def test_a_wrong_line_is_told_with_its_line_and_what_is_accepted(line, told):
    (mistake,) = mistakes(ORDERS + line)
    assert told in mistake


def test_a_heartbeat_must_come_before_an_executor_is_given_up():
    (mistake,) = mistakes("[spark]\nnetwork_timeout_s = 10\nheartbeat_s = 10\n")
    assert mistake.startswith("line 3: spark.heartbeat_s: must be well below network_timeout_s (10)")


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file():
    text = (
        ORDERS.replace("slots = 6", "slot = 6").replace('inputs = {events = "orders"}', "")
        + "mode = 1\n[kafka]\n"
    )
    said = mistakes(text)
    assert [s.split(":")[0] for s in said] == ["line 2", "line 4", "line 8", "line 9"]
    assert "spark.slot: no such key; did you mean slots?" in said[0]
    assert "job.orders.inputs: is missing" in said[1]
    assert "no such section" in said[3]


@pytest.mark.parametrize("name", ["Orders", "9lives", "a_b", "a" * 40])
def test_a_jobs_name_must_do_as_label_folder_and_model_name(name):
    (mistake,) = mistakes(f'[job.{name}]\nbuild = "a:b"\ninputs = {{e = "t"}}\n')
    assert "matches [a-z][a-z0-9-]{0,38}" in mistake


@pytest.mark.parametrize(("name", "taken"), [("orders-p1", True), ("orders-d12", True), ("orders-v2", False)])
def test_no_job_is_called_as_a_copy_of_another(name, taken):
    text = f'{ORDERS}[job.{name}]\nbuild = "a:b"\ninputs = {{e = "t"}}\n'
    if not taken:
        assert set(parse(text, environment={}).jobs) == {"orders", name}
        return
    (mistake,) = mistakes(text)
    assert mistake == f"line 8: job.{name}: is a name that copies of job.orders get: choose another one"
    assert name in parse(text.replace("job.orders]", "job.others]"), environment={}).jobs


def test_the_environment_overrides_the_file():
    environment = {
        "HEADROOM_SPARK_SLOTS": "12",
        "HEADROOM_JOB_ORDERS_MODE": "apply",
        "HEADROOM_JOB_ORDERS_CHECKPOINT": "/data/cp",
        "HEADROOM_JOB_ORDERS_FAILURE_KINDS": "['driver_kill']",
        "HEADROOM_OWNER": "1f",
    }
    settings = parse(ORDERS, environment=environment)
    orders = settings.jobs["orders"]
    assert (settings.spark.slots, orders.mode, orders.checkpoint) == (12, "apply", "/data/cp")
    assert orders.failure_kinds == ("driver_kill",)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("JOB_ORDERS_MOD", "apply", "belongs to no setting; did you mean HEADROOM_JOB_ORDERS_MODE?"),
        ("SPARK_SLOTS", "many", "got 'many' from the environment variable HEADROOM_SPARK_SLOTS"),
        (
            "JOB_ORDERS_MODE",
            "aply",
            "job.orders.mode: must be one of observe, recommend, apply, got 'aply'; did you mean 'apply'? "
            "(from the environment variable HEADROOM_JOB_ORDERS_MODE)",
        ),
    ],
)
def test_a_wrong_environment_variable_is_named(variable, value, told):
    (mistake,) = mistakes(ORDERS + 'mode = "apply"\n', **{f"HEADROOM_{variable}": value})
    assert told in mistake


STORE = '[store]\nurl_from = "HEADROOM_STORE_URL"\n'


def test_a_variable_that_holds_a_secret_may_begin_as_those_that_override_settings():
    url = {"HEADROOM_STORE_URL": "postgresql://me:s3cr3t@db/headroom"}
    settings = parse(STORE + ORDERS, environment=url)
    assert settings.store.url_from == "HEADROOM_STORE_URL"
    assert "s3cr3t" not in settings.model_dump_json()
    (mistake,) = mistakes(ORDERS, **url)
    assert mistake.endswith("belongs to no setting; did you mean HEADROOM_STORE_URL_FROM?")


def test_a_secret_in_the_place_of_its_variables_name_is_refused_and_not_shown():
    told = "store.url_from: must be the name of an environment variable, and not what it holds"
    url = "postgresql://me:s3cr3t@db/headroom"
    assert mistakes(STORE.replace("HEADROOM_STORE_URL", url)) == [f"line 2: {told}"]
    (mistake,) = mistakes(STORE, HEADROOM_STORE_URL_FROM=url)
    assert told in mistake
    assert "s3cr3t" not in mistake


def test_the_port_of_the_metrics_is_another_one_than_that_of_the_pages():
    (mistake,) = mistakes("[web]\nport = 8473\nmetrics_port = 8473\n")
    assert mistake.startswith("line 3: web.metrics_port: is the port of the pages")
    assert parse("[web]\nport = 8473\nmetrics_port = 9464\n", environment={}).web.metrics_port == 9464


def test_a_change_by_a_restart_is_given_the_time_that_a_restart_takes():
    live, restart = (
        control_settings("orders", parse(ORDERS + more, environment={}).jobs["orders"])
        for more in ("", 'rescale = "restart"\n')
    )
    assert (live.path, restart.path) == ("live", "restart")
    assert (live.effect_s, restart.effect_s) == (30.0, 60.0 + 37.0)
    assert restart.horizon_s == live.horizon_s + 67.0


THEIRS = '[job.theirs]\nattach = true\ncheckpoint = "/c"\ninputs = {e = "t"}\n'
APPLICATION = """\
[deployment]
kind = "kubernetes"
[brokers]
bootstrap = "kafka:9092"
[job.theirs]
spark_application = "theirs-app"
checkpoint = "/c"
inputs = {e = "t"}
"""
CRON = "'0 4 * * Sat'"


def test_a_job_whose_name_is_no_label_of_kubernetes_is_refused_there_only():
    text = '[job.orders-]\nbuild = "a:b"\ninputs = {e = "t"}\n'
    assert list(parse(text, environment={}).jobs) == ["orders-"]
    (mistake,) = mistakes(APPLICATION + text)
    assert "job.orders-: ends with a hyphen" in mistake


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            THEIRS + "allow_live_drills = true",
            "line 5: job.theirs.allow_live_drills: failures are not injected",
        ),
        (THEIRS + "executors = 9", "line 5: job.theirs.executors: needs scale_out_min <= executors <="),
        (THEIRS + "executors = 0", "line 5: job.theirs.executors: must be at least 1"),
        (THEIRS + 'mode = "apply"', "line 5: job.theirs.mode: an attached job is not rescaled from here"),
        (
            THEIRS + f"drill_cron = {CRON}",
            "line 5: job.theirs.drill_cron: copies of an attached job need its",
        ),
        (
            THEIRS + f"profile_cron = {CRON}",
            "line 5: job.theirs.profile_cron: copies of an attached job need",
        ),
        (THEIRS.replace('checkpoint = "/c"', ""), "job.theirs.checkpoint: an attached"),
        (APPLICATION + "attach = true", "job.theirs: has both attach and spark_application"),
        (APPLICATION + "executors = 2", "job.theirs.executors: goes with attach = true; how many a SparkApp"),
        (
            APPLICATION + f"drill_cron = {CRON}",
            "job.theirs.drill_cron: copies of a SparkApplication need its",
        ),
        (
            APPLICATION.replace('"kubernetes"', '"local"'),
            "line 6: job.theirs.spark_application: goes with [deploy",
        ),
        (
            APPLICATION.replace('checkpoint = "/c"', ""),
            "job.theirs.checkpoint: a SparkApplication needs the path",
        ),
        (APPLICATION + APPLICATION.partition("[job.theirs]")[2].join(["[job.x]", ""]), "as of job.theirs"),
    ],
)
def test_what_a_job_of_another_system_cannot_have_is_told(text, told):
    (mistake,) = mistakes(text)
    assert told in mistake


def test_an_attached_job_may_bring_its_program_for_copies_which_begin_with_its_size():
    job = parse(THEIRS + "executors = 3\nbuild = 'a:b'\ndrill_cron = '0 4 * * Sat'", environment={}).jobs[
        "theirs"
    ]
    assert (job.copyable, job.executors, job.scale_out) == (True, 3, 3)
    assert not parse(THEIRS + "scale_out_min = 2", environment={}).jobs["theirs"].copyable


def test_a_job_of_the_spark_operator_is_applied_by_a_restart_and_neither_started_nor_stopped():
    settings = parse(APPLICATION + "mode = 'apply'\nconsumer_group = 'g'\n", environment={})
    job = settings.jobs["theirs"]
    control = control_settings("theirs", job)
    assert (control.path, control.mode, control.only_commits) == ("restart", "apply", False)
    assert (
        control.horizon_s
        == control_settings("x", job.model_copy(update={"spark_application": None})).horizon_s + 67
    )
    check_order("theirs", job, "apply")
    for what in ("launch", "stop"):
        with pytest.raises(Unsafe, match="the Spark operator runs it, so it is not"):
            check_order("theirs", job, what)
    check_order("theirs", job, "drill", live=True)
    for what in ("profile", "drill"):
        with pytest.raises(Misconfigured, match=r"job\.theirs\.spark_application: .*add `script` or `build`"):
            check_order("theirs", job, what)
    assert parse(APPLICATION + "allow_live_drills = true", environment={}).jobs["theirs"].allow_live_drills


def test_broken_toml_and_a_missing_file_are_one_sentence(tmp_path):
    assert mistakes("[spark\nslots = 1")[0].startswith("line 1: the file: is not valid TOML")
    with pytest.raises(Misconfigured, match="there is no such file"):
        load(tmp_path / "headroom.toml", environment={})
    (tmp_path / "headroom.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="cannot be read"):
        load(tmp_path / "headroom.toml", environment={})
    for encoding in ("utf-8", "utf-8-sig"):  # some editors begin a file with a mark
        (tmp_path / "ok.toml").write_text(ORDERS, encoding=encoding)
        assert load(tmp_path / "ok.toml", environment={}).spark.slots == 6


def test_settings_are_frozen():
    orders = parse(ORDERS, environment={}).jobs["orders"]
    with pytest.raises(ValidationError, match="frozen"):
        orders.mode = "apply"
    with pytest.raises(TypeError):
        orders.inputs["more"] = "topics"


SCRIPT = """\
[job.orders]
script = "job.py"
args = ["{input_topic}", "{output_topic}", "{checkpoint}", "{brokers}"]
inputs = {events = "orders"}
outputs = {alerts = "alerts"}
recovery_target_s = 60
max_offsets_per_trigger = 900
state_partitions = 12
"""


@pytest.mark.parametrize(
    ("old", "new", "path", "told"),
    [
        ("", "", None, ""),
        ('"job.py"', '"jobs.py"', "script", "is jobs.py, which is not there"),
        ('"{checkpoint}", ', "", "args", "lacks {checkpoint}"),
        ('"{input_topic}"', '"--in={input:events}"', None, ""),
        ('"{input_topic}", "{output_topic}", ', "", "args", "lacks {input_topic}, {output_topic}"),
        (', "{brokers}"', "", "args", "lacks {brokers}"),
        ("{output_topic}", "{output:alarms}", "args", "'alarms' is not in job.orders.outputs"),
        ('{events = "orders"}', '{a = "b", c = "d"}', "args", "write {input:NAME}"),
        ("state_partitions = 12", "scale_out_max = 20", "state_partitions", "state_partitions = 24 before"),
        ("state_partitions = 12", 'conf = {"spark.sql.shuffle.partitions" = "9"}', None, ""),
        ("max_offsets_per_trigger = 900", "", "max_offsets_per_trigger", "is not set, but the program reads"),
        ("state_partitions", "trigger_s = 30\nstate_partitions", "trigger_s", "trigger_s below 15"),
        ("state_partitions", "max_lag_s = 60\nstate_partitions", "max_lag_s", "max_lag_s below 60"),
        ("= 60", "= 15", "spark.network_timeout_s", "takes longer than the 15 s promised"),
    ],
)
def test_what_will_fail_is_known_before_the_start(tmp_path, old, new, path, told):
    (tmp_path / "job.py").write_text('stream.option("maxOffsetsPerTrigger", 900)')
    found = list(concerns("orders", parse(SCRIPT.replace(old, new), environment={}), folder=tmp_path))
    assert [one.path.removeprefix("job.orders.") for one in found] == ([] if path is None else [path])
    assert all(told in f"{one.problem}: {one.fix}" for one in found)


@pytest.mark.parametrize(
    ("program", "path", "told", "serious"),
    [
        ('stream.option("maxoffsetspertrigger", "900")', None, "", None),
        ('stream.options(maxOffsetsPerTrigger=900, subscribe="orders")', None, "", None),
        ('a.option("maxOffsetsPerTrigger", 500); b.option("maxOffsetsPerTrigger", 900)', None, "", None),
        ('stream.option("maxOffsetsPerTrigger", limit)', None, "", None),
        ('stream.option("maxOffsetsPerTrigger", 500)', "max_offsets_per_trigger", "set it to 500", True),
        ('stream.option("subscribe", "orders")', "max_offsets_per_trigger", "does not limit", False),
        (
            'stream.option("maxOffsetsPerTrigger", 900).load().withWatermark("at", "10 s")',
            "event_time",
            "drop recorded events as late",
            False,
        ),
    ],
)
def test_the_batches_and_the_time_of_the_script_are_those_declared(tmp_path, program, path, told, serious):
    """A script that did not limit its batches was predicted with batches of 900 records."""
    (tmp_path / "job.py").write_text(program)
    found = list(concerns("orders", parse(SCRIPT, environment={}), folder=tmp_path))
    assert [one.path.removeprefix("job.orders.") for one in found] == ([] if path is None else [path])
    assert all(told in f"{one.problem}: {one.fix}" and one.serious is serious for one in found)


class TestAFileThatIsEdited:
    """While a server runs."""

    @pytest.mark.parametrize(
        ("new", "told"),
        [
            ("# a comment\n", []),
            ("mode = 'apply'\n", ['has changed, from the next tick on: job.orders.mode = "apply"']),
            (
                "mode = 'apply'\nstate_partitions = 12\n[mlflow]\nexperiment = 'mine'\n",
                [
                    'has changed, from the next tick on: job.orders.mode = "apply"',
                    "has changed: `job.orders.state_partitions`, `mlflow.experiment` need `headroom serve` "
                    "to be restarted",
                ],
            ),
            (
                "[job.clicks]\nbuild = 'a:b'\ninputs = {e = 'c'}\n",
                ["has changed: `job.clicks` needs `headroom serve` to be restarted"],
            ),
            (
                "mode = 'aply'\n",
                [
                    "has changed and is wrong, the settings from before stay: line 8: job.orders.mode: "
                    "must be one of observe, recommend, apply, got 'aply'; did you mean 'apply'?"
                ],
            ),
        ],
    )
    def test_what_takes_effect_is_in_force_and_the_rest_is_named(self, tmp_path, monkeypatch, new, told):
        monkeypatch.chdir(tmp_path)
        file, kept, said, changes = Path("headroom.toml"), tmp_path / "settings.json", [], []
        file.write_text(ORDERS)
        told_of = {"say": said.append, "changed": lambda: changes.append(1)}
        live = SettingsFile(load(file, environment={}), file, kept=kept, environment={}, **told_of)
        assert live.refresh() == parse(ORDERS, environment={})
        file.write_text(ORDERS + new)
        for _ in range(2):
            found = live.refresh()
        taken = "mode = 'apply'" in new
        assert said == [f"headroom.toml {one}" for one in told]
        assert found == parse(ORDERS + "mode = 'apply'\n" * taken, environment={})
        assert len(changes) == taken
        assert in_force(file, environment={HEADROOM_SETTINGS: str(kept)}) == found

    def test_it_is_said_again_only_when_it_is_something_else(self, tmp_path):
        (file := tmp_path / "headroom.toml").write_text(ORDERS)
        said = []
        live = SettingsFile(load(file, environment={}), file, environment={}, say=said.append)
        for text in ("slots = 7", "slots = 7\n", "slots = 7\ndriver_memory_mb = 600", "slots = 6"):
            file.write_text(ORDERS.replace("slots = 6", text))
            live.refresh()
        assert [line.split(": ", 1)[1] for line in said] == [
            "`spark.slots` needs `headroom serve` to be restarted",
            "`spark.driver_memory_mb`, `spark.slots` need `headroom serve` to be restarted",
        ]


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "{b=" * 100_000])
def test_endless_nesting_is_one_clear_mistake(text):
    (mistake,) = mistakes(ORDERS + text)
    assert "nested too deep to be read" in mistake


def test_endless_nesting_in_a_variable_is_one_clear_mistake():
    with pytest.raises(WrongSettings) as wrong:
        parse(ORDERS, environment={"HEADROOM_WEB_HOSTS": "[" * 100_000})
    assert "HEADROOM_WEB_HOSTS, which is not a TOML value" in str(wrong.value)
    assert len(str(wrong.value)) < 1000
