"""Terminal pages made with rich: headings, wrapped paragraphs and tables, at most WIDTH columns wide.

Colours stand where a terminal reads them, and nowhere with NO_COLOR.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

import click
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

WIDTH = 100


def width() -> int:
    """Columns there are; a pipe has as many as we want."""
    return max(40, min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))


def heading(text: str) -> None:
    """A title with a blank line before it."""
    click.echo()
    show(Text(text, style="bold"))


def paragraph(
    text: str, *, indent: int = 2, mark: str = "", colour: str | None = None, err: bool = False
) -> None:
    """Wrapped text, the first line behind `mark`."""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(*([mark] if mark else []), text)
    show(Padding(grid, (0, 0, 0, indent), style=colour or ""), err=err)


def warning(text: str) -> None:
    """A sentence on standard error."""
    paragraph(text, indent=0, colour="yellow", err=True)


def pairs(rows: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
    """Names and values, the values wrapped in a column of their own."""
    grid = Table.grid(Column(style="dim"), Column(), padding=(0, 2))
    for name, value in rows:
        grid.add_row(name, value)
    show(Padding(grid, (0, 0, 0, indent)))


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[RenderableType]],
    *,
    right: str = "",
    indent: int = 0,
    colours: Sequence[str | None] = (),
) -> RenderableType:
    """A table; columns marked `r` in `right` stand at the right. The last one is wrapped to fit."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(header):
        last = number == len(header) - 1
        side = "right" if right[number : number + 1] == "r" else "left"
        found.add_column(name, justify=side, no_wrap=not last)  # type: ignore[arg-type]
    for row, colour in zip(rows, [*colours, *[None] * len(rows)], strict=False):
        found.add_row(*row, style=colour)
    return Padding(found, (0, 0, 0, indent))


def one_line(text: str) -> Text:
    """A cell that is cut where there is no room for it."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def show(renderable: RenderableType, *, err: bool = False) -> None:
    """Print it, without the blanks that rich fills lines with."""
    stream = sys.stderr if err else sys.stdout
    console = Console(file=stream, width=width(), highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(renderable)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), err=err)
