"""`headroom notify`: who is told what happens, and a test message."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from models.errors import HeadroomError, Misconfigured

from ..notify.channels import HEARTBEAT, Channel, configured
from ..notify.messages import Message
from ..notify.outbox import attempted
from ..settings import loading
from . import options

TEXT = "This is a test of `headroom notify --test`: messages arrive."


@click.command("notify")
@click.option("--test", is_flag=True, help="Send a message by every channel, and ping the heartbeat.")
@options.file
@options.as_json("Print the channels as JSON.")
def command(test: bool, file: Path, as_json: bool) -> None:
    """Show who is told what happens, by the section [notify] of headroom.toml.

    With --test a message is sent by every channel, from here: it needs no server, but the environment
    variables that the section names.

    \b
    Exit code 0: every channel is right; with --test, has worked.
    Exit code 1: one is not, or has failed; the line says what to do.
    Exit code 2: no channel is set.
    """
    settings = loading.load(file, environment=os.environ)
    channels = configured(settings.notify, os.environ)
    if not channels:
        raise Misconfigured("notify", "nobody is told anything: set url_from, email_to or command there")
    rows = [_row(name, one, test=test, timeout_s=settings.notify.timeout_s) for name, one in channels.items()]
    if as_json:
        options.print_json(test=test, well=all(row["state"] != "failed" for row in rows), channels=rows)
    else:
        for row in rows:
            name = ", ".join(filter(None, (row["channel"], row["where"])))
            click.echo(f"{name}: {row['problem'] or row['state']}")
            if row["fix"]:
                click.echo(f"  → {row['fix']}")
    options.answer_no(any(row["state"] == "failed" for row in rows))


def _row(name: str, channel: Channel | Misconfigured, *, test: bool, timeout_s: float) -> dict[str, Any]:
    """`channel`, `where`, `state` (ok, sent, failed), and of one that has failed `problem` and `fix`."""
    problem: HeadroomError | None
    if isinstance(channel, Misconfigured):
        where, problem = "", channel
    else:
        where, problem = channel.where, None
        if test:
            message = Message("test", "", TEXT, time.time())
            problem, _ = attempted(channel, message, timeout_s=timeout_s)
    if problem is None:
        state = "sent" if test else "ok"
        return {"channel": name, "where": where, "state": state, "problem": "", "fix": ""}
    told, fix = options.problem_and_fix(str(problem))
    if not isinstance(problem, Misconfigured):
        told, fix = str(problem), f"correct {_keys(name)}, or look at what is in the way"
    return {"channel": name, "where": where, "state": "failed", "problem": told, "fix": fix}


def _keys(name: str) -> str:
    """What a channel is set by."""
    keys = {"webhook": "url_from", "e-mail": "smtp", "command": "command", HEARTBEAT: "heartbeat_url_from"}
    return f"notify.{keys[name]}"
