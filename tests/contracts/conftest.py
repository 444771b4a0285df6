"""What the real halves of the contract suites share: one broker for all of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pipelines.owner import Owner, cleanup
from pipelines.resources import java
from pipelines.resources.kafka import EmbeddedBroker
from profiling_jobs.errors import Misconfigured


@pytest.fixture(scope="session")
def real_owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """The owner of everything real that these suites start; skipped with a reason where Java is missing."""
    try:
        java.find()
    except Misconfigured as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("contracts") / ".headroom"
    try:
        with Owner(folder) as owner:
            yield owner
    finally:
        cleanup(folder, end_owner=True)
        gc.collect()  # kafka-python's sockets, while we do not mind


@pytest.fixture(scope="session")
def real_broker(real_owner: Owner) -> EmbeddedBroker:
    broker = EmbeddedBroker(real_owner)
    broker.start()
    return broker
