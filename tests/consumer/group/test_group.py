"""What the groups of both protocols have alike: errors of topics, patterns, who commits."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from pykclient.consumer.group.metadata import GroupMetadata
from pykclient.errors import (
    BrokerError,
    CommitFailedError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from pykclient.types import TopicPartition
from tests.consumer.group.group_scene import GROUP, INTERVAL_MS, MAX_POLL_MS, GroupScene
from tests.consumer.known_cluster import topic

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
T = topic("t", [1, 1])
PROTOCOLS = ("classic", "consumer")
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=PROTOCOLS)
def scene(request: pytest.FixtureRequest) -> GroupScene:
    return GroupScene(request.param)


# Polls.


@pytest.mark.promise("`max_poll_interval_ms` and `session_timeout_ms` are enforced")
@pytest.mark.promise("a fenced or late KIP-848 member loses everything and joins again")
def test_a_member_whose_application_polls_too_seldom_leaves_and_joins_again(
    scene: GroupScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    scene.wait(MAX_POLL_MS - 1)
    scene.beat()
    assert scene.group.member() == scene.group.identity
    scene.wait(1)
    assert not scene.group.identity.is_member
    assert scene.diary == [], "the application is away"
    assert "max_poll_interval_ms" in caplog.text
    (rebalance,) = scene.group.history.rebalances(scene.now_ms, START)[-1:]
    assert rebalance.error == "the application did not poll for max_poll_interval_ms"
    scene.sent.clear()
    scene.poll()
    assert scene.diary == [f"lost {A}"]
    assert len(scene.sent) == 1, "it joins"


def test_an_application_that_polls_is_not_late(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.join(A)
    for _ in range(3):
        scene.wait(MAX_POLL_MS - 1)
        scene.beat()
        scene.group.note_poll(scene.now_ms)
    assert scene.group.identity.is_member


# Topics.


@pytest.mark.promise(
    "an unauthorized topic is reported; a pattern or metadata that waits revokes nothing"
)
def test_a_topic_that_may_not_be_read_is_raised_by_poll(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t", "secret"])
    scene.join(A)
    refusal = TopicAuthorizationFailedError("secret")
    scene.know(T, errors={"secret": refusal})
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
    scene.know(errors={name: error("said")})
    assert not scene.group.has_error


@pytest.mark.parametrize("is_leaving", [True, False])
def test_a_topic_that_is_not_wanted_any_more_is_not_raised(
    scene: GroupScene, is_leaving: bool
) -> None:
    scene.subscription.subscribe(["t", "secret"])
    scene.join(A)
    scene.know(T, errors={"secret": TopicAuthorizationFailedError("secret")})
    if is_leaving:
        scene.group.begin_leave(
            "done", sends=True, now_ms=scene.now_ms, commit_deadline_ms=scene.now_ms
        )
    else:
        scene.subscription.subscribe(["t"])
        scene.group.on_subscribed(None)
    assert not scene.group.has_error


@pytest.mark.promise(
    "an unauthorized topic is reported; a pattern or metadata that waits revokes nothing"
)
def test_metadata_that_starts_over_takes_nothing_away(scene: GroupScene) -> None:
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.know(T)
    scene.poll()
    scene.assign([A])
    scene.diary.clear()
    scene.start_over()
    scene.poll(INTERVAL_MS)
    assert scene.subscription.wanted_topics == {"t"}
    scene.beat()
    scene.poll()
    scene.know(T)
    scene.poll()
    assert scene.sent == []
    assert scene.diary == []


# Patterns.


@pytest.fixture
def matched(scene: GroupScene) -> GroupScene:
    """A member by a pattern, which has both partitions."""
    scene.know(T)
    scene.subscription.subscribe_pattern(re.compile("t"))
    scene.group.on_subscribed(scene.listener)
    scene.know(T)
    scene.poll()
    scene.assign([A, B])
    scene.diary.clear()
    return scene


@pytest.mark.promise(
    "an unauthorized topic is reported; a pattern or metadata that waits revokes nothing"
)
def test_a_new_pattern_keeps_the_member_while_no_metadata_comes(
    matched: GroupScene,
) -> None:
    """It polls, so it is not late; and what it has stays, with a heartbeat now and then."""
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
    assert matched.group.identity.is_member
    assert matched.subscription.partitions == {A, B}
    assert matched.diary == []
    assert not matched.group.has_error


def test_an_application_that_is_away_with_a_new_pattern_is_late_all_the_same(
    matched: GroupScene,
) -> None:
    matched.subscription.subscribe_pattern(re.compile("t|u"))
    matched.group.on_subscribed(matched.listener)
    matched.poll()
    matched.wait(MAX_POLL_MS)
    assert not matched.group.identity.is_member


def test_a_new_pattern_that_matches_the_same_changes_nothing(matched: GroupScene) -> None:
    matched.subscription.subscribe_pattern(re.compile("t+"))
    matched.group.on_subscribed(matched.listener)
    matched.poll()
    matched.know(T)
    matched.poll()
    assert matched.sent == []
    assert matched.diary == []


# Who commits.


def test_partitions_assigned_by_hand_are_the_groups_alone(scene: GroupScene) -> None:
    scene.subscription.assign([A])
    assert scene.group.member() == GroupMetadata(GROUP)


def test_no_member_commits_before_it_has_joined(scene: GroupScene) -> None:
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        scene.group.member()
    scene.poll()
    scene.know(T)
    scene.assign([A])
    assert scene.group.member() == scene.group.identity
    assert scene.group.identity.generation == 1


def test_a_commit_of_no_member_says_that_the_group_has_members(scene: GroupScene) -> None:
    error = scene.group.on_commit_refused(GroupMetadata(GROUP), UnknownMemberIdError("no"))
    assert isinstance(error, CommitFailedError)
    assert "assign()" in str(error)
