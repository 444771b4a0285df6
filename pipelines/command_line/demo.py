"""`headroom demo`: from nothing to a decision that was carried out, in one command."""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from models.errors import HeadroomError, Unsafe

from ..demo.scenes import SCENES, Scene
from ..processes import owner
from ..serving import Say, Service, open_service
from ..settings import loading

MARK = "# Written by `headroom demo`"


@click.command("demo")
@click.option(
    "--deployment",
    type=click.Choice(sorted(SCENES)),
    default="local",
    show_default=True,
    help="local: real Kafka and Spark on this machine, within 10 minutes. simulated: without, within 2.",
)
@click.option("--keep", is_flag=True, envvar="KEEP", help="Leave everything running until Ctrl-C.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where it happens; made anew. Default: .headroom/demo-local or .headroom/demo-simulated.",
)
@click.option("--pages/--no-pages", default=True, help="Dagster's and MLflow's pages.")
@click.option("--json", "as_json", is_flag=True, help="Print what came of it as JSON.")
def command(deployment: str, keep: bool, folder: Path | None, pages: bool, as_json: bool) -> None:
    """A live job with a load that rises: record, profile, drill, model, decide, apply, prove.

    Everything happens in a folder of its own, and ends with the command unless --keep.

    \b
    Exit code 0: a decision was carried out.
    Exit code 1: none was.
    Exit code 2: it could not run.
    Exit code 130: Ctrl-C ended it, as it does with --keep.
    """
    scene = SCENES[deployment]
    place = (folder or Path(".headroom") / f"demo-{deployment}").resolve()
    file = _fresh(place, scene)
    settings = loading.load(file, environment={})
    owner.exit_on_signals()
    from ..orchestration.runs import quiet

    quiet()

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    with owner.interruptible(say), ExitStack() as stack:
        began_s = time.monotonic()
        since_s = time.time() - scene.head_start_s
        service = stack.enter_context(
            open_service(
                settings,
                file=file,
                folder=place / ".headroom",
                say=say,
                command="headroom demo",
                since_s=since_s,
            )
        )
        applied = _performed(service, scene, stack, began_s, keep=keep, pages=pages, as_json=as_json, say=say)
        if keep:
            say("everything runs on; Ctrl-C ends it")
            while True:
                time.sleep(1.0)
                service.pages.watch()
    if not applied:
        raise click.exceptions.Exit(1)


def _performed(
    service: Service,
    scene: Scene,
    stack: ExitStack,
    began_s: float,
    *,
    keep: bool,
    pages: bool,
    as_json: bool,
    say: Say,
) -> bool:
    from ..demo.show import shown, summary, what_to_type, where_to_click
    from ..demo.story import Demo
    from ..orchestration.runs import Runs

    if pages:
        service.pages.start(daemon=False)
        service.pages.prepared()
    else:
        service.pages.prepare_home()
    environment = service.pages.environment()
    runs = Runs(
        service.pages.home,
        file=service.file,
        folder=service.folder,
        environment=environment,
        code_port=service.pages.code_port,
    )
    stack.callback(runs.close)
    terminal = sys.stdout.isatty() and not as_json
    with shown(say, terminal=terminal) as show:
        demo = Demo(service, runs, scene, show, seconds=time.monotonic)
        stack.callback(demo.close)
        outcome = demo.run()
    if keep and service.environment.pace is not None:
        demo.evaluator.acts = True
        service.environment.pace.catch_up()
    lines = summary(outcome)
    if pages:
        with suppress(HeadroomError):  # what was found is worth more than where to look at it
            lines += where_to_click(service.pages.wait())
    lines.append(what_to_type(service.file.parent))
    took = time.monotonic() - began_s
    if as_json:
        where = service.pages.addresses.to_json() if pages else {}
        found = outcome.to_json() | {"addresses": where, "seconds": round(took, 1)}
        click.echo(json.dumps(found))
    else:
        click.echo("")
        for line in lines:
            click.echo(line)
        click.echo(f"\nin {took:.0f} s" + ("" if keep else "; KEEP=1 (or --keep) leaves the pages open"))
    if keep and pages:
        demo.evaluator.hand_over()
        service.pages.start()
    return outcome.applied


def _fresh(place: Path, scene: Scene) -> Path:
    """The folder made anew, with the demo's headroom.toml in it; nothing but a demo's is deleted."""
    file = place / "headroom.toml"
    try:
        if place.exists() and any(place.iterdir()):
            if not file.is_file() or not file.read_text(encoding="utf-8").startswith(MARK):
                raise Unsafe(f"{place} holds something that is not of a demo: name another --folder")
            owner.cleanup(place / ".headroom")
            shutil.rmtree(place)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(scene.settings, encoding="utf-8")
    except OSError as error:
        raise owner.unwritable(place, error) from error
    return file
