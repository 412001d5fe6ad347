"""SubscriptionState: which partitions it has, what moves positions, and valid subscriptions."""

from __future__ import annotations

import re

import pytest

from pykclient.arguments import compiled_pattern, subscribed_topics
from pykclient.consumer.subscription import (
    NEXT,
    PARTITIONS_SHOWN_MAX,
    OffsetReset,
    PositionState,
    SubscriptionState,
    describe_partitions,
)
from pykclient.errors import NoOffsetForPartitionError, UsageError
from pykclient.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
ERROR = NoOffsetForPartitionError("nowhere")


@pytest.fixture
def subscription() -> SubscriptionState:
    subscription = SubscriptionState()
    subscription.assign([A, B])
    return subscription


def test_a_partition_that_stays_keeps_its_position(subscription: SubscriptionState) -> None:
    kept, dropped = subscription.require(A), subscription.require(B)
    subscription.seek(kept, 7)
    assert subscription.assign([C, A]) == [dropped]
    assert subscription.require(A) is kept
    assert kept.offset == 7
    assert not dropped.is_assigned
    assert [assigned.partition for assigned in subscription] == [C, A]
    assert [assigned.partition for assigned in subscription.without_position] == [C]


def test_a_partition_given_twice_is_assigned_once(subscription: SubscriptionState) -> None:
    subscription.assign([A, A])
    assert len(subscription) == 1


def test_what_is_not_assigned_cannot_be_named(subscription: SubscriptionState) -> None:
    with pytest.raises(UsageError, match=r"t-2 is not assigned.*assign\(\)"):
        subscription.require(C)
    with pytest.raises(UsageError, match="t-2"):
        subscription.require_all([A, C])
    with pytest.raises(UsageError, match="t-2"):
        subscription.set_limits({C: 1})


def test_what_a_group_has_not_assigned_yet_has_a_cure_that_is_not_assign() -> None:
    subscription = SubscriptionState()
    subscription.subscribe(["t"])
    with pytest.raises(UsageError, match=r"t-2 is not assigned to this consumer; poll until"):
        subscription.require(C)


def test_a_seek_voids_what_was_requested_before(subscription: SubscriptionState) -> None:
    assigned = subscription.require(A)
    subscription.await_reset(assigned, OffsetReset.LATEST)
    requested_epoch = assigned.epoch
    subscription.seek(assigned, 5, leader_epoch=3)
    assert assigned.epoch != requested_epoch
    assert (assigned.offset, assigned.leader_epoch) == (5, 3)
    assert assigned.is_fetching
    assert assigned not in subscription.without_position


def test_a_seek_ends_the_back_off_of_before(subscription: SubscriptionState) -> None:
    assigned = subscription.require(A)
    subscription.seek(assigned, 5)
    assigned.retry_at_ms, assigned.failure_count = 9_000, 3
    subscription.seek(assigned, 6)
    assert (assigned.retry_at_ms, assigned.failure_count) == (0, 0)


def test_a_skip_ahead_voids_nothing(subscription: SubscriptionState) -> None:
    assigned = subscription.require(A)
    subscription.seek(assigned, 5)
    subscription.fail(assigned, ERROR)
    epoch = assigned.epoch
    subscription.skip_to(assigned, 9)
    assert (assigned.offset, assigned.epoch) == (9, epoch)
    assert not subscription.has_error


@pytest.mark.parametrize(("offset", "leader_epoch"), [(5, 3), (6, None)])
def test_a_skip_ahead_leaves_the_epoch_behind_with_the_record_that_had_it(
    subscription: SubscriptionState, offset: int, leader_epoch: int | None
) -> None:
    assigned = subscription.require(A)
    subscription.seek(assigned, 5, leader_epoch=3)
    subscription.skip_to(assigned, offset)
    assert (assigned.offset, assigned.leader_epoch) == (offset, leader_epoch)


def test_a_reset_takes_its_position_from_the_broker(subscription: SubscriptionState) -> None:
    assigned = subscription.require(A)
    subscription.seek(assigned, 100)
    subscription.lose_position(assigned, OffsetReset.EARLIEST)
    assert assigned.state is PositionState.AWAITING_RESET
    assert (assigned.reset_to, assigned.lost_offset) == (OffsetReset.EARLIEST, 100)
    subscription.complete_reset(assigned, 12)
    assert (assigned.state, assigned.offset) == (PositionState.FETCHING, 12)
    assert (assigned.reset_to, assigned.lost_offset) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda s, a: s.assign([A]),
        lambda s, a: s.seek(a, 5),
        lambda s, a: s.pause(a),
        lambda s, a: s.resume(a),
        lambda s, a: s.await_reset(a, OffsetReset.LATEST),
    ],
)
def test_the_version_changes_when_other_partitions_may_be_fetched(change: object) -> None:
    subscription = SubscriptionState()
    subscription.assign([A, B])
    before = subscription.version
    assert callable(change)
    change(subscription, subscription.require(A))
    assert subscription.version > before


def test_limits_replace_one_another(subscription: SubscriptionState) -> None:
    a, b = subscription
    assert subscription.set_limits({A: 3}) == [a]
    assert subscription.set_limits({A: 3, B: 4}) == [b]
    assert subscription.set_limits({B: 4}) == [a]
    assert (a.limit, b.limit) == (None, 4)


def test_a_limit_is_reached_by_a_known_position_only(subscription: SubscriptionState) -> None:
    a, _ = subscription
    subscription.set_limits({A: 3})
    assert not a.has_reached_limit
    subscription.seek(a, 2)
    assert not a.has_reached_limit
    a.offset = 3
    assert a.has_reached_limit


def test_errors_are_reported_once_the_oldest_first(subscription: SubscriptionState) -> None:
    a, b = subscription
    newer = NoOffsetForPartitionError("newer")
    subscription.fail(a, ERROR)
    subscription.fail(b, newer)
    assert [subscription.take_error(), subscription.take_error()] == [ERROR, newer]
    assert subscription.take_error() is None


def test_a_seek_and_an_unassign_make_an_error_void(subscription: SubscriptionState) -> None:
    a, b = subscription
    subscription.fail(a, ERROR)
    subscription.fail(b, ERROR)
    subscription.seek(a, 1)
    subscription.assign([A])
    subscription.fail(b, ERROR)
    assert not subscription.has_error


def test_every_state_can_be_left_and_reached() -> None:
    assert set(NEXT) == set(PositionState)
    assert {to for targets in NEXT.values() for to in targets} == set(PositionState) - {
        PositionState.INITIALIZING
    }


@pytest.mark.parametrize(
    ("count", "end"),
    [
        (2, "t-0, t-1"),
        (PARTITIONS_SHOWN_MAX, f", t-{PARTITIONS_SHOWN_MAX - 1}"),
        (PARTITIONS_SHOWN_MAX + 3, f", t-{PARTITIONS_SHOWN_MAX - 1} and 3 more"),
    ],
)
def test_partitions_are_named_in_order_and_of_many_the_rest_is_counted(
    count: int, end: str
) -> None:
    partitions = [TopicPartition("t", number) for number in reversed(range(count))]
    text = describe_partitions(partitions)
    assert text.startswith("t-0, t-1")
    assert text.endswith(end)


def test_names_of_topics_stay_in_order() -> None:
    assert subscribed_topics(["b", "a.b_c-9"]) == ["b", "a.b_c-9"]


@pytest.mark.parametrize("topics", ["t", [""], ["a b"], ["."], [".."], ["x" * 250], ["ü"], [1]])
def test_what_names_no_topic_is_refused(topics: list[str]) -> None:
    with pytest.raises(UsageError):
        subscribed_topics(topics)


def test_a_pattern_is_text_or_compiled() -> None:
    assert compiled_pattern("a.*").fullmatch("ab")
    compiled = re.compile("A", re.IGNORECASE)
    assert compiled_pattern(compiled) is compiled


@pytest.mark.parametrize("pattern", ["(", re.compile(b"a"), 1])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match=r"pattern|regular expression"):
        compiled_pattern(pattern)
