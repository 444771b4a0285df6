"""Dagster's web server on a Unix socket: its own command line knows ports only.

python -m pipelines.web.dagster_server SOCKET [OPTIONS OF dagster-webserver]
"""

from __future__ import annotations

import sys
from functools import partial

import uvicorn
from dagster_webserver.cli import dagster_webserver


def main() -> None:
    """Serve until SIGTERM. uvicorn leaves the port alone where it is given a socket."""
    uvicorn.run = partial(uvicorn.run, uds=sys.argv.pop(1))
    sys.argv += ["--port", "1"]  # without one it looks for one that is free
    dagster_webserver()


if __name__ == "__main__":
    main()
