"""Records of other clients are read by us, and ours by them; keys get Java's partitions.

The witnesses are Java's console consumer and producer, and librdkafka. That they agree with each
other is shown, too, so that they can be believed about this package.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer, TopicPartition
from tests.integration.confluent_tools import (
    confluent_consume,
    confluent_create_topic,
    confluent_produce,
)
from tests.integration.java_tools import (
    CODECS,
    Record,
    dump_log,
    java_consume,
    java_partitions,
    java_produce,
    java_write_lines,
)
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.testing import KafkaCluster

    Produce = Callable[[KafkaCluster, str, Sequence[Record], str], list[Record]]
    Consume = Callable[[KafkaCluster, str, int], list[Record]]

pytestmark = [
    pytest.mark.kafka,
    OWN_BROKERS,
]

SEED = 20_130_101
TIMESTAMP_MS = 1_600_000_000_123
LARGE_BYTES = 900_000

EVERY_BYTE = bytes(range(256))
SAMPLE_RECORDS = (
    Record(None),
    Record(b""),
    Record(b"v"),
    Record(None, b"k"),
    Record(b"", b""),
    Record(EVERY_BYTE, EVERY_BYTE),
    Record(b"key:value\nline\ttab,comma", b"NO_HEADERS", (("a", b"NO_HEADERS"),)),
    Record(b"v", b"k", (("name", b"x"), ("name", None), ("empty", b""), ("café", EVERY_BYTE))),
    Record(b"v", timestamp_ms=TIMESTAMP_MS),
    Record(random.Random(SEED).randbytes(LARGE_BYTES)),
    Record(b"compressible " * (LARGE_BYTES // 13)),
    Record(b"after the large ones"),
)
"""Records on which a wrong client would disagree: null and empty keys and values, headers with all
of these, any bytes, the tools' own separators, timestamps, one byte, and 900 kB that do and do not
compress."""
TIMEOUT_S = 60.0
LINGER_MS = 200
"""Long enough that records sent in a row share a batch, so that a codec has something to do."""
PARTITION_COUNT = 7
KEY_COUNT = 1_000
KEY_BYTES_MAX = 64


def our_produce(
    cluster: KafkaCluster, topic: str, records: Sequence[Record], codec: str = "none"
) -> list[Record]:
    """Write with our producer; return the records as acknowledged, in the given order."""
    with Producer(
        {"compression_type": codec},
        bootstrap_servers=cluster.bootstrap_servers,
        linger_ms=LINGER_MS,
    ) as producer:
        deliveries = [
            producer.send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            for record in records
        ]
    return [
        _placed(record, *delivery.result(timeout=0)[1:])
        for record, delivery in zip(records, deliveries, strict=True)
    ]


def our_consume(cluster: KafkaCluster, topic: str, count: int) -> list[Record]:
    """Read `count` records from the start with our consumer, or fewer if time is up."""
    read: list[Record] = []
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign([TopicPartition(topic, info.partition) for info in partitions])
        while len(read) < count and (records := consumer.poll(timeout=TIMEOUT_S)):
            for record in records:
                assert isinstance(record.value, bytes | None)
                assert isinstance(record.key, bytes | None)
                content = Record(record.value, record.key, record.headers)
                read.append(_placed(content, record.partition, record.offset, record.timestamp_ms))
    return read


def _placed(record: Record, partition: int, offset: int | None, timestamp_ms: int | None) -> Record:
    assert offset is not None
    assert timestamp_ms is not None
    return record.placed(partition, offset, timestamp_ms)


def check_round_trip(cluster: KafkaCluster, produce: Produce, consume: Consume, codec: str) -> None:
    """Check that records are acknowledged as given, read as acknowledged, and valid in the log."""
    topic = confluent_create_topic(cluster, f"{produce.__name__}-{codec}")
    written = produce(cluster, topic, SAMPLE_RECORDS, codec)
    assert [record[:3] for record in written] == [record[:3] for record in SAMPLE_RECORDS]
    assert [record.offset for record in written] == list(range(len(SAMPLE_RECORDS)))
    for given, record in zip(SAMPLE_RECORDS, written, strict=True):
        assert given.timestamp_ms in (None, record.timestamp_ms)
    assert consume(cluster, topic, len(SAMPLE_RECORDS)) == written
    batches = dump_log(cluster, topic)
    assert {batch["isvalid"] for batch in batches} == {"true"}
    assert codec in {batch["compresscodec"].lower() for batch in batches}


@pytest.mark.promise("`close` sends the remaining records, and ends in time")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("produce", "consume"), [(our_produce, java_consume), (java_produce, our_consume)]
)
def test_java_and_we_read_what_the_other_wrote(
    kafka_cluster: KafkaCluster, produce: Produce, consume: Consume, codec: str
) -> None:
    check_round_trip(kafka_cluster, produce, consume, codec)


def test_lines_of_javas_console_producer_are_read(kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(kafka_cluster, "console")
    lines = [b"one", "zwölf".encode(), b"three"]
    java_write_lines(kafka_cluster.version, kafka_cluster.bootstrap_servers, topic, lines)
    assert [record.value for record in our_consume(kafka_cluster, topic, len(lines))] == lines


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("produce", "consume"),
    [
        (our_produce, confluent_consume),
        (confluent_produce, our_consume),
        pytest.param(java_produce, confluent_consume, marks=pytest.mark.soak),
        pytest.param(confluent_produce, java_consume, marks=pytest.mark.soak),
    ],
)
def test_librdkafka_and_others_read_what_the_other_wrote_on_every_version(
    each_kafka_cluster: KafkaCluster, produce: Produce, consume: Consume, codec: str
) -> None:
    check_round_trip(each_kafka_cluster, produce, consume, codec)


@pytest.mark.promise("a record with a key goes to the same partition as with Java")
@pytest.mark.parametrize("produce", [our_produce, java_produce, confluent_produce])
def test_keys_land_on_the_partitions_that_java_computes(
    kafka_cluster: KafkaCluster, produce: Produce
) -> None:
    choose = random.Random(SEED)
    keys = [choose.randbytes(choose.randint(1, KEY_BYTES_MAX)) for _ in range(KEY_COUNT)]
    chosen = java_partitions(kafka_cluster.version, keys, PARTITION_COUNT)
    assert set(chosen) == set(range(PARTITION_COUNT))
    topic = confluent_create_topic(kafka_cluster, "keys", partition_count=PARTITION_COUNT)
    written = produce(kafka_cluster, topic, [Record(b"v", key) for key in keys], "none")
    assert [record.partition for record in written] == chosen


@pytest.mark.promise("the producer is idempotent by default: every batch has a sequence")
def test_a_batch_of_ours_carries_what_makes_it_idempotent(kafka_cluster: KafkaCluster) -> None:
    topic = confluent_create_topic(kafka_cluster, "idempotent")
    our_produce(kafka_cluster, topic, [Record(b"%d" % number) for number in range(3)])
    (batch,) = dump_log(kafka_cluster, topic)
    assert int(batch["producerId"]) >= 0
    assert (batch["producerEpoch"], batch["baseSequence"], batch["count"]) == ("0", "0", "3")
