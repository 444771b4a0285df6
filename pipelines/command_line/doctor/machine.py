"""Checks of the machine: Java, jars, clock and disk."""

from __future__ import annotations

import ctypes
import shutil

from models.errors import Misconfigured

from ...integrations import jars, java
from .findings import Finding, Surroundings, ok, problem, refused, warning

LITTLE_BYTES = 5e9  # judgement: a day of records on the embedded broker, and its segments of 256 MB
NONE_BYTES = 1e9  # judgement: less than one segment per topic and the store's log
TIME_ERROR = 5  # adjtimex(2): the kernel's clock is not synchronised


def java_found(around: Surroundings) -> list[Finding]:
    """Check for a Java that is new enough."""
    kind = around.settings.deployment.kind
    if kind != "local":
        return ok("Java", f"not needed here, the deployment is {kind}")
    try:
        found = java.find(around.environment)
    except Misconfigured as missing:
        return refused("Java", str(missing).removeprefix("JAVA_HOME: "))
    return ok("Java", f"Java {found.version} in {found.home}")


def jars_there(around: Surroundings) -> list[Finding]:
    """Check that the jars of Kafka and of Spark's connector exist; each start compares their checksums."""
    kind = around.settings.deployment.kind
    if kind != "local":
        return ok("jars", f"not needed here, the deployment is {kind}")
    cache, locked = jars.cache_folder(around.environment), jars.read_lock()
    missing = [jar for jar in locked if not (cache / jar.file).is_file()]
    if missing:
        seen = f"{cache} lacks {len(missing)} of {len(locked)}, the first is {missing[0].file}"
        return warning("jars", seen, "run `make jars`; otherwise the first start fetches them")
    return ok("jars", f"{len(locked)} in {cache}")


def clock(around: Surroundings) -> list[Finding]:
    """Check the clock: lag and latency compare it with the brokers', and decisions are keyed by it."""
    if _unsynchronised():
        fix = "`timedatectl set-ntp true`; in a container the host may do it, and the kernel not know"
        return warning("clock", "the kernel says that nothing synchronises it", fix)
    return ok("clock", "the kernel says that it is synchronised")


def disk(around: Surroundings) -> list[Finding]:
    """Check the room for records, checkpoints and logs."""
    there = around.folder if around.folder.exists() else around.root
    usage = shutil.disk_usage(there)
    free = f"{usage.free / 1e9:.1f} GB free of {usage.total / 1e9:.0f} GB"
    fix = f"make room on the disk of {around.folder}, or use another --folder"
    if usage.free < NONE_BYTES:
        return problem("disk", free, fix)
    return warning("disk", free, fix) if usage.free < LITTLE_BYTES else ok("disk", free)


def _unsynchronised() -> bool:
    """Whether adjtimex(2) says that the clock is not synchronised; no where it cannot be asked."""
    try:
        asked = ctypes.create_string_buffer(512)  # struct timex, all zero: read only
        answer: int = ctypes.CDLL(None).adjtimex(asked)
    except (OSError, AttributeError):
        return False
    return answer == TIME_ERROR
