"""KIP-848 groups of real consumers on a fake cluster: each seed breaks other things."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.modern_group_simulation import ModernGroupSimulation, SimulatedModernMember

SEED_COUNT = 100
SEEDS_PER_TEST = 25


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
