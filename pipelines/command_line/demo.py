"""`headroom demo`: from nothing to a decision that was carried out, in one command.

On a cluster the command runs twice: here, where it makes a pod, and in that pod, where it is given `--file`.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from models.errors import HeadroomError, Unsafe

from ..demo.scenes import MARK, SCENES, Scene
from ..processes import owner
from ..serving import Say, Service, open_service
from ..settings import loading
from ..web.access import with_token
from . import options, orders, page


@click.command("demo")
@click.option(
    "--deployment",
    type=click.Choice(sorted(SCENES)),
    default="local",
    show_default=True,
    help="local: real Kafka and Spark on this machine, up to 10 minutes. simulated: no Java, no network, up "
    "to 2 minutes. kubernetes: in namespaces of its own, with your brokers and Chaos Mesh.",
)
@click.option("--keep", is_flag=True, envvar="KEEP", help="Leave everything running until Ctrl-C.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Its folder, which is emptied first. Default: .headroom/demo-DEPLOYMENT.",
)
@click.option("--pages/--no-pages", default=True, help="Serve the pages of Dagster and MLflow meanwhile.")
@click.option("--context", help="kubernetes: the context of your kubeconfig. Default: kubernetes.context.")
@click.option(
    "--overlay",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="kubernetes: images, brokers and volume. Default: deploy/kustomize/overlays/demo.",
)
@click.option("--yes", is_flag=True, help="kubernetes: use --context without a question.")
@click.option("--file", type=click.Path(path_type=Path), hidden=True)
@options.as_json("Print what came of it as JSON.")
def command(
    deployment: str,
    keep: bool,
    folder: Path | None,
    pages: bool,
    context: str | None,
    overlay: Path | None,
    yes: bool,
    file: Path | None,
    as_json: bool,
) -> None:
    """Run the whole story on a job whose load rises: record, profile, drill, model, decide, apply.

    It has a folder of its own, or namespaces of its own, and ends everything that it started, unless --keep.
    On a cluster its namespaces and topics are deleted at the end.

    \b
    Exit code 0: a decision was carried out.
    Exit code 1: no decision was carried out.
    Exit code 130: Ctrl-C ended it, as it does with --keep.
    """
    owner.exit_on_signals()

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    if deployment == "kubernetes" and file is None:
        if folder is not None:
            raise click.UsageError(
                "--folder is for demos on this machine; on a cluster --overlay names a volume"
            )
        words = [*(["--keep"] if keep else ["--no-pages"]), *(["--json"] if as_json else [])]
        with owner.interruptible(say):
            code = _in_a_pod(words, context=context, overlay=overlay, yes=yes, as_json=as_json, say=say)
        sys.exit(code)
    _here(deployment, file, folder, keep=keep, pages=pages, as_json=as_json, say=say)


def _in_a_pod(
    words: list[str], *, context: str | None, overlay: Path | None, yes: bool, as_json: bool, say: Say
) -> int:
    """Run this command in a pod of the cluster, and show what it prints; its exit code."""
    from ..demo import on_kubernetes
    from ..integrations.kubernetes_api import named_context

    mine = Path("headroom.toml")
    text = mine.read_text(encoding="utf-8-sig") if mine.is_file() else ""
    cluster = loading.parse(text, file=str(mine), environment=os.environ).kubernetes
    named = cluster.model_copy(update={"context": context or cluster.context})
    wanted = named_context(named, setting="--context (CONTEXT= of make)")
    if cluster.context not in (None, wanted) and not yes:
        question = f"kubernetes.context is '{cluster.context}'. Make and delete namespaces on '{wanted}'?"
        if not (sys.stdin.isatty() and click.confirm(question, err=True)):
            raise Unsafe(
                f"kubernetes.context is '{cluster.context}', not '{wanted}': leave --context out, or add "
                "--yes"
            )
    overlay = overlay or on_kubernetes.OVERLAY
    objects = on_kubernetes.rendered(overlay)
    given = on_kubernetes.settings_in(objects) + "\n" + SCENES["kubernetes"].settings
    on_kubernetes.check(loading.parse(given, file=f"{overlay}/headroom.toml", environment={}))

    def show(line: str) -> None:
        result = line.startswith("{")  # a log does not tell its two outputs apart
        click.echo(line, err=as_json and not result)

    kubectl = on_kubernetes.Kubectl(wanted)
    objects = on_kubernetes.in_a_pod(objects, words)
    with on_kubernetes.DemoPod(kubectl, objects, say=say, show=show) as pod:
        code = pod.follow()
        say("removing everything that was made")
    return code


def _here(
    deployment: str,
    file: Path | None,
    folder: Path | None,
    *,
    keep: bool,
    pages: bool,
    as_json: bool,
    say: Say,
) -> None:
    """Run it in this process, in a folder that is made anew."""
    scene = SCENES[deployment]
    from ..orchestration.runs import quiet

    quiet()
    with owner.interruptible(say), ExitStack() as stack:
        began_s = time.monotonic()
        since_s = math.floor(time.time() - scene.head_start_s)
        if file is None:
            place = (folder or Path(".headroom") / f"demo-{deployment}").resolve()
            file, work = place / "headroom.toml", place / ".headroom"
            _fresh(place, work, file, scene.settings)
            settings = loading.load(file, environment={})
        else:
            from ..demo import on_kubernetes

            work = (folder or Path(".headroom")).resolve()
            text = f"{MARK}\n{file.read_text(encoding='utf-8-sig')}\n{scene.settings}"
            file = work / "headroom.toml"
            _fresh(work, work, file, text)
            stack.callback(_emptied, work)
            settings = loading.load(file, environment=os.environ)
            stack.enter_context(on_kubernetes.own_topics(settings, work, say=say))
        service = stack.enter_context(
            open_service(settings, file=file, folder=work, say=say, command="headroom demo", since_s=since_s)
        )
        applied = _performed(service, scene, stack, began_s, keep=keep, pages=pages, as_json=as_json, say=say)
        if keep:
            say("everything runs on; Ctrl-C ends it")
            while True:
                time.sleep(1.0)
                service.pages.watch()
    options.answer_no(not applied)


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
    from ..demo import on_kubernetes
    from ..demo.show import Lines, summary, what_to_type, where_to_click
    from ..demo.story import Demo

    if pages:
        service.pages.start(daemon=False)
        service.pages.prepared()
    runs = stack.enter_context(orders.runs(service.file, service.folder))
    terminal = sys.stdout.isatty() and not as_json
    with orders.shown("demo", err=as_json) as show:
        lines_or_bar = Lines(show.say, bar=show.at if terminal else None)
        demo = Demo(service, runs, scene, lines_or_bar)
        stack.callback(demo.close)
        outcome = demo.run()
    if keep:
        demo.evaluator.go_on()
        if service.environment.pace is not None:
            service.environment.pace.catch_up()
    lines = []
    if pages and keep:
        with suppress(HeadroomError):  # what was found is worth more than where to look at it
            found = service.pages.wait()
            opened = with_token(f"{found['pages']}/", service.folder) if terminal else ""
            lines += where_to_click(found, opened=opened)
    if service.environment.kind != "kubernetes":
        lines.append(what_to_type(service.file.parent))
    elif keep:  # else the pod ends now
        addresses = service.pages.addresses if pages else {}
        lines += on_kubernetes.what_to_type(service.settings, service.file, service.folder, addresses)
    took = time.monotonic() - began_s
    if as_json:
        where = service.pages.addresses if pages else {}
        result = outcome.to_json() | {"addresses": where, "seconds": round(took, 1)}
        click.echo(json.dumps(result))
    else:
        click.echo("")
        page.pairs(summary(outcome), indent=0)
        for line in lines:
            click.echo(line)
        closed = ". The pages of Dagster and MLflow are closed: --keep (make: KEEP=1) leaves them open"
        page.paragraph(f"It took {took:.0f} s{closed if pages and not keep else ''}.", indent=0)
    if keep and pages:
        if service.environment.pace is not None:
            say("simulated time catches up with the wall clock")
        demo.evaluator.hand_over()
        service.pages.start()
    return outcome.applied


def _fresh(place: Path, work: Path, file: Path, text: str) -> None:
    """Empty the folder `place`, and write the demo's headroom.toml; nothing but a demo's is deleted."""
    try:
        if _contents(place):
            if not file.is_file() or not file.read_text(encoding="utf-8").startswith(MARK):
                raise Unsafe(
                    f"{place} holds something that is not of a demo: name another --folder, or on a cluster "
                    "an empty volume"
                )
            owner.cleanup(work)
            _emptied(place)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise owner.unwritable(place, error) from error


def _emptied(place: Path) -> None:
    """Delete what is in a folder, but not the folder: a volume may be mounted there."""
    for one in _contents(place):
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink(missing_ok=True)


def _contents(place: Path) -> list[Path]:
    """What is in a folder, but for what every new volume has."""
    return [one for one in place.iterdir() if one.name != "lost+found"] if place.exists() else []
