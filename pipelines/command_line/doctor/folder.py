"""Checks of `.headroom/`: permissions, size, store, owner, and what killed runs have left."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections import Counter
from contextlib import suppress
from itertools import chain
from pathlib import Path

import psutil

from models.errors import HeadroomError
from models.ports import LATE_TICKS
from models.quantities import counted, lasting
from profiling_jobs.driver.launch_file import read_json

from ...environments.local.records import Records
from ...integrations.stores.opening import find_store, not_taken_over
from ...integrations.stores.sqlite import SqliteStore
from ...processes import owner
from ...processes.owner import Owner
from ...settings import times
from .findings import Finding, Surroundings, ok, problem, refused, warning

REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre"}
SECRET = ("*token*", "*secret*", "spark/conf/spark-defaults.conf", "deployments/*/*token*")
NAMED = 3  # judgement: enough to recognise them
BLOCK_BYTES = 512  # stat(2) counts in these, whatever the file system's own are
SHOWN_BYTES = 1e5  # judgement: what is smaller fills no disk


def permissions(around: Surroundings) -> list[Finding]:
    """Check that only its owner may read or write the folder: it holds secrets and decides what runs."""
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
        seen = f"{counted(len(open_), 'secret file')} can be read by others, the first is {open_[0]}"
        found += problem("folder", seen, f"chmod 600 {' '.join(map(str, open_[:NAMED]))}")
    kind = _filesystem(folder)
    if kind in REMOTE:
        seen = f"{folder} lies on {kind}, where neither its lock nor SQLite's log can be trusted"
        found += problem("folder", seen, "use a --folder on a local disk")
    return found or ok("folder", f"{folder}, only for you, on a local disk")


def usage(around: Surroundings) -> list[Finding]:
    """Report which part of the folder takes how much of the disk."""
    if not around.folder.exists():
        return ok("usage", f"{around.folder} is not there yet")
    parts: Counter[str] = Counter()
    for entry in os.scandir(around.folder):  # headroom.sqlite-wal, mlflow.sqlite, mlflow-artifacts, …
        part = re.split(r"[.-]", entry.name)[0]
        parts["store" if part == "headroom" else part] += _bytes(entry.path)
    shown = {part: size for part, size in parts.most_common() if size >= SHOWN_BYTES}
    if rest := parts.total() - sum(shown.values()):
        shown["the rest"] = rest
    each = ", ".join(f"{part} {_size(size)}" for part, size in shown.items())
    free = _size(shutil.disk_usage(around.folder).free)
    return ok("usage", f"{_size(parts.total())} in {around.folder}: {each}; {free} are free")


def store(around: Surroundings) -> list[Finding]:
    """Check that the store can be read, and that jobs are evaluated."""
    owned = owner.holder(around.folder) is not None
    late = []
    try:
        found = find_store(
            around.settings.store, around.folder, environment=around.environment, patience_s=1.0
        )
        if left := not_taken_over(around.settings.store, around.folder, found):
            return refused("store", left)
        if found is None:
            return ok("store", "empty: nothing was evaluated yet")
        with found as there:
            for name, job in around.settings.jobs.items():
                newest = there.evaluations(name, limit=1)
                age_s = around.now_s - newest[-1][0] if newest else 0.0
                if owned and age_s > LATE_TICKS * job.evaluation_interval_s:
                    late.append(f"{name} was evaluated last {lasting(age_s)} ago")
    except HeadroomError as broken:
        return refused("store", str(broken))
    if late:
        return problem("store", "; ".join(late), "see logs/ in the folder; restart `headroom serve`")
    size = f", {found.path.stat().st_size / 1e6:.1f} MB" if isinstance(found, SqliteStore) else ""
    return ok("store", f"{found.where}{size}, can be read and written")


def lock(around: Surroundings) -> list[Finding]:
    """Report the process that owns the folder now."""
    living = owner.holder(around.folder)
    if living is None:
        return ok("owner", "no server runs here")
    who = f"{living.process.command[0]}, process {living.process.pid}, since {times.shown(living.since_s)}"
    if living.process.frozen:
        return problem("owner", f"{who}, is stopped", f"kill -CONT {living.process.pid}")
    return ok("owner", who)


def leftovers(around: Surroundings) -> list[Finding]:
    """Report processes, failures and copies that a killed run has left behind."""
    if owner.holder(around.folder) is not None:
        return ok("leftovers", "not judged while an owner runs")
    left = Owner(around.folder).everything()
    found = []
    if left:
        some = ", ".join(f"{one.role or 'unknown'} ({one.pid})" for one in left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        seen = f"an earlier run has left {len(left)} of its processes alive: {some}{more}"
        found += problem("leftovers", seen, "`headroom cleanup` ends them")
    causes = [data for path in around.folder.glob("failures/*.json") if (data := read_json(path))]
    if causes:
        first = causes[0].get("injection", {})
        which = f"{first.get('kind')} of {first.get('deployment')}"
        seen = f"{counted(len(causes), 'failure')} not cleared, the first is {which}"
        found += problem("leftovers", seen, "the next start clears them, or `headroom cleanup`")
    copies = [
        record.name
        for record in Records(around.folder / "deployments").all()
        if record.plan.role == "profile" and record.wanted == "running"
    ]
    if copies:
        seen = f"the next start would run {len(copies)} left over from profiling, the first is {copies[0]}"
        found += warning("leftovers", seen, "`headroom cleanup` ends them")
    return found or ok("leftovers", "none")


def _bytes(path: str) -> int:
    """What a file or folder takes on the disk: Kafka's indexes are far longer than that."""
    found = 0
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    for one in chain([path], inside):
        with suppress(OSError):  # it has just gone
            found += os.lstat(one).st_blocks * BLOCK_BYTES
    return found


def _size(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.1f} MB"


def _open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o077)
    except OSError:
        return False


def _filesystem(path: Path) -> str:
    """The kind of the file system that a path lies on; empty where it is not known."""
    where = path.resolve()
    mounts = [one for one in psutil.disk_partitions(all=True) if where.is_relative_to(one.mountpoint)]
    return max(mounts, key=lambda one: len(one.mountpoint)).fstype if mounts else ""
