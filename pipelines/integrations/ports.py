"""Loopback ports that are free, and will still be free after a restart.

Not the kernel's own choice (port 0): that comes from the range out of which outgoing connections take
theirs. While a broker is down, a connection may then sit on its port, even of a client that tries
to reach the broker and ends up connected to itself, and the broker cannot come back. So ports are drawn
from below that range.
"""

from __future__ import annotations

import json
import random
import socket
import time
from contextlib import suppress
from pathlib import Path

from models.errors import NotReady

HOST = "127.0.0.1"
FILE = "ports.json"
LOWEST = 20_000  # judgement: above the ports that services are known by
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Whether a server could listen there now. Connections that linger after their end do not count."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((HOST, port))
            server.listen()
        except OSError:
            return False
        return True


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that are free now; another program may be quicker than the server that is to use them."""
    highest = 32_000
    with suppress(OSError, ValueError, IndexError):
        highest = min(int(RANGE.read_text().split()[0]), 60_000) - 1
    # A machine that gives nearly everything to connections leaves no room below.
    lowest = LOWEST if highest - LOWEST > 1000 else 10_000
    found: set[int] = set()
    for port in random.SystemRandom().sample(range(lowest, max(highest, lowest + 10_000)), 1000):
        if len(found) == count:
            break
        if is_free(port):
            found.add(port)
    if len(found) < count:
        raise NotReady(f"no {count} free ports between {lowest} and {highest} on {HOST}")
    return tuple(found)


def kept(folder: Path) -> tuple[int, int] | None:
    """The two ports that the server of this folder has, or had before."""
    with suppress(OSError, ValueError, TypeError):
        first, second = json.loads((folder / FILE).read_text())
        return int(first), int(second)
    return None


def keep(folder: Path, chosen: tuple[int, int]) -> None:
    """Store the ports, for `kept`."""
    (folder / FILE).write_text(json.dumps(chosen))


def wait_until_free(ports: tuple[int, ...], *, timeout_s: float) -> bool:
    """Whether all of them became free within the time."""
    until = time.monotonic() + timeout_s
    while not all(is_free(port) for port in ports):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
