"""Contents for assertions: the records of a topic, and the offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

TIMEOUT_S = 10.0


def test_records_are_those_that_a_consumer_reads(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 2)
    assert fake_kafka.records("t") == []
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers, linger_ms=5) as producer:
        for number in range(20):
            producer.send("t", b"%d" % number, b"k", partition=number % 2, headers={"n": b"1"})
        producer.send("t", None, partition=0)
    with Consumer(
        bootstrap_servers=fake_kafka.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        read = [record for _ in range(21) for record in consumer.poll(TIMEOUT_S, 1)]
    found = fake_kafka.records("t")
    assert found == sorted(read, key=lambda each: (each.partition, each.offset))
    assert [record.value for record in found[:11]] == [b"%d" % n for n in range(0, 20, 2)] + [None]


def test_records_below_the_start_of_the_log_are_left_out(fake_kafka: FakeKafka) -> None:
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send_batch("t", [b"0", b"1", b"2"], partition=0).result(TIMEOUT_S)
    with fake_kafka.control() as cluster:
        cluster.partition(TopicPartition("t", 0)).log.delete_records(2)
        assert [record.value for record in cluster.records("t")] == [b"2"]


def test_transactions_that_are_open_or_aborted_are_not_committed(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 1)

    def values(isolation_level: str) -> list[bytes | None]:
        return [r.value for r in fake_kafka.records("t", isolation_level=isolation_level)]

    with Producer(bootstrap_servers=servers, transactional_id="x") as producer:
        producer.init_transactions()
        for value in (b"committed", b"aborted"):
            producer.begin_transaction()
            producer.send("t", value).result(TIMEOUT_S)
            (producer.commit_transaction if value[:1] == b"c" else producer.abort_transaction)()
        producer.begin_transaction()
        producer.send("t", b"open").result(TIMEOUT_S)
        with Producer(bootstrap_servers=servers) as other:
            other.send("t", b"behind").result(TIMEOUT_S)
        assert values("read_uncommitted") == [b"committed", b"aborted", b"open", b"behind"]
        assert values("read_committed") == [b"committed"]
        producer.commit_transaction()
        assert values("read_committed") == [b"committed", b"open", b"behind"]


def test_what_a_group_has_committed_is_there(fake_kafka: FakeKafka) -> None:
    place = TopicPartition("t", 0)
    assert fake_kafka.committed("g") == {}
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 1)
    with Consumer(bootstrap_servers=fake_kafka.bootstrap_servers, group_id="g") as consumer:
        consumer.assign([place])
        consumer.commit({place: 0})
        assert fake_kafka.committed("g") == consumer.committed([place])


def test_what_is_not_there_is_named(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("orders", 1)
    with pytest.raises(UsageError, match=r"no topic 'oders'; there are 'orders'"):
        fake_kafka.records("oders")
    with pytest.raises(UsageError, match="give one of read_uncommitted, read_committed"):
        fake_kafka.records("orders", isolation_level="committed")
    with pytest.raises(UsageError, match="group is 5"):
        fake_kafka.committed(5)  # type: ignore[arg-type]
