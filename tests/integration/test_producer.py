"""The producer against a real broker, read back by librdkafka."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from pykclient import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ProducerRecord,
    TopicPartition,
    errors,
)
from pykclient.errors import (
    BufferExhaustedError,
    ForkedClientError,
    MessageTooLargeError,
    UsageError,
)
from tests.integration.confluent_tools import confluent_consume, confluent_create_topic
from tests.integration.java_tools import CODECS, Record
from tests.integration.sample_records import SAMPLE_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient import Delivery, RecordMetadata
    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0


@pytest.fixture
def topic(any_kafka_cluster: KafkaCluster) -> str:
    return confluent_create_topic(any_kafka_cluster, "producer")


@pytest.fixture
def producer(any_kafka_cluster: KafkaCluster) -> Iterator[Producer]:
    with Producer(bootstrap_servers=any_kafka_cluster.bootstrap_servers) as producer:
        yield producer


def values(cluster: KafkaCluster, topic: str, count: int) -> list[bytes | None]:
    return [record.value for record in confluent_consume(cluster, topic, count)]


@pytest.mark.promise("produce, fetch and offsets work on 4.3.1 and 3.9.2")
@pytest.mark.promise("acks 0, 1 and all are supported")
@pytest.mark.promise("`send` returns a delivery that reports place and time")
@pytest.mark.parametrize(("codec", "acks"), [*zip(CODECS, ("all", 1, 0, "all", 1), strict=True)])
def test_every_kind_of_record_arrives_with_every_codec_and_acks(
    each_kafka_cluster: KafkaCluster, codec: str, acks: object
) -> None:
    topic = confluent_create_topic(each_kafka_cluster, f"producer-{codec}", partition_count=3)
    _await_leaders(each_kafka_cluster, topic, partition_count=3)
    with Producer(
        bootstrap_servers=each_kafka_cluster.bootstrap_servers,
        compression_type=codec,
        acks=acks,
    ) as producer:
        deliveries = [
            producer.send(
                topic,
                record.value,
                record.key,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            for record in SAMPLE_RECORDS
        ]
        producer.flush(TIMEOUT_S)
        placed = [
            _placed(record, delivery.result(TIMEOUT_S))
            for record, delivery in zip(SAMPLE_RECORDS, deliveries, strict=True)
        ]
    read = confluent_consume(each_kafka_cluster, topic, len(SAMPLE_RECORDS))
    if acks == 0:
        assert all(record.offset is None for record in placed)
        read = [record._replace(offset=None) for record in read]
    assert sorted(read, key=repr) == sorted(placed, key=repr)


def _await_leaders(cluster: KafkaCluster, topic: str, *, partition_count: int) -> None:
    """Wait until each partition answers: with acks=0, what comes too early is lost by design."""
    partitions = [TopicPartition(topic, number) for number in range(partition_count)]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 0)


def _placed(record: Record, metadata: RecordMetadata) -> Record:
    return record._replace(
        partition=metadata.partition, offset=metadata.offset, timestamp_ms=metadata.timestamp_ms
    )


@pytest.mark.promise("callbacks run in order")
def test_callbacks_come_in_order_and_before_flush_returns(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    heard: list[tuple[int, int | None, Exception | None]] = []
    for number in range(5_000):
        producer.send(
            topic,
            b"%d" % number,
            on_delivery=lambda metadata, error, number=number: heard.append(  # type: ignore[misc]
                (number, metadata.offset, error)
            ),
        )
    producer.flush(TIMEOUT_S)
    assert heard == [(number, number, None) for number in range(5_000)]
    assert values(any_kafka_cluster, topic, 5_000) == [b"%d" % number for number in range(5_000)]


def test_a_result_is_there_only_after_the_callback_has_run(producer: Producer, topic: str) -> None:
    heard: list[int | None] = []

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        time.sleep(0.05)  # long enough for the one who waits, if he were let go too early
        heard.append(metadata.offset)

    assert producer.send(topic, b"v", on_delivery=on_delivery).result(TIMEOUT_S).offset == 0
    assert heard == [0]


def test_a_record_object_is_sent_as_its_fields(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    record = ProducerRecord(topic, b"v", b"k", timestamp_ms=5, headers=[("h", b"x")])
    metadata = producer.send(record).result(TIMEOUT_S)
    assert (metadata.topic, metadata.partition, metadata.timestamp_ms) == (topic, 0, 5)
    (read,) = confluent_consume(any_kafka_cluster, topic, 1)
    assert read == Record(b"v", b"k", (("h", b"x"),)).placed(0, 0, 5)
    with pytest.raises(UsageError, match="on_delivery"):
        producer.send(record, b"other")  # type: ignore[call-overload]


@pytest.mark.promise("interceptors see every record and every acknowledgement")
def test_an_interceptor_sees_each_record_and_what_became_of_it(
    any_kafka_cluster: KafkaCluster, topic: str
) -> None:
    class Signing:
        def __init__(self) -> None:
            self.heard: list[tuple[int, int | None, Exception | None]] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, record.value, headers=[("signed", b"yes")])

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            self.heard.append((metadata.partition, metadata.offset, error))

    interceptor = Signing()
    with Producer(
        bootstrap_servers=any_kafka_cluster.bootstrap_servers, interceptors=[interceptor]
    ) as producer:
        producer.send(topic, b"v").result(TIMEOUT_S)
        with pytest.raises(errors.SerializationError) as raised:
            producer.send(topic, "text")
    assert interceptor.heard == [(0, 0, None), (-1, None, raised.value)]
    (read,) = confluent_consume(any_kafka_cluster, topic, 1)
    assert read.headers == (("signed", b"yes"),)


def test_many_threads_share_one_producer_and_each_keeps_its_order(
    any_kafka_cluster: KafkaCluster,
) -> None:
    topic = confluent_create_topic(any_kafka_cluster, "producer-threads", partition_count=3)
    count, thread_count = 3_000, 6
    with Producer(
        bootstrap_servers=any_kafka_cluster.bootstrap_servers,
        batch_size=4_000,
        buffer_memory=200_000,
    ) as producer:

        def work(number: int) -> None:
            for index in range(count):
                producer.send(topic, b"%d %d" % (number, index), partition=number % 3)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(thread_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen: dict[int, list[int]] = {number: [] for number in range(thread_count)}
    for value in values(any_kafka_cluster, topic, count * thread_count):
        assert value is not None
        number, index = map(int, value.split())
        seen[number].append(index)
    assert all(indexes == list(range(count)) for indexes in seen.values())


def test_batches_too_large_for_the_topic_are_split_and_all_arrive(
    any_kafka_cluster: KafkaCluster,
) -> None:
    topic = f"producer-split-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=any_kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, config={"max.message.bytes": "10000"})])
    with Producer(
        bootstrap_servers=any_kafka_cluster.bootstrap_servers, batch_size=100_000, linger_ms=500
    ) as producer:
        deliveries = [producer.send(topic, b"%d" % number + bytes(900)) for number in range(200)]
        too_large = producer.send(topic, bytes(20_000))
        producer.flush(TIMEOUT_S)
        assert [delivery.result().offset for delivery in deliveries] == list(range(200))
        with pytest.raises(MessageTooLargeError, match=topic):
            too_large.result()
        assert producer.send(topic, b"last").result(TIMEOUT_S).offset == 200
    read = values(any_kafka_cluster, topic, 201)
    assert read == [b"%d" % number + bytes(900) for number in range(200)] + [b"last"]


def test_a_callback_may_send_but_not_wait(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    refusals: list[BaseException | None] = []
    chained: list[Delivery[RecordMetadata]] = []
    finished = threading.Event()

    def refusal(call: object) -> BaseException | None:
        assert callable(call)
        try:
            call()
        except errors.KafkaError as error:
            return error
        return None

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        chained.append(producer.send(topic, b"second"))
        refusals.append(refusal(chained[0].result))
        refusals.append(refusal(producer.flush))
        refusals.append(refusal(lambda: producer.send("a-topic-not-known", b"v")))
        finished.set()

    producer.send(topic, b"first", on_delivery=on_delivery)
    assert finished.wait(TIMEOUT_S)
    assert [type(error) for error in refusals] == [UsageError, UsageError, BufferExhaustedError]
    assert chained[0].result(TIMEOUT_S).offset == 1
    assert values(any_kafka_cluster, topic, 2) == [b"first", b"second"]


def test_closing_in_a_callback_does_not_wait_and_closes(
    any_kafka_cluster: KafkaCluster, topic: str
) -> None:
    producer = Producer(bootstrap_servers=any_kafka_cluster.bootstrap_servers)
    closed = threading.Event()

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        producer.close()
        closed.set()

    producer.send(topic, b"v", on_delivery=on_delivery)
    assert closed.wait(TIMEOUT_S)
    producer.close()
    with pytest.raises(errors.ClosedError):
        producer.send(topic, b"v")


def test_partitions_are_told_with_their_leaders(
    any_kafka_cluster: KafkaCluster, producer: Producer
) -> None:
    topic = confluent_create_topic(any_kafka_cluster, "producer-partitions", partition_count=3)
    partitions = producer.partitions_for(topic)
    assert [(p.topic, p.partition, p.leader_id) for p in partitions] == [
        (topic, number, 1) for number in range(3)
    ]


def test_a_topic_that_grows_is_used_as_it_is(
    any_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    producer.send(topic, b"v", partition=0).result(TIMEOUT_S)
    admin = AdminClient({"bootstrap.servers": any_kafka_cluster.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    metadata = producer.send(topic, b"v", partition=2).result(TIMEOUT_S)
    assert metadata[:2] == TopicPartition(topic, 2)


def test_memory_is_bounded_and_a_send_that_gets_none_in_time_says_so(
    any_kafka_cluster: KafkaCluster, topic: str
) -> None:
    with Producer(
        bootstrap_servers=any_kafka_cluster.bootstrap_servers,
        buffer_memory=100_000,
        batch_size=20_000,
        max_block_ms=200,
    ) as producer:
        producer.send(topic, b"v").result(TIMEOUT_S)
        held = threading.Event()
        let_go = threading.Event()

        def hold(metadata: RecordMetadata, error: Exception | None) -> None:
            held.set()
            let_go.wait(TIMEOUT_S)

        producer.send(topic, b"v", on_delivery=hold)
        assert held.wait(TIMEOUT_S)  # the sender thread takes nothing out any more
        with pytest.raises(BufferExhaustedError, match="buffer_memory is 100000"):
            _send_until_refused(producer, topic)
        let_go.set()
        producer.flush(TIMEOUT_S)
        assert producer.send(topic, bytes(1_000)).result(TIMEOUT_S).offset is not None


def _send_until_refused(producer: Producer, topic: str) -> None:
    while True:
        producer.send(topic, bytes(1_000))


def test_a_child_process_is_refused_and_the_parent_goes_on(producer: Producer, topic: str) -> None:
    pending = producer.send(topic, b"before")
    child = os.fork()
    if child == 0:
        os._exit(_refusal_count(producer, topic, pending))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert pending.result(TIMEOUT_S).offset == 0
    assert producer.send(topic, b"after").result(TIMEOUT_S).offset == 1


def _refusal_count(producer: Producer, topic: str, pending: Delivery[RecordMetadata]) -> int:
    refusal_count = 0
    for call in (lambda: producer.send(topic, b"v"), lambda: pending.result(1), producer.flush):
        try:
            call()
        except ForkedClientError:
            refusal_count += 1
    producer.close()
    return refusal_count


def test_an_interrupt_in_the_middle_of_sending_leaves_the_producer_whole(
    any_kafka_cluster: KafkaCluster, topic: str
) -> None:
    """Signals raise KeyboardInterrupt at random places of `send`; nothing may hang or be torn."""
    interrupt_count = 300
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "tests.integration.interrupted_producer"),
            *(any_kafka_cluster.bootstrap_servers, topic, str(interrupt_count)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    sent_count, end = map(int, finished.stdout.split())
    read = values(any_kafka_cluster, topic, end + 1)
    assert read[-1] == b"end"
    numbers = [int(value) for value in read[:-1] if value is not None]
    # A send that was interrupted may have put its record in, and then its number comes again.
    assert numbers == sorted(numbers)
    assert set(numbers) >= set(range(sent_count))
    assert len(numbers) - len(set(numbers)) <= interrupt_count
