"""The embedded Kafka, without a Java."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.errors import NotReady
from pipelines.integrations import embedded_kafka
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.java import Java


def test_what_a_killed_broker_has_unpacked_goes_at_its_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_kafka.java, "find", lambda: Java(tmp_path, 17))
    monkeypatch.setattr(embedded_kafka.jars, "fetch", lambda *given, **more: [tmp_path / "broker.jar"])
    commands: list[list[str]] = []

    def start(role: str, command: list[str | Path], **more: Any) -> None:
        commands.append([str(word) for word in command])
        raise NotReady("there is no Java here")

    owner: Any = SimpleNamespace(folder=tmp_path, marks=lambda role: {}, log_size=lambda role: 0, start=start)
    temporary = tmp_path / "kafka" / "tmp"
    for _ in range(2):
        with pytest.raises(NotReady, match="no Java here"):
            EmbeddedBroker(owner).start()
        assert f"-Djava.io.tmpdir={temporary}" in commands[-1]
        assert list(temporary.iterdir()) == []
        (temporary / "libzstd-jni-1.so").touch()
