"""One description of the brokers, said in the words of each client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models import codec
from models.errors import Misconfigured
from profiling_jobs.brokers import Brokers

SECRETS = {"KAFKA_USER": "reader", "KAFKA_PASSWORD": 'pa"ss\\word'}
SASL = Brokers(
    "one:9093,two:9093",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-512",
    username_from="KAFKA_USER",
    password_from="KAFKA_PASSWORD",
    ssl_cafile="/etc/ca.pem",
)


def test_plain_brokers_need_nothing_else() -> None:
    brokers = Brokers("127.0.0.1:9092")
    assert brokers.client() == {"bootstrap_servers": ["127.0.0.1:9092"], "security_protocol": "PLAINTEXT"}
    assert brokers.spark() == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.security.protocol": "PLAINTEXT",
    }
    assert brokers.environment() == {}


def test_sasl_over_tls_for_python() -> None:
    assert SASL.client(SECRETS) == {
        "bootstrap_servers": ["one:9093", "two:9093"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "reader",
        "sasl_plain_password": 'pa"ss\\word',
        "ssl_cafile": "/etc/ca.pem",
    }


def test_sasl_over_tls_for_spark_with_the_password_quoted() -> None:
    assert SASL.spark(SECRETS) == {
        "kafka.bootstrap.servers": "one:9093,two:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="reader" password="pa\\"ss\\\\word";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
    }


def test_a_certificate_of_our_own() -> None:
    brokers = Brokers("one:9093", security_protocol="SSL", ssl_certfile="/etc/me.pem")
    assert brokers.client()["ssl_certfile"] == brokers.client()["ssl_keyfile"] == "/etc/me.pem"
    assert brokers.spark()["kafka.ssl.keystore.type"] == "PEM"
    assert brokers.spark()["kafka.ssl.keystore.location"] == "/etc/me.pem"


def test_secrets_are_passed_in_the_environment_and_stand_nowhere_else() -> None:
    assert SASL.environment(SECRETS) == SECRETS
    written = json.dumps(codec.to_json(SASL))
    assert codec.from_json(Brokers, json.loads(written)) == SASL
    for secret in SECRETS.values():
        assert secret not in written
        assert secret not in repr(SASL)


@pytest.mark.parametrize("missing", ["KAFKA_USER", "KAFKA_PASSWORD"])
def test_a_secret_that_is_not_set_is_named(missing: str) -> None:
    environment = {key: value for key, value in SECRETS.items() if key != missing}
    for use in (SASL.client, SASL.spark, SASL.environment):
        with pytest.raises(Misconfigured, match=f"environment variable {missing} is not set"):
            use(environment)


def test_a_password_with_a_line_break_is_refused() -> None:
    with pytest.raises(Misconfigured, match="line break"):
        SASL.spark({**SECRETS, "KAFKA_PASSWORD": "a\nb"})


def test_the_embedded_brokers_password_is_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    ours = Brokers(
        "127.0.0.1:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        password_file=str(tmp_path / "password"),
    )
    assert "secret" not in repr(ours)
    assert ours.environment({}) == {}
    asked = ours.client({})
    assert (asked["sasl_plain_username"], asked["sasl_plain_password"]) == ("headroom", "secret")
    assert ours.spark({})["kafka.sasl.jaas.config"].endswith('username="headroom" password="secret";')
    (tmp_path / "password").unlink()
    with pytest.raises(Misconfigured, match="password of the embedded Kafka cannot be read"):
        ours.client({})
