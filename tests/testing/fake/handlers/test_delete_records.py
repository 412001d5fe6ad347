"""DeleteRecords of a fake broker, and what is deleted because it is old."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import OffsetOutOfRangeError
from pykclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from pykclient.protocol.messages.fetch import FetchResponse
from pykclient.testing import FakeCluster
from pykclient.testing.fake.state import RETENTION_CHECK_MS
from pykclient.types import TopicPartition
from tests.testing.fake.asked import fetch, produce
from tests.testing.fake.batches import batch_of

T0 = TopicPartition("t", 0)
COUNT = 3


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    for _ in range(COUNT):
        produce(cluster, 0, batch_of(b"v"))
    return cluster


def delete(cluster: FakeCluster, before_offset: int) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(0, before_offset)])
    response = cluster.ask(0, DeleteRecordsRequest(topics=[asked]), 0).answered()
    assert isinstance(response, DeleteRecordsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.promise(
    "the fake cluster ends leader epochs as Kafka does, and drops deleted and old records"
)
@pytest.mark.parametrize(("before_offset", "start"), [(0, 0), (2, 2), (COUNT, COUNT), (-1, COUNT)])
def test_what_was_before_the_offset_is_there_no_more(
    before_offset: int, start: int, cluster: FakeCluster
) -> None:
    told = delete(cluster, before_offset)
    assert (told.error_code, told.low_watermark) == (0, start)
    codes = []
    for offset in range(COUNT):
        response = fetch(cluster, 0, offset, max_wait_ms=0).answered()
        assert isinstance(response, FetchResponse)
        codes.append(response.responses[0].partitions[0].error_code)
    assert codes == [OffsetOutOfRangeError.code] * start + [0] * (COUNT - start)


@pytest.mark.parametrize("before_offset", [-2, COUNT + 1])
def test_an_offset_outside_of_the_log_is_refused(before_offset: int, cluster: FakeCluster) -> None:
    assert delete(cluster, before_offset).error_code == OffsetOutOfRangeError.code
    assert cluster.partition(T0).log.log_start_offset == 0


@pytest.mark.promise(
    "the fake cluster ends leader epochs as Kafka does, and drops deleted and old records"
)
def test_old_segments_go_by_themselves() -> None:
    cluster = FakeCluster(1, epoch_ms=0)
    config = {"segment.bytes": "1", "retention.ms": str(RETENTION_CHECK_MS)}
    cluster.create_topic("t", config=config)
    for number in range(COUNT):
        data = batch_of(b"v", timestamp_ms=number * RETENTION_CHECK_MS)
        produce(cluster, 0, data, now_ms=number)
    log = cluster.partition(T0).log
    starts = []
    for check in range(1, COUNT + 3):
        cluster.advance(check * RETENTION_CHECK_MS)
        starts.append(log.log_start_offset)
    assert starts == [0, 1, 2, 2, 2], "a segment goes once it is older, the last one never"
