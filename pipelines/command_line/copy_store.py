"""`headroom copy-store`: from SQLite in the folder into the Postgres database of `[store]`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..integrations.stores.opening import STORE, place, take_over
from ..processes.owner import Owner
from ..settings import loading
from . import options


@click.command("copy-store")
@options.file
@options.folder
@options.as_json("Print the numbers of rows by table as JSON.")
def command(file: Path, folder: Path, as_json: bool) -> None:
    """Copy everything in the SQLite file of the folder into the Postgres database of [store] url_from.

    It is one transaction, into an empty schema. `headroom serve` must not run meanwhile. The file stays as it
    is, and is not used while url_from is set.
    """
    settings = loading.load(file, environment=os.environ)
    owner = Owner(folder, command="headroom copy-store").acquire()
    try:
        rows = take_over(settings.store, folder)
    finally:
        owner.release()
    if as_json:
        options.print_json(rows=dict(rows))
        return
    for table, number in rows.items():
        click.echo(f"{table}: {number}")
    click.echo(f"{sum(rows.values())} rows of {folder / STORE} copied into {place(settings.store, folder)}")
