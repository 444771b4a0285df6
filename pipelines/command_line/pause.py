"""`headroom pause`: stop deciding for a job, not the job itself."""

from __future__ import annotations

from typing import Any

import click

from . import directives


@click.command("pause")
@click.argument("job")
@directives.options
def command(**given: Any) -> None:
    """Stop deciding for a job, from its next tick on. The job itself runs on, and is measured.

    \b
    Exit code 0: it is paused: a tick has obeyed it; with --no-wait: it is stored.
    Exit code 1: it is stored, and no tick has obeyed it yet; the reason says what to do.
    Exit code 2: it could not run.
    """
    directives.give("pause", **given)
