"""The log of rebalances for people."""

from __future__ import annotations

from datetime import UTC, datetime

from pykclient.consumer.group.history import REBALANCES_MAX, GroupHistory
from pykclient.types import GroupMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_rebalance_has_its_time_reason_moves_and_duration() -> None:
    history = GroupHistory()
    history.begin("subscription has changed", 10_000)
    history.note_revoked([A, B], 10_001)
    history.note_generation(GroupMetadata("g", 4, "m"), "range", "classic")
    history.note_assigned([A], 10_400)
    history.end(10_500)
    [rebalance] = history.rebalances(12_000, NOW)
    assert str(rebalance) == (
        "2026-01-02T03:04:03.000+00:00 generation 4: subscription has changed; "
        "revoked t-0, t-1, assigned t-0; took 500 ms"
    )
    assert (rebalance.member_id, rebalance.assignor) == ("m", "range")


def test_a_rebalance_that_goes_on_and_one_that_failed_show_it() -> None:
    history = GroupHistory()
    history.begin("first", 1_000)
    history.fail("GROUP_AUTHORIZATION_FAILED", 1_500)
    history.begin("second", 2_000)
    failed, open_one = history.rebalances(3_000, NOW)
    assert failed.error == "GROUP_AUTHORIZATION_FAILED"
    assert str(failed).endswith("first; no move; took 500 ms, failed: GROUP_AUTHORIZATION_FAILED")
    assert open_one.duration_ms is None
    assert str(open_one).endswith("second; no move; goes on")


def test_one_that_is_overtaken_ends() -> None:
    history = GroupHistory()
    history.begin("first", 1_000)
    history.begin("second", 1_200)
    first, _ = history.rebalances(3_000, NOW)
    assert (first.duration_ms, first.error) == (200, "replaced by the next one")


def test_what_happens_outside_a_rebalance_is_an_entry_of_its_own() -> None:
    history = GroupHistory()
    history.note_lost([A], 1_000)
    history.end(1_100)
    [left] = history.rebalances(2_000, NOW)
    assert (left.reason, left.lost, left.duration_ms) == ("this consumer leaves", (A,), 100)


def test_many_partitions_are_counted() -> None:
    history = GroupHistory()
    history.begin("why", 0)
    history.note_assigned([TopicPartition("t", number) for number in range(20)], 0)
    [rebalance] = history.rebalances(0, NOW)
    assert "t-7 and 12 more;" in str(rebalance)


def test_only_the_last_ones_are_kept() -> None:
    history = GroupHistory()
    for number in range(REBALANCES_MAX + 5):
        history.begin(str(number), number)
    reasons = [rebalance.reason for rebalance in history.rebalances(0, NOW)]
    assert reasons == [str(number) for number in range(5, REBALANCES_MAX + 5)]
