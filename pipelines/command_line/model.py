"""`headroom model`: fit the models of a job from everything known, and put in charge those that pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from profiling_jobs.training.model_documents import KINDS

from . import page, server_orders, stored_job
from .server_orders import Show


@click.command("model")
@click.argument("job")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(tuple(KINDS)),
    help="Which; may be repeated. Default: all.",
)
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print what became of each model as JSON.")
def command(job: str, kinds: tuple[str, ...], file: Path, folder: Path, as_json: bool) -> None:
    """Fit, check and register the models of a job; one that passes its checks takes charge.

    Needs no server: decisions of a `headroom serve` that runs go by the new models from the next tick on.

    \b
    Exit code 0: each of these models is in charge.
    Exit code 1: one of them is not: its data or its checks say why.
    Exit code 2: it could not run.
    """
    server_orders.checked("model", job, file=file)
    with server_orders.shown("model") as show:
        found = fitted(job, kinds or tuple(KINDS), show=show, file=file, folder=folder)
    if as_json:
        server_orders.results(job, {"models": found}, (), as_json=True)
    else:
        page.pairs([(kind, str(one["said"])) for kind, one in found.items()], indent=0)
    if not all(one["in_charge"] for one in found.values()):
        raise click.exceptions.Exit(1)


def fitted(
    job: str, kinds: Sequence[str], *, show: Show, file: Path, folder: Path
) -> dict[str, Mapping[str, Any]]:
    """Each kind in a run of its own, so that one that cannot be fitted does not keep the others from it."""
    found: dict[str, Mapping[str, Any]] = {}
    with server_orders.runs(file, folder) as runs:
        for number, kind in enumerate(kinds):
            show.at(number / len(kinds), f"the {kind} model")
            show.say(f"fitting the {kind} model of {job}")
            made, problem = runs.attempt("model", job, assets=[f"{kind}_model"])
            metadata = made.get(f"{kind}_model", {})
            found[kind] = {
                "said": metadata.get("said", problem),
                "promoted": bool(metadata.get("promoted", False)),
                "in_charge": metadata.get("champion_version"),
            }
    return found
