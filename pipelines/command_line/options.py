"""Options and outputs that several commands share."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from models.errors import Misconfigured

Command = TypeVar("Command", bound=Callable[..., Any])

file = click.option(
    "--file",
    default=Path("headroom.toml"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="The settings of all jobs.",
)
folder = click.option(
    "--folder",
    default=Path(".headroom"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where Headroom keeps its data.",
)


def as_json(help: str) -> Callable[[Command], Command]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def job(command: Command) -> Command:
    """JOB, `--file` and `--folder`."""
    return click.argument("job")(file(folder(command)))


def on_terminal() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


@contextmanager
def value_of(option: str) -> Iterator[None]:
    """A ValueError is Misconfigured, with the name of the option."""
    try:
        yield
    except ValueError as wrong:
        raise Misconfigured(option, str(wrong)) from wrong


def problem_and_fix(message: str) -> tuple[str, str]:
    """The parts of an error: what follows its last colon or semicolon is the fix."""
    parts = re.fullmatch(r"(.+)[;:] (.+)", message, re.DOTALL)
    return (parts[1], parts[2]) if parts else (message, "")


def print_json(*, indent: Any = None, **found: Any) -> None:
    """One object on standard output."""
    click.echo(json.dumps({"schema": 1, **found}, ensure_ascii=False, indent=indent))


def answer_no(no: object = True) -> None:
    """Leave with exit code 1: the answer is no."""
    if no:
        raise click.exceptions.Exit(1)
