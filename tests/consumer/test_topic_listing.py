"""TopicListing by numbers: one question, tried again until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.list_topics import TopicListing
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
def listing() -> TopicListing:
    return TopicListing(RETRY_BACKOFF)


def poll(listing: TopicListing, now_ms: int = START_MS) -> list[Request]:
    return list(listing.poll(now_ms).requests)


def answer(*topics: MetadataResponseTopic) -> MetadataResponse:
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


def test_it_asks_any_broker_for_all_topics_and_creates_none(listing: TopicListing) -> None:
    listing.start()
    (request,) = poll(listing)
    assert request.node_id is None
    assert isinstance(request.message, MetadataRequest)
    assert request.message.topics is None
    assert not request.message.allow_auto_topic_creation
    assert poll(listing) == []


def test_the_answer_has_the_topics_that_exist(listing: TopicListing) -> None:
    asked = listing.start()
    message = answer(topic("a", 2), topic("b", 0, LeaderNotAvailableError.code))
    poll(listing)[0].on_response(message, START_MS)
    (info,) = asked.operation.result()
    assert (info.name, len(info.partitions)) == ("a", 2)
    assert poll(listing, START_MS + 10_000) == []


def test_a_lost_connection_is_tried_again_after_a_back_off(listing: TopicListing) -> None:
    asked = listing.start()
    lost = DisconnectedError("gone")
    poll(listing)[0].on_failure(lost, START_MS)
    assert asked.last_error is lost
    assert listing.poll(START_MS).next_poll_ms == START_MS + RETRY_MS
    poll(listing, START_MS + RETRY_MS)[0].on_response(answer(topic("a")), START_MS)
    assert asked.operation.is_done


def test_what_no_attempt_cures_ends_it(listing: TopicListing) -> None:
    asked = listing.start()
    error = UnsupportedVersionError("too old")
    poll(listing)[0].on_failure(error, START_MS)
    assert asked.operation.error is error


def test_an_answer_that_makes_no_sense_ends_it(listing: TopicListing) -> None:
    asked = listing.start()
    bad = topic("a")
    bad.partitions[0].partition_index = 7
    poll(listing)[0].on_response(answer(bad), START_MS)
    assert isinstance(asked.operation.error, DecodeError)


def test_a_cancelled_listing_is_not_asked_again(listing: TopicListing) -> None:
    asked = listing.start()
    (request,) = poll(listing)
    listing.cancel(asked)
    request.on_failure(DisconnectedError("gone"), START_MS)
    assert poll(listing, START_MS + 10_000) == []
