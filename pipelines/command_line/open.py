"""`headroom open`: show the pages of the running server in a browser."""

from __future__ import annotations

import webbrowser
from html import escape
from pathlib import Path

import click

from models.errors import NotReady
from profiling_jobs.driver.launch_file import write_text

from ..orchestration.pages import addresses
from ..web.access import FOLDER, with_token
from . import options, orders


@click.command("open")
@click.argument("job", required=False)
@click.option("--mlflow", is_flag=True, help="The pages of MLflow: the models.")
@options.file
@options.folder
@options.as_json("Print the address as JSON, and open nothing.")
def command(job: str | None, mlflow: bool, file: Path, folder: Path, as_json: bool) -> None:
    """Open the pages of the running server in a browser, or with JOB the decisions of a job.

    The address is printed, too. It holds the token that lets a browser in: keep it to yourself.

    \b
    Exit code 0: a browser was asked to open it.
    Exit code 1: there is no browser here.
    """
    orders.need_server(folder)
    known = addresses(folder)
    if not known:
        raise NotReady("this server shows no such page: start `headroom serve` without --no-pages")
    address = known["mlflow" if mlflow else "pages"] + "/"
    if job and not mlflow:
        address = f"{known['dagster']}/assets/decision?partition={job}"
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
