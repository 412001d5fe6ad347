"""Bad input, as whole journeys: what goes wrong raises its own error, before any harm, in time.

Each error states what is wrong, where, and how to cure it. The tests here use the clients that
users have; what each part makes of its own bad input is in the tests beside the part.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import (
    BufferExhaustedError,
    ClosedError,
    ConfigError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageTooLargeError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.loopback_server import LoopbackServer, is_silent
from tests.integration.test_strangers import ends_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

TIMEOUT_MS = 1_500


class Setting(NamedTuple):
    """A setting that is refused, and what the refusal must name."""

    client: type[Producer | Consumer | Admin]
    key: str
    value: object
    cure: str


SETTINGS = [
    Setting(Producer, "linger_mss", 5, "mean 'linger.ms'"),
    Setting(Producer, "linger.mss", 5, "mean 'linger.ms'"),
    Setting(Consumer, "auto_offset_rest", "earliest", "mean 'auto.offset.reset'"),
    Setting(Producer, "metadata.broker.list", "localhost:9092", "bootstrap.servers"),
    Setting(Producer, "request.required.acks", 1, "acks"),
    Setting(Producer, "acks", 2, "all"),
    Setting(Producer, "compression_type", "brotli", "none, gzip, snappy, lz4, zstd"),
    Setting(Producer, "linger_ms", "soon", "integer"),
    Setting(Producer, "batch_size", -1, "integer from 0"),
    Setting(Producer, "retries", True, "integer"),
    Setting(Producer, "delivery_timeout_ms", 1, "linger.ms"),
    Setting(Producer, "transaction.two.phase.commit.enable", True, "transactional.id is not set"),
    Setting(Producer, "auto_offset_reset", "earliest", "consumer"),
    Setting(Consumer, "auto_offset_reset", "smallest", "earliest"),
    Setting(Consumer, "auto_offset_reset", "largest", "latest"),
    Setting(Consumer, "acks", "all", "producer"),
    Setting(Producer, "security_protocol", "TLS", "PLAINTEXT"),
    Setting(Consumer, "sasl.mechanism", "SCRAM", "SCRAM-SHA-256"),
    Setting(Admin, "ssl.engine.factory.class", "a.B", "unsupported part of TLS or SASL"),
    Setting(Admin, "bootstrap_servers", "localhost:99999", "host:port"),
    Setting(Admin, "bootstrap_servers", "", "host:port"),
]


@pytest.mark.promise(
    "an unknown or malformed setting is an error before any connection, with a suggestion"
)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.key}={s.value}")
def test_a_bad_setting_is_refused_by_name_with_its_cure(setting: Setting) -> None:
    with LoopbackServer(is_silent) as server:
        settings = {"bootstrap_servers": server.address, setting.key: setting.value}
        with pytest.raises(ConfigError) as raised:
            setting.client(settings)
        text = str(raised.value).replace("_", ".")
        assert setting.key.replace("_", ".") in text
        assert setting.cure in text
        assert server.connection_count == 0


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_a_secret_is_not_shown_by_its_refusal(client: type[Producer | Consumer | Admin]) -> None:
    with pytest.raises(ConfigError) as raised:
        client({"bootstrap.servers": "localhost:9092", "ssl.key.pasword": "open sesame"})
    assert "open sesame" not in str(raised.value)


@pytest.fixture(scope="module")
def strict_kafka(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """Provide a cluster that creates no topic because of a request for it."""
    with kafka_cluster_factory(config={"auto.create.topics.enable": False}) as cluster:
        yield cluster


@pytest.mark.kafka
def test_a_producer_names_the_topic_that_does_not_exist(strict_kafka: KafkaCluster) -> None:
    servers = strict_kafka.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, max_block_ms=TIMEOUT_MS) as producer,
        ends_within(TIMEOUT_MS / 1000),
        pytest.raises(KafkaError, match=r"'?absent-topic\b.*create", check=_is_about_the_topic),
    ):
        producer.send("absent-topic", b"v").result(timeout=TIMEOUT_MS / 1000)


@pytest.mark.kafka
def test_a_consumer_names_the_topic_that_does_not_exist(strict_kafka: KafkaCluster) -> None:
    with (
        Consumer(
            bootstrap_servers=strict_kafka.bootstrap_servers, default_api_timeout_ms=TIMEOUT_MS
        ) as consumer,
        ends_within(TIMEOUT_MS / 1000),
        pytest.raises(KafkaError, match=r"absent-topic", check=_is_about_the_topic),
    ):
        consumer.end_offsets([TopicPartition("absent-topic", 0)])


@pytest.mark.kafka
def test_an_admin_names_the_topic_that_does_not_exist(strict_kafka: KafkaCluster) -> None:
    with Admin(bootstrap_servers=strict_kafka.bootstrap_servers) as admin:
        for call in (admin.describe_topics, admin.delete_topics):
            with pytest.raises(UnknownTopicOrPartitionError, match="absent-topic"):
                call(["absent-topic"])


@pytest.mark.kafka
def test_a_name_that_no_topic_can_have_is_refused(kafka_cluster: KafkaCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, max_block_ms=TIMEOUT_MS) as producer,
        ends_within(TIMEOUT_MS / 1000),
        pytest.raises(InvalidTopicError, match="no topic!"),
    ):
        producer.send("no topic!", b"v").result(timeout=TIMEOUT_MS / 1000)


@pytest.mark.kafka
def test_a_partition_that_the_topic_lacks_is_named(kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(kafka_cluster, "one-partition")
    with (
        Producer(
            bootstrap_servers=kafka_cluster.bootstrap_servers, max_block_ms=TIMEOUT_MS
        ) as producer,
        ends_within(TIMEOUT_MS / 1000),
        pytest.raises(KafkaError, match=rf"7.*{topic}|{topic}.*7"),
    ):
        producer.send(topic, b"v", partition=7).result(timeout=TIMEOUT_MS / 1000)


@pytest.fixture
def producer(kafka_cluster: KafkaCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def topic(kafka_cluster: KafkaCluster) -> str:
    return confluent_create_topic(kafka_cluster, "bad-input")


@pytest.mark.kafka
def test_a_record_larger_than_a_request_is_refused_by_send(producer: Producer, topic: str) -> None:
    with pytest.raises(RecordTooLargeError) as raised:
        producer.send(topic, bytes(1_048_576))
    assert "max_request_size" in str(raised.value)
    assert "1048576" in str(raised.value).replace(",", "").replace("_", "")
    assert producer.send(topic, b"small").result(timeout=10).offset == 0


@pytest.mark.kafka
def test_a_record_larger_than_the_broker_takes_fails_its_delivery(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, max_request_size=3_000_000
    ) as producer:
        delivery = producer.send(topic, bytes(2_000_000))
        with pytest.raises(MessageTooLargeError, match=topic):
            delivery.result(timeout=10)
        assert producer.send(topic, b"small").result(timeout=10).offset == 0


@pytest.mark.kafka
def test_a_send_without_memory_waits_max_block_ms_and_raises(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    """Method: a callback keeps the sender thread, so that no memory comes back."""
    held, let_go = threading.Event(), threading.Event()
    with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        buffer_memory=100_000,
        max_block_ms=TIMEOUT_MS,
    ) as producer:

        def keep(*_: object) -> None:
            held.set()
            let_go.wait(30)

        producer.send(topic, b"v", on_delivery=keep)
        assert held.wait(10)
        producer.send(topic, bytes(60_000))
        start_s = time.monotonic()
        with (
            ends_within(TIMEOUT_MS / 1000),
            pytest.raises(BufferExhaustedError, match="buffer_memory is 100000"),
        ):
            producer.send(topic, bytes(60_000))
        # A millisecond less: the clock of time-outs is cut to milliseconds.
        assert time.monotonic() - start_s >= (TIMEOUT_MS - 1) / 1000
        let_go.set()
        producer.flush(30)
        assert producer.send(topic, bytes(60_000)).result(timeout=30).offset == 2


@pytest.mark.kafka
def test_a_closed_client_raises_at_once(kafka_cluster: KafkaCluster, topic: str) -> None:
    servers = kafka_cluster.bootstrap_servers
    producer = Producer(bootstrap_servers=servers)
    consumer = Consumer(bootstrap_servers=servers)
    admin = Admin(bootstrap_servers=servers)
    partition = TopicPartition(topic, 0)
    for client in (producer, consumer, admin):
        client.close()
        client.close()  # a second time does nothing
    producer.flush()  # there is nothing left to deliver
    calls: list[Callable[[], object]] = [
        lambda: producer.send(topic, b"v"),
        lambda: producer.partitions_for(topic),
        lambda: consumer.assign([partition]),
        lambda: consumer.poll(timeout=1.0),
        lambda: consumer.end_offsets([partition]),
        admin.list_topics,
    ]
    for call in calls:
        with ends_within(0), pytest.raises(ClosedError, match="closed"):
            call()


def _is_about_the_topic(error: BaseException) -> bool:
    """Return the broker's own message, or the time-out of waiting for the topic."""
    return isinstance(error, UnknownTopicOrPartitionError | KafkaTimeoutError)
