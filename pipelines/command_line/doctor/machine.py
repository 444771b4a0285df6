"""Checks of the machine: Java, jars, installed packages, clock and disk."""

from __future__ import annotations

import ctypes
import os
import shutil
from importlib import metadata
from pathlib import Path

from models.errors import Misconfigured

from ...integrations import jars, java
from .findings import Finding, Surroundings, ok, problem, warning

OURS = ("models", "profiling_jobs", "assets", "pipelines")
NEEDED = {"pyspark": "4.2.0", "dagster": "", "mlflow": "", "kafka-python": ""}  # docs/decisions/0004
LITTLE_BYTES = 5e9  # judgement: a day of records on the embedded broker, and its segments of 256 MB
NONE_BYTES = 1e9  # judgement: less than one segment per topic and the store's log
SKEW_S = 5.0  # two machines kept by NTP differ by far less (judgement)
INSTALL = "run `make install`"
TIME_ERROR = 5  # adjtimex(2): the kernel's clock is not synchronised


def java_found(around: Surroundings) -> list[Finding]:
    """A Java that is new enough."""
    kind = around.settings.deployment.kind
    if kind != "local":
        return ok("Java", f"not needed here, the deployment is {kind}")
    try:
        found = java.find(around.environment)
    except Misconfigured as missing:
        said, _, fix = str(missing).removeprefix("JAVA_HOME: ").rpartition(": ")
        return problem("Java", said or str(missing), fix)
    return ok("Java", f"Java {found.version} in {found.home}")


def jars_there(around: Surroundings) -> list[Finding]:
    """The jars of Kafka and of Spark's connector, by name: their checksums are compared at every start."""
    kind = around.settings.deployment.kind
    if kind != "local":
        return ok("jars", f"not needed here, the deployment is {kind}")
    cache, locked = jars.cache_folder(around.environment), jars.read_lock()
    missing = [jar for jar in locked if not (cache / jar.file).is_file()]
    if missing:
        seen = f"{len(missing)} of {len(locked)} are not in {cache}, the first is {missing[0].file}"
        return warning("jars", seen, "run `make jars`; otherwise the first start fetches them")
    return ok("jars", f"{len(locked)} in {cache}")


def installed(around: Surroundings) -> list[Finding]:
    """What Headroom stands on, in versions that belong together."""
    found: list[str] = []
    wrong: list[str] = []
    for name, wanted in NEEDED.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        found.append(f"{name} {version}")
        if wanted and version != wanted:
            wrong.append(f"{name} is {version}, Headroom runs on {wanted}")
    if wrong:
        return problem("packages", "; ".join(wrong), INSTALL)
    return ok("packages", ", ".join(found))


def squatters(around: Surroundings) -> list[Finding]:
    """Another distribution that brings a top-level package of our names would be imported instead of ours."""
    brings = metadata.packages_distributions()
    foreign = {name: [d for d in brings.get(name, []) if d != "headroom"] for name in OURS}
    taken = {name: found[0] for name, found in foreign.items() if found}
    if taken:
        seen = ", ".join(f"{who} also installs a top-level package `{name}`" for name, who in taken.items())
        remove = " ".join(sorted(set(taken.values())))
        return problem("package names", seen, f"uninstall it here: `pip uninstall {remove}`")
    return ok("package names", f"{', '.join(OURS)} are ours")


def clock(around: Surroundings) -> list[Finding]:
    """Lag and latency compare our clock with the brokers'; decisions are keyed by it."""
    ahead_s = max((_written_s(path) for path in _files(around.folder)), default=0.0) - around.now_s
    if ahead_s > SKEW_S:
        seen = f"files in {around.folder} were written {ahead_s:.0f} s in the future: the clock has gone back"
        return problem("clock", seen, "synchronise it: `timedatectl set-ntp true`")
    if _unsynchronised():
        seen = "nothing on this machine synchronises it, the kernel says"
        fix = "unless the host does it: `timedatectl set-ntp true`"
        return warning("clock", seen, fix)
    return ok("clock", "kept right, the kernel says")


def disk(around: Surroundings) -> list[Finding]:
    """Room for records, checkpoints and logs."""
    there = around.folder if around.folder.exists() else around.root
    usage = shutil.disk_usage(there)
    nodes = os.statvfs(there)
    free = f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.0f} GB"
    if nodes.f_files and nodes.f_favail < 10_000:
        return problem("disk", f"{free}, but only {nodes.f_favail} inodes", "delete small files")
    fix = f"make room on the disk of {around.folder}, or use another --folder"
    if usage.free < NONE_BYTES:
        return problem("disk", free, fix)
    return [Finding("disk", "warning" if usage.free < LITTLE_BYTES else "ok", free,
                    fix if usage.free < LITTLE_BYTES else "")]  # fmt: skip


def _files(folder: Path) -> list[Path]:
    return [*folder.glob("*"), *folder.glob("logs/*"), *folder.glob("processes/*")]


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _unsynchronised() -> bool:
    """As adjtimex(2) says; where it cannot be asked nothing is said."""
    try:
        asked = ctypes.create_string_buffer(512)  # struct timex, all zero: read only
        answer: int = ctypes.CDLL(None).adjtimex(asked)
    except (OSError, AttributeError):
        return False
    return answer == TIME_ERROR
