"""`headroom open`: show the pages of the running server in a browser."""

from __future__ import annotations

import webbrowser
from html import escape
from pathlib import Path
from urllib.parse import quote

import click

from models.errors import NotReady
from profiling_jobs.driver.launch_file import write_text

from ..orchestration.pages import addresses
from ..web.access import FOLDER, with_token
from . import options, orders


@click.command("open")
@click.argument("job", required=False)
@click.option("--dagster", is_flag=True, help="The pages of Dagster: with JOB its decisions, plotted.")
@click.option("--mlflow", is_flag=True, help="The pages of MLflow: the models.")
@options.file
@options.folder
@options.as_json("Print the address as JSON, and open nothing.")
def command(job: str | None, dagster: bool, mlflow: bool, file: Path, folder: Path, as_json: bool) -> None:
    """Open the pages of the running server in a browser: all jobs, or JOB.

    The address is printed, too. It holds the token that lets a browser in: keep it to yourself.

    \b
    Exit code 0: a browser was asked to open it.
    Exit code 1: there is no browser here.
    """
    orders.need_server(folder)
    known = addresses(folder)
    if not known:
        raise NotReady("this server shows no such page: start `headroom serve` without --no-pages")
    if dagster and mlflow:
        raise click.UsageError("--dagster and --mlflow exclude each other")
    name = quote(job or "", safe="")
    if mlflow:
        address = known["mlflow"] + "/"
    elif dagster:
        address = known["dagster"] + (f"/assets/decision?partition={name}" if job else "/")
    else:
        address = known["pages"] + (f"/job/{name}" if job else "/")
    if address.startswith(known["pages"] + "/"):
        address = with_token(address, folder)
    if as_json:
        options.print_json(address=address)
        return
    click.echo(address)
    # A command line is seen by every user of the machine: the browser is given a file instead.
    page = folder.resolve() / FOLDER / "open.html"
    write_text(page, f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">')
    options.answer_no(not webbrowser.open(page.as_uri()))
