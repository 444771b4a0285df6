"""Adds the brokers' login to Kafka sources and sinks of a program that sets none.

A script gets the address of the brokers as an argument. Where it reads from or writes to that address with
Spark and says nothing of a protocol or a login, the options of `[brokers]`, or of the embedded Kafka, are
added: streaming and batch, `load`, `start` and `save`. What the script sets itself is left alone, and so are
other brokers, which must not be sent our password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..brokers import Brokers, addresses
from .sink_guard import noted, spelt, watch_options

BOOTSTRAP = "kafka.bootstrap.servers"
LOGIN = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


def missing(given: Mapping[str, str], login: Mapping[str, str]) -> Mapping[str, str]:
    """The options to add to those `given`, with lower-case keys."""
    servers, ours = addresses(given.get(BOOTSTRAP, "")), addresses(login[BOOTSTRAP])
    if not servers or not servers <= ours or any(key.startswith(LOGIN) for key in given):
        return {}
    return {key: value for key, value in login.items() if key != BOOTSTRAP}


def install(brokers: Brokers) -> None:
    """Complete every Kafka source and sink of this process from now on."""
    if brokers.security_protocol == "PLAINTEXT":
        return
    from pyspark.sql import readwriter
    from pyspark.sql.streaming import readwriter as streaming

    login = brokers.spark()
    watch_options(readwriter.DataFrameReader)
    watch_options(readwriter.DataFrameWriter)
    _complete(readwriter.DataFrameReader, "load", login)
    _complete(readwriter.DataFrameWriter, "save", login)
    _complete(streaming.DataStreamReader, "load", login)
    _complete(streaming.DataStreamWriter, "start", login)


def _complete(kind: Any, call: str, login: Mapping[str, str]) -> None:
    original = getattr(kind, call)

    def completed(self: Any, path: Any = None, format: Any = None, *more: Any, **options: Any) -> Any:
        if str(format or noted(self)["format"]).lower() == "kafka":
            given = {**noted(self)["options"], **spelt(options)}
            self.options(**missing(given, login))
        return original(self, path, format, *more, **options)

    setattr(kind, call, completed)
