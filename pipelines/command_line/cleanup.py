"""`headroom cleanup`: end everything that was ever started in this folder's name."""

from __future__ import annotations

import os
from pathlib import Path

import click

from models.errors import Unsafe
from profiling_jobs.driver.launch_file import read_json

from ..environments.local.records import Records
from ..processes import owner
from ..processes.processes import Process
from ..settings import loading
from ..settings.schema import Settings
from . import options


@click.command("cleanup")
@options.file
@options.folder
@click.option(
    "--end-owner", is_flag=True, help="Also end the `headroom serve` or `demo` that owns the folder."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be ended.")
@options.as_json("Print what was ended as JSON.")
def command(file: Path, folder: Path, end_owner: bool, dry_run: bool, as_json: bool) -> None:
    """End every process that was started in the name of this folder, by this or an earlier run.

    They are found by the mark in their environment and by the notes in the folder; frozen ones are woken
    first. On a cluster every Deployment, pod and failure with the label of the folder's owner is deleted.
    Drivers are not started again. Topics, checkpoints, recordings and everything learnt stay.

    \b
    Exit code 0: nothing is left.
    Exit code 1: something could not be ended.
    """
    settings = _with_cluster(file)
    records = Records(folder / "deployments")
    stopped = [record.name for record in records.all() if record.wanted == "running"]
    removed: list[str] = []
    failures: list[str] = []
    if dry_run:
        processes = [(one, "would be ended") for one in _alive(folder, end_owner=end_owner)]
        if settings is not None:
            removed = _on_cluster(settings, folder)
    else:
        processes = [(one.process, one.how) for one in owner.cleanup(folder, end_owner=end_owner)]
        if settings is not None:
            from ..environments.kubernetes.belongings import remove_all

            removed = [str(one) for one in remove_all(settings.kubernetes, folder)]
        for name in stopped:  # otherwise the next owner of the folder would start them again
            records.change(name, wanted="stopped", reason="headroom cleanup")
    left = [one for one, how in processes if how == "survived"]
    if not dry_run and not left:
        failures = _forget_failures(folder)
    if as_json:
        rows = [{"role": one.role, "pid": one.pid, "how": how} for one, how in processes]
        names = ("would_end", "would_delete") if dry_run else ("ended", "removed")
        options.print_json(
            **dict(zip(names, (rows, removed), strict=True)), deployments=stopped, failures=failures
        )
    else:
        for one, how in processes:
            click.echo(f"{one.role or 'unknown'}, process {one.pid}: {how}")
        for name in stopped:
            click.echo(f"{name}: {'would' if dry_run else 'will'} not be started again")
        for failure in failures:
            click.echo(f"{failure}: over, what it hit has ended")
        for thing in removed:
            click.echo(f"{thing}: {'would be deleted' if dry_run else 'deleted'}")
        if not (processes or removed):
            click.echo(f"nothing {'is' if dry_run else 'was'} running")
        elif processes and not dry_run:
            click.echo(f"processes ended: {len(processes) - len(left)}")
    options.answer_no(left)


def _alive(folder: Path, *, end_owner: bool) -> list[Process]:
    """The processes that would be ended; Unsafe where a living owner would refuse it."""
    living = owner.holder(folder)
    if living is not None and not end_owner:
        raise Unsafe(
            f"{folder} is owned by process {living.process.pid} ({living.process.command[0]}): stop that one "
            "first, or add --end-owner"
        )
    return [*([living.process] if living else []), *owner.Owner(folder).everything()]


def _with_cluster(file: Path) -> Settings | None:
    """The settings, where jobs run on a cluster."""
    if not file.exists():
        return None
    settings = loading.load(file, environment=os.environ)
    return settings if settings.deployment.kind == "kubernetes" else None


def _on_cluster(settings: Settings, folder: Path) -> list[str]:
    """What belongs to the folder's owner there."""
    from ..environments.kubernetes.belongings import belongings
    from ..environments.kubernetes.manifests import owner_label
    from ..integrations.kubernetes_api import KubernetesApi

    cluster = settings.kubernetes
    api = KubernetesApi.connect(cluster)
    try:
        found = belongings(api, cluster, owner=owner_label(owner.owner_id(folder), cluster))
    finally:
        api.close()
    note = " (its job is not in headroom.toml any more)"
    return [f"{one}{note if one.job and one.job not in settings.jobs else ''}" for one in found]


def _forget_failures(folder: Path) -> list[str]:
    """Of failures that were never cleared; nothing is left that could be woken."""
    found = []
    for path in sorted((folder / "failures").glob("*.json")):
        injection = (read_json(path) or {}).get("injection", {})
        found.append(f"{injection.get('kind')} of {injection.get('deployment')}")
        path.unlink()
    return found
