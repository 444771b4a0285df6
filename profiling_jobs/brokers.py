"""Address and security of the Kafka brokers, for kafka-python (`client`) and for Spark's connector (`spark`).

It can be written to a file: it holds the *names* of the environment variables with the secrets, or for the
embedded broker the path of the file with its password. They are read when a client is made; variables are
passed to a driver in its environment (`environment`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from models.errors import Misconfigured

OUR_USER = "headroom"
"""The user of the embedded broker; the password is in a file."""
MODULES = {  # mechanism -> the login module of the Java client
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def addresses(bootstrap: str) -> frozenset[str]:
    """The addresses in `host:port, host:port`."""
    return frozenset(filter(None, (one.strip() for one in bootstrap.split(","))))


@dataclass(frozen=True)
class Brokers:
    """The keys of `[brokers]` in headroom.toml, which have been checked there."""

    schema: ClassVar = 1
    bootstrap: str
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username_from: str | None = None
    """Name of the environment variable with the user name."""
    password_from: str | None = None
    password_file: str | None = None
    """Of the embedded broker, whose user is `headroom`; then the two variables are not needed."""
    ssl_cafile: str | None = None
    """PEM file of the authority that signed the brokers' certificates; none: the system's authorities."""
    ssl_certfile: str | None = None
    """PEM file with our own certificate and its unencrypted PKCS#8 key, where brokers ask for one."""

    def client(self, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The arguments of kafka-python's clients."""
        arguments: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap.split(","),
            "security_protocol": self.security_protocol,
        }
        if self._sasl:
            if (
                self.password_file
            ):  # it warns of every connection: SCRAM sends no password, and loopback stays
                logging.getLogger("kafka.net.sasl").setLevel(logging.ERROR)
            arguments["sasl_mechanism"] = self.sasl_mechanism
            user, password = self._login(environment)
            arguments["sasl_plain_username"], arguments["sasl_plain_password"] = user, password
        if self._tls and self.ssl_cafile:
            arguments["ssl_cafile"] = self.ssl_cafile
        if self._tls and self.ssl_certfile:
            arguments["ssl_certfile"] = arguments["ssl_keyfile"] = self.ssl_certfile
        return arguments

    def spark(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The options of Spark's Kafka source and sink."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": self.security_protocol,
        }
        if self._sasl:
            options["kafka.sasl.mechanism"] = mechanism = self.sasl_mechanism or ""
            options["kafka.sasl.jaas.config"] = jaas(mechanism, *self._login(environment))
        if self._tls and self.ssl_cafile:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.location"] = self.ssl_cafile
        if self._tls and self.ssl_certfile:
            options["kafka.ssl.keystore.type"] = "PEM"
            options["kafka.ssl.keystore.location"] = self.ssl_certfile
        return options

    def environment(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment variables with secrets that a client of the brokers needs."""
        if not self._sasl or self.password_file:
            return {}
        return {
            str(name): _secret(key, name, environment)
            for key, name in (("username_from", self.username_from), ("password_from", self.password_from))
        }

    def _login(self, environment: Mapping[str, str] | None) -> tuple[str, str]:
        """User name and password."""
        if self.password_file:
            return OUR_USER, _content(self.password_file)
        return (
            _secret("username_from", self.username_from, environment),
            _secret("password_from", self.password_from, environment),
        )

    @property
    def _sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def _tls(self) -> bool:
        return self.security_protocol.endswith("SSL")


def _secret(key: str, name: str | None, environment: Mapping[str, str] | None) -> str:
    value = (os.environ if environment is None else environment).get(name or "")
    if not value:
        raise Misconfigured(f"brokers.{key}", f"the environment variable {name} is not set")
    return value


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the password of the embedded Kafka cannot be read ({error}): run as the user who owns it"
        raise Misconfigured(path, problem) from error


def jaas(mechanism: str, user: str, password: str) -> str:
    """The login of a Java client."""
    return f"{MODULES[mechanism]} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    """A text, quoted as a JAAS configuration wants it."""
    if "\n" in text or "\r" in text:
        raise Misconfigured("brokers.password_from", "user name and password must not contain a line break")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
