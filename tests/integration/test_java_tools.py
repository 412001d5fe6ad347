"""The witnesses agree with each other, so that they can be believed about this package.

Java writes and librdkafka reads, and the other way round, on both tested Kafka versions: all
codecs, null and empty keys and values, headers, one byte and 900 kB, any bytes at all.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

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
)
from tests.integration.sample_records import SAMPLE_RECORDS
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kafka,
    OWN_BROKERS,
]

SEED = 20_130_101
PARTITION_COUNT = 6


def check_placed(acknowledged: list[Record]) -> None:
    """What was acknowledged is what was sent, one after the other."""
    for index, (given, record) in enumerate(zip(SAMPLE_RECORDS, acknowledged, strict=True)):
        assert record.timestamp_ms is not None
        assert record.timestamp_ms == given.timestamp_ms or given.timestamp_ms is None
        assert record == given.placed(0, index, record.timestamp_ms)


@pytest.mark.promise("the other clients agree with each other")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("produce", "consume"),
    [
        pytest.param(java_produce, confluent_consume, id="java-librdkafka"),
        pytest.param(confluent_produce, java_consume, id="librdkafka-java"),
    ],
)
def test_one_reads_what_the_other_wrote(
    each_kafka_cluster: KafkaCluster,
    produce: Callable[[KafkaCluster, str, tuple[Record, ...], str], list[Record]],
    consume: Callable[[KafkaCluster, str, int], list[Record]],
    codec: str,
) -> None:
    topic = confluent_create_topic(each_kafka_cluster, f"witness-{produce.__name__}-{codec}")
    written = produce(each_kafka_cluster, topic, SAMPLE_RECORDS, codec)
    check_placed(written)
    assert consume(each_kafka_cluster, topic, len(SAMPLE_RECORDS)) == written
    batches = dump_log(each_kafka_cluster, topic)
    assert {batch["isvalid"] for batch in batches} == {"true"}
    # Both send a batch as it is that compression would not make smaller.
    assert codec in {batch["compresscodec"].lower() for batch in batches}


@pytest.mark.promise("the other clients agree with each other")
def test_both_put_keys_on_the_same_partitions_as_java_computes(
    kafka_cluster: KafkaCluster,
) -> None:
    choose = random.Random(SEED)
    keys = [choose.randbytes(size) for size in range(1, 40)]
    chosen = java_partitions(kafka_cluster.version, keys, PARTITION_COUNT)
    assert set(chosen) == set(range(PARTITION_COUNT))
    records = [Record(b"v", key) for key in keys]
    for produce in (java_produce, confluent_produce):
        topic = confluent_create_topic(
            kafka_cluster, f"keys-{produce.__name__}", partition_count=PARTITION_COUNT
        )
        assert [record.partition for record in produce(kafka_cluster, topic, records)] == chosen


def test_a_record_goes_to_the_partition_that_it_names(kafka_cluster: KafkaCluster) -> None:
    records = [Record(b"v", b"same key", partition=number) for number in (2, 0, 1)]
    for produce in (java_produce, confluent_produce):
        topic = confluent_create_topic(
            kafka_cluster, f"named-{produce.__name__}", partition_count=PARTITION_COUNT
        )
        written = produce(kafka_cluster, topic, records)
        assert [record.partition for record in written] == [2, 0, 1]
        for consume in (java_consume, confluent_consume):
            assert sorted(consume(kafka_cluster, topic, len(records))) == sorted(written)


def test_fewer_records_than_asked_for_are_returned_as_they_are(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.integration.java_tools.SILENCE_TIMEOUT_MS", 3_000)
    monkeypatch.setattr("tests.integration.confluent_tools.TIMEOUT_S", 3.0)
    topic = confluent_create_topic(kafka_cluster, "fewer")
    written = java_produce(kafka_cluster, topic, [Record(b"the only one")])
    assert java_consume(kafka_cluster, topic, 2) == written
    assert confluent_consume(kafka_cluster, topic, 2) == written
