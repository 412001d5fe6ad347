"""A member of a classic group as its consumer sees it: when it joins, and what is reported."""

from __future__ import annotations

import re

import pytest

from pykclient.consumer.group.assignors import RoundRobinAssignor
from pykclient.consumer.group.classic.protocol import read_assignment, read_subscription
from pykclient.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UsageError,
)
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.types import TopicPartition
from tests.consumer.group.group_scene import INTERVAL_MS, GroupScene
from tests.consumer.known_cluster import topic

A = TopicPartition("t", 0)
T, U = topic("t", [1, 1]), topic("u", [1])


@pytest.fixture
def scene() -> GroupScene:
    return GroupScene("classic")


def topics_in(message: JoinGroupRequest) -> frozenset[str]:
    """What the member asks for."""
    return read_subscription(message.protocols[0].metadata, None).topics


def test_a_pattern_is_joined_with_when_its_topics_are_known(scene: GroupScene) -> None:
    scene.know(T)
    scene.subscription.subscribe_pattern(re.compile("t|u"))
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    assert scene.sent == []
    assert not scene.group.wants_turn(scene.now_ms)
    scene.know(T, U)
    assert scene.group.wants_turn(scene.now_ms)
    scene.poll()
    assert topics_in(scene.sent_request(JoinGroupRequest)) == {"t", "u"}


def test_a_new_pattern_begins_a_round_with_its_topics(scene: GroupScene) -> None:
    scene.know(T, U)
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.know(T, U)
    scene.poll()
    scene.assign([A])
    scene.subscription.subscribe_pattern(re.compile("u"))
    scene.group.on_subscribed(scene.listener)
    scene.poll(INTERVAL_MS)
    scene.beat()
    assert scene.subscription.partitions == {A}
    scene.know(T, U)
    scene.poll()
    assert topics_in(scene.sent_request(JoinGroupRequest)) == {"u"}


def test_a_leader_assigns_what_a_pattern_matches_however_metadata_came(
    scene: GroupScene,
) -> None:
    """Who asks for all topics hears nothing of one that is gone; nor of any, while it starts over.

    Of the first it hears no more than that, of the second it must wait for the answer.
    """
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.know(T)
    scene.poll()
    scene.lead({"m-1": ["t"], "m-2": ["t", "gone"]})
    scene.poll()
    scene.start_over()
    scene.poll()
    assert scene.sent == []
    scene.know(T)
    scene.poll()
    given = scene.sent_request(SyncGroupRequest).assignments
    assert {
        each.member_id: [
            str(partition) for partition in read_assignment(each.assignment).partitions
        ]
        for each in given
    } == {"m-1": ["t-0"], "m-2": ["t-1"]}


def test_a_leader_requests_the_topics_of_the_others_in_each_round(scene: GroupScene) -> None:
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.know(T)
    scene.poll()
    scene.lead({"m-1": ["t"], "m-2": ["gone"]})
    scene.poll()
    assert scene.sent == [], "metadata may tell of the other topic"
    scene.group.begin_leave("a test", sends=False, now_ms=scene.now_ms, commit_deadline_ms=0)
    scene.poll()
    scene.group.on_subscribed(scene.listener)
    scene.know(T)
    scene.poll()
    scene.lead({"m-1": ["t"], "m-2": ["come"]})
    scene.poll()
    assert scene.sent == [], "metadata may tell of this one, too"
    scene.know(T, topic("come", [1]))
    scene.poll()
    given = scene.sent_request(SyncGroupRequest).assignments
    assert [each.member_id for each in given if read_assignment(each.assignment).partitions] == [
        "m-1",
        "m-2",
    ]


def test_other_topics_begin_a_round(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    scene.subscription.subscribe(["t", "u"])
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    assert topics_in(scene.sent_request(JoinGroupRequest)) == {"t", "u"}


def test_a_round_can_be_enforced(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    scene.group.enforce_rebalance("racks have changed")
    scene.poll()
    assert scene.sent_request(JoinGroupRequest).reason == "racks have changed"


def test_no_member_commits_while_the_group_rebalances(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    scene.group.enforce_rebalance("now")
    scene.poll()
    with pytest.raises(RebalanceInProgressError, match="poll until"):
        scene.group.member()


@pytest.mark.parametrize("data", [ValueError("mistake"), "text"])
def test_user_data_that_cannot_be_sent_is_the_assignors_fault(data: object) -> None:
    class Own(RoundRobinAssignor):
        def user_data(self, topics: frozenset[str]) -> None:
            if isinstance(data, Exception):
                raise data
            return data  # type: ignore[return-value]

    scene = GroupScene("classic", [Own()])
    scene.know(T)
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    with pytest.raises(UsageError, match=r"'roundrobin' (failed: .*mistake|gave user data)"):
        scene.poll()


@pytest.mark.promise("a leader's mistake causes no storm of rebalances")
def test_a_leader_that_assigns_what_is_not_read_is_reported(scene: GroupScene) -> None:
    """Once may be what a static member had before; to join for ever would be a storm."""
    scene.know(T)
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    scene.assign([TopicPartition("u", 0)])
    assert not scene.group.has_error
    scene.assign([TopicPartition("u", 0)], generation=2)
    assert isinstance(scene.group.take_error(), UsageError)
    scene.poll()
    assert scene.sent == []
    assert not scene.subscription.partitions


@pytest.mark.promise("a leader's mistake causes no storm of rebalances")
def test_what_was_read_when_it_joined_is_no_fault_of_the_leader(scene: GroupScene) -> None:
    scene.know(T, U)
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    scene.subscription.subscribe(["u"])
    scene.assign([A])
    assert not scene.group.has_error
    assert topics_in(scene.sent_request(JoinGroupRequest)) == {"u"}


def test_a_refused_commit_says_that_others_may_read(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    error = scene.group.on_commit_refused(scene.group.member(), StaleMemberEpochError("old"))
    assert isinstance(error, CommitFailedError)


@pytest.mark.parametrize("error", [FencedInstanceIdError, UnknownMemberIdError])
def test_a_commit_of_a_generation_of_before_ends_nothing(
    scene: GroupScene, error: type[BrokerError]
) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    before = scene.group.member()
    scene.group.enforce_rebalance("now")
    scene.poll()
    scene.assign([A], generation=2)
    assert isinstance(scene.group.on_commit_refused(before, error("late")), CommitFailedError)
    scene.group.enforce_rebalance("again")
    scene.poll()
    refused = scene.group.on_commit_refused(before, error("later"))
    assert isinstance(refused, RebalanceInProgressError)
    assert not scene.group.has_error
    assert scene.group.identity.generation == 2
