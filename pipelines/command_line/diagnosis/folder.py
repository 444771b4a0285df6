"""Is `.headroom/` in order? Who may read it, who owns it, what is left in it of runs that were killed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from models.errors import HeadroomError
from profiling_jobs.driver.launch_file import read_json
from profiling_jobs.explain.wording import lasting

from ...environments.base import STORE
from ...environments.local.records import Records
from ...integrations.sqlite_store import SqliteStore
from ...processes import owner
from ...processes.owner import Owner
from ...settings import times
from . import Finding, Patient

REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"}
SECRET = ("*token*", "*secret*", "spark/conf/spark-defaults.conf", "deployments/*/*token*")
LATE_TICKS = 3  # as `headroom explain`
NAMED = 3  # judgement: enough to recognise them


def permissions(patient: Patient) -> list[Finding]:
    """It holds secrets and decides what runs: nobody else may read or write it."""
    folder = patient.folder
    if not folder.exists():
        there = next(one for one in folder.resolve().parents if one.exists())
        if not there.is_dir():
            told = f"{folder} cannot be made: {there} is a file"
            return [Finding("folder", "problem", told, "move that aside, or name another --folder")]
        if not os.access(there, os.W_OK | os.X_OK):
            told = f"{folder} is not there and cannot be made"
            return [Finding("folder", "problem", told, f"make {there} writable for you")]
        return [Finding("folder", "ok", f"{folder} is not there yet: the first start makes it")]
    found = []
    what = folder.stat()
    if what.st_uid != os.getuid():
        told = f"{folder} belongs to user {what.st_uid}, you are {os.getuid()}"
        found.append(
            Finding("folder", "problem", told, f"run as its owner, or `sudo chown -R $USER {folder}`")
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        found.append(Finding("folder", "problem", f"{folder} cannot be written", f"chmod 700 {folder}"))
    if what.st_mode & 0o077:
        told = f"{folder} is open to others (mode {stat.S_IMODE(what.st_mode):o})"
        found.append(Finding("folder", "problem", told, f"chmod 700 {folder}"))
    open_ = [path for mark in SECRET for path in folder.glob(mark) if _open_to_others(path)]
    if open_:
        told = f"{len(open_)} secret files are open to others, the first is {open_[0]}"
        found.append(Finding("folder", "problem", told, f"chmod 600 {' '.join(map(str, open_[:NAMED]))}"))
    kind = _filesystem(folder)
    if kind in REMOTE:
        told = f"{folder} lies on {kind}, where neither its lock nor SQLite's log can be trusted"
        found.append(Finding("folder", "problem", told, "use a --folder on a local disk"))
    return found or [Finding("folder", "ok", f"{folder}, only for you, on a local disk")]


def store(patient: Patient) -> list[Finding]:
    """What must not be forgotten can be read, and somebody evaluates."""
    path = patient.folder / STORE
    if not path.exists():
        return [Finding("store", "ok", "empty: nothing was evaluated yet")]
    owned = owner.holder(patient.folder) is not None
    late = []
    try:
        with SqliteStore(path, patience_s=1.0) as there:
            for name, job in patient.settings.jobs.items():
                newest = there.evaluations(name, limit=1)
                age_s = patient.now_s - newest[-1][0] if newest else 0.0
                if owned and age_s > LATE_TICKS * job.evaluation_interval_s:
                    late.append(f"{name} was evaluated last {lasting(age_s)} ago")
    except HeadroomError as broken:
        said, _, fix = str(broken).rpartition(": ")
        return [Finding("store", "problem", said or str(broken), fix)]
    if late:
        return [
            Finding("store", "problem", "; ".join(late), "see logs/ in the folder; restart `headroom serve`")
        ]
    return [Finding("store", "ok", f"{path}, {path.stat().st_size / 1e6:.1f} MB, can be read and written")]


def lock(patient: Patient) -> list[Finding]:
    """One owner at a time; the kernel frees the lock when its holder dies."""
    path = patient.folder / "owner.lock"
    if not path.exists():
        return [Finding("owner", "ok", "nobody runs here")]
    living, held = owner.holder(patient.folder), _locked(path)
    if living is not None and held is not False:
        who = (
            f"{living.process.command[0]}, process {living.process.pid}, since {times.shown(living.since_s)}"
        )
        if living.process.frozen:
            return [Finding("owner", "problem", f"{who}, is stopped", f"kill -CONT {living.process.pid}")]
        return [Finding("owner", "ok", who)]
    if held:
        told = "locked by a process that has not said who it is, in a container perhaps"
        return [
            Finding("owner", "problem", told, f"`fuser {path}` names it: end it, or use another --folder")
        ]
    return [Finding("owner", "ok", "nobody runs here; the note of the last owner is old, and does no harm")]


def leftovers(patient: Patient) -> list[Finding]:
    """Processes, failures and copies that a killed run has left behind."""
    if owner.holder(patient.folder) is not None:
        return [Finding("leftovers", "ok", "not judged while an owner runs")]
    left = Owner(patient.folder).everything()
    found = []
    if left:
        some = ", ".join(f"{one.role or 'unknown'} ({one.pid})" for one in left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        told = f"{len(left)} processes of an earlier run are alive: {some}{more}"
        found.append(Finding("leftovers", "problem", told, "`headroom cleanup` ends them"))
    causes = [data for path in patient.folder.glob("failures/*.json") if (data := read_json(path))]
    if causes:
        first = causes[0].get("injection", {})
        which = f"{first.get('kind')} of {first.get('deployment')}"
        told = f"{len(causes)} failures are not cleared, the first is {which}"
        found.append(
            Finding("leftovers", "problem", told, "the next start clears them, or `headroom cleanup`")
        )
    copies = [
        record.name
        for record in Records(patient.folder / "deployments").all()
        if record.plan.role == "profile" and record.wanted == "running"
    ]
    if copies:
        told = f"{len(copies)} profiling copies are still wanted, the first is {copies[0]}"
        found.append(Finding("leftovers", "warning", told, "`headroom cleanup` lets go of them"))
    return found or [Finding("leftovers", "ok", "none")]


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
    """Whether somebody holds it, without taking it for a moment ourselves; None: the kernel does not say."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    words = [line.split() for line in lines]
    return any("FLOCK" in one and any(w.endswith(f":{inode}") for w in one) for one in words)
