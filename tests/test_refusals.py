"""Keys that no config class has: each is refused by name, with what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors.base import ConfigError
from pykclient.producer.config import ProducerConfig

if TYPE_CHECKING:
    from pykclient.config import ClientConfig

CONFIGS: list[type[ClientConfig]] = [ProducerConfig, ConsumerConfig, AdminConfig]


def refusal(config: type[ClientConfig], key: str, value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config.from_settings({"bootstrap.servers": "h1:9092", key: value})
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "key", "suggestion"),
    [
        (ProducerConfig, "linger.m", "linger.ms"),
        (ProducerConfig, "linger_msec", "linger.ms"),
        (ProducerConfig, "Acks", "acks"),
        (ProducerConfig, "bootstrap.server", "bootstrap.servers"),
        (ConsumerConfig, "fetch.min.byte", "fetch.min.bytes"),
        (ConsumerConfig, "recieve_max_bytes", "receive_max_bytes"),
        (AdminConfig, "retires", "retries"),
    ],
)
def test_a_misspelled_key_is_answered_with_the_right_one(
    config: type[ClientConfig], key: str, suggestion: str
) -> None:
    assert refusal(config, key, 1) == (
        f"The {config.client} has no setting {key!r}. Did you mean {suggestion!r}?"
    )


def test_a_key_like_no_other_is_refused_without_a_guess() -> None:
    assert refusal(ProducerConfig, "xyzzy", 1) == "The producer has no setting 'xyzzy'."


@pytest.mark.parametrize(
    ("key", "now"),
    [
        ("metadata.broker.list", "bootstrap.servers"),
        ("zookeeper.connect", "bootstrap.servers"),
        ("request.required.acks", "acks"),
        ("message.send.max.retries", "retries"),
        ("compression.codec", "compression.type"),
        ("queue.buffering.max.ms", "linger.ms"),
        ("queue.buffering.max.messages", "buffer.memory"),
        ("message.timeout.ms", "delivery.timeout.ms"),
        ("socket.timeout.ms", "request.timeout.ms"),
        ("max_batch_size", "batch.size"),
        ("fetch.wait.max.ms", "fetch.max.wait.ms"),
    ],
)
def test_a_name_of_old_releases_and_other_libraries_is_answered_with_kafkas(
    key: str, now: str
) -> None:
    for config in (ProducerConfig, ConsumerConfig):
        assert f"Kafka's is now {now}" in refusal(config, key, "1")


@pytest.mark.parametrize("key", ["api_version", "loop", "debug", "error_cb", "producer.type"])
def test_a_setting_that_only_others_have_is_answered_with_what_to_do(key: str) -> None:
    text = refusal(ProducerConfig, key, "1")
    prefix = f"The producer has no setting {key!r}. "
    assert text.startswith(prefix)
    assert len(text) > len(prefix)


@pytest.mark.parametrize(
    ("config", "key", "owner"),
    [
        (ProducerConfig, "fetch.min.bytes", "the consumer"),
        (ProducerConfig, "group.id", "the consumer"),
        (ProducerConfig, "default.api.timeout.ms", "the consumer and the admin"),
        (ConsumerConfig, "acks", "the producer"),
        (ConsumerConfig, "transactional.id", "the producer"),
        (ConsumerConfig, "retries", "the producer and the admin"),
        (AdminConfig, "linger_ms", "the producer"),
        (AdminConfig, "auto.offset.reset", "the consumer"),
    ],
)
def test_a_key_of_another_client_is_refused_with_whose_it_is(
    config: type[ClientConfig], key: str, owner: str
) -> None:
    assert refusal(config, key, "1") == (
        f"{key!r} is a setting of {owner}, not of the {config.client}. Remove it here."
    )


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("security.protocol", "SASL_SSL"),
        ("ssl.truststore.location", "/etc/kafka/trust.jks"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("ssl_cafile", "ca.pem"),
        ("sasl_plain_username", "me"),
    ],
)
def test_security_settings_are_refused_until_they_are_built(
    config: type[ClientConfig], key: str, value: str
) -> None:
    assert "connections are not built yet: only security.protocol=PLAINTEXT is" in refusal(
        config, key, value
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sasl.jaas.config", 'Module required password="hunter2";'),
        ("ssl.key.password", "hunter2"),
        ("sasl_plain_password", "hunter2"),
        ("sasl.password", "hunter2"),
        ("ssl.keystore.key", "hunter2"),
        ("ssl.pasword", "hunter2"),
    ],
)
def test_a_refused_secret_is_not_shown(key: str, value: str) -> None:
    assert "hunter2" not in refusal(ProducerConfig, key, value)


@pytest.mark.parametrize(
    ("config", "key", "value", "feature"),
    [
        (ConsumerConfig, "share.acquire.mode", "record_limit", "Share groups are not built yet"),
        (ProducerConfig, "transactional.id", "t", "Transactions are not built yet"),
        (ProducerConfig, "metric.reporters", "a.b.C", "Metrics reporters"),
        (ProducerConfig, "config.providers", "file", "not looked up in configuration providers"),
        (AdminConfig, "bootstrap.controllers", "h1:9093", "give bootstrap.servers"),
    ],
)
def test_a_known_setting_that_is_not_built_is_refused_by_name(
    config: type[ClientConfig], key: str, value: object, feature: str
) -> None:
    text = refusal(config, key, value)
    assert text.startswith(f"{key}={value!r} is refused.")
    assert feature in text


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (ProducerConfig, "security.protocol", "plaintext"),
        (ProducerConfig, "transactional_id", None),
        (ProducerConfig, "metrics.num.samples", 2),
        (ProducerConfig, "metric.reporters", []),
        (ProducerConfig, "enable.metrics.push", False),
        (ProducerConfig, "ssl.enabled.protocols", "TLSv1.2, TLSv1.3"),
        (ProducerConfig, "ssl.enabled.protocols", ["TLSv1.2", "TLSv1.3"]),
    ],
)
def test_a_setting_that_is_not_built_may_say_what_happens_anyway(
    config: type[ClientConfig], key: str, value: object
) -> None:
    given = config.from_settings({"bootstrap.servers": "h1:9092", key: value})
    assert given == config.from_settings(bootstrap_servers="h1:9092")
