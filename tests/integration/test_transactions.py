"""Transactions on real brokers of both versions, seen by readers of committed records."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.errors import (
    BatchDeliveryError,
    CommitFailedError,
    InvalidTransactionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    UsageError,
)
from tests.integration.confluent_tools import confluent_create_topic
from tests.pages.test_fragments import fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import KafkaCluster

    MakeProducer = Callable[..., Producer]

pytestmark = pytest.mark.kafka

TIMEOUT_S = 30.0


@pytest.fixture
def topic(each_kafka_cluster: KafkaCluster) -> str:
    return confluent_create_topic(each_kafka_cluster, "transactions", partition_count=2)


@pytest.fixture
def make_producer(each_kafka_cluster: KafkaCluster, topic: str) -> Iterator[MakeProducer]:
    """Make producers whose transactional id is the topic's name, which is the test's own."""
    made: list[Producer] = []

    def make(**settings: object) -> Producer:
        servers = each_kafka_cluster.bootstrap_servers
        made.append(Producer({"transactional_id": topic, "bootstrap_servers": servers} | settings))
        return made[-1]

    yield make
    for producer in made:
        producer.close(0)


@pytest.fixture
def producer(make_producer: MakeProducer) -> Producer:
    producer = make_producer()
    producer.init_transactions()
    return producer


def read(
    cluster: KafkaCluster,
    topic: str,
    isolation_level: str = "read_committed",
    *,
    is_open: bool = False,
) -> list[bytes]:
    """Return the values of all records up to the present end, sorted.

    Unless one `is_open`: once no transaction is. A coordinator marks its end after its response.
    """
    partitions = [TopicPartition(topic, number) for number in range(2)]
    found: list[bytes] = []
    servers = cluster.bootstrap_servers
    with (
        Consumer(bootstrap_servers=servers) as every,
        Consumer({"isolation_level": isolation_level}, bootstrap_servers=servers) as consumer,
    ):
        consumer.assign(partitions)
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_open and consumer.end_offsets(partitions) != every.end_offsets(partitions):
            assert time.monotonic() < deadline_s, "a transaction stays open"
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            found += [record.value or b"" for record in consumer.poll(0.2)]
    return sorted(found)


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.send(topic, value, partition=number % 2)


@pytest.mark.promise("transactions are committed or aborted as a whole, on both versions")
def test_readers_see_all_of_a_transaction_or_nothing(
    each_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    with producer.transaction():
        send(producer, topic, b"a1", b"a2", b"a3")

    def fail() -> None:
        with producer.transaction():
            send(producer, topic, b"b1", b"b2")
            producer.flush()
            assert len(read(each_kafka_cluster, topic, "read_uncommitted", is_open=True)) == 5
            assert read(each_kafka_cluster, topic, is_open=True) == [b"a1", b"a2", b"a3"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    for number in range(20):  # one right after the other: the coordinator is still busy
        with producer.transaction():
            send(producer, topic, b"c%02d" % number)
    with producer.transaction():
        pass
    expected = [b"a1", b"a2", b"a3", *(b"c%02d" % number for number in range(20))]
    assert read(each_kafka_cluster, topic) == expected


def test_what_was_not_sent_is_dropped_by_an_abort(
    each_kafka_cluster: KafkaCluster, make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer(linger_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    delivery = producer.send(topic, b"a")
    producer.abort_transaction()
    assert isinstance(delivery.exception(TIMEOUT_S), TransactionAbortedError)
    with producer.transaction():
        send(producer, topic, b"b")
    assert read(each_kafka_cluster, topic, "read_uncommitted") == [b"b"]


def test_offsets_belong_to_the_transaction(
    each_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    source = TopicPartition(topic, 0)
    with producer.transaction():
        producer.send(topic, b"in", partition=0)
    with Consumer(
        bootstrap_servers=each_kafka_cluster.bootstrap_servers,
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([topic])
        records = consumer.poll(TIMEOUT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(records.next_offsets, consumer.group_metadata())
        producer.abort_transaction()
        assert consumer.committed([source]) == {source: None}
        with producer.transaction():
            producer.send(topic, b"out", partition=1)
            producer.send_offsets_to_transaction(records.next_offsets, consumer.group_metadata())
        assert consumer.committed([source])[source] == records.next_offsets[source]
        late = consumer.group_metadata()._replace(generation=99)
        producer.begin_transaction()
        producer.send(topic, b"never", partition=1)
        with pytest.raises(TransactionAbortableError, match="generation 99") as caught:
            producer.send_offsets_to_transaction({source: 0}, late)
        with pytest.raises(TransactionAbortableError, match="generation 99"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert isinstance(caught.value.__cause__, CommitFailedError)
        assert consumer.committed([source])[source] == records.next_offsets[source]
    assert read(each_kafka_cluster, topic) == [b"in", b"out"]


def test_a_fenced_producer_can_do_no_more(
    each_kafka_cluster: KafkaCluster, producer: Producer, make_producer: MakeProducer, topic: str
) -> None:
    producer.begin_transaction()
    send(producer, topic, b"old")
    producer.flush()
    newer = make_producer()
    newer.init_transactions()
    send(producer, topic, b"old")
    with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
        producer.commit_transaction()
    for _ in range(2):
        with pytest.raises(ProducerFencedError, match="has called init_transactions"):
            producer.abort_transaction()
    with pytest.raises(ProducerFencedError):
        producer.send(topic, b"old")
    with newer.transaction():
        send(newer, topic, b"new")
    assert read(each_kafka_cluster, topic) == [b"new"]


def test_close_aborts_what_is_open(
    each_kafka_cluster: KafkaCluster, producer: Producer, make_producer: MakeProducer, topic: str
) -> None:
    producer.begin_transaction()
    send(producer, topic, b"a")
    producer.flush()
    producer.close()
    # Nothing hides what comes next, so the transaction is not open any more.
    newer = make_producer()
    newer.init_transactions()
    with newer.transaction():
        send(newer, topic, b"b")
    assert read(each_kafka_cluster, topic) == [b"b"]


def test_calls_in_a_wrong_state_say_what_to_call(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()
    wrong = pytest.raises(TransactionStateError, match=r"call init_transactions\(\) first")
    for call in (producer.begin_transaction, producer.commit_transaction):
        with wrong:
            call()
    with wrong:
        producer.send(topic, b"a")
    producer.init_transactions()
    with pytest.raises(TransactionStateError, match="it was called before; call it once"):
        producer.init_transactions()
    no_transaction = r"no transaction is open; call begin_transaction\(\) first"
    for call in (producer.commit_transaction, producer.abort_transaction):
        with pytest.raises(TransactionStateError, match=no_transaction):
            call()
    with pytest.raises(TransactionStateError, match=no_transaction):
        producer.send_batch(topic, [b"a"])
    producer.begin_transaction()
    with pytest.raises(TransactionStateError, match="a transaction is open"):
        producer.begin_transaction()
    with pytest.raises(UsageError, match=r"pass group_metadata\(\)"):
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): 0}, "g")  # type: ignore[arg-type]
    refused: list[BaseException] = []

    def on_delivery(metadata: object, error: object) -> None:
        try:
            producer.commit_transaction()
        except UsageError as failure:
            refused.append(failure)

    producer.send(topic, b"a", on_delivery=on_delivery)
    producer.commit_transaction()
    assert "would wait for itself" in str(refused)


def test_a_time_out_that_brokers_refuse_is_final(make_producer: MakeProducer) -> None:
    producer = make_producer(transaction_timeout_ms=2**31 - 1)
    for _ in range(2):
        with pytest.raises(InvalidTransactionTimeoutError, match=r"exceeds the brokers'"):
            producer.init_transactions()


def test_a_transaction_beyond_its_time_out_names_it(
    each_kafka_cluster: KafkaCluster, make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer(transaction_timeout_ms=1)
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, topic, b"a")
    producer.flush()
    newer = make_producer()
    newer.init_transactions()  # ends the open one at once, as the coordinator does every 10 seconds
    with pytest.raises(ProducerFencedError, match="exceeds transaction_timeout_ms=1"):
        producer.abort_transaction()
    assert read(each_kafka_cluster, topic) == []


def test_records_of_other_threads_are_in_the_transaction_or_refused(
    each_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    accepted: list[list[bytes]] = [[], []]
    started = threading.Barrier(3)

    def run(number: int) -> None:
        started.wait()
        try:
            for count in range(100_000):
                value = b"%d %06d" % (number, count)
                producer.send(topic, value)
                accepted[number].append(value)
        except TransactionStateError:
            pass

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    producer.begin_transaction()
    for thread in threads:
        thread.start()
    started.wait()
    while not (accepted[0] and accepted[1]):
        pass
    producer.commit_transaction()
    for thread in threads:
        thread.join()
    assert read(each_kafka_cluster, topic) == sorted(accepted[0] + accepted[1])


def test_the_program_of_the_page_sends_both_records(
    each_kafka_cluster: KafkaCluster, topic: str
) -> None:
    text = fragment("producer.md", "Transactions").text
    for word, other in {
        "localhost:9092": each_kafka_cluster.bootstrap_servers,
        "billing-1": topic,
        "bills": topic,
        "ledger": topic,
    }.items():
        assert word in text
        text = text.replace(word, other)
    exec(compile(text, "docs/producer.md", "exec"), {})  # the page is ours
    assert read(each_kafka_cluster, topic) == [b"-12 EUR", b"12 EUR"]


def test_without_brokers_a_call_ends_in_its_time() -> None:
    with Producer(
        bootstrap_servers="localhost:1", transactional_id="t", max_block_ms=200
    ) as producer:
        for _ in range(2):
            with pytest.raises(
                KafkaTimeoutError, match="init_transactions: not done within 200 ms"
            ):
                producer.init_transactions()


class SeesEachRecord:
    """An interceptor, so that a bulk call appends its records one by one."""

    def on_send(self, record: Any) -> Any:
        return record

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        pass


@pytest.mark.promise("no transaction commits without a record that was not accepted")
@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_record_that_was_not_accepted_is_not_committed_around(
    each_kafka_cluster: KafkaCluster, make_producer: MakeProducer, topic: str, *, is_bulk: bool
) -> None:
    producer = make_producer(max_block_ms=1_000, interceptors=[SeesEachRecord()])
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"before")
    if is_bulk:
        rows = pa.table({"value": [b"a", b"b"], "partition": [0, 9]})
        delivery = producer.send_arrow(topic, rows)
        assert isinstance(delivery.exception(TIMEOUT_S), BatchDeliveryError)
    else:
        failures: list[BaseException] = []

        def send() -> None:
            try:
                producer.send(topic, b"no such partition", partition=9)
            except KafkaError as error:
                failures.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        assert failures
    with pytest.raises(TransactionAbortableError) as refused:
        producer.commit_transaction()
    assert isinstance(refused.value.__cause__, KafkaTimeoutError)
    producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"again")
    assert read(each_kafka_cluster, topic) == [b"again"]


def test_a_repeated_end_of_a_prepared_transaction_ends_no_other_one(
    each_kafka_cluster: KafkaCluster, producer: Producer, topic: str
) -> None:
    producer.begin_transaction()
    producer.send(topic, b"first")
    prepared = producer.prepare_transaction()
    assert prepared is not None
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"second")
    producer.flush()
    servers = each_kafka_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, suppress(KafkaError):
        # Some brokers know that it is committed, others refuse it.
        admin.commit_prepared_transactions([prepared])
    assert read(each_kafka_cluster, topic, is_open=True) == [b"first"]
    producer.send(topic, b"third")
    producer.commit_transaction()
    assert read(each_kafka_cluster, topic) == [b"first", b"second", b"third"]
