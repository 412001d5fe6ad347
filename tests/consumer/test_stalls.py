"""Stalls of partitions: what starts and ends one, and when it started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.fetch.fetcher import LATE_MS
from pykclient.errors import DisconnectedError, NotLeaderOrFollowerError
from tests.consumer.fetch_scene import A, C, Scene, part, reply
from tests.consumer.known_cluster import START_MS, topic, update_metadata

if TYPE_CHECKING:
    from pykclient.types import TopicPartition

LATER_MS = START_MS + 5_000
FETCH_WAIT_MS = 500


def oldest(scene: Scene) -> tuple[TopicPartition, str, int] | None:
    found = scene.stalls.oldest()
    if found is None:
        return None
    assigned, stall = found
    return assigned.partition, str(stall.reason), stall.since_ms


def test_a_refused_partition_stalls_until_it_is_served() -> None:
    scene = Scene(A, C)
    reply(scene.fetch(), part(0, code=NotLeaderOrFollowerError.code), part(2))
    found = oldest(scene)
    assert found is not None
    assert (found[0], found[2]) == (A, START_MS)
    assert "NOT_LEADER_OR_FOLLOWER" in found[1]
    update_metadata(scene.metadata, topic("t", [1, 2, 1]))
    reply(scene.fetch(LATER_MS), part(0), part(2), now_ms=LATER_MS)
    assert oldest(scene) is None


def test_the_first_reason_has_the_time_and_the_last_one_the_cause() -> None:
    scene = Scene()
    assigned = scene.read(A)
    scene.stalls.note(assigned, "first", START_MS)
    scene.stalls.note(assigned, "last", LATER_MS)
    assert oldest(scene) == (A, "last", START_MS)


def test_a_lost_connection_is_a_stall_of_all_partitions_requested() -> None:
    scene = Scene(A, C)
    scene.fetch().on_failure(DisconnectedError("gone"), START_MS)
    assert len(scene.stalls) == 2


@pytest.mark.promise(
    "`poll` reports lost or unresponsive brokers in time, and reads from them once they are back"
)
def test_a_broker_that_is_late_is_one_and_its_response_ends_it() -> None:
    scene = Scene(A)
    request = scene.fetch()
    late_ms = START_MS + FETCH_WAIT_MS + LATE_MS
    scene.poll(late_ms - 1)
    assert oldest(scene) is None
    scene.poll(late_ms)
    assert oldest(scene) == (A, "broker 1 does not respond", late_ms)
    reply(request, part(0), now_ms=LATER_MS)
    assert oldest(scene) is None


def test_a_partition_without_a_leader_stalls() -> None:
    scene = Scene()
    update_metadata(scene.metadata, topic("t", [None, 2, 1]))
    scene.read(A)
    scene.poll()
    assert oldest(scene) == (A, "it has no leader", START_MS)


def test_in_a_session_no_news_is_good_news_and_in_a_full_response_it_is_none() -> None:
    scene = Scene()
    a = scene.read(A, C)
    reply(scene.fetch(), part(0), part(2), session_id=9)
    scene.stalls.note(a, "something", START_MS)
    reply(scene.fetch(), session_id=9)
    assert oldest(scene) is None
    scene = Scene()
    a = scene.read(A, C)
    scene.stalls.note(a, "something", START_MS)
    reply(scene.fetch(), part(2))
    assert oldest(scene) == (A, "something", START_MS)


def test_what_is_not_to_be_read_at_present_does_not_stall() -> None:
    scene = Scene()
    a = scene.read(A, C)
    c = scene.subscription.require(C)
    for assigned in (a, c):
        scene.stalls.note(assigned, "something", START_MS)
    scene.subscription.pause(a)
    scene.subscription.set_limits({C: 0})
    assert oldest(scene) is None


def test_what_is_assigned_no_more_is_forgotten_when_others_are_read() -> None:
    scene = Scene()
    a = scene.read(A, C)
    scene.stalls.note(a, "something", START_MS)
    scene.subscription.assign([C])
    assert len(scene.stalls) == 1
    reply(scene.fetch(), part(2))
    assert len(scene.stalls) == 0
