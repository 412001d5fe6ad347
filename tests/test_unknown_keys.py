"""Keys that no config class has: each is refused by name, with what to do instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.config.setting import resolve_class_setting
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors.base import ConfigError
from pykclient.producer.config import ProducerConfig

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

CONFIGS: list[type[ClientConfig]] = [ProducerConfig, ConsumerConfig, AdminConfig]


JAVA = "org.apache.kafka.common.serialization"
NOT_BUILT = "{key}={value!r} is refused. "
NO_SETTING = "The {client} has no setting {key!r}. "
NOT_VALID = "{key}={value!r} is not valid: "
LONG = "Write 'pykclient.serialization:LongDeserializer'."
DEFAULT = "Java's class of this name is partitioner=murmur2_random."
STICKY = "Set partitioner.ignore.keys=true instead, as Kafka 4 has it (KIP-794)."


def refusal(config: type[ClientConfig], key: str, value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config.from_settings({"bootstrap.servers": "h1:9092", key: value})
    return str(caught.value)


@pytest.mark.promise(
    "an unknown or malformed setting is an error before any connection, with a suggestion"
)
@pytest.mark.parametrize(
    ("config", "key", "suggestion"),
    [
        (ProducerConfig, "linger.m", "linger.ms"),
        (ProducerConfig, "linger_msec", "linger_ms"),
        (ProducerConfig, "linger.mz", "linger.ms"),
        (ProducerConfig, "Acks", "acks"),
        (ProducerConfig, "bootstrap.server", "bootstrap.servers"),
        (ConsumerConfig, "fetch.min.byte", "fetch.min.bytes"),
        (ConsumerConfig, "recieve_max_bytes", "receive_max_bytes"),
        (AdminConfig, "retires", "retries"),
        (ConsumerConfig, "sasl_plain_pasword", "sasl_plain_password"),
    ],
)
def test_the_error_of_a_misspelled_key_names_the_right_one(
    config: type[ClientConfig], key: str, suggestion: str
) -> None:
    assert refusal(config, key, 1) == (
        f"The {config.client} has no setting {key!r}. Did you mean {suggestion!r}?"
    )


def test_a_key_like_no_other_is_refused_without_a_guess() -> None:
    assert refusal(ProducerConfig, "xyzzy", 1) == "The producer has no setting 'xyzzy'."


@pytest.mark.parametrize(
    ("config", "key", "now"),
    [
        (ConsumerConfig, "metadata.broker.list", "bootstrap.servers"),
        (AdminConfig, "zookeeper.connect", "bootstrap.servers"),
        (ProducerConfig, "request.required.acks", "acks"),
        (ProducerConfig, "message.send.max.retries", "retries"),
        (ProducerConfig, "compression.codec", "compression.type"),
        (ProducerConfig, "queue.buffering.max.ms", "linger.ms"),
        (ProducerConfig, "queue.buffering.max.messages", "buffer.memory"),
        (ProducerConfig, "message.timeout.ms", "delivery.timeout.ms"),
        (ConsumerConfig, "socket.timeout.ms", "request.timeout.ms"),
        (ProducerConfig, "max_batch_size", "batch_size"),
        (ConsumerConfig, "fetch.wait.max.ms", "fetch.max.wait.ms"),
    ],
)
def test_the_error_of_a_name_of_old_releases_and_other_libraries_names_kafkas(
    config: type[ClientConfig], key: str, now: str
) -> None:
    assert f"Kafka's is now {now}" in refusal(config, key, "1")


def test_the_old_name_of_another_clients_setting_is_not_renamed_but_removed() -> None:
    assert refusal(ConsumerConfig, "message.timeout.ms", 1) == (
        "'message.timeout.ms', by Kafka's name delivery.timeout.ms, is a setting of the producer, "
        "not of the consumer. Remove it here."
    )


@pytest.mark.parametrize(
    "key",
    [
        *("rebalance.backoff.ms", "reconnect.backoff.jitter.ms", "socket.max.fails"),
        *("zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms"),
        "api.version.request.timeout.ms",
    ],
)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_key_that_only_looks_like_another_is_not_taken_for_it(
    config: type[ClientConfig], key: str
) -> None:
    assert "Did you mean" not in refusal(config, key, 1)


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ("a.b.StringSerializer", "serialization:StringSer"),
        ("string", "pykclient.serialization:StringSerializer"),
        ("JSON", "pykclient.serialization:JsonSerializer"),
        ("ByteArraySerializer", "Leave it out"),
        (f"{JAVA}.VoidSerializer", "a Java class"),
        (f"{JAVA}.StringDeserializer", "a Java class"),
        ("io.confluent.kafka.serializers.KafkaAvroSerializer", "a Java class"),
        ("my.module.MySerializer", "Put a colon before the class"),
    ],
)
def test_the_error_of_a_serializer_named_as_in_java_or_in_short_names_ours(
    value: str, cure: str
) -> None:
    text = refusal(ProducerConfig, "value.serializer", value)
    assert cure in text
    for name in re.findall(r"'(pykclient[.:\w]+)'", text):
        assert ProducerConfig.from_settings(bootstrap_servers="h:1", value_serializer=name)
        assert resolve_class_setting("value_serializer", name) is not None


def test_suggestions_are_spelled_as_the_caller_spells() -> None:
    def message_of(settings: dict[str, object] | None, **keywords: object) -> str:
        with pytest.raises(ConfigError) as caught:
            ConsumerConfig.from_settings(settings, **keywords)
        return str(caught.value)

    dotted, plain = {"bootstrap.servers": "h:1"}, {"bootstrap_servers": "h:1"}
    assert "'fetch.min.bytes'?" in message_of({**dotted, "fetch.min.byte": 1})
    assert "'fetch_min_bytes'?" in message_of({**plain, "fetch_min_byte": 1})
    assert "'fetch_min_bytes'?" in message_of(None, fetch_min_byte=1)
    assert "bootstrap_servers is missing" in message_of(None, group_id="g")
    assert "bootstrap.servers is missing" in message_of({"group.id": "g"})
    assert "fetch_max_wait_ms=9 must be below request_timeout_ms=9" in message_of(
        None, bootstrap_servers="h:1", fetch_max_wait_ms=9, request_timeout_ms=9
    )


def test_all_wrong_settings_of_a_call_are_in_one_error() -> None:
    settings: dict[Any, object] = {
        "fetch.min.byte": 1,
        "auto.offset.reset": "newest",
        5: 5,
        "acks": 1,
    }
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_settings(settings)
    head, *lines = str(caught.value).splitlines()
    assert head == "5 settings are invalid:"
    assert [line[:28] for line in lines] == [
        "- The consumer has no settin",
        "- auto.offset.reset='newest'",
        "- A setting's name is a stri",
        "- 'acks' is a setting of the",
        "- bootstrap.servers is missi",
    ]


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
def test_a_key_of_another_client_is_refused_with_the_name_of_that_client(
    config: type[ClientConfig], key: str, owner: str
) -> None:
    assert refusal(config, key, "1") == (
        f"{key!r} is a setting of {owner}, not of the {config.client}. Remove it here."
    )


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.engine.factory.class", "my.Factory"),
        ("ssl.engine.id", "dynamic"),
        ("sasl.kerberos.kinit.cmd", "/opt/kinit"),
    ],
)
def test_security_settings_that_are_not_built_are_refused(
    config: type[ClientConfig], key: str, value: str
) -> None:
    assert re.search(
        r"It belongs to an unsupported part of TLS or SASL",
        refusal(config, key, value),
    )


@pytest.mark.parametrize(
    "key",
    [
        *("sasl.oauthbearer.client.credentials.secret", "oauth_cb_password"),
        *("sasl.oauthbearer.assertion.private.passphrase", "ssl.pasword"),
    ],
)
def test_a_refused_secret_is_not_shown(key: str) -> None:
    value = 'Module required password="hunter2";'
    assert "hunter2" not in refusal(ProducerConfig, key, value)


@pytest.mark.parametrize(
    ("config", "key", "value", "start", "end"),
    [
        (ConsumerConfig, "share.acquire.mode", "x", NOT_BUILT, "allowed is 'batch_optimized'."),
        (ProducerConfig, "metric.reporters", "a.b.C", NOT_BUILT, "JmxReporter'."),
        (AdminConfig, "bootstrap.controllers", "h1:9093", NOT_BUILT, " Leave the setting out."),
        (ProducerConfig, "api_version", "1", NO_SETTING, "negotiated with each broker."),
        (ProducerConfig, "loop", "1", NO_SETTING, "no event loop."),
        # The old consumer of Kafka 0.8, whose files of properties are still around.
        (ConsumerConfig, "consumer.id", "c", NO_SETTING, "group.instance.id makes one static."),
        (ConsumerConfig, "num.consumer.fetchers", "2", NO_SETTING, "all brokers at a time."),
        (
            ConsumerConfig,
            "queued.max.message.chunks",
            "2",
            NO_SETTING,
            "limits data fetched ahead.",
        ),
        (ConsumerConfig, "refresh.leader.backoff.ms", "9", NO_SETTING, "after retry.backoff.ms."),
        (ProducerConfig, "debug", "1", NO_SETTING, "logger 'pykclient'."),
        (ProducerConfig, "error_cb", "1", NO_SETTING, "the call that they concern."),
        (ProducerConfig, "producer.type", "1", NO_SETTING, "delivery.result() does."),
        *(
            (
                config,
                "statistics.interval.ms",
                "1",
                NO_SETTING,
                "every client has metrics().",
            )
            for config in CONFIGS
        ),
        (ConsumerConfig, "key.deserializer", "long", NOT_VALID, LONG),
        (ProducerConfig, "compressed.topics", "logs", NO_SETTING, "type for the others."),
        (ProducerConfig, "partitioner.class", "a.b.DefaultPartitioner", NOT_VALID, DEFAULT),
        (ProducerConfig, "partitioner.class", "UniformStickyPartitioner", NOT_VALID, STICKY),
        (ProducerConfig, "partitioner.class", "Round-Robin", NOT_VALID, "Write 'round_robin'."),
    ],
)
def test_a_refusal_has_its_reason_and_what_to_do_instead(
    config: type[ClientConfig], key: str, value: str, start: str, end: str
) -> None:
    text = refusal(config, key, value)
    assert text.startswith(start.format(client=config.client, key=key, value=value))
    assert text.endswith(end)


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
def test_an_unsupported_setting_may_have_the_value_of_what_happens_anyway(
    config: type[ClientConfig], key: str, value: object
) -> None:
    given = config.from_settings({"bootstrap.servers": "h1:9092", key: value})
    assert given == config.from_settings(bootstrap_servers="h1:9092")
