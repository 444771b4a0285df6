"""`headroom open`: show Dagster's pages of the running server in a browser."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import click

from models.errors import NotReady

from ..orchestration.pages import addresses
from . import server_orders, stored_job


@click.command("open")
@click.argument("job", required=False)
@click.option("--mlflow", is_flag=True, help="MLflow's pages instead: the models.")
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print the address, and open nothing.")
def command(job: str | None, mlflow: bool, file: Path, folder: Path, as_json: bool) -> None:
    """Open Dagster's page, or the one of a job's decisions.

    \b
    Exit code 0: a browser was asked to open it.
    Exit code 1: there is no browser here; the address is printed.
    Exit code 2: no pages are served.
    """
    server_orders.need_server(folder)
    found = addresses(folder).get("mlflow" if mlflow else "dagster")
    if found is None:
        raise NotReady("this server shows no such page: start `headroom serve` without --no-pages")
    address = f"{found}/assets/decision?partition={job}" if job and not mlflow else str(found)
    click.echo(json.dumps({"schema": 1, "address": address}) if as_json else address)
    if not as_json and not webbrowser.open(address):
        raise click.exceptions.Exit(1)
