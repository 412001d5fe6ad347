"""Fetcher in sessions: what its requests name, and that nobody goes short of it."""

from __future__ import annotations

import pytest

from pykclient.errors import (
    BrokerError,
    DisconnectedError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
)
from tests.consumer.fetch_scene import A, B, C, Scene, asked, message_of, part, reply
from tests.consumer.fetched_records import batch
from tests.consumer.known_cluster import RETRY_MS, START_MS, know, topic


def begun() -> Scene:
    """Three partitions of one broker in a session, the first with records that were taken."""
    scene = Scene()
    know(scene.metadata, topic("t", [1, 1, 1]))
    scene.read(A, B, C)
    reply(scene.fetch(), part(0, batch(range(5))), part(1), part(2), session_id=9)
    assert scene.taken() == [0, 1, 2, 3, 4]
    return scene


@pytest.mark.promise("a fetch names only what is new in its session, on real and fake brokers")
def test_only_what_moved_is_named() -> None:
    request = begun().fetch()
    message = message_of(request)
    assert (message.session_id, message.session_epoch) == (9, 1)
    assert asked(request) == [("t", 0, 5)]
    assert message.forgotten_topics_data == []


@pytest.mark.promise("a fetch names only what is new in its session, on real and fake brokers")
def test_nothing_is_named_at_the_end_of_all_logs() -> None:
    scene = begun()
    reply(scene.fetch(), session_id=9)
    for _ in range(3):
        request = scene.fetch()
        assert asked(request) == []
        reply(request, session_id=9)


def test_a_partition_that_a_session_says_nothing_of_is_not_left_alone() -> None:
    scene = begun()
    reply(scene.fetch(), session_id=9)
    reply(scene.fetch(), part(1, batch(range(3))), session_id=9)
    assert scene.taken() == [0, 1, 2]
    assert asked(scene.fetch()) == [("t", 1, 3)]


def test_what_is_paused_is_forgotten_and_named_again_when_it_is_resumed() -> None:
    scene = begun()
    b = scene.subscription.require(B)
    scene.subscription.pause(b)
    request = scene.fetch()
    (forgotten,) = message_of(request).forgotten_topics_data
    assert forgotten.partitions == [1]
    reply(request, session_id=9)
    scene.subscription.resume(b)
    assert asked(scene.fetch()) == [("t", 1, 0)]


def test_records_of_a_partition_sought_meanwhile_are_thrown_away_and_it_is_named() -> None:
    scene = begun()
    b = scene.subscription.require(B)
    request = scene.fetch()
    scene.subscription.seek(b, 7)
    reply(request, part(1, batch(range(3))), session_id=9)
    assert scene.taken() == []
    assert asked(scene.fetch()) == [("t", 1, 7)]


@pytest.mark.promise("after any failed fetch the broker reads what is wanted and nothing else")
@pytest.mark.parametrize(
    ("kind", "session_id"),
    [(FetchSessionIdNotFoundError, 0), (InvalidFetchSessionEpochError, 9)],
)
def test_a_lost_session_is_begun_anew_at_once(kind: type[BrokerError], session_id: int) -> None:
    scene = begun()
    reply(scene.fetch(), error_code=kind.code)
    request = scene.fetch()
    message = message_of(request)
    assert (message.session_id, message.session_epoch) == (session_id, 0)
    assert set(asked(request)) == {("t", 0, 5), ("t", 1, 0), ("t", 2, 0)}


def test_a_broker_that_refuses_a_new_session_too_is_left_alone_for_a_while() -> None:
    scene = begun()
    reply(scene.fetch(), error_code=FetchSessionIdNotFoundError.code)
    reply(scene.fetch(), error_code=FetchSessionIdNotFoundError.code)
    assert scene.poll() == []
    assert len(asked(scene.fetch(START_MS + RETRY_MS))) == 3


def test_after_a_lost_connection_everything_is_named() -> None:
    scene = begun()
    scene.fetch().on_failure(DisconnectedError("gone"), START_MS)
    request = scene.fetch(START_MS + RETRY_MS)
    assert (message_of(request).session_id, message_of(request).session_epoch) == (9, 0)
    assert len(asked(request)) == 3


def test_at_the_end_brokers_that_owe_nothing_forget_us() -> None:
    scene = begun()
    (request,) = scene.fetcher.end_sessions(START_MS)
    message = message_of(request)
    assert (request.node_id, message.session_id, message.session_epoch) == (1, 9, -1)
    assert message.topics == []
    scene = begun()
    scene.fetch()
    assert scene.fetcher.end_sessions(START_MS) == []
