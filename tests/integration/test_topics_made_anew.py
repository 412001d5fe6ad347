"""A topic that real and fake brokers delete and recreate while a consumer reads it.

Method: the new topic has more records than the old one, so that a position of the old log stands
in the new one, too, and nothing but the topic's id shows that records would be left out.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from pykclient.errors import (
    TopicAlreadyExistsError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from pykclient import Delivery, RecordMetadata

OLD_COUNT, NEW_COUNT = 10, 40
TIMEOUT_S = 20.0
POLL_S = 0.05


@pytest.fixture(params=["fake_kafka", pytest.param("kafka_cluster", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    servers: str = request.getfixturevalue(request.param).bootstrap_servers
    return servers


def make(servers: str, topic: str, count: int) -> None:
    """Create a topic with this many records, once brokers have removed its predecessor."""
    deadline_s = time.monotonic() + TIMEOUT_S
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        while True:
            try:
                admin.create_topics([NewTopic(topic, 1, 1)])
                break
            except TopicAlreadyExistsError:
                assert time.monotonic() < deadline_s, "it is still there"
                time.sleep(POLL_S)
        for _ in range(count):
            producer.send(topic, b"v", partition=0)


def make_anew(servers: str, topic: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics([topic])
    make(servers, topic, NEW_COUNT)


def id_of(admin: Admin, topic: str) -> bytes | None:
    try:
        return admin.describe_topics([topic])[topic].topic_id
    except UnknownTopicOrPartitionError:
        return None


def replace(admin: Admin, topic: str) -> None:
    """Delete a topic and have it again under another id, by us or by a producer's request."""
    old_id = id_of(admin, topic)
    admin.delete_topics([topic])
    deadline_s = time.monotonic() + TIMEOUT_S
    while id_of(admin, topic) in (None, old_id):
        assert time.monotonic() < deadline_s, "it does not come back"
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])
        except TopicAlreadyExistsError:
            time.sleep(POLL_S)


class Writing:
    """A thread that sends numbers to a topic until it is stopped."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.deliveries: list[Delivery[RecordMetadata]] = []
        self._producer = producer
        self._topic = topic
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._is_over.wait(0.001):
            for _ in range(10):
                number = b"%d" % len(self.deliveries)
                self.deliveries.append(self._producer.send(self._topic, number, partition=0))

    def await_more(self) -> None:
        """Wait until new records arrive."""
        first = len(self.deliveries)
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(self.deliveries) <= first + 100:
            assert time.monotonic() < deadline_s, "nothing more is sent"
            time.sleep(POLL_S)
        self.deliveries[first + 100].result(TIMEOUT_S)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def read(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {offsets} came"
        offsets += [record.offset for record in records]
    return offsets


@pytest.mark.promise("a recreated topic is read completely, from its beginning")
@pytest.mark.parametrize(
    ("group_id", "reset"), [(None, "earliest"), ("anew", "earliest"), (None, "latest")]
)
def test_every_record_of_the_new_topic_is_read(
    servers: str, group_id: str | None, reset: str
) -> None:
    topic = f"anew-{group_id}-{reset}"
    partition = TopicPartition(topic, 0)
    make(servers, topic, OLD_COUNT)
    with Consumer(
        bootstrap_servers=servers,
        group_id=group_id,
        auto_offset_reset=reset,
        allow_auto_create_topics=False,
    ) as consumer:
        if group_id is None:
            consumer.assign([partition])
            consumer.seek(partition, 0)
        else:
            consumer.subscribe([topic])
        assert read(consumer, OLD_COUNT) == list(range(OLD_COUNT))
        make_anew(servers, topic)
        assert read(consumer, NEW_COUNT) == list(range(NEW_COUNT))


@pytest.mark.parametrize("reset", ["none", "latest"])
@pytest.mark.parametrize("where", ["offset", "beginning", "end"])
def test_a_position_that_the_user_gives_stands_in_the_new_topic(
    servers: str, where: str, reset: str
) -> None:
    """The user seeks before the consumer has seen that the topic is another one."""
    topic = f"again-sought-{where}-{reset}"
    partition = TopicPartition(topic, 0)
    make(servers, topic, OLD_COUNT)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset=reset, allow_auto_create_topics=False
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert read(consumer, OLD_COUNT) == list(range(OLD_COUNT))
        make_anew(servers, topic)
        if where == "offset":
            consumer.seek(partition, OLD_COUNT + 5)
            assert read(consumer, NEW_COUNT - OLD_COUNT - 5)[0] == OLD_COUNT + 5
        elif where == "beginning":
            consumer.seek_to_beginning()
            assert read(consumer, NEW_COUNT) == list(range(NEW_COUNT))
        else:
            consumer.seek_to_end()
            assert consumer.position(partition) == NEW_COUNT
            with Producer(bootstrap_servers=servers) as producer:
                producer.send(topic, b"v", partition=0)
            assert read(consumer, 1) == [NEW_COUNT]


@pytest.mark.parametrize("reset", ["none", "latest"])
def test_a_partition_that_is_assigned_again_is_one_of_the_new_topic(
    servers: str, reset: str
) -> None:
    """It begins where the group has committed in the new topic, or at its end."""
    topic = f"again-assigned-{reset}"
    partition = TopicPartition(topic, 0)
    make(servers, topic, OLD_COUNT)
    settings = {
        "bootstrap_servers": servers,
        "group_id": topic if reset == "none" else None,
        "auto_offset_reset": reset,
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
    }
    with Consumer(settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert read(consumer, OLD_COUNT) == list(range(OLD_COUNT))
        consumer.unsubscribe()
        make_anew(servers, topic)
        if reset == "none":
            with Consumer(settings) as other:
                other.assign([partition])
                other.commit({partition: OffsetAndMetadata(NEW_COUNT)})
        consumer.assign([partition])
        assert consumer.position(partition) == NEW_COUNT
        with Producer(bootstrap_servers=servers) as producer:
            producer.send(topic, b"v", partition=0)
        assert read(consumer, 1) == [NEW_COUNT]


def test_a_producer_under_load_loses_nothing_of_a_topic_that_is_made_anew(servers: str) -> None:
    topic = "anew-written"
    partition = TopicPartition(topic, 0)
    make(servers, topic, 0)
    settings = {"batch_size": 500, "linger_ms": 0, "request_timeout_ms": 3_000}
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(settings, bootstrap_servers=servers) as producer,
    ):
        writing = Writing(producer, topic)
        try:
            for _ in range(3):
                writing.await_more()
                replace(admin, topic)
            last_first = len(writing.deliveries)
            writing.await_more()
        finally:
            writing.stop()
        producer.flush(TIMEOUT_S)
        failures = [error for found in writing.deliveries if (error := found.exception(0))]
        assert failures == []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        count = consumer.end_offsets([partition])[partition]
        numbers: list[int] = []
        while len(numbers) < count:
            for record in consumer.poll(TIMEOUT_S):
                assert isinstance(record.value, bytes)
                numbers.append(int(record.value))
    assert sorted(numbers) == list(range(numbers[0], len(writing.deliveries)))
    assert numbers[0] <= last_first


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("call", ["commit", "commit_async", "offsets", "close"])
def test_an_offset_of_the_old_topic_is_not_committed_for_the_new_one(
    servers: str, protocol: str, call: str
) -> None:
    """The application has read the old topic, and commits before it polls again."""
    topic = f"anew-{protocol}-{call}"
    settings = {
        "bootstrap_servers": servers,
        "group_id": topic,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": call == "close",
        "allow_auto_create_topics": False,
    }
    make(servers, topic, OLD_COUNT)
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        records = consumer.poll(TIMEOUT_S)
        while not records:
            records = consumer.poll(TIMEOUT_S)
        make_anew(servers, topic)
        if call == "offsets":
            consumer.commit(records.next_offsets)
        elif call != "close":
            getattr(consumer, call)()
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        assert read(consumer, NEW_COUNT) == list(range(NEW_COUNT))


def test_a_transaction_with_offsets_of_the_old_topic_is_aborted(servers: str) -> None:
    """From Kafka 4.4 on TxnOffsetCommit has topic ids, and no coordinator takes the old one."""
    topic = "recreated-transaction"
    settings = {
        "bootstrap_servers": servers,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
    }
    make(servers, topic, OLD_COUNT)
    make(servers, f"{topic}-out", 0)
    with (
        Consumer(settings) as consumer,
        Producer(
            bootstrap_servers=servers,
            transactional_id=topic,
            request_timeout_ms=1_000,
        ) as producer,
    ):
        producer.init_transactions()
        consumer.subscribe([topic])
        read(consumer, OLD_COUNT)
        producer.begin_transaction()
        producer.send(f"{topic}-out", b"of the old topic")
        make_anew(servers, topic)
        with pytest.raises(TransactionAbortableError, match="request_timeout_ms"):
            producer.send_offsets_to_transaction(
                {TopicPartition(topic, 0): OLD_COUNT}, consumer.group_metadata()
            )
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(f"{topic}-out", b"later")
        assert read(consumer, NEW_COUNT) == list(range(NEW_COUNT))
    settings |= {"group_id": None, "isolation_level": "read_committed"}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(f"{topic}-out", 0)])
        assert [record.value for record in consumer.poll(TIMEOUT_S)] == [b"later"]
