"""TopicLookups: all topics, requested again until there is a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.queries import TopicLookups
from pykclient.errors import (
    DecodeError,
    DisconnectedError,
    LeaderNotAvailableError,
    UnsupportedVersionError,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.consumer.known_cluster import RETRY_BACKOFF, RETRY_MS, START_MS

if TYPE_CHECKING:
    from pykclient.network.manager import Request


@pytest.fixture
def lookups() -> TopicLookups:
    return TopicLookups(RETRY_BACKOFF)


def poll(lookups: TopicLookups, now_ms: int = START_MS) -> list[Request]:
    return list(lookups.poll(now_ms).requests)


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(topics=list(topics))


def topic(name: str, partition_count: int = 1, error_code: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        error_code=error_code,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=1)
            for index in range(partition_count)
        ],
    )


def test_it_requests_of_any_broker_for_all_topics_and_creates_none(lookups: TopicLookups) -> None:
    lookups.start()
    (request,) = poll(lookups)
    assert request.node_id is None
    assert isinstance(request.message, MetadataRequest)
    assert request.message.topics is None
    assert not request.message.allow_auto_topic_creation
    assert poll(lookups) == []


def test_the_response_has_the_topics_that_exist(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    message = response(topic("a", 2), topic("b", 0, LeaderNotAvailableError.code))
    poll(lookups)[0].on_response(message, START_MS)
    (info,) = lookup.operation.result()
    assert (info.name, len(info.partitions)) == ("a", 2)
    assert poll(lookups, START_MS + 10_000) == []


def test_a_lost_connection_is_tried_again_after_a_back_off(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    lost = DisconnectedError("gone")
    poll(lookups)[0].on_failure(lost, START_MS)
    assert lookup.attempt.last_error is lost
    assert lookups.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    poll(lookups, START_MS + RETRY_MS)[0].on_response(response(topic("a")), START_MS)
    assert lookup.operation.is_done


def test_what_no_attempt_cures_ends_it(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    error = UnsupportedVersionError("too old")
    poll(lookups)[0].on_failure(error, START_MS)
    assert lookup.operation.error is error


def test_a_response_that_makes_no_sense_ends_it(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    bad = topic("a")
    bad.partitions[0].partition_index = 7
    poll(lookups)[0].on_response(response(bad), START_MS)
    assert isinstance(lookup.operation.error, DecodeError)


def test_a_cancelled_lookup_is_not_sent_again(lookups: TopicLookups) -> None:
    lookup = lookups.start()
    (request,) = poll(lookups)
    lookups.cancel(lookup)
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert poll(lookups, START_MS + 10_000) == []
