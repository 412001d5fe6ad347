"""Size and time of the first records of a range of a log, on fake brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Producer, TopicPartition
from pykclient.errors import OffsetOutOfRangeError
from spark_connector.first_records import SAMPLE_RECORDS, first_records

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def test_first_records_stand_for_those_behind_them(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 3)
    servers = {"bootstrap_servers": fake_kafka.bootstrap_servers}
    with Producer(servers, batch_size=2_000) as producer:
        for number in range(3 * SAMPLE_RECORDS):
            size = 90 if number < SAMPLE_RECORDS + 1 else 9_000
            headers = [("h", b"123456789")]
            producer.send("a", bytes(size), headers=headers, partition=0, timestamp_ms=number)
        producer.send("a", None, b"a" * 7, partition=1, timestamp_ms=5)
    settings = {**servers, "auto.offset.reset": "none", "max_partition_fetch_bytes": 2**20}
    parts = {A0: (1, 3 * SAMPLE_RECORDS), A1: (0, 1)}
    found = first_records(settings, parts, 60)
    assert found[A0].timestamp_ms == 1
    assert found[A0].bytes_per_offset == 100
    assert found[A1] == (5, 7.0)


def test_a_part_without_records_is_left_out(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("a", 1)
    settings = {"bootstrap_servers": fake_kafka.bootstrap_servers, "auto.offset.reset": "none"}
    assert first_records(settings, {A0: (0, 0)}, 60) == {}
    with pytest.raises(OffsetOutOfRangeError):
        first_records(settings, {A0: (5, 9)}, 60)
