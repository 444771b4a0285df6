"""Address and security of the Kafka brokers, for kafka-python (`client`) and for Spark's connector (`spark`).

It can be written to a file: it holds the *names* of the environment variables with the secrets. These are
read when a client is made, and are passed to a driver in its environment (`environment`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from models.errors import Misconfigured

MODULES = {  # mechanism -> the login module of the Java client
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


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
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = _secret("username_from", self.username_from, environment)
            arguments["sasl_plain_password"] = _secret("password_from", self.password_from, environment)
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
            user = _quoted(_secret("username_from", self.username_from, environment))
            password = _quoted(_secret("password_from", self.password_from, environment))
            module = MODULES[self.sasl_mechanism or ""]
            options["kafka.sasl.mechanism"] = self.sasl_mechanism or ""
            options["kafka.sasl.jaas.config"] = f"{module} required username={user} password={password};"
        if self._tls and self.ssl_cafile:
            options["kafka.ssl.truststore.type"] = "PEM"
            options["kafka.ssl.truststore.location"] = self.ssl_cafile
        if self._tls and self.ssl_certfile:
            options["kafka.ssl.keystore.type"] = "PEM"
            options["kafka.ssl.keystore.location"] = self.ssl_certfile
        return options

    def environment(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment variables with secrets that a client of the brokers needs."""
        if not self._sasl:
            return {}
        return {
            str(name): _secret(key, name, environment)
            for key, name in (("username_from", self.username_from), ("password_from", self.password_from))
        }

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


def _quoted(text: str) -> str:
    """As a JAAS configuration wants it."""
    if "\n" in text or "\r" in text:
        raise Misconfigured("brokers.password_from", "user name and password must not contain a line break")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
