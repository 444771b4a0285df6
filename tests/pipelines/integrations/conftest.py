"""The owner of what the real tests of a module start."""

import gc

import pytest

from pipelines.processes.owner import Owner, cleanup


@pytest.fixture(scope="module")
def owner(tmp_path_factory, real_java):
    """Of an empty folder; everything that runs in its name ends with the module."""
    folder = tmp_path_factory.mktemp("real") / ".headroom"
    try:
        with Owner(folder) as owner:
            yield owner
    finally:
        cleanup(folder, end_owner=True)
        gc.collect()  # kafka-python's sockets, while we do not mind
