"""FetchCall: which answers fit a request, and what becomes of one that does not."""

from __future__ import annotations

import pytest

from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
)
from tests.consumer.fetch_scene import OTHER_ID, A, C, Scene, asked, part, reply
from tests.consumer.fetched_records import batch
from tests.consumer.known_cluster import RETRY_MS, START_MS, TOPIC_ID
from tests.network.answering import answer_checked


@pytest.mark.promise(
    "a response that contradicts its request is retried on a new connection, and fails no batch"
)
@pytest.mark.parametrize(
    ("indexes", "topic_id"),
    [([1], TOPIC_ID), ([0, 1], TOPIC_ID), ([0, 2, 0], TOPIC_ID), ([0], OTHER_ID)],
    ids=["another", "one_too_many", "twice", "another_topic"],
)
def test_an_answer_that_contradicts_its_request_counts_as_none_and_is_asked_again(
    indexes: list[int], topic_id: bytes
) -> None:
    scene = Scene()
    scene.read(A, C)
    topics = [
        FetchableTopicResponse(
            topic_id=topic_id, partitions=[part(index, batch([0])) for index in indexes]
        )
    ]
    error = answer_checked(scene.fetch(), FetchResponse(responses=topics), START_MS)
    assert "was not asked for, or twice" in str(error)
    assert scene.taken() == []
    assert scene.subscription.take_error() is None
    assert asked(scene.fetch(START_MS + RETRY_MS)) == [("t", 0, 0), ("t", 2, 0)]


def test_a_partition_that_an_answer_leaves_out_is_asked_for_again_after_a_back_off() -> None:
    """A broker that throttles us names none; it contradicts nothing."""
    scene = Scene()
    scene.read(A, C)
    reply(scene.fetch(), part(0, batch([0])))
    assert scene.taken() == [0]
    assert asked(scene.fetch()) == [("t", 0, 1)]
    result = scene.fetcher.poll(START_MS + RETRY_MS)
    assert result.requests == []
    scene = Scene()
    scene.read(A)
    reply(scene.fetch())
    assert scene.poll() == []
    assert asked(scene.fetch(START_MS + RETRY_MS)) == [("t", 0, 0)]


def test_a_fetch_says_how_long_its_answer_may_be_held_back() -> None:
    scene = Scene()
    scene.read(A)
    request = scene.fetch()
    assert isinstance(request.message, FetchRequest)
    assert request.held_ms == request.message.max_wait_ms > 0
