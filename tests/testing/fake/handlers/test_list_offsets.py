"""ListOffsets of a fake broker: the times that mean something else than a time."""

from __future__ import annotations

import pytest

from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pykclient.testing import FakeCluster
from pykclient.testing.fake.handlers import list_offsets
from tests.testing.fake.asked import produce
from tests.testing.fake.batches import batch_of

NOT_FOUND = -1


@pytest.fixture
def cluster() -> FakeCluster:
    """A log of offsets 0 to 3 with the times 3000, 9000, 9001 and 6000."""
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    produce(cluster, 0, batch_of(b"a", timestamp_ms=3_000))
    produce(cluster, 0, batch_of(b"b", b"c", timestamp_ms=9_000))
    produce(cluster, 0, batch_of(b"d", timestamp_ms=6_000))
    return cluster


def look_up(cluster: FakeCluster, timestamp_ms: int) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=timestamp_ms)])
    response = cluster.ask(0, ListOffsetsRequest(topics=[asked]), 0).answered()
    assert isinstance(response, ListOffsetsResponse)
    return response.topics[0].partitions[0]


@pytest.mark.promise("the fake cluster serves ListOffsets in every version, with its special times")
@pytest.mark.parametrize(
    ("asked", "offset", "timestamp_ms"),
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
    asked: int, offset: int, timestamp_ms: int, cluster: FakeCluster
) -> None:
    told = look_up(cluster, asked)
    assert (told.error_code, told.offset, told.timestamp) == (0, offset, timestamp_ms)


def test_an_empty_log_has_no_largest_time() -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    assert look_up(cluster, list_offsets.MAX_TIMESTAMP).offset == NOT_FOUND
