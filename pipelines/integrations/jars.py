"""The jars of Kafka and of Spark's connector, checked against their locked checksums.

`jars.lock` beside this file names every jar by its coordinates and sha256. They are fetched once per user; a
jar whose checksum differs is not kept. With everything in the cache neither Java nor the network is touched.

    python -m pipelines.integrations.jars          fetch what is missing
    python -m pipelines.integrations.jars --lock   compute the checksums again, after a coordinate was changed

Jars are fetched with Ivy, which PySpark ships, so that Java is enough. Ivy knows Maven Central by the name of
its resolver `ibiblio`, so that no address stands here. HEADROOM_IVY_SETTINGS names an `ivysettings.xml` of
one's own, for mirrors and passwords; for a proxy set JAVA_TOOL_OPTIONS. Ivy loads one file at a time, so
several run side by side.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from xml.sax.saxutils import quoteattr

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from . import java

SETTINGS = "HEADROOM_IVY_SETTINGS"
PROCESSES = 3  # measured: all 39 jars (47 MB) in 7 s on two idle cores, in 14 s on two busy ones
SILENCE_S = 60.0  # judgement: a download prints a dot every few kilobytes

# Without the poms there is nothing to resolve: one request per jar instead of up to four.
CENTRAL = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>
"""


LOCK = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True)
class Jar:
    """One jar, as it was locked."""

    group: str
    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def file(self) -> str:
        """Its name in the cache."""
        return f"{self.name}-{self.revision}.jar"

    @property
    def coordinates(self) -> str:
        """As Maven writes them."""
        return f"{self.organisation}:{self.name}:{self.revision}"


def _retrieve(jars: Sequence[Jar], work: Path, *, settings: Path | None, marks: Mapping[str, str]) -> str:
    """Fetch jars into `work` as NAME-REVISION.jar, and return what Ivy said; some may not have come."""
    runtime = java.find()
    chosen = settings or (Path(os.environ[SETTINGS]) if os.environ.get(SETTINGS) else None)
    if chosen is None:
        chosen = work / "ivysettings.xml"
        chosen.write_text(CENTRAL)
    elif not chosen.is_file():
        raise Misconfigured(SETTINGS, f"{chosen} is not a file")
    said: list[bytearray] = []  # one for each process, or their lines would run into each other
    parts = [jars[start::PROCESSES] for start in range(min(PROCESSES, len(jars)))]
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number, part in enumerate(parts):
            module = work / f"ivy-{number}.xml"
            module.write_text(_module(part))
            child = subprocess.Popen(
                [
                    runtime.command,
                    # Short-lived: the second compiler and parallel collection cost more than they bring.
                    *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    f"-Divy.default.ivy.user.dir={work / f'cache-{number}'}",
                    *("-jar", _ivy(), "-settings", chosen, "-ivy", module, "-types", "jar", "bundle"),
                    *("-retrieve", f"{work}/[artifact]-[revision].[ext]"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **marks},
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
            assert child.stdout is not None
            stack.callback(child.stdout.close)
            said.append(bytearray())
            selector.register(child.stdout, selectors.EVENT_READ, said[-1])
        while selector.get_map():
            ready = selector.select(SILENCE_S)
            if not ready:
                raise NotReady(f"the download of jars has stood still for {SILENCE_S:.0f} s: try again")
            for key, _ in ready:
                chunk = os.read(key.fd, 65536)
                if not chunk:
                    selector.unregister(key.fileobj)
                key.data.extend(chunk)
    return b"\n".join(said).decode(errors="replace")


def _module(jars: Iterable[Jar]) -> str:
    wanted = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)} "
        f'rev={quoteattr(jar.revision)} transitive="false" conf="default->*"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="headroom" module="jars" revision="1"/>'
        '<configurations><conf name="default"/></configurations>'
        # Spark and the broker want kafka-clients in two revisions: none evicts another.
        f"<dependencies>{wanted}</dependencies>"
        '<conflicts><manager name="all"/></conflicts></ivy-module>'
    )


def _ivy() -> Path:
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found and found.origin else Path()
    for jar in folder.glob("ivy-*.jar"):
        return jar
    raise Misconfigured("pyspark", "brings no ivy-*.jar: run `make install`")


def _reason(said: str) -> str:
    """The line in which Ivy says why a jar did not come."""
    for word in ("UnknownHost", "Exception", "not found", "Connection"):
        for line in said.splitlines():
            if word in line:
                return line.strip(" \t:=")[:200]
    return "Ivy gave no reason"


def read_lock(path: Path = LOCK) -> tuple[Jar, ...]:
    """What was locked. Lines are `[group]`, or `organisation:name:revision sha256:…`."""
    jars: list[Jar] = []
    group = ""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0].startswith("["):
            group = words[0].strip("[]")
            continue
        parts = words[0].split(":")
        if len(parts) != 3 or not group:
            raise Misconfigured(f"{path.name}, line {number}", f"not organisation:name:revision: {line}")
        organisation, name, revision = parts
        digest = words[1].removeprefix("sha256:") if len(words) > 1 else ""
        jars.append(Jar(group, organisation, name, revision, digest))
    return tuple(jars)


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where a user's jars are kept, for all checkouts."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headroom" / "jars"


def fetch(
    *groups: str,
    cache: Path | None = None,
    lock: Path = LOCK,
    settings: Path | None = None,
    marks: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """The jars of these groups, in the order of the lock, checked; what is missing is fetched first."""
    jars = tuple(jar for jar in read_lock(lock) if jar.group in groups)
    if unknown := set(groups) - {jar.group for jar in jars}:
        raise Misconfigured(lock.name, f"has no group {', '.join(sorted(unknown))}")
    cache = cache or cache_folder()
    missing = [jar for jar in jars if not jar.sha256 or _digest(cache / jar.file) != jar.sha256]
    if missing:
        _download(missing, cache, settings=settings, marks=marks or {}, check=True)
    return tuple(cache / jar.file for jar in jars)


def relock(path: Path = LOCK) -> int:
    """Fetch every locked coordinate afresh and write its checksum beside it; how many changed."""
    old = read_lock(path)
    with tempfile.TemporaryDirectory() as folder:
        _download(old, Path(folder), settings=None, marks={}, check=False)
        new = [replace(jar, sha256=_digest(Path(folder) / jar.file)) for jar in old]
    digests = {jar.coordinates: jar.sha256 for jar in new}
    lines = []
    for line in path.read_text().splitlines():
        coordinates = (line.partition("#")[0].split() or [""])[0]
        digest = digests.get(coordinates)
        lines.append(f"{coordinates} sha256:{digest}" if digest else line)
    path.write_text("\n".join(lines) + "\n")
    return sum(was != now for was, now in zip(old, new, strict=True))


def _download(
    jars: Sequence[Jar],
    cache: Path,
    *,
    settings: Path | None,
    marks: Mapping[str, str],
    check: bool,
) -> None:
    absent = []
    wrong = []
    with _writable(cache), tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as name:
        work = Path(name)
        said = _retrieve(jars, work, settings=settings, marks=marks)
        for jar in jars:
            arrived = work / jar.file
            digest = _digest(arrived)
            if not digest:
                absent.append(jar.coordinates)
            elif check and digest != jar.sha256:
                wrong.append(f"{jar.coordinates} (locked {jar.sha256 or 'without one'}, got {digest})")
            else:
                arrived.replace(cache / jar.file)
    if wrong:
        raise Unsafe(
            f"the checksum of {', '.join(wrong)} differs from {LOCK.name}, and it was not kept: "
            "the mirror or the download is damaged; try again, or lock anew if the change was meant"
        )
    if absent:
        raise NotReady(
            f"{len(absent)} of {len(jars)} jars could not be fetched, the first is {absent[0]} "
            f"({_reason(said)}): check the network, "
            f"or name the ivysettings.xml of your mirror in {SETTINGS}"
        )


@contextmanager
def _writable(cache: Path) -> Iterator[None]:
    """The folder, made; what goes wrong with it or with its disk is the setting's that says where it is."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise Misconfigured(
            "XDG_CACHE_HOME",
            f"the jars cannot be kept in {cache} ({error.strerror}): "
            "name a folder of yours on a disk with room",
        ) from error


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch all jars into the cache, or compute the lock again."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.integrations.jars", description=main.__doc__)
    parser.add_argument("--lock", action="store_true", help="write the checksums of what is fetched")
    lock = parser.parse_args(arguments).lock

    try:
        if lock:
            sys.stdout.write(f"{relock()} checksums changed in {LOCK.name}\n")
        else:
            paths = fetch(*dict.fromkeys(jar.group for jar in read_lock()))
            sys.stdout.write(f"{len(paths)} jars in {cache_folder()}\n")
    except HeadroomError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
