"""What is added to the Kafka sources and sinks of a program that knows of no login."""

from __future__ import annotations

from typing import Any

import pytest

from profiling_jobs.driver.kafka_login import _complete, missing
from profiling_jobs.driver.sink_guard import watch_options

pytestmark = pytest.mark.fast

LOGIN = {
    "kafka.bootstrap.servers": "h:1, h:2",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "M",
}
ADDED = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "M"}


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"kafka.bootstrap.servers": "h:1"}, ADDED),
        ({"kafka.bootstrap.servers": "h:2, h:1", "subscribe": "a"}, ADDED),
        ({"kafka.bootstrap.servers": "h:1,"}, ADDED),
        ({"kafka.bootstrap.servers": "h:1,elsewhere:1"}, {}),
        ({"kafka.bootstrap.servers": "elsewhere:1"}, {}),
        ({"subscribe": "a"}, {}),
        ({"kafka.bootstrap.servers": "h:1", "kafka.sasl.jaas.config": "mine"}, {}),
        ({"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SSL"}, {}),
    ],
)
def test_the_login_goes_to_our_brokers_alone_and_not_over_the_programs_own(given: Any, added: Any) -> None:
    assert missing(given, LOGIN) == added


class Reader:
    """As Spark's: whatever is set comes out of `load`."""

    def __init__(self) -> None:
        self.set: dict[str, Any] = {}

    def option(self, key: str, value: Any) -> Reader:
        self.set[key] = value
        return self

    def options(self, **given: Any) -> Reader:
        self.set.update(given)
        return self

    def format(self, source: str) -> Reader:
        return self

    def load(
        self, path: Any = None, format: Any = None, schema: Any = None, **options: Any
    ) -> dict[str, Any]:
        return {**self.set, **options}


@pytest.fixture
def reader() -> Any:
    kind = type("Watched", (Reader,), {})
    watch_options(kind)
    _complete(kind, "load", LOGIN)
    return kind()


def test_however_the_program_names_its_source(reader: Any) -> None:
    address = {"kafka.bootstrap.servers": "h:1"}
    assert reader.format("Kafka").option("Kafka.Bootstrap.Servers", "h:1").load().items() >= ADDED.items()
    assert reader.load(format="kafka", **address) == {"Kafka.Bootstrap.Servers": "h:1", **ADDED, **address}


def test_other_formats_are_left_alone(reader: Any) -> None:
    assert reader.option("kafka.bootstrap.servers", "h:1").format("parquet").load() == {
        "kafka.bootstrap.servers": "h:1"
    }
