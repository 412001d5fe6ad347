"""A member of a group of KIP-848 as its consumer sees it: names of topics, patterns, commits."""

from __future__ import annotations

import logging
import re

import pytest

from pykclient.errors import CommitFailedError, FencedMemberEpochError, StaleMemberEpochError
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykclient.types import TopicPartition
from tests.consumer.group.group_scene import INTERVAL_MS, GroupScene
from tests.consumer.known_cluster import topic

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
T, U = topic("t", [1, 1]), topic("u", [1])


@pytest.fixture
def joined() -> GroupScene:
    """A member that has one partition of two."""
    scene = GroupScene("consumer")
    scene.subscription.subscribe(["t"])
    scene.join(A)
    return scene


@pytest.mark.promise(
    "an unauthorized topic is reported; a pattern or metadata that waits revokes nothing"
)
@pytest.mark.parametrize("starts_over", [True, False])
def test_a_topic_that_metadata_loses_sight_of_stays(joined: GroupScene, starts_over: bool) -> None:
    if starts_over:
        joined.start_over()
    else:
        joined.know()
    joined.poll(INTERVAL_MS)
    joined.beat([A, B], 2)
    joined.poll()
    assert joined.diary == [f"assigned {B}"]
    assert joined.subscription.partitions == {A, B}


def test_what_is_taken_away_is_revoked_before_the_rest_is_assigned(joined: GroupScene) -> None:
    joined.poll(INTERVAL_MS)
    joined.beat([B], 2)
    joined.poll()
    assert joined.diary == [f"revoked {A}", f"assigned {B}"]


def test_a_pattern_of_pythons_is_sent_as_topics() -> None:
    scene = GroupScene("consumer")
    scene.know(T, U)
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    message = scene.sent_request(ConsumerGroupHeartbeatRequest)
    assert message.subscribed_topic_names == ["t"]
    assert message.subscribed_topic_regex is None


def test_a_pattern_of_the_brokers_is_sent_as_it_is() -> None:
    scene = GroupScene("consumer")
    scene.know(T, U)
    scene.subscription.subscribe_broker_pattern("t.*")
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    message = scene.sent_request(ConsumerGroupHeartbeatRequest)
    assert message.subscribed_topic_names == []
    assert message.subscribed_topic_regex == "t.*"


def test_a_member_whose_epoch_has_grown_may_commit_again(joined: GroupScene) -> None:
    stale = StaleMemberEpochError("old")
    assert joined.group.on_commit_refused(joined.group.member(), stale) is stale
    fenced = joined.group.on_commit_refused(joined.group.member(), FencedMemberEpochError("no"))
    assert isinstance(fenced, CommitFailedError)


def test_a_refused_commit_is_followed_by_a_heartbeat_at_once(joined: GroupScene) -> None:
    joined.wait(0)
    assert joined.sent == []
    joined.group.on_commit_refused(joined.group.member(), FencedMemberEpochError("no"))
    joined.wait(0)
    joined.sent_request(ConsumerGroupHeartbeatRequest)


def test_a_rebalance_is_not_for_members_to_request(
    joined: GroupScene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        joined.group.enforce_rebalance("now")
    joined.poll()
    assert "no effect" in caplog.text
    assert joined.sent == []
