"""The folder in which commands are called."""

import pytest


@pytest.fixture
def project(request, tmp_path, monkeypatch):
    """Where we stand, with the `TOML` of the test's module as headroom.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headroom.toml").write_text(request.module.TOML)
    return tmp_path
