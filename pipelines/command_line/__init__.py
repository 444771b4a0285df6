"""The command `headroom`: one module per subcommand, imported only when it is called.

`headroom --help` must not wait for Dagster, so what it prints stands here. A command is the `command` of the
module that has its name, or the attribute that has it in the module of `TOGETHER`.
Exit codes everywhere: 0 done, 1 the answer is no, 2 it could not run.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
from importlib import import_module
from importlib.metadata import version
from typing import IO, Any

import click

from models.errors import HeadroomError
from models.quantities import Misuse

from . import options

COMMANDS = {
    "demo": "Run the whole story once, on real Kafka and Spark or simulated.",
    "serve": "Run Headroom: watch the jobs, decide, and serve the pages.",
    "start": "Start one job, under the `headroom serve` that is running.",
    "stop": "Stop one job between two batches.",
    "init": "Write a commented headroom.toml for a script.",
    "check": "Check headroom.toml, and list everything that is wrong.",
    "record": "Record the live input of a job for a while.",
    "profile": "Measure the capacity of a job at several sizes, on copies.",
    "drill": "Cause failures on a copy of a job, and measure its recovery.",
    "model": "Fit and check the models of a job.",
    "onboard": "Record, profile, drill and model a job, one after the other.",
    "plan": "Predict the task slots that a rate needs, from measurements.",
    "status": "Show every job: size, load, lag, promise, what is in force.",
    "explain": "Explain a decision: why this size, and why not one less.",
    "history": "List what was evaluated and done.",
    "pause": "Stop deciding for a job. The job itself runs on.",
    "pin": "Keep a job at exactly this many executors.",
    "resume": "End a pause, a pin, and the hold after a size was set outside.",
    "open": "Open the pages of Dagster or MLflow in a browser.",
    "doctor": "Check this machine, the folder and the services.",
    "notify": "Show who is told what happens, or send a test message.",
    "copy-store": "Copy the store from SQLite into Postgres.",
    "cleanup": "End everything that was started here, by this or an earlier run.",
}
"""Name → the line that `headroom --help` prints."""
TOGETHER = {
    "start": "orders",
    "stop": "orders",
    "record": "stages",
    "profile": "stages",
    "drill": "stages",
    "model": "stages",
    "pause": "directives",
    "pin": "directives",
    "resume": "directives",
}

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class CouldNotRun(click.ClickException):
    """Why a command could not run: one sentence, whose last part is what to do next."""

    exit_code = 2


class CouldNotRunAsJson(CouldNotRun):
    """The same on standard output, for programs."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(json.dumps({"schema": 1, "error": self.message, "fix": self.fix}, ensure_ascii=False))


def _failed(message: str, *, as_json: bool, setting: str = "", fix: str = "") -> CouldNotRun:
    """`setting`: what the message begins with."""
    if not as_json:
        return CouldNotRun(message)
    begin = f"{setting}: " if setting else ""
    problem, found = options.problem_and_fix(message.removeprefix(begin))
    if fix or not found:
        return CouldNotRunAsJson(message, fix or (f"correct {setting}" if setting else ""))
    return CouldNotRunAsJson(f"{begin}{problem}", found)


class Commands(click.Group):
    """A group that knows its commands by name and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The command of this name, imported now."""
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            ctx.fail(f"No such command '{cmd_name}'" + (f"; did you mean {near[0]}?" if near else "."))
        module = import_module(f"{__name__}.{TOGETHER.get(cmd_name, cmd_name).replace('-', '_')}")
        command: click.Command = getattr(module, cmd_name if cmd_name in TOGETHER else "command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run it. What is wrong outside of us is one sentence, never a traceback."""
        as_json = "--json" in ctx.args
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except (HeadroomError, Misuse) as error:
            setting = getattr(error, "setting", "") or getattr(error, "argument", "")
            raise _failed(str(error), as_json=as_json, setting=setting) from error
        except click.UsageError as error:
            if not as_json:
                raise
            of = f"{error.ctx.info_name} " if error.ctx and error.ctx.parent else ""
            raise _failed(error.format_message(), fix=f"see `headroom {of}--help`", as_json=True) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has gone, which click handles
                raise
            raise _failed(f"{error}: put that right, and try again", as_json=as_json) from error
        except (KeyboardInterrupt, click.Abort) as interrupt:
            click.echo("interrupted", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from interrupt

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in the help, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("headroom"), "--version", message="headroom %(version)s")
def main() -> None:
    """Keep a Spark streaming job's recovery promise with the fewest executors that can keep it.

    \b
    Exit code 0: done.
    Exit code 1: the answer is no; the help of each command says when.
    Exit code 2: it could not run; the message says what to do.
    Exit code 130: Ctrl-C.
    """
