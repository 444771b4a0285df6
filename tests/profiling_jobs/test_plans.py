"""Which plans can run, and which may run beside a live job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from models import codec
from models.errors import Misconfigured, Unsafe
from models.ports import Function, Plan, Script
from profiling_jobs import plans

pytestmark = pytest.mark.fast

LIVE = Plan(
    name="orders",
    job="orders",
    role="live",
    program=Script("job.py", ("--in", "{input_topic}", "--out={output:alerts}", "{checkpoint}", "{brokers}")),
    scale_out=2,
    inputs={"events": "orders"},
    outputs={"alerts": "alerts"},
    checkpoint="/data/checkpoints/orders",
)
COPY = replace(
    LIVE,
    name="orders-profile-e4",
    role="profile",
    inputs={"events": "scratch-orders"},
    outputs={"alerts": "scratch-alerts"},
    checkpoint="/data/checkpoints/orders-profile-e4",
)


def test_a_plan_survives_being_written_down() -> None:
    function = replace(LIVE, program=Function("jobs.orders:build"), trigger_s=2.0, conf={"spark.x": "1"})
    for plan in (LIVE, COPY, function):
        assert codec.from_json(Plan, json.loads(json.dumps(codec.to_json(plan)))) == plan
        assert plans.check(plan) is plan


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"scale_out": 0}, "job.orders.scale_out"),
        ({"scale_out": -1}, "job.orders.scale_out"),
        ({"job": "Orders"}, "job"),
        ({"job": ""}, "job"),
        ({"name": "../orders"}, "job.orders"),
        ({"inputs": {}}, "job.orders.inputs"),
        ({"checkpoint": ""}, "job.orders.checkpoint"),
        ({"trigger_s": -1.0}, "job.orders.trigger_s"),
        ({"max_offsets_per_trigger": 0}, "job.orders.max_offsets_per_trigger"),
        ({"program": Function("jobs.orders.build")}, "job.orders.build"),
        ({"program": Script("job.py", ("{input:clicks}",))}, "job.orders.args"),
        ({"inputs": {"a": "x", "b": "y"}}, "job.orders.args"),
        ({"outputs": {}, "program": Script("job.py", ("{output_topic}",))}, "job.orders.args"),
    ],
)
def test_the_first_wrong_setting_is_named(change: dict[str, object], setting: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        plans.check(replace(LIVE, **change))
    assert caught.value.setting.startswith(setting)


def test_arguments_are_filled_in_and_other_braces_are_left_alone() -> None:
    plan = replace(LIVE, program=Script("job.py", (*LIVE.program.args, '{"json": {"input": 1}}')))
    assert plans.arguments(plan, brokers="h:1") == [
        *("--in", "orders", "--out=alerts", "/data/checkpoints/orders", "h:1"),
        '{"json": {"input": 1}}',
    ]


def test_a_script_is_given_the_folder_of_an_output() -> None:
    for output, given in (("files:/data/alerts", "/data/alerts"), ("/data/alerts", "/data/alerts")):
        assert (
            plans.arguments(replace(LIVE, outputs={"alerts": output}), brokers="h:1")[2] == f"--out={given}"
        )


def test_a_copy_has_its_own_group() -> None:
    assert LIVE.group == "headroom.orders"
    assert COPY.group == "headroom.orders-profile-e4"


def test_a_copy_on_scratch_topics_may_run_beside_the_live_job() -> None:
    plans.apart(COPY, LIVE)
    plans.apart(replace(COPY, inputs=LIVE.inputs), LIVE)  # reading the live input harms nobody
    plans.apart(LIVE, COPY)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"outputs": {"alerts": "alerts"}}, "job.orders.outputs"),
        ({"outputs": {"alerts": "orders"}}, "job.orders.outputs"),
        ({"checkpoint": "/data/checkpoints/orders"}, "job.orders.checkpoint"),
        ({"checkpoint": "/data/checkpoints/orders/copy"}, "job.orders.checkpoint"),
        ({"checkpoint": "/data/checkpoints"}, "job.orders.checkpoint"),
        ({"checkpoint": "file:///data//checkpoints/orders/"}, "job.orders.checkpoint"),
        ({"checkpoint": "/data/other/../checkpoints/orders"}, "job.orders.checkpoint"),
        ({"name": "orders"}, "headroom.orders"),
    ],
)
def test_a_copy_that_could_touch_the_live_job_is_refused(change: dict[str, object], key: str) -> None:
    with pytest.raises(Unsafe, match=key):
        plans.apart(replace(COPY, **change), LIVE)


def test_a_copy_that_writes_what_it_reads_is_refused() -> None:
    with pytest.raises(Unsafe, match="outputs of its own"):
        plans.check(replace(COPY, outputs={"alerts": "scratch-orders"}))


def test_a_link_does_not_hide_the_live_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "copy").symlink_to(tmp_path / "live")
    assert plans.overlaps(str(tmp_path / "copy"), str(tmp_path / "live"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3a://bucket/a", "s3a://bucket/a/b", True),
        ("s3a://bucket//a/", "s3a://bucket/a", True),
        ("s3a://bucket/a", "s3a://bucket/ab", False),
        ("/a/b", "/a/bc", False),
        ("s3a://bucket/a", "/bucket/a", False),
    ],
)
def test_folders_overlap_by_their_parts(one: str, other: str, same: bool) -> None:
    assert plans.overlaps(one, other) is same
    assert plans.overlaps(other, one) is same
