"""Whose checkpoint is this?"""

from __future__ import annotations

import json
from pathlib import Path

import kafka
import pytest

from models.errors import Misconfigured, NotReady
from models.ports import Function, Plan
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver import before_start

pytestmark = pytest.mark.fast


OLDER = 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":1}}'


def plan(checkpoint: Path | str) -> Plan:
    return Plan("orders", "orders", "live", Function("a:b"), 1, {"events": "orders"}, {}, str(checkpoint))


def write(checkpoint: Path, batch: int, *sources: object) -> None:
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(one) if one != "-" else "-" for one in sources)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_new_or_empty_one_belongs_to_nobody(tmp_path: Path) -> None:
    before_start.check_checkpoint(plan(tmp_path / "none"))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / ".0.crc").write_text("")
    before_start.check_checkpoint(plan(tmp_path))


@pytest.mark.parametrize(
    "trouble",
    [kafka.errors.KafkaTimeoutError(), OSError("reset"), RuntimeError("Transport closed for writes")],
)
def test_brokers_that_do_not_answer_are_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    def admin(**settings: object) -> None:
        raise trouble

    monkeypatch.setattr(kafka, "KafkaAdminClient", admin)
    with pytest.raises(NotReady, match=r"brokers\.bootstrap: h:1 does not answer"):
        before_start.check_topics(plan("/c"), Brokers("h:1"))


def test_the_newest_batch_says_what_is_read(tmp_path: Path) -> None:
    write(tmp_path, 9, {"clicks": {"0": 1}})
    write(tmp_path, 10, {"orders": {"0": 1}})
    before_start.check_checkpoint(plan(tmp_path))
    before_start.check_checkpoint(plan(f"file://{tmp_path}"))
    write(tmp_path, 11, {"orders": {"0": 1}}, {"clicks": {"0": 1}})
    with pytest.raises(
        Misconfigured, match=r"belongs to another query: it reads clicks.*new folder"
    ) as caught:
        before_start.check_checkpoint(plan(tmp_path))
    assert caught.value.setting == "job.orders.checkpoint"


@pytest.mark.parametrize(
    ("spelt", "folder", "text"),
    [
        ("{}", "", OLDER),
        ("file:{}", "", OLDER),
        ("file://{}", "", OLDER),
        ("{}", "", 'v2\n{"batchWatermarkMs":0}\n0:{"clicks":{"0":1}}'),  # newer logs number their sources
        ("{}", "late", OLDER),  # a script keeps its queries in folders of their own
    ],
)
def test_it_is_found_however_it_is_spelt_and_kept(tmp_path: Path, spelt: str, folder: str, text: str) -> None:
    if folder:
        write(tmp_path / "main", 0, {"orders": {"0": 1}})
        before_start.check_checkpoint(plan(tmp_path))
    (tmp_path / folder / "offsets").mkdir(parents=True)
    (tmp_path / folder / "offsets" / "0").write_text(text)
    with pytest.raises(Misconfigured, match="it reads clicks"):
        before_start.check_checkpoint(plan(spelt.format(tmp_path)))


def test_what_was_cut_off_leaves_the_batch_before_to_say_it(tmp_path: Path) -> None:
    write(tmp_path, 4, {"clicks": {"0": 1}})
    (tmp_path / "offsets" / "5").write_text('v1\n{"batch')
    with pytest.raises(Misconfigured, match="it reads clicks"):
        before_start.check_checkpoint(plan(tmp_path))


def test_other_sources_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, {"logOffset": 3}, 17, "-")
    assert before_start.topics_of(tmp_path) == set()
