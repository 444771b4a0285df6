"""A random secret in a file, made at its first use and kept."""

from __future__ import annotations

import secrets
import stat
from contextlib import suppress
from pathlib import Path

from models.errors import Misconfigured, Unsafe

from .driver.launch_file import write_once

BYTES = 32


def kept(path: Path) -> str:
    """The secret in this file, made where there is none: of mode 0600, and durable before it is used."""
    with suppress(FileNotFoundError):
        return _read(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_once(path, secrets.token_hex(BYTES))
    except OSError as error:
        raise Misconfigured(
            str(path), f"cannot be made ({error}): is there room, and may we write?"
        ) from error
    return _read(path)


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(str(path), f"cannot be read ({error}): run as the user who owns it") from error
    if mode & (stat.S_IRWXO):  # a volume of Kubernetes opens files to its group
        raise Unsafe(f"{path} can be read by every user of this machine: delete it, and a new one is made")
    if len(text) < 2 * BYTES:
        raise Unsafe(f"{path} is empty or cut short: delete it, and a new one is made")
    return text
