"""KIP-848 groups of real consumers on a fake cluster: each seed breaks other things."""

from __future__ import annotations

from collections import Counter

import pytest

from pykclient.types import TopicPartition
from tests.simulation.living_group import JOIN_MS, LivingGroup
from tests.simulation.modern_group_simulation import ModernGroupSimulation, SimulatedModernMember

SEED_COUNT = 100
SEEDS_PER_TEST = 25
MAX_POLL_INTERVAL_MS = 300_000


@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_PER_TEST))
def test_a_simulated_group_shares_its_partitions_and_loses_nothing(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        ModernGroupSimulation(seed).run()


def test_the_simulation_meets_every_fault_and_most_rebalances_come_to_something() -> None:
    """A run without faults, or one in which nobody ever joins, would prove nothing."""
    met: Counter[str] = Counter()
    for seed in range(10):
        simulation = ModernGroupSimulation(seed)
        simulation.run()
        met.update(simulation.met)
        met["processed"] += sum(len(member.processed) for member in simulation.members)
        met.update(
            what
            for member in simulation.members
            for rebalance in member.history
            for what in ("assigned", "revoked", "lost")
            if getattr(rebalance, what)
        )
    expected = {"join", "leave", "kill", "pause", "long work", "coordinator move", "broker stop"}
    expected |= {"cut", "growth", "error", "delay", "drop", "lost answer", "disconnect"}
    assert expected | {"assigned", "revoked", "lost"} <= met.keys()
    assert met["processed"] > 100


class Dawdling(SimulatedModernMember):
    """Polls again before it has finished with anything."""

    def _finish(self) -> None:
        pass


def test_the_simulation_notices_a_commit_of_what_nobody_has_processed() -> None:
    with pytest.raises(AssertionError, match="committed too far"):
        run_dawdling()


def run_dawdling() -> None:
    for seed in range(30):
        ModernGroupSimulation(seed, member_class=Dawdling).run()


def test_what_was_taken_back_from_one_who_is_away_is_read_by_another_at_once() -> None:
    """One at work hears that it shall have more, and then that it shall not.

    Until it acknowledges that, the coordinator gives it to nobody: for max_poll_interval_ms, if it
    waited for the application.
    """
    group = LivingGroup("consumer")
    group.run(JOIN_MS)
    second = group.join()
    group.run(2 * JOIN_MS)
    assert second.owned
    group.member.busy_until_ms = group.now_ms + MAX_POLL_INTERVAL_MS
    second.leave(now_ms=group.now_ms)
    group.run(JOIN_MS)
    third = group.join()
    group.run(2 * JOIN_MS)
    assert group.member.busy_until_ms > group.now_ms
    assert third.owned
    assert third.owned | group.member.owned == {TopicPartition("t", n) for n in range(3)}
