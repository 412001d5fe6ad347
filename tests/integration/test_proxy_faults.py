"""Our producer and consumer through a fault proxy before a real broker.

The promises of the design's reliability page: acknowledged is kept, once, in order, as librdkafka
counts it; no corrupt value is delivered; every call returns; and after the fault it goes on. A run
in which too few faults struck does not count.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import zlib
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from pykclient import (
    Admin,
    Consumer,
    Delivery,
    NewTopic,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from pykclient.errors import (
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import Cut, Delay, Direction, Double, Fault, Flip, ForgeLength, Lose
from tests.integration.confluent_tools import confluent_consume, confluent_create_topic
from tests.soak import NEWEST_FIRST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import FaultProxy, KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [
    pytest.mark.kafka,
    OWN_BROKERS,
]

GUIDE = Path(__file__).parents[2] / "docs" / "consumer.md"
PARTITION_COUNT = 4
ROUND_RECORDS = 400
RECORDS_MAX = 40_000
FAULTS_MIN = 10
TIMEOUT_S = 90.0
POLL_TIMEOUT_S = 1.0
POLL_PAUSE_S = 0.05
POLL_GRACE_S = 4.0
"""Beyond the poll's own time-out, on a machine that does other things too."""
CONSUMED_RECORDS = 6_000
FETCH_BYTES = 8_000


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def kafka(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[KafkaCluster]:
    """Provide a broker of each version: they speak Produce and Fetch in different versions."""
    config = {"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 200}
    with kafka_cluster_factory(version=request.param, config=config, proxied=True) as cluster:
        yield cluster


@pytest.fixture
def proxy(kafka: KafkaCluster) -> Iterator[FaultProxy]:
    """Provide the proxy before the one broker, in order again after the test."""
    proxy = kafka.proxy(1)
    yield proxy
    proxy.heal()


def produce_through(kafka: KafkaCluster, topic: str, proxy: FaultProxy, fault: str) -> list[int]:
    """Send numbered records to the partitions in turn until enough faults struck.

    Returns: the number of records in each partition.
    """
    counts = [0] * PARTITION_COUNT
    before = proxy.counts.get(fault, 0)
    deadline_s = time.monotonic() + TIMEOUT_S
    deliveries: list[Delivery[RecordMetadata]] = []
    with Producer(
        bootstrap_servers=kafka.bootstrap_servers, linger_ms=1, batch_size=500, retry_backoff_ms=20
    ) as producer:
        while proxy.counts.get(fault, 0) - before < FAULTS_MIN or len(deliveries) < ROUND_RECORDS:
            assert time.monotonic() < deadline_s, f"too few faults: {proxy.counts}"
            assert len(deliveries) < RECORDS_MAX, f"too few faults: {proxy.counts}"
            for number in range(ROUND_RECORDS):
                partition = number % PARTITION_COUNT
                value = b"%d" % counts[partition]
                deliveries.append(producer.send(topic, value, partition=partition))
                counts[partition] += 1
            producer.flush(timeout=TIMEOUT_S)
    failed = [error for delivery in deliveries if (error := delivery.exception())]
    assert failed == []
    return counts


def values_in_log(kafka: KafkaCluster, topic: str) -> dict[int, list[int]]:
    """Return the values that librdkafka reads from each partition, up to its end, in order."""
    reader = ConfluentConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic})
    ends = [
        reader.get_watermark_offsets(ConfluentPartition(topic, number), TIMEOUT_S)[1]
        for number in range(PARTITION_COUNT)
    ]
    reader.close()
    values: dict[int, list[int]] = defaultdict(list)
    for record in confluent_consume(kafka, topic, sum(ends)):
        assert record.partition is not None
        values[record.partition].append(int(record.value or b"-1"))
    return values


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Lose(api=ApiKey.PRODUCE, probability=0.1), id="acknowledgements lost"),
        pytest.param(Cut(api=ApiKey.PRODUCE, probability=0.1), id="acknowledgements cut"),
        pytest.param(
            Cut(api=ApiKey.PRODUCE, direction=Direction.REQUEST, probability=0.1),
            id="requests cut",
        ),
        pytest.param(Double(api=ApiKey.PRODUCE, probability=0.1), id="acknowledgements doubled"),
        pytest.param(
            Delay(api=ApiKey.PRODUCE, probability=0.1, delay_ms=200), id="acknowledgements late"
        ),
        pytest.param(None, id="connections that die young"),
    ],
)
def test_acknowledged_is_kept_once_and_in_order(
    kafka: KafkaCluster, proxy: FaultProxy, fault: Fault | None
) -> None:
    topic = confluent_create_topic(kafka, "faulty", partition_count=PARTITION_COUNT)
    if fault is None:
        proxy.limit_lifetimes((50, 300))
    proxy.inject(fault or Delay(api=ApiKey.PRODUCE, probability=0.2, delay_ms=30))
    counts = produce_through(kafka, topic, proxy, "Lifetime" if fault is None else fault.name)
    proxy.heal()
    expected = {partition: list(range(count)) for partition, count in enumerate(counts)}
    assert values_in_log(kafka, topic) == expected


@pytest.mark.promise("the producer is idempotent by default: every batch has a sequence")
def test_a_lost_response_doubles_nothing_of_a_topic_recreated_before_it(
    kafka: KafkaCluster, proxy: FaultProxy
) -> None:
    """The request names the topic (before Kafka 4.1) and reaches the new log.

    Its response is lost before the producer learns that the topic has another id.
    """
    topic = confluent_create_topic(kafka, "recreated")
    with (
        Admin(bootstrap_servers=kafka.bootstrap_servers) as admin,
        Producer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=0) as producer,
    ):
        producer.send(topic, b"old").result(TIMEOUT_S)
        recreate(admin, topic)
        proxy.inject(Lose(api=ApiKey.PRODUCE, count_max=1))
        for value in (b"one", b"two"):
            producer.send(topic, value).result(TIMEOUT_S)
    assert proxy.counts["Lose"] > 0
    partition = TopicPartition(topic, 0)
    values: list[object] = []
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        count = consumer.end_offsets([partition])[partition]
        while len(values) < count:
            values += [record.value for record in consumer.poll(POLL_TIMEOUT_S)]
    assert values == [b"one", b"two"]


def recreate(admin: Admin, topic: str) -> None:
    """Delete a topic and create it again, as soon as the broker has done with the one before.

    The broker may be first: a producer asks about the topic, and brokers create what is asked for.
    """
    (former,) = admin.describe_topics([topic]).values()
    admin.delete_topics([topic])
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])
            break
        except TopicAlreadyExistsError:
            if id_of(admin, topic) not in {None, former.topic_id}:
                break
            assert time.monotonic() < deadline_s, "it is still there"
            time.sleep(POLL_PAUSE_S)


def id_of(admin: Admin, topic: str) -> bytes | None:
    try:
        (found,) = admin.describe_topics([topic]).values()
    except UnknownTopicOrPartitionError:
        return None
    return found.topic_id


@pytest.mark.soak
@pytest.mark.slow
def test_replication_does_not_pass_the_proxies(kafka_cluster_factory: KafkaClusterFactory) -> None:
    """A record is acknowledged when the follower has it too, and its proxy accepts nothing."""
    config = {"default.replication.factor": 2, "min.insync.replicas": 2}
    with kafka_cluster_factory(brokers=2, config=config, proxied=True) as pair:
        topic = confluent_create_topic(pair, "replicated", replication_factor=2)
        leader = pair.leader(topic, 0)
        follower = 3 - leader
        pair.proxy(follower).refuse_connections()
        with Producer(bootstrap_servers=str(pair.proxy(leader).address)) as producer:
            for number in range(10):
                producer.send(topic, b"%d" % number).result(timeout=TIMEOUT_S)
        assert pair.proxy(leader).connection_count > 0


@pytest.mark.soak
@pytest.mark.slow
def test_a_proxy_refuses_while_its_broker_is_down(kafka: KafkaCluster) -> None:
    for put_down in (kafka.stop, kafka.kill):
        put_down(1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(kafka.proxy(1).address, TIMEOUT_S)
        kafka.start(1)
        socket.create_connection(kafka.proxy(1).address, TIMEOUT_S).close()


def test_a_cluster_without_proxies_has_none_to_give(
    kafka: KafkaCluster, kafka_cluster: KafkaCluster
) -> None:
    with pytest.raises(UsageError, match=r"make it with KafkaCluster\(proxied=True\)"):
        kafka_cluster.proxy(1)
    with pytest.raises(UsageError, match="there is no broker 2"):
        kafka.proxy(2)


def checked_value(number: int) -> bytes:
    """Return a value that shows whether it is whole."""
    text = b"%d %s" % (number, b"x" * 80)
    return b"%08x %s" % (zlib.crc32(text), text)


def number_in(value: object) -> int:
    assert isinstance(value, bytes)
    assert zlib.crc32(value[9:]) == int(value[:8], 16), f"a corrupt value: {value!r}"
    return int(value[9:].split(b" ")[0])


@pytest.fixture(scope="module")
def filled(kafka: KafkaCluster) -> str:
    """Provide a topic whose record at offset n has the checked value n."""
    topic = confluent_create_topic(kafka, "filled")
    with Producer(bootstrap_servers=kafka.bootstrap_servers, batch_size=4_000) as producer:
        for number in range(CONSUMED_RECORDS):
            producer.send(topic, checked_value(number), partition=0)
        producer.flush(timeout=TIMEOUT_S)
    return topic


def consumer_of(kafka: KafkaCluster, topic: str) -> Consumer:
    """Return a consumer of many small fetches, so that many of them can be struck."""
    consumer = Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        fetch_max_bytes=FETCH_BYTES,
        max_partition_fetch_bytes=FETCH_BYTES,
        request_timeout_ms=3_000,
        fetch_max_wait_ms=200,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=20,
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning([partition])
    return consumer


def poll_numbers(consumer: Consumer, errors: list[KafkaError]) -> list[tuple[int, int]]:
    """Offset and number of each record that one poll gives; it must return in time."""
    started_s = time.monotonic()
    try:
        found = [
            (record.offset, number_in(record.value)) for record in consumer.poll(POLL_TIMEOUT_S)
        ]
    except KafkaError as error:
        errors.append(error)
        found = []
    assert time.monotonic() - started_s < POLL_TIMEOUT_S + POLL_GRACE_S
    return found


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            ForgeLength(length_bytes=2**31 - 1), id="a huge length", marks=pytest.mark.soak
        ),
        pytest.param(ForgeLength(length_bytes=-1), id="a negative length", marks=pytest.mark.soak),
        pytest.param(ForgeLength(length_bytes=100), id="a length too small"),
        pytest.param(Cut(), id="cut"),
        pytest.param(Double(), id="doubled"),
        pytest.param(Lose(), id="lost"),
    ],
)
def test_every_record_comes_once_and_in_order(
    kafka: KafkaCluster, proxy: FaultProxy, filled: str, fault: Fault
) -> None:
    before = proxy.counts.get(fault.name, 0)
    proxy.inject(replace(fault, api=ApiKey.FETCH, probability=0.4, count_max=FAULTS_MIN))
    errors: list[KafkaError] = []
    found: list[tuple[int, int]] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    with consumer_of(kafka, filled) as consumer:
        while len(found) < CONSUMED_RECORDS:
            assert time.monotonic() < deadline_s, (len(found), proxy.counts, errors)
            found += poll_numbers(consumer, errors)
    assert proxy.counts[fault.name] - before >= FAULTS_MIN
    assert found == [(number, number) for number in range(CONSUMED_RECORDS)]


def test_flipped_bits_give_no_corrupt_value_and_no_end(
    kafka: KafkaCluster, proxy: FaultProxy, filled: str
) -> None:
    """Checksums do not cover the offset, so a flip there goes unnoticed.

    The test therefore requires that each value is whole, that every poll returns, and that the
    consumer reads on once the network is healed.
    """
    before = proxy.counts.get("Flip", 0)
    errors: list[KafkaError] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    with consumer_of(kafka, filled) as consumer:
        poll_numbers(consumer, errors)
        proxy.inject(Flip(api=ApiKey.FETCH, probability=0.3))
        while proxy.counts.get("Flip", 0) - before < 3 * FAULTS_MIN:
            assert time.monotonic() < deadline_s, (proxy.counts, errors)
            if not poll_numbers(consumer, errors):
                consumer.seek_to_beginning([TopicPartition(filled, 0)])
        proxy.heal()
        consumer.seek_to_beginning([TopicPartition(filled, 0)])
        numbers: set[int] = set()
        while len(numbers) < CONSUMED_RECORDS:
            assert time.monotonic() < deadline_s, (len(numbers), errors)
            numbers.update(number for _, number in poll_numbers(consumer, errors))
    assert numbers == set(range(CONSUMED_RECORDS))


def read_until(stream: IO[str], text: str) -> None:
    """Read lines until one has the text."""
    while text not in (line := stream.readline()):
        assert line, f"it ended without {text!r}"


def test_the_guides_service_lives_through_outages_and_ends_on_request(
    kafka: KafkaCluster, proxy: FaultProxy
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.send(topic, b"one").result(TIMEOUT_S)
        proxy.refuse_connections()
        proxy.disconnect_all()
        program = GUIDE.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
        for written, here in (
            ("localhost:9092", kafka.bootstrap_servers),
            ('"orders"', f'"{topic}"'),
            ('"service"', f'"{topic}"'),
        ):
            assert written in program
            program = program.replace(written, here)
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=GUIDE.parents[1],
        ) as service:
            watchdog = threading.Timer(TIMEOUT_S, service.kill)
            watchdog.start()
            assert service.stdout is not None
            assert service.stderr is not None
            read_until(service.stderr, "the consumer keeps trying")
            proxy.accept_connections()
            assert service.stdout.readline() == "one\n"
            proxy.refuse_connections()
            proxy.disconnect_all()
            read_until(service.stderr, "could not connect")
            proxy.accept_connections()
            producer.send(topic, b"two").result(TIMEOUT_S)
            assert service.stdout.readline() == "two\n"
            service.send_signal(signal.SIGTERM)
            assert service.wait() == 0
            watchdog.cancel()
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, group_id=topic) as consumer:
        partitions = [
            TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)
        ]
        offsets = consumer.committed(partitions).values()
    assert sum(offset.offset for offset in offsets if offset is not None) == 2
