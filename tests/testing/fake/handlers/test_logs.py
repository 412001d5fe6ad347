"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and retention of a fake broker."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pykclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykclient.testing import FakeCluster
from pykclient.testing.fake.handlers import list_offsets
from pykclient.testing.fake.state import RETENTION_CHECK_MS
from pykclient.types import TopicPartition
from tests.testing.fake.requests import batch_of, fetch, fetched, produce, response_to

T0 = TopicPartition("t", 0)
NOT_FOUND = -1
COUNT = 3


@pytest.fixture
def timed() -> FakeCluster:
    """Return a cluster with a log of offsets 0 to 3 and timestamps 3000, 9000, 9001 and 6000."""
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    produce(cluster, 0, batch_of(b"a", timestamp_ms=3_000))
    produce(cluster, 0, batch_of(b"b", b"c", timestamp_ms=9_000))
    produce(cluster, 0, batch_of(b"d", timestamp_ms=6_000))
    return cluster


def look_up(
    cluster: FakeCluster, timestamp_ms: int, version: int | None = None
) -> ListOffsetsPartitionResponse:
    requested = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(timestamp=timestamp_ms)]
    )
    response = response_to(
        cluster, ListOffsetsRequest(topics=[requested]), ListOffsetsResponse, version=version
    )
    return response.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "offset", "timestamp_ms"),
    [
        (list_offsets.LATEST, 4, NOT_FOUND),
        (list_offsets.EARLIEST, 0, NOT_FOUND),
        (list_offsets.MAX_TIMESTAMP, 2, 9_001),
        (list_offsets.EARLIEST_LOCAL, 0, NOT_FOUND),
        (list_offsets.LATEST_TIERED, NOT_FOUND, NOT_FOUND),
        (0, 0, 3_000),
        (3_001, 1, 9_000),
        (9_001, 2, 9_001),
        (9_002, NOT_FOUND, NOT_FOUND),
    ],
)
def test_what_a_time_means(
    timestamp: int, offset: int, timestamp_ms: int, timed: FakeCluster
) -> None:
    found_response = look_up(timed, timestamp)
    assert (found_response.error_code, found_response.offset, found_response.timestamp) == (
        0,
        offset,
        timestamp_ms,
    )


@pytest.mark.parametrize(
    "version", range(ListOffsetsRequest.min_version, ListOffsetsRequest.max_version + 1)
)
@pytest.mark.parametrize(
    ("timestamp", "offset"), [(list_offsets.LATEST, 4), (list_offsets.EARLIEST, 0), (3_001, 1)]
)
def test_offsets_are_listed_in_every_version(
    version: int, timestamp: int, offset: int, timed: FakeCluster
) -> None:
    found_response = look_up(timed, timestamp, version)
    assert (found_response.error_code, found_response.offset) == (0, offset)


def test_an_empty_log_has_no_largest_time() -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    assert look_up(cluster, list_offsets.MAX_TIMESTAMP).offset == NOT_FOUND


@pytest.fixture
def led() -> FakeCluster:
    """Return a log with one record in epoch 0, one in 1, none in 2, two in 3; broker 0 leads."""
    cluster = FakeCluster(2)
    cluster.create_topic("t")
    produce(cluster, 0, batch_of(b"v"))
    cluster.move_leader(T0, 1)
    produce(cluster, 1, batch_of(b"v"))
    cluster.move_leader(T0, 1)
    cluster.move_leader(T0, 0)
    produce(cluster, 0, batch_of(b"v", b"w"))
    return cluster


def epoch_end(
    cluster: FakeCluster,
    epoch: int,
    *,
    broker_id: int = 0,
    topic: str = "t",
    leader_epoch: int = -1,
) -> EpochEndOffset:
    requested = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[requested])]
    )
    response = response_to(cluster, request, OffsetForLeaderEpochResponse, broker_id=broker_id)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("epoch", "found_response"), [(0, (0, 1)), (1, (1, 2)), (2, (1, 2)), (3, (3, 4)), (4, (-1, -1))]
)
def test_an_epoch_ends_where_the_next_one_with_records_begins(
    epoch: int, found_response: tuple[int, int], led: FakeCluster
) -> None:
    end = epoch_end(led, epoch)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, *found_response)


def test_a_request_with_another_leader_epoch_is_refused(led: FakeCluster) -> None:
    for end, error in (
        (epoch_end(led, 0, leader_epoch=2), FencedLeaderEpochError),
        (epoch_end(led, 0, leader_epoch=4), UnknownLeaderEpochError),
        (epoch_end(led, 0, broker_id=1), NotLeaderOrFollowerError),
        (epoch_end(led, 0, topic="other"), UnknownTopicOrPartitionError),
    ):
        assert end.error_code == error.code
    assert epoch_end(led, 0, leader_epoch=3).error_code == 0


@pytest.fixture
def filled() -> FakeCluster:
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    for _ in range(COUNT):
        produce(cluster, 0, batch_of(b"v"))
    return cluster


def delete(cluster: FakeCluster, before_offset: int) -> DeleteRecordsPartitionResult:
    requested = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(0, before_offset)])
    response = response_to(cluster, DeleteRecordsRequest(topics=[requested]), DeleteRecordsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize(("before_offset", "start"), [(0, 0), (2, 2), (COUNT, COUNT), (-1, COUNT)])
def test_what_was_before_the_offset_is_there_no_more(
    before_offset: int, start: int, filled: FakeCluster
) -> None:
    found_response = delete(filled, before_offset)
    assert (found_response.error_code, found_response.low_watermark) == (0, start)
    calls = [fetch(filled, 0, offset, max_wait_ms=0) for offset in range(COUNT)]
    codes = [fetched(call).error_code for call in calls]
    assert codes == [OffsetOutOfRangeError.code] * start + [0] * (COUNT - start)


@pytest.mark.parametrize("before_offset", [-2, COUNT + 1])
def test_an_offset_outside_of_the_log_is_refused(before_offset: int, filled: FakeCluster) -> None:
    assert delete(filled, before_offset).error_code == OffsetOutOfRangeError.code
    assert filled.partition(T0).log.log_start_offset == 0


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
