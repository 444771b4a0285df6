"""`headroom pin`: keep a job at exactly this many executors."""

from __future__ import annotations

from typing import Any

import click

from . import directives


@click.command("pin")
@click.argument("job")
@click.argument("value", metavar="N", type=click.IntRange(1))
@directives.options
def command(**given: Any) -> None:
    """Keep a job at exactly N executors, from its next tick on, whatever the models say.

    \b
    Exit code 0: it is pinned: a tick has obeyed it; with --no-wait: it is stored.
    Exit code 1: it is stored, and no tick has obeyed it yet; the reason says what to do.
    Exit code 2: it could not run, for example because N is outside of the job's bounds.
    """
    directives.give("pin", **given)
