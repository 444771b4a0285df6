"""`headroom`, called in the test's own process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from pipelines.command_line import main


def headroom(*arguments: str, **more: str) -> Result:
    """What the command printed and its exit code; an error that it did not foresee fails the test."""
    result = CliRunner().invoke(main, list(arguments), **more)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result
