"""OffsetLookups: where requests go, how responses are handled, and when requests are retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST, OffsetLookup, OffsetLookups
from pykclient.errors import (
    DecodeError,
    DisconnectedError,
    InvalidTopicError,
    KafkaError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykclient.types import IsolationLevel, OffsetAndTimestamp, TopicPartition
from tests.consumer.known_cluster import (
    RETRY_BACKOFF,
    RETRY_MS,
    START_MS,
    is_outdated,
    make_metadata,
    refresh,
    topic,
    update_metadata,
)
from tests.network.responding import respond_checked

if TYPE_CHECKING:
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.manager import Request

A, B, C = (TopicPartition("t", number) for number in range(3))
NOT_LEADER = NotLeaderOrFollowerError.code
NOT_AUTHORIZED = TopicAuthorizationFailedError.code


@pytest.fixture
def metadata() -> Metadata:
    metadata = make_metadata()
    refresh(metadata)
    update_metadata(metadata, topic("t", [1, 2, 1]))
    return metadata


@pytest.fixture
def lookups(metadata: Metadata) -> OffsetLookups:
    return OffsetLookups(
        metadata, isolation_level=IsolationLevel.READ_COMMITTED, retry_backoff=RETRY_BACKOFF
    )


def poll(lookups: OffsetLookups, now_ms: int = START_MS) -> list[Request]:
    return list(lookups.poll(now_ms).requests)


def requested(request: Request) -> list[tuple[str, int, int, int]]:
    assert isinstance(request.message, ListOffsetsRequest)
    return [
        (
            topic_request.name,
            partition.partition_index,
            partition.timestamp,
            partition.current_leader_epoch,
        )
        for topic_request in request.message.topics
        for partition in topic_request.partitions
    ]


def response(*partitions: ListOffsetsPartitionResponse, name: str = "t") -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=name, partitions=list(partitions))]
    )


def found(partition: int, offset: int, timestamp: int = -1) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition, offset=offset, timestamp=timestamp, leader_epoch=4
    )


def refused(partition: int, code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=code)


def test_one_request_to_a_leader_has_all_its_partitions(lookups: OffsetLookups) -> None:
    lookups.start(A, EARLIEST)
    lookups.start(B, LATEST)
    lookups.start(C, 123)
    requests = poll(lookups)
    assert {request.node_id: requested(request) for request in requests} == {
        1: [("t", 0, EARLIEST, 4), ("t", 2, 123, 4)],
        2: [("t", 1, LATEST, 4)],
    }
    message = requests[0].message
    assert isinstance(message, ListOffsetsRequest)
    assert (message.replica_id, message.isolation_level) == (-1, IsolationLevel.READ_COMMITTED)


def test_nothing_is_requested_twice(lookups: OffsetLookups) -> None:
    lookups.start(A, EARLIEST)
    assert len(poll(lookups)) == 1
    assert poll(lookups) == []


def test_two_lookups_of_a_partition_go_in_two_requests(lookups: OffsetLookups) -> None:
    first, second = lookups.start(A, EARLIEST), lookups.start(A, LATEST)
    requests = poll(lookups)
    assert [requested(request) for request in requests] == [
        [("t", 0, EARLIEST, 4)],
        [("t", 0, LATEST, 4)],
    ]
    requests[1].on_response(response(found(0, 9)), START_MS)
    requests[0].on_response(response(found(0, 1)), START_MS)
    assert first.operation.result() == OffsetAndTimestamp(1, -1, 4)
    assert second.operation.result() == OffsetAndTimestamp(9, -1, 4)


def test_a_response_ends_the_lookup(lookups: OffsetLookups) -> None:
    lookup = lookups.start(A, 100)
    poll(lookups)[0].on_response(response(found(0, 7, 105)), START_MS)
    assert lookup.operation.result() == OffsetAndTimestamp(7, 105, 4)
    assert poll(lookups, START_MS + 10_000) == []


def test_a_time_after_the_last_record_has_no_offset(lookups: OffsetLookups) -> None:
    lookup = lookups.start(A, 100)
    poll(lookups)[0].on_response(response(found(0, -1)), START_MS)
    assert lookup.operation.result() is None


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
def test_an_end_of_the_log_without_an_offset_makes_no_sense(
    lookups: OffsetLookups, offset: int
) -> None:
    lookup = lookups.start(A, LATEST)
    poll(lookups)[0].on_response(response(found(0, offset)), START_MS)
    assert isinstance(lookup.operation.error, DecodeError)


def test_a_moved_leader_gets_the_request_after_new_metadata_and_a_back_off(
    lookups: OffsetLookups, metadata: Metadata
) -> None:
    lookup = lookups.start(A, LATEST)
    assert not is_outdated(metadata)
    poll(lookups)[0].on_response(response(refused(0, NOT_LEADER)), START_MS)
    assert isinstance(lookup.attempt.last_error, NotLeaderOrFollowerError)
    assert is_outdated(metadata)
    result = lookups.poll(START_MS + RETRY_MS - 1)
    assert (list(result.requests), result.next_poll_ms) == ([], START_MS + RETRY_MS)
    update_metadata(metadata, topic("t", [3, 2, 1]))
    assert [request.node_id for request in poll(lookups, START_MS + RETRY_MS)] == [3]


def test_back_offs_grow(lookups: OffsetLookups) -> None:
    lookups.start(A, LATEST)
    now_ms = START_MS
    waits_ms = []
    for _ in range(4):
        (request,) = poll(lookups, now_ms)
        request.on_failure(DisconnectedError("gone"), now_ms)
        next_ms = lookups.poll(now_ms).next_poll_ms
        waits_ms.append(next_ms - now_ms)
        now_ms = next_ms
    assert waits_ms == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]


@pytest.mark.parametrize(
    "error", [UnsupportedVersionError("too old"), TopicAuthorizationFailedError("no")]
)
def test_what_trying_again_does_not_cure_ends_all_of_a_request(
    lookups: OffsetLookups, error: KafkaError
) -> None:
    both = [lookups.start(A, LATEST), lookups.start(C, LATEST)]
    poll(lookups)[0].on_failure(error, START_MS)
    assert [lookup.operation.error for lookup in both] == [error, error]


def test_one_refused_partition_does_not_affect_the_others(lookups: OffsetLookups) -> None:
    bad, good = lookups.start(A, LATEST), lookups.start(C, LATEST)
    poll(lookups)[0].on_response(response(refused(0, NOT_AUTHORIZED), found(2, 5)), START_MS)
    assert isinstance(bad.operation.error, TopicAuthorizationFailedError)
    assert "t-0" in str(bad.operation.error)
    assert good.operation.result() == OffsetAndTimestamp(5, -1, 4)


def test_an_unreadable_response_is_requested_again_and_then_reported(
    lookups: OffsetLookups,
) -> None:
    lookup = lookups.start(A, LATEST)
    error = DisconnectedError("given up")
    error.__cause__ = DecodeError("garbage")
    poll(lookups)[0].on_failure(error, START_MS)
    assert not lookup.operation.is_done
    assert lookup.attempt.last_error is error.__cause__
    poll(lookups, START_MS + RETRY_MS)[0].on_failure(error, START_MS)
    assert lookup.operation.error is error.__cause__


@pytest.mark.parametrize("indexes", [[], [0], [0, 2, 0], [0, 2, 1]])
def test_a_response_that_contradicts_its_request_counts_as_none(
    lookups: OffsetLookups, indexes: list[int]
) -> None:
    both = [lookups.start(A, LATEST), lookups.start(C, LATEST)]
    (request,) = poll(lookups)
    assert respond_checked(request, response(*(found(i, 7) for i in indexes)), START_MS) is not None
    assert not any(lookup.operation.is_done for lookup in both)
    (again,) = poll(lookups, START_MS + RETRY_MS)
    assert respond_checked(again, response(found(2, 7), found(0, 5)), START_MS) is None
    assert both[0].operation.result() == OffsetAndTimestamp(5, -1, 4)


def test_without_a_leader_it_waits_for_one(lookups: OffsetLookups, metadata: Metadata) -> None:
    update_metadata(metadata, topic("t", [None]))
    lookups.start(A, LATEST)
    assert poll(lookups) == []
    update_metadata(metadata, topic("t", [2]))
    assert [request.node_id for request in poll(lookups)] == [2]


def test_an_unknown_topic_is_waited_for_and_noted(
    lookups: OffsetLookups, metadata: Metadata
) -> None:
    unknown = UnknownTopicOrPartitionError("t")
    update_metadata(metadata, errors={"t": unknown})
    lookup = lookups.start(A, LATEST)
    assert poll(lookups) == []
    assert lookup.attempt.last_error is unknown
    assert not lookup.operation.is_done


def test_a_partition_beyond_the_last_is_waited_for_and_noted(lookups: OffsetLookups) -> None:
    lookup = lookups.start(TopicPartition("t", 3), LATEST)
    assert poll(lookups) == []
    assert isinstance(lookup.attempt.last_error, UnknownTopicOrPartitionError)
    assert "3 partitions" in str(lookup.attempt.last_error)


def test_a_topic_that_cannot_exist_ends_the_lookup(
    lookups: OffsetLookups, metadata: Metadata
) -> None:
    update_metadata(metadata, errors={"t": InvalidTopicError("t")})
    lookup = lookups.start(A, LATEST)
    poll(lookups)
    assert isinstance(lookup.operation.error, InvalidTopicError)


def test_a_cancelled_lookup_is_not_requested_again(lookups: OffsetLookups) -> None:
    lookup = lookups.start(A, LATEST)
    (request,) = poll(lookups)
    lookups.cancel(lookup)
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert poll(lookups, START_MS + 10_000) == []
    assert not lookup.operation.is_done


NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 2])
PARTITIONS = st.builds(
    ListOffsetsPartitionResponse,
    partition_index=NUMBERS,
    error_code=st.sampled_from([0, 0, NOT_LEADER, NOT_AUTHORIZED, -1, 999]),
    timestamp=NUMBERS,
    offset=NUMBERS,
    leader_epoch=NUMBERS,
)


@given(
    st.lists(
        st.builds(
            ListOffsetsTopicResponse,
            name=st.sampled_from(["t", "other", ""]),
            partitions=st.lists(PARTITIONS, max_size=5),
        ),
        max_size=3,
    )
)
def test_whatever_a_broker_responds_each_lookup_ends_or_is_tried_again(
    topics: list[ListOffsetsTopicResponse],
) -> None:
    metadata = make_metadata()
    update_metadata(metadata, topic("t", [1, 1, 1]))
    lookups = OffsetLookups(
        metadata, isolation_level=IsolationLevel.READ_UNCOMMITTED, retry_backoff=RETRY_BACKOFF
    )
    started = [lookups.start(A, LATEST), lookups.start(B, 5), lookups.start(C, EARLIEST)]
    (request,) = poll(lookups)
    respond_checked(request, ListOffsetsResponse(topics=topics), START_MS)
    for lookup in started:
        if not lookup.operation.is_done:
            assert lookup.attempt.last_error is not None
        elif lookup.operation.error is None:
            assert_sensible(lookup)
    again = poll(lookups, START_MS + RETRY_MS)
    assert len(again) == any(not lookup.operation.is_done for lookup in started)


def assert_sensible(lookup: OffsetLookup) -> None:
    result = lookup.operation.result()
    if result is None:
        assert lookup.timestamp >= 0
    else:
        assert result.offset >= 0
