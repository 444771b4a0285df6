"""`headroom resume`: end a pause, a pin, and the hold after a size was set from outside."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from models.quantities import executors

from ..settings import times
from . import directives, stored_job


@click.command("resume")
@click.argument("job")
@directives.why_option
@directives.wait_option
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print what was ended as JSON.")
def command(job: str, why: str, file: Path, folder: Path, wait: bool, as_json: bool) -> None:
    """Decide for a job again: end its pause and its pin, and take back a size that was set from outside.

    Sizes that were barred because they did not work may be taken again, too.

    \b
    Exit code 0: a tick has decided without them; with --no-wait, or where nothing was in force: it is stored.
    Exit code 1: it is stored, and no tick has obeyed it yet; the reason says what to do.
    Exit code 2: it could not run.
    """
    with stored_job.opened(job, file=file, folder=folder, create=True) as there:
        who, reason = stored_job.who(), stored_job.said_why(why)
        ended = there.store.directives(job, now_s=there.now_s)
        foreign, barred = directives.foreign_edit(there), directives.quarantines(there)
        there.store.resume(job, who=who, why=reason, now_s=there.now_s)
        sentences = [f"By {who}: “{reason}”."]
        # The hold is the loop's own note of the foreign edit, which is printed below.
        directives_ended = [one for one in ended if one.kind != "hold" or not foreign]
        sentences += [f"Ended: {directives.in_words(one)}." for one in directives_ended]
        if foreign:
            sentences.append(
                f"Ours again: the {executors(int(foreign['found']))} that were set from outside at "
                f"{times.shown(float(foreign['since_s']))}, where we had set {foreign['ours']}; the next "
                "decision may change them."
            )
        for one in barred:
            more = "more" if one.get("direction") == "out" else "fewer"
            sentences.append(
                f"Allowed again: {executors(int(one['scale_out']))} and {more}, barred until "
                f"{times.shown(float(one['until_s']))} ({one['why']})."
            )
        nothing = not ended and not foreign and not barred
        if nothing:
            sentences.append("Nothing was in force: there was nothing to end.")
        directives.answer(
            there,
            folder=folder,
            wait=wait and (not nothing or directives.held(there.newest)),
            as_json=as_json,
            since_s=there.now_s,
            obeyed=lambda evaluation: not directives.held(evaluation),
            what=f"the resume of {job}",
            data={
                "who": who,
                "why": reason,
                "ended": [asdict(one) for one in ended],
                "foreign_edit": foreign,
                "allowed_again": [dict(one) for one in barred],
            },
            headline=f"{job} is decided for {'as before' if nothing else 'again'}",
            sentences=sentences,
        )
