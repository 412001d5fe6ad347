"""A cluster of brokers of Kafka 4.4 and 3.9, as in an upgrade: nothing is lost or doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, ExactlyOnce, Producer, TopicPartition
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka, TransactionSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

OLD_RANGES = {
    ApiKey.PRODUCE: (0, 11),
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (0, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 4),
    ApiKey.TXN_OFFSET_COMMIT: (0, 4),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: None,
    ApiKey.CONSUMER_GROUP_DESCRIBE: None,
}
"""Versions of a 3.9 broker for the APIs that have newer versions now."""
COUNT = 60
PARTITION_COUNT = 4
TIMEOUT_S = 20.0


@pytest.fixture(params=[0, 1], ids=["the first is old", "the second is old"])
def brokers(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    """Two brokers, of which one is old; the transactions' version is what both have."""
    settings = TransactionSettings(transaction_version=1)
    with FakeKafka(brokers=2, transaction_settings=settings) as fake:
        with fake.control() as cluster:
            cluster.limit_versions(OLD_RANGES, broker_id=request.param)
            for topic in ("in", "out"):
                cluster.create_topic(topic, PARTITION_COUNT)
        yield fake


@pytest.mark.parametrize("number", range(4), ids=lambda number: f"ids {number}")
def test_records_and_offsets_in_transactions_pass_through_both(
    brokers: FakeKafka, number: int
) -> None:
    """Coordinators of groups and transactions are on either, by the names."""
    servers = brokers.bootstrap_servers
    values = [b"%d" % value for value in range(COUNT)]
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send("in", value, partition=int(value) % PARTITION_COUNT)
    with (
        Consumer(
            bootstrap_servers=servers,
            group_id=f"g-{number}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=f"t-{number}") as producer,
    ):
        consumer.subscribe(["in"])
        copied = 0
        for batch in ExactlyOnce(consumer, producer):
            with batch as records:
                for record in records:
                    producer.send("out", record.value, partition=record.partition)
                    copied += 1
            if copied >= COUNT:
                break
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader:
        partitions = [TopicPartition("out", each) for each in range(PARTITION_COUNT)]
        reader.assign(partitions)
        reader.seek_to_beginning(partitions)
        found: list[bytes | None] = []
        while len(found) < COUNT:
            records = reader.poll(TIMEOUT_S)
            assert records
            found += [record.value for record in records]
    assert sorted(found, key=lambda value: int(value or b"")) == values
