"""The Java that runs Kafka and Spark here, and what installs one where there is none.

JAVA_HOME first, then `java` on PATH; whichever is new enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.errors import Misconfigured

OLDEST = 17  # Spark 4 and Kafka 4 (brokers) both ask for it
ANSWER_S = 30.0  # judgement: `java -version` takes 0.1 s, far longer on a machine that is busy
INSTALL = {  # package manager -> what installs a Java without a desktop
    "apt-get": "sudo apt-get install openjdk-17-jre-headless",
    "dnf": "sudo dnf install java-17-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre17-openjdk-headless",
}


@dataclass(frozen=True)
class Java:
    """A Java that is new enough."""

    home: Path
    version: int

    @property
    def command(self) -> Path:
        """The `java` to run."""
        return self.home / "bin" / "java"


def find(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java that is new enough, or one sentence on how to get it."""
    environment = os.environ if environment is None else environment
    seen = []
    for origin, command in _candidates(environment):
        version, home = _asked(command)
        if version >= OLDEST:
            return Java(home, version)
        seen.append(f"{origin} is {f'Java {version}' if version else 'not a Java that runs'}")
    found = " and ".join(seen) or "there is neither JAVA_HOME nor `java` on PATH"
    manager = next((name for name in INSTALL if shutil.which(name)), "apt-get")
    raise Misconfigured(
        "JAVA_HOME", f"Java {OLDEST} or newer is needed, and {found}: install it with `{INSTALL[manager]}`"
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if path := shutil.which("java", path=environment.get("PATH", "")):
        found.append(("`java` on PATH", Path(path)))
    return found


def _asked(command: Path) -> tuple[int, Path]:
    """The major version, 0 for what does not answer like a Java, and its home.

    Where the command lies says little: jenv, asdf and others put a script on PATH that starts the Java of
    the day.
    """
    beside = command.resolve().parent.parent
    try:
        answer = subprocess.run(
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
        )
    except (OSError, subprocess.SubprocessError):
        return 0, beside
    said = answer.stderr + answer.stdout
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    home = re.search(r"^ *java\.home = (.+)$", said, re.MULTILINE)
    return (
        int(version[1]) if version and answer.returncode == 0 else 0,
        Path(home[1].strip()) if home else beside,
    )
