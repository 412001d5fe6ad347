"""A group as its consumer sees it: topics, patterns, commits; in both protocols, then in each."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

import pytest

from pykclient.consumer.group.assignors import RoundRobinAssignor
from pykclient.consumer.group.classic.protocol import read_assignment, read_subscription
from pykclient.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    LeaderNotAvailableError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UsageError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupRequest
from pykclient.protocol.messages.sync_group import SyncGroupRequest
from pykclient.types import GroupMetadata, TopicPartition
from tests.consumer.group.group_scene import GROUP, INTERVAL_MS, MAX_POLL_MS, GroupScene
from tests.consumer.known_cluster import topic

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
T, U = topic("t", [1, 1]), topic("u", [1])
PROTOCOLS = ("classic", "consumer")
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=PROTOCOLS)
def scene(request: pytest.FixtureRequest) -> GroupScene:
    return GroupScene(request.param)


def is_member(scene: GroupScene) -> bool:
    """Return whether the consumer may commit."""
    try:
        scene.group.member()
    except CommitFailedError:
        return False
    return True


# Polls.


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
def test_a_member_whose_application_polls_too_seldom_leaves_and_joins_again(
    scene: GroupScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    scene.wait(MAX_POLL_MS - 1)
    scene.beat()
    assert is_member(scene)
    scene.wait(1)
    assert not is_member(scene)
    assert scene.events == [], "the application is away"
    assert "max_poll_interval_ms" in caplog.text
    (rebalance,) = scene.group.history.rebalances(scene.now_ms, START)[-1:]
    assert rebalance.error == "the application did not poll for max_poll_interval_ms"
    scene.sent.clear()
    scene.poll()
    assert scene.events == [f"lost {A}"]
    assert len(scene.sent) == 1, "it joins"


def test_an_application_that_polls_is_not_late(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    for _ in range(3):
        scene.wait(MAX_POLL_MS - 1)
        scene.beat()
        scene.group.note_poll(scene.now_ms)
    assert is_member(scene)


def test_a_first_assignment_of_nothing_is_reported(scene: GroupScene) -> None:
    scene.update_metadata(T)
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    scene.events.clear()
    scene.assign([])
    scene.poll()
    assert scene.events == ["assigned"]


# Topics.


def test_a_topic_that_may_not_be_read_is_raised_by_poll(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t", "secret"])
    scene.join(A)
    refusal = TopicAuthorizationFailedError("secret")
    scene.update_metadata(T, errors={"secret": refusal})
    assert scene.group.has_error
    assert [scene.group.take_error(), scene.group.take_error()] == [refusal, None]
    assert scene.subscription.partitions == {A}


@pytest.mark.parametrize(
    ("name", "error"),
    [("other", TopicAuthorizationFailedError), ("t", LeaderNotAvailableError)],
)
def test_a_topic_of_others_and_one_that_is_waited_for_are_not_raised(
    scene: GroupScene, name: str, error: type[BrokerError]
) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    scene.update_metadata(errors={name: error("said")})
    assert not scene.group.has_error


@pytest.mark.parametrize("is_leaving", [True, False])
def test_a_topic_that_is_not_wanted_any_more_is_not_raised(
    scene: GroupScene, is_leaving: bool
) -> None:
    scene.subscription.subscribe(["t", "secret"])
    scene.join(A)
    scene.update_metadata(T, errors={"secret": TopicAuthorizationFailedError("secret")})
    if is_leaving:
        scene.group.begin_leave(
            "done", sends=True, now_ms=scene.now_ms, commit_deadline_ms=scene.now_ms
        )
    else:
        scene.subscription.subscribe(["t"])
        scene.group.on_subscribed(None)
    assert not scene.group.has_error


def test_metadata_that_starts_over_takes_nothing_away(scene: GroupScene) -> None:
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.update_metadata(T)
    scene.poll()
    scene.assign([A])
    scene.events.clear()
    scene.start_over()
    scene.poll(INTERVAL_MS)
    assert scene.subscription.wanted_topics == {"t"}
    scene.beat()
    scene.poll()
    scene.update_metadata(T)
    scene.poll()
    assert scene.sent == []
    assert scene.events == []


# Patterns.


@pytest.fixture
def matched(scene: GroupScene) -> GroupScene:
    """Provide a member that subscribes by a pattern and has both partitions."""
    scene.update_metadata(T)
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.update_metadata(T)
    scene.poll()
    scene.assign([A, B])
    scene.events.clear()
    return scene


def test_a_new_pattern_keeps_the_member_while_no_metadata_comes(
    matched: GroupScene,
) -> None:
    """It polls, so it is not late; its partitions stay, and heartbeats continue."""
    matched.subscription.subscribe_pattern(re.compile("t|u"))
    matched.group.on_subscribed(matched.listener)
    matched.poll()
    while matched.sent:
        matched.beat()
    beat_count = 0
    for _ in range(2 * MAX_POLL_MS // INTERVAL_MS):
        matched.poll(INTERVAL_MS)
        if matched.sent:
            matched.beat()
            beat_count += 1
    assert beat_count > MAX_POLL_MS // INTERVAL_MS
    assert is_member(matched)
    assert matched.subscription.partitions == {A, B}
    assert matched.events == []
    assert not matched.group.has_error


def test_an_application_that_is_away_with_a_new_pattern_is_late_all_the_same(
    matched: GroupScene,
) -> None:
    matched.subscription.subscribe_pattern(re.compile("t|u"))
    matched.group.on_subscribed(matched.listener)
    matched.poll()
    matched.wait(MAX_POLL_MS)
    assert not is_member(matched)


def test_a_new_pattern_that_matches_the_same_changes_nothing(matched: GroupScene) -> None:
    matched.subscription.subscribe_pattern(re.compile("t+"))
    matched.group.on_subscribed(matched.listener)
    matched.poll()
    matched.update_metadata(T)
    matched.poll()
    assert matched.sent == []
    assert matched.events == []


# Members that commit.


def test_partitions_assigned_by_hand_are_the_groups_alone(scene: GroupScene) -> None:
    scene.subscription.assign([A])
    assert scene.group.member() == GroupMetadata(GROUP)


def test_no_member_commits_before_it_has_joined(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    with pytest.raises(CommitFailedError, match=r"max_poll_interval_ms.*restarted"):
        scene.group.member()
    scene.poll()
    scene.update_metadata(T)
    scene.assign([A])
    assert scene.group.member() == GroupMetadata(GROUP, 1, "m-1")


def test_a_commit_without_membership_fails_because_the_group_has_members(scene: GroupScene) -> None:
    error = scene.group.on_commit_refused(GroupMetadata(GROUP), UnknownMemberIdError("no"))
    assert isinstance(error, CommitFailedError)
    assert "assign()" in str(error)


# Classic.


@pytest.fixture
def classic() -> GroupScene:
    return GroupScene("classic")


def topics_in(message: JoinGroupRequest) -> frozenset[str]:
    """Return the topics that the member subscribes to."""
    return frozenset(read_subscription(message.protocols[0].metadata).topics)


def test_a_pattern_is_joined_with_when_its_topics_are_known(classic: GroupScene) -> None:
    classic.update_metadata(T)
    classic.subscription.subscribe_pattern(re.compile("t|u"))
    classic.group.on_subscribed(classic.listener)
    classic.poll()
    assert classic.sent == []
    assert not classic.group.wants_turn(classic.now_ms)
    classic.update_metadata(T, U)
    assert classic.group.wants_turn(classic.now_ms)
    classic.poll()
    assert topics_in(classic.sent_request(JoinGroupRequest)) == {"t", "u"}


def test_a_new_pattern_begins_a_round_with_its_topics(classic: GroupScene) -> None:
    classic.update_metadata(T, U)
    classic.subscription.subscribe_pattern(re.compile("t"))
    classic.group.on_subscribed(classic.listener)
    classic.update_metadata(T, U)
    classic.poll()
    classic.assign([A])
    classic.subscription.subscribe_pattern(re.compile("u"))
    classic.group.on_subscribed(classic.listener)
    classic.poll(INTERVAL_MS)
    classic.beat()
    assert classic.subscription.partitions == {A}
    classic.update_metadata(T, U)
    classic.poll()
    assert topics_in(classic.sent_request(JoinGroupRequest)) == {"u"}


def test_a_leader_assigns_what_a_pattern_matches_however_metadata_came(
    classic: GroupScene,
) -> None:
    """Metadata of all topics lacks a deleted one; after a rebootstrap it lacks every topic.

    The first case is not an error; in the second one the next response is awaited.
    """
    classic.subscription.subscribe_pattern(re.compile("t"))
    classic.group.on_subscribed(classic.listener)
    classic.update_metadata(T)
    classic.poll()
    classic.lead({"m-1": ["t"], "m-2": ["t", "gone"]})
    classic.poll()
    classic.start_over()
    classic.poll()
    assert classic.sent == []
    classic.update_metadata(T)
    classic.poll()
    given = classic.sent_request(SyncGroupRequest).assignments
    assert {
        each.member_id: [
            str(partition) for partition in read_assignment(each.assignment).partitions
        ]
        for each in given
    } == {"m-1": ["t-0"], "m-2": ["t-1"]}


def test_a_leader_requests_the_topics_of_the_others_in_each_round(classic: GroupScene) -> None:
    classic.subscription.subscribe_pattern(re.compile("t"))
    classic.group.on_subscribed(classic.listener)
    classic.update_metadata(T)
    classic.poll()
    classic.lead({"m-1": ["t"], "m-2": ["gone"]})
    classic.poll()
    assert classic.sent == [], "metadata may have the other topic"
    classic.group.begin_leave("a test", sends=False, now_ms=classic.now_ms, commit_deadline_ms=0)
    classic.poll()
    classic.group.on_subscribed(classic.listener)
    classic.update_metadata(T)
    classic.poll()
    classic.lead({"m-1": ["t"], "m-2": ["come"]})
    classic.poll()
    assert classic.sent == [], "metadata may have this one, too"
    classic.update_metadata(T, topic("come", [1]))
    classic.poll()
    given = classic.sent_request(SyncGroupRequest).assignments
    assert [each.member_id for each in given if read_assignment(each.assignment).partitions] == [
        "m-1",
        "m-2",
    ]


def test_other_topics_begin_a_round(classic: GroupScene) -> None:
    classic.subscription.subscribe(["t"])
    classic.join(A)
    classic.subscription.subscribe(["t", "u"])
    classic.group.on_subscribed(classic.listener)
    classic.poll()
    assert topics_in(classic.sent_request(JoinGroupRequest)) == {"t", "u"}


def test_a_round_can_be_enforced(classic: GroupScene) -> None:
    classic.subscription.subscribe(["t"])
    classic.join(A)
    classic.group.enforce_rebalance("racks have changed")
    classic.poll()
    assert classic.sent_request(JoinGroupRequest).reason == "racks have changed"


def test_no_member_commits_while_the_group_rebalances(classic: GroupScene) -> None:
    classic.subscription.subscribe(["t"])
    classic.join(A)
    classic.group.enforce_rebalance("now")
    classic.poll()
    with pytest.raises(RebalanceInProgressError, match="poll until"):
        classic.group.member()


@pytest.mark.parametrize("data", [ValueError("mistake"), "text"])
def test_user_data_that_cannot_be_sent_is_the_assignors_fault(data: object) -> None:
    class Own(RoundRobinAssignor):
        def user_data(self, topics: frozenset[str]) -> None:
            if isinstance(data, Exception):
                raise data
            return data  # type: ignore[return-value]

    classic = GroupScene("classic", [Own()])
    classic.update_metadata(T)
    classic.subscription.subscribe(["t"])
    classic.group.on_subscribed(classic.listener)
    with pytest.raises(UsageError, match=r"'roundrobin' (failed: .*mistake|returned user data)"):
        classic.poll()


def test_a_leader_that_assigns_what_is_not_read_is_reported(classic: GroupScene) -> None:
    """Once may be an old assignment of a static member; endless joins would be a storm."""
    classic.update_metadata(T)
    classic.subscription.subscribe(["t"])
    classic.group.on_subscribed(classic.listener)
    classic.poll()
    classic.assign([TopicPartition("u", 0)])
    assert not classic.group.has_error
    classic.assign([TopicPartition("u", 0)], generation=2)
    assert isinstance(classic.group.take_error(), UsageError)
    classic.poll()
    assert classic.sent == []
    assert not classic.subscription.partitions


def test_what_was_read_when_it_joined_is_no_fault_of_the_leader(classic: GroupScene) -> None:
    classic.update_metadata(T, U)
    classic.subscription.subscribe(["t"])
    classic.group.on_subscribed(classic.listener)
    classic.poll()
    classic.subscription.subscribe(["u"])
    classic.assign([A])
    assert not classic.group.has_error
    assert topics_in(classic.sent_request(JoinGroupRequest)) == {"u"}


def test_the_error_of_a_refused_commit_warns_that_others_may_read_again(
    classic: GroupScene,
) -> None:
    classic.subscription.subscribe(["t"])
    classic.join(A)
    error = classic.group.on_commit_refused(classic.group.member(), StaleMemberEpochError("old"))
    assert isinstance(error, CommitFailedError)


@pytest.mark.parametrize("error", [FencedInstanceIdError, UnknownMemberIdError])
def test_a_commit_of_a_generation_of_before_ends_nothing(
    classic: GroupScene, error: type[BrokerError]
) -> None:
    classic.subscription.subscribe(["t"])
    classic.join(A)
    before = classic.group.member()
    classic.group.enforce_rebalance("now")
    classic.poll()
    classic.assign([A], generation=2)
    assert isinstance(classic.group.on_commit_refused(before, error("late")), CommitFailedError)
    classic.group.enforce_rebalance("again")
    classic.poll()
    refused = classic.group.on_commit_refused(before, error("later"))
    assert isinstance(refused, RebalanceInProgressError)
    assert not classic.group.has_error
    assert classic.group.identity.generation == 2


# KIP-848.


@pytest.fixture
def joined() -> GroupScene:
    """Provide a member that has one partition of two."""
    scene = GroupScene("consumer")
    scene.subscription.subscribe(["t"])
    scene.join(A)
    return scene


@pytest.mark.parametrize("starts_over", [True, False])
def test_a_topic_that_metadata_loses_sight_of_stays(joined: GroupScene, starts_over: bool) -> None:
    if starts_over:
        joined.start_over()
    else:
        joined.update_metadata()
    joined.poll(INTERVAL_MS)
    joined.beat([A, B], 2)
    joined.poll()
    assert joined.events == [f"assigned {B}"]
    assert joined.subscription.partitions == {A, B}


def test_what_is_taken_away_is_revoked_before_the_rest_is_assigned(joined: GroupScene) -> None:
    joined.poll(INTERVAL_MS)
    joined.beat([B], 2)
    joined.poll()
    assert joined.events == [f"revoked {A}", f"assigned {B}"]


@pytest.mark.parametrize(
    ("is_of_brokers", "topics", "regex"), [(False, ["t"], None), (True, [], "t.*")]
)
def test_a_pattern_of_pythons_is_sent_as_topics_and_one_of_the_brokers_as_it_is(
    is_of_brokers: bool, topics: list[str], regex: str | None
) -> None:
    scene = GroupScene("consumer")
    scene.update_metadata(T, U)
    if is_of_brokers:
        scene.subscription.subscribe_broker_pattern("t.*")
    else:
        scene.subscription.subscribe_pattern(re.compile("t.*"))
    scene.group.on_subscribed(scene.listener)
    scene.poll()
    message = scene.sent_request(ConsumerGroupHeartbeatRequest)
    assert (message.subscribed_topic_names, message.subscribed_topic_regex) == (topics, regex)


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
