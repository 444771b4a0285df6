"""How are jars fetched with nothing but Java and what PySpark brings?

PySpark ships Ivy, and Ivy knows Maven Central by the name of its resolver `ibiblio`, so that no address
stands here. HEADROOM_IVY_SETTINGS names an `ivysettings.xml` of one's own, for mirrors and passwords; for a
proxy set JAVA_TOOL_OPTIONS. Ivy loads one file at a time, so several run side by side.
"""

from __future__ import annotations

import importlib.util
import os
import selectors
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol
from xml.sax.saxutils import quoteattr

from profiling_jobs.errors import Misconfigured, NotReady

from . import java

SETTINGS = "HEADROOM_IVY_SETTINGS"
PROCESSES = 3  # measured: all 39 jars (47 MB) in 7 s on two idle cores, in 14 s on two busy ones
SILENCE_S = 60.0  # judgement: a download prints a dot every few kilobytes
Progress = Callable[[int, int, str], None]  # jars done, jars in all, the one that has just arrived

# Without the poms there is nothing to resolve: one request per jar instead of up to four.
CENTRAL = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>
"""


class Coordinates(Protocol):
    """What names a jar in a repository."""

    @property
    def organisation(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> str: ...


def retrieve(
    runtime: java.Java,
    jars: Sequence[Coordinates],
    work: Path,
    *,
    settings: Path | None,
    progress: Progress | None,
    marks: Mapping[str, str],
) -> str:
    """Fetch jars into `work` as NAME-REVISION.jar, and return what Ivy said; some may not have come."""
    chosen = settings or (Path(os.environ[SETTINGS]) if os.environ.get(SETTINGS) else None)
    if chosen is None:
        chosen = work / "ivysettings.xml"
        chosen.write_text(CENTRAL)
    elif not chosen.is_file():
        raise Misconfigured(SETTINGS, f"{chosen} is not a file")
    said: list[bytearray] = []  # one for each process, or their lines would run into each other
    done = 0
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
                start = key.data.rfind(b"\n") + 1
                key.data.extend(chunk)
                for line in key.data[start:].split(b"\n")[:-1]:
                    if b"[SUCCESSFUL ]" in line:
                        done += 1
                        if progress:
                            progress(done, len(jars), line.decode(errors="replace").split("!")[-1].split()[0])
    return b"\n".join(said).decode(errors="replace")


def _module(jars: Iterable[Coordinates]) -> str:
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


def reason(said: str) -> str:
    """The line in which Ivy says why a jar did not come."""
    for word in ("UnknownHost", "Exception", "not found", "Connection"):
        for line in said.splitlines():
            if word in line:
                return line.strip(" \t:=")[:200]
    return "Ivy gave no reason"
