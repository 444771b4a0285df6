"""How does plain text look good? Headings, wrapped paragraphs and tables, at most WIDTH columns wide.

Colour only where a terminal reads it: click leaves it out elsewhere.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Collection, Sequence

import click

WIDTH = 100


def width() -> int:
    """Columns there are; a pipe has as many as we want."""
    return max(40, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def heading(text: str) -> None:
    """A title with a blank line before it."""
    click.echo()
    click.secho(text, bold=True)


def paragraph(
    text: str, *, indent: int = 2, mark: str = "", colour: str | None = None, err: bool = False
) -> None:
    """Wrapped text, the first line behind `mark`."""
    first = " " * indent + (f"{mark} " if mark else "")
    filled = textwrap.fill(
        text,
        width(),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
    click.secho(filled, fg=colour, err=err)


def pairs(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
    """Names and values, the values wrapped in a column of their own."""
    names = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        lines = textwrap.wrap(value, width() - indent - names - 2, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            label = click.style(name.ljust(names), dim=True) if number == 0 else " " * names
            click.echo(f"{' ' * indent}{label}  {line}".rstrip())


def beside(label: str, text: str, *, at: int) -> None:
    """A label, and the text wrapped in a column of its own from `at` on; the label may carry colour."""
    lines = textwrap.wrap(text, width() - at - 2, break_on_hyphens=False) or [""]
    click.echo(f"{label}  {lines[0]}".rstrip())
    for more in lines[1:]:
        click.echo(f"{' ' * (at + 2)}{more}")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: str = "",
    indent: int = 0,
    wrapped: Collection[int] = (),
    colours: Sequence[str | None] = (),
) -> None:
    """Columns; those marked `r` in `right` stand at the right.

    The last one is cut to fit; in the rows whose number is in `wrapped` it goes on below.
    """
    sizes = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    room = max(10, width() - indent - sum(sizes[:-1]) - 2 * (len(sizes) - 1))
    align = right.ljust(len(header), "l")

    def line(cells: Sequence[str]) -> str:
        done = [
            cell.rjust(size) if side == "r" else cell.ljust(size)
            for cell, size, side in zip(cells[:-1], sizes[:-1], align, strict=False)
        ]
        return (" " * indent + "  ".join([*done, cells[-1]])).rstrip()

    click.secho(line(header), dim=True)
    for number, row in enumerate(rows):
        fits = number not in wrapped
        last = [cut(row[-1], room)] if fits else textwrap.wrap(row[-1], room, break_on_hyphens=False)
        colour = colours[number] if number < len(colours) else None
        click.echo(click.style(line([*row[:-1], last[0] if last else ""]), fg=colour))
        for more in last[1:]:
            click.echo(click.style(line([*[""] * (len(row) - 1), more]), fg=colour))


def cut(text: str, room: int) -> str:
    """The text, or as much of it as there is room for, at the end of a word."""
    if len(text) <= room:
        return text
    return f"{text[: room - 1].rsplit(' ', 1)[0].rstrip(' ,;:(')}…"
