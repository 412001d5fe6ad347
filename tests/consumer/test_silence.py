"""Silence by numbers: when an empty poll is an error, and when it is only early."""

from __future__ import annotations

import pytest

from pykclient.consumer.fetch_troubles import FetchTroubles
from pykclient.consumer.silence import (
    NO_CLUSTER_MS,
    UNKNOWN_TOPIC_MS,
    Silence,
    unknown_partition,
)
from pykclient.consumer.subscription import SubscriptionState
from pykclient.errors import (
    DisconnectedError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from pykclient.types import TopicPartition
from tests.consumer.known_cluster import know, topic
from tests.network.scripted_network import BOOTSTRAP, ScriptedNetwork

A, ABSENT = TopicPartition("t", 0), TopicPartition("absent", 0)
START_MS = 5_000_000
UNREAD_MAX_MS = 60_000
UNKNOWN = {"absent": UnknownTopicOrPartitionError("absent")}


class Scene:
    """A consumer's polls over a network that does what the test says."""

    def __init__(self, *partitions: TopicPartition, address_count: int = 1) -> None:
        self.network = ScriptedNetwork(bootstrap=BOOTSTRAP[:address_count])
        self.subscription = SubscriptionState()
        self.subscription.assign(partitions)
        self.troubles = FetchTroubles()
        self._silence = Silence(
            self.network.metadata,
            self.network.client,
            self.subscription,
            troubles=self.troubles,
            why_no_position=lambda _: "nobody leads it",
            unread_max_ms=UNREAD_MAX_MS,
        )

    def poll(self, started_ms: int, timeout_ms: int) -> BaseException | None:
        return self._silence.reason(started_ms, started_ms + timeout_ms)

    def refuse_all(self) -> None:
        """Let every address refuse a connection once."""
        self.network.send()
        for _ in range(100):
            for peer in self.network.port.peers:
                if not peer.is_accepted and not peer.is_ended:
                    peer.refuse()
            self.network.turn(10)


def test_a_slow_start_is_no_error() -> None:
    scene = Scene(A)
    assert scene.poll(START_MS, NO_CLUSTER_MS - 1) is None


def test_no_answer_at_all_is_an_error_after_a_while_over_all_polls() -> None:
    scene = Scene(A)
    step_ms = NO_CLUSTER_MS // 3
    errors = [scene.poll(START_MS + n * step_ms, step_ms) for n in range(3)]
    assert errors[:2] == [None, None]
    assert isinstance(errors[2], KafkaTimeoutError)
    assert str(NO_CLUSTER_MS) in str(errors[2])


@pytest.mark.parametrize("address_count", [1, 3])
def test_when_every_address_refused_the_first_empty_poll_says_so(address_count: int) -> None:
    scene = Scene(A, address_count=address_count)
    scene.refuse_all()
    error = scene.poll(START_MS, 0)
    assert isinstance(error, KafkaTimeoutError)
    for node in BOOTSTRAP[:address_count]:
        assert f"{node.host}:{node.port}" in str(error)


def test_who_hangs_up_after_the_handshake_may_want_authentication() -> None:
    scene = Scene(A)
    scene.refuse_all()
    assert "SASL" not in str(scene.poll(START_MS, 0))
    scene.network.metadata.last_error = DisconnectedError("the broker closed the connection")
    assert "SASL" in str(scene.poll(START_MS, 0))


def test_as_long_as_one_address_may_answer_it_waits() -> None:
    scene = Scene(A, address_count=2)
    scene.network.send()
    scene.network.turn()
    scene.network.peer.refuse()
    scene.network.turn()
    assert scene.poll(START_MS, 0) is None


def test_with_a_cluster_nothing_to_read_is_no_error() -> None:
    scene = Scene(A)
    know(scene.network.metadata, topic("t", [1]))
    scene.subscription.seek(scene.subscription.require(A), 0)
    assert scene.poll(START_MS, 10**9) is None


def test_a_partition_that_cannot_be_read_is_an_error_in_time_and_told_again_after_that() -> None:
    scene = Scene(A)
    know(scene.network.metadata, topic("t", [1]))
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 0)
    scene.troubles.note(assigned, "broker 1 does not answer", START_MS)
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None
    error = scene.poll(START_MS, UNREAD_MAX_MS)
    assert isinstance(error, KafkaTimeoutError)
    assert "t-0 could not be read for 60000 ms: broker 1 does not answer" in str(error)
    assert scene.poll(START_MS + UNREAD_MAX_MS, UNREAD_MAX_MS - 1) is None
    assert isinstance(scene.poll(START_MS + UNREAD_MAX_MS, UNREAD_MAX_MS), KafkaTimeoutError)


def test_a_partition_without_a_position_is_an_error_in_time() -> None:
    scene = Scene(A)
    know(scene.network.metadata, topic("t", [None]))
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None
    error = scene.poll(START_MS + UNREAD_MAX_MS - 1, 1)
    assert isinstance(error, KafkaTimeoutError)
    assert "nobody leads it" in str(error)


def test_what_is_read_again_or_read_no_more_was_no_error() -> None:
    scene = Scene(A)
    know(scene.network.metadata, topic("t", [1]))
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 0)
    scene.troubles.note(assigned, "broker 1 does not answer", START_MS)
    scene.troubles.end([assigned])
    assert scene.poll(START_MS, 10**9) is None
    scene.troubles.note(assigned, "broker 1 does not answer", START_MS)
    scene.subscription.pause(assigned)
    assert scene.poll(START_MS, 10**9) is None
    scene.subscription.resume(assigned)
    assert scene.poll(START_MS, 10**9) is None, "that was another time"


def test_an_unknown_topic_is_an_error_after_a_while_over_all_polls() -> None:
    scene = Scene(A, ABSENT)
    know(scene.network.metadata, topic("t", [1]), errors=UNKNOWN)
    step_ms = UNKNOWN_TOPIC_MS // 2
    assert scene.poll(START_MS, step_ms) is None
    error = scene.poll(START_MS + step_ms, step_ms)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert "'absent'" in str(error)
    assert "Admin.create_topics" in str(error)


def test_a_topic_that_appears_in_time_was_never_an_error() -> None:
    scene = Scene(ABSENT)
    know(scene.network.metadata, errors=UNKNOWN)
    assert scene.poll(START_MS, UNKNOWN_TOPIC_MS - 1) is None
    know(scene.network.metadata, topic("absent", [1]))
    assert scene.poll(START_MS, UNKNOWN_TOPIC_MS) is None
    know(scene.network.metadata, errors=UNKNOWN)
    later_ms = START_MS + 10 * UNKNOWN_TOPIC_MS
    assert scene.poll(later_ms, UNKNOWN_TOPIC_MS - 1) is None


def test_a_topic_without_a_leader_yet_is_not_unknown() -> None:
    scene = Scene(ABSENT)
    know(scene.network.metadata, errors={"absent": LeaderNotAvailableError("absent")})
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None


def test_a_partition_beyond_the_last_is_unknown() -> None:
    metadata = Scene().network.metadata
    know(metadata, topic("t", [1, 1]))
    error = unknown_partition(metadata.cluster, TopicPartition("t", 2))
    assert error is not None
    assert "2 partitions" in str(error)
    assert unknown_partition(metadata.cluster, A) is None
    assert unknown_partition(metadata.cluster, ABSENT) is None, "nobody has asked about it yet"
