"""Bad input, as whole journeys: what goes wrong is told by its own error, before any harm, in time.

Each error says what is wrong, where, and how to cure it. The tests here go through the clients that
users have; what each part makes of its own bad input is in the tests beside the part.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import (
    BufferExhaustedError,
    ClosedError,
    ConcurrentModificationError,
    ConfigError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageTooLargeError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.loopback_server import (
    Behaviour,
    LoopbackServer,
    expects_tls,
    hangs_up,
    is_kafka_before_2_1,
    is_silent,
    sends_random_bytes,
    speaks_http,
    unused_address,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

TIMEOUT_MS = 1_500
REQUEST_TIMEOUT_MS = 500
GRACE_S = 1.0


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """The promise that every call ends: within its time-out and one second more."""
    start_s = time.monotonic()
    yield
    assert time.monotonic() - start_s < seconds + GRACE_S


def produce(servers: str) -> None:
    with Producer(
        bootstrap_servers=servers,
        max_block_ms=TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=TIMEOUT_MS,
    ) as producer:
        producer.send("t", b"v").result(timeout=TIMEOUT_MS / 1000)


def consume(servers: str) -> None:
    with Consumer(
        bootstrap_servers=servers,
        default_api_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    ) as consumer:
        consumer.end_offsets([TopicPartition("t", 0)])


def administer(servers: str) -> None:
    with Admin(
        bootstrap_servers=servers,
        default_api_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    ) as admin:
        admin.list_topics()


JOURNEYS = (produce, consume, administer)


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
    Setting(Producer, "transactional_id", "t", "not built yet"),
    Setting(Producer, "auto_offset_reset", "earliest", "consumer"),
    Setting(Consumer, "auto_offset_reset", "smallest", "earliest"),
    Setting(Consumer, "auto_offset_reset", "largest", "latest"),
    Setting(Consumer, "acks", "all", "producer"),
    Setting(Producer, "security_protocol", "SASL_SSL", "PLAINTEXT"),
    Setting(Consumer, "sasl.mechanism", "PLAIN", "PLAINTEXT"),
    Setting(Admin, "ssl.keystore.location", "a.pem", "PLAINTEXT"),
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
        client({"bootstrap.servers": "localhost:9092", "ssl.key.password": "open sesame"})
    assert "open sesame" not in str(raised.value)


def test_a_consumer_without_a_group_refuses_subscribe() -> None:
    with (
        Consumer(bootstrap_servers=unused_address()) as consumer,
        pytest.raises(KafkaError, match=r"assign\(\)"),
    ):
        consumer.subscribe(["t"])


@pytest.mark.promise("brokers that cannot be reached are reported with the reason of each")
@pytest.mark.parametrize("journey", JOURNEYS)
def test_brokers_that_cannot_be_reached_are_named_in_time(
    journey: Callable[[str], None],
) -> None:
    one, two = unused_address(), unused_address()
    with ends_within(TIMEOUT_MS / 1000), pytest.raises(KafkaTimeoutError) as raised:
        journey(f"{one},{two}")
    text = str(raised.value)
    assert re.search(rf"{one}\b.*refused", text)
    assert re.search(rf"{two}\b.*refused", text)
    assert str(TIMEOUT_MS) in text


@pytest.mark.promise("brokers that cannot be reached are reported with the reason of each")
@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_name_that_does_not_resolve_is_named_in_time(journey: Callable[[str], None]) -> None:
    with (
        ends_within(TIMEOUT_MS / 1000),
        pytest.raises(KafkaTimeoutError, match=r"no-host\.invalid"),
    ):
        journey("no-host.invalid:9092")


STRANGERS = [
    (speaks_http, "HTTP"),
    (expects_tls, "TLS"),
    (hangs_up, "hung up during the Kafka handshake"),
    (is_silent, "did not respond to the Kafka handshake"),
    (sends_random_bytes, "Kafka"),
]


@pytest.mark.promise("a port that is not Kafka's is reported")
@pytest.mark.parametrize("journey", JOURNEYS)
@pytest.mark.parametrize(("behaviour", "what"), STRANGERS)
def test_a_port_that_is_not_kafka_is_told_as_such_in_time(
    behaviour: Behaviour, what: str, journey: Callable[[str], None]
) -> None:
    with LoopbackServer(behaviour) as server:
        with ends_within(TIMEOUT_MS / 1000), pytest.raises(KafkaTimeoutError) as raised:
            journey(server.address)
        assert what in str(raised.value)
        assert server.address in str(raised.value)
        # It backs off: five attempts a second and broker are the most.
        assert server.connection_count <= 5 * (TIMEOUT_MS / 1000 + GRACE_S)


@pytest.mark.promise("a broker that is too old is reported")
@pytest.mark.parametrize("journey", JOURNEYS)
def test_a_broker_too_old_is_told_at_once_with_the_version_it_takes(
    journey: Callable[[str], None],
) -> None:
    with (
        LoopbackServer(is_kafka_before_2_1) as server,
        ends_within(0),
        pytest.raises(UnsupportedVersionError) as raised,
    ):
        journey(server.address)
    assert server.address in str(raised.value)
    assert "2.1" in str(raised.value)


@pytest.mark.promise("half of the bootstrap list is enough")
@pytest.mark.kafka
@pytest.mark.parametrize("behaviour", [speaks_http, expects_tls, hangs_up, is_silent])
def test_one_address_that_works_is_enough(
    behaviour: Behaviour, kafka_cluster: KafkaCluster
) -> None:
    with LoopbackServer(behaviour) as stranger:
        servers = f"{stranger.address},{unused_address()},{kafka_cluster.bootstrap_servers}"
        topic = confluent_create_topic(kafka_cluster, "half-reachable")
        with ends_within(4):
            with Producer(bootstrap_servers=servers) as producer:
                assert producer.send(topic, b"v").result(timeout=5).offset == 0
            with Consumer(bootstrap_servers=servers) as consumer:
                partition = TopicPartition(topic, 0)
                assert consumer.end_offsets([partition]) == {partition: 1}


@pytest.fixture(scope="module")
def strict_kafka(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """A cluster that creates no topic because somebody asked for it."""
    return kafka_cluster_factory(config={"auto.create.topics.enable": False})


@pytest.mark.promise("a topic that does not exist is reported")
@pytest.mark.kafka
def test_a_producer_names_the_topic_that_does_not_exist(strict_kafka: KafkaCluster) -> None:
    servers = strict_kafka.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, max_block_ms=TIMEOUT_MS) as producer,
        ends_within(TIMEOUT_MS / 1000),
        pytest.raises(KafkaError, match=r"'?absent-topic\b.*create", check=_is_about_the_topic),
    ):
        producer.send("absent-topic", b"v").result(timeout=TIMEOUT_MS / 1000)


@pytest.mark.promise("a topic that does not exist is reported")
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


@pytest.mark.promise("a topic that does not exist is reported")
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


@pytest.mark.promise("a record that is too large for settings or broker is reported")
@pytest.mark.kafka
def test_a_record_larger_than_a_request_is_refused_by_send(producer: Producer, topic: str) -> None:
    with pytest.raises(RecordTooLargeError) as raised:
        producer.send(topic, bytes(1_048_576))
    assert "max_request_size" in str(raised.value)
    assert "1048576" in str(raised.value).replace(",", "").replace("_", "")
    assert producer.send(topic, b"small").result(timeout=10).offset == 0


@pytest.mark.promise("a record that is too large for settings or broker is reported")
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


@pytest.mark.promise("`send` waits for memory, up to `max_block_ms`")
@pytest.mark.kafka
def test_a_send_without_memory_waits_as_long_as_set_and_says_so(
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


@pytest.mark.promise("a value that is not bytes is refused")
@pytest.mark.kafka
@pytest.mark.parametrize("value", ["text", 5, ["list"], {"a": 1}])
def test_a_value_that_is_not_bytes_names_the_serializer(
    producer: Producer, topic: str, value: object
) -> None:
    with pytest.raises(SerializationError) as raised:
        producer.send(topic, value)
    assert "value_serializer" in str(raised.value)
    assert type(value).__name__ in str(raised.value)
    with pytest.raises(SerializationError, match="key_serializer"):
        producer.send(topic, b"v", value)
    assert producer.send(topic, b"small").result(timeout=10).offset == 0


@pytest.mark.kafka
def test_a_failing_serializer_is_named_with_its_reason(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        value_serializer="pykclient.serialization:JsonSerializer",
    ) as producer:
        with pytest.raises(SerializationError, match=topic) as raised:
            producer.send(topic, {1, 2})
        assert raised.value.__cause__ is not None


@pytest.mark.promise("use after close is refused")
@pytest.mark.kafka
def test_a_closed_client_says_so_at_once(kafka_cluster: KafkaCluster, topic: str) -> None:
    servers = kafka_cluster.bootstrap_servers
    producer = Producer(bootstrap_servers=servers)
    consumer = Consumer(bootstrap_servers=servers)
    admin = Admin(bootstrap_servers=servers)
    partition = TopicPartition(topic, 0)
    for client in (producer, consumer, admin):
        client.close()
        client.close()  # a second time does nothing
    calls: list[Callable[[], object]] = [
        lambda: producer.send(topic, b"v"),
        producer.flush,
        lambda: producer.partitions_for(topic),
        lambda: consumer.assign([partition]),
        lambda: consumer.poll(timeout=1.0),
        lambda: consumer.end_offsets([partition]),
        admin.list_topics,
    ]
    for call in calls:
        with ends_within(0), pytest.raises(ClosedError, match="closed"):
            call()


@pytest.mark.promise("a second thread in the consumer is refused")
@pytest.mark.kafka
def test_a_second_thread_in_the_consumer_is_told_at_once_and_the_first_goes_on(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    is_inside, may_go_on = threading.Event(), threading.Event()

    def deserialize(value: bytes) -> bytes:
        is_inside.set()
        assert may_go_on.wait(60)
        return value

    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"v", partition=0).result(timeout=10)
    with Consumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, value_deserializer=deserialize
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        polled: list[object] = []
        first = threading.Thread(
            target=lambda: polled.extend(record.value for record in consumer.poll(timeout=10))
        )
        first.start()
        assert is_inside.wait(60)
        with ends_within(5), pytest.raises(ConcurrentModificationError, match="thread"):
            consumer.position(partition)
        may_go_on.set()
        first.join()
        assert polled == [b"v"]
        assert consumer.position(partition) == 1


def _is_about_the_topic(error: BaseException) -> bool:
    """The broker's own word, or the time-out of waiting for the topic."""
    return isinstance(error, UnknownTopicOrPartitionError | KafkaTimeoutError)
