"""Settings of the tests of experiments on the simulated cluster."""

import pytest


@pytest.fixture(autouse=True)
def fast(no_latency: None) -> None:
    """Probes work out latencies of their own."""
