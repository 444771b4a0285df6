"""Checks of `.headroom/`: permissions, store, owner, and what killed runs have left."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from models.errors import HeadroomError
from models.quantities import lasting
from profiling_jobs.driver.launch_file import read_json

from ...environments.base import STORE
from ...environments.local.records import Records
from ...integrations.sqlite_store import SqliteStore
from ...processes import owner
from ...processes.owner import Owner
from ...settings import times
from .findings import Finding, Surroundings, ok, problem, warning

REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"}
SECRET = ("*token*", "*secret*", "spark/conf/spark-defaults.conf", "deployments/*/*token*")
LATE_TICKS = 3  # as `headroom explain`
NAMED = 3  # judgement: enough to recognise them


def permissions(around: Surroundings) -> list[Finding]:
    """It holds secrets and decides what runs: only its owner may read or write it."""
    folder = around.folder
    if not folder.exists():
        there = next(one for one in folder.resolve().parents if one.exists())
        if not there.is_dir():
            seen = f"{folder} cannot be made: {there} is a file"
            return problem("folder", seen, "move that aside, or name another --folder")
        if not os.access(there, os.W_OK | os.X_OK):
            seen = f"{folder} is not there and cannot be made"
            return problem("folder", seen, f"make {there} writable for you")
        return ok("folder", f"{folder} is not there yet: the first start makes it")
    found = []
    what = folder.stat()
    if what.st_uid != os.getuid():
        seen = f"{folder} belongs to user {what.st_uid}, you are {os.getuid()}"
        found += problem("folder", seen, f"run as its owner, or `sudo chown -R $USER {folder}`")
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        found += problem("folder", f"{folder} cannot be written", f"chmod 700 {folder}")
    if what.st_mode & 0o077:
        seen = f"{folder} is open to others (mode {stat.S_IMODE(what.st_mode):o})"
        found += problem("folder", seen, f"chmod 700 {folder}")
    open_ = [path for mark in SECRET for path in folder.glob(mark) if _open_to_others(path)]
    if open_:
        seen = f"{len(open_)} secret files are open to others, the first is {open_[0]}"
        found += problem("folder", seen, f"chmod 600 {' '.join(map(str, open_[:NAMED]))}")
    kind = _filesystem(folder)
    if kind in REMOTE:
        seen = f"{folder} lies on {kind}, where neither its lock nor SQLite's log can be trusted"
        found += problem("folder", seen, "use a --folder on a local disk")
    return found or ok("folder", f"{folder}, only for you, on a local disk")


def store(around: Surroundings) -> list[Finding]:
    """What must not be forgotten can be read, and jobs are evaluated."""
    path = around.folder / STORE
    if not path.exists():
        return ok("store", "empty: nothing was evaluated yet")
    owned = owner.holder(around.folder) is not None
    late = []
    try:
        with SqliteStore(path, patience_s=1.0) as there:
            for name, job in around.settings.jobs.items():
                newest = there.evaluations(name, limit=1)
                age_s = around.now_s - newest[-1][0] if newest else 0.0
                if owned and age_s > LATE_TICKS * job.evaluation_interval_s:
                    late.append(f"{name} was evaluated last {lasting(age_s)} ago")
    except HeadroomError as broken:
        said, _, fix = str(broken).rpartition(": ")
        return problem("store", said or str(broken), fix)
    if late:
        return problem("store", "; ".join(late), "see logs/ in the folder; restart `headroom serve`")
    return ok("store", f"{path}, {path.stat().st_size / 1e6:.1f} MB, can be read and written")


def lock(around: Surroundings) -> list[Finding]:
    """One owner at a time; the kernel frees the lock when its holder dies."""
    path = around.folder / "owner.lock"
    if not path.exists():
        return ok("owner", "no server runs here")
    living, held = owner.holder(around.folder), _locked(path)
    if living is not None and held is not False:
        who = (
            f"{living.process.command[0]}, process {living.process.pid}, since {times.shown(living.since_s)}"
        )
        if living.process.frozen:
            return problem("owner", f"{who}, is stopped", f"kill -CONT {living.process.pid}")
        return ok("owner", who)
    if held:
        seen = "locked by a process that has not said who it is, in a container perhaps"
        return problem("owner", seen, f"`fuser {path}` names it: end it, or use another --folder")
    return ok("owner", "no server runs here; the note of the last one is old, and does no harm")


def leftovers(around: Surroundings) -> list[Finding]:
    """Processes, failures and copies that a killed run has left behind."""
    if owner.holder(around.folder) is not None:
        return ok("leftovers", "not judged while an owner runs")
    left = Owner(around.folder).everything()
    found = []
    if left:
        some = ", ".join(f"{one.role or 'unknown'} ({one.pid})" for one in left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        seen = f"{len(left)} processes of an earlier run are alive: {some}{more}"
        found += problem("leftovers", seen, "`headroom cleanup` ends them")
    causes = [data for path in around.folder.glob("failures/*.json") if (data := read_json(path))]
    if causes:
        first = causes[0].get("injection", {})
        which = f"{first.get('kind')} of {first.get('deployment')}"
        seen = f"{len(causes)} failures are not cleared, the first is {which}"
        found += problem("leftovers", seen, "the next start clears them, or `headroom cleanup`")
    copies = [
        record.name
        for record in Records(around.folder / "deployments").all()
        if record.plan.role == "profile" and record.wanted == "running"
    ]
    if copies:
        seen = f"{len(copies)} profiling copies are still wanted, the first is {copies[0]}"
        found += warning("leftovers", seen, "`headroom cleanup` lets go of them")
    return found or ok("leftovers", "none")


def _open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False


def _filesystem(path: Path) -> str:
    """The kind of the file system that a path lies on; empty where the kernel does not say."""
    where = str(path.resolve())
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, mounted, found, *_ = line.split()
        point = mounted.replace("\\040", " ")
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _locked(path: Path) -> bool | None:
    """Whether a process holds the lock, without taking it ourselves; None: the kernel does not say."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    words = [line.split() for line in lines]
    return any("FLOCK" in one and any(w.endswith(f":{inode}") for w in one) for one in words)
