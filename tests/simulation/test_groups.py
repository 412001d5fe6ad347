"""Groups of real consumers on a fake cluster: many seeds, each of which breaks other things."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.simulation.group_simulation import GroupSimulation
from tests.simulation.simulated_member import SimulatedMember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.types import TopicPartition

SEED_COUNT = 500
SEEDS_PER_TEST = 25


@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_PER_TEST))
def test_a_simulated_group_shares_its_partitions_and_loses_nothing(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        GroupSimulation(seed).run()


def test_the_simulation_meets_every_fault_and_most_rebalances_come_to_something() -> None:
    """A run without faults, or one in which nobody ever joins, would prove nothing."""
    met: Counter[str] = Counter()
    processed_count = 0
    for seed in range(20):
        simulation = GroupSimulation(seed)
        simulation.run()
        met.update(simulation.met)
        processed_count += sum(len(member.processed) for member in simulation.members)
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
    assert processed_count > 200


class Dawdling(SimulatedMember):
    """Polls again before it has finished with anything."""

    def _finish(self) -> None:
        pass


class Keeping(SimulatedMember):
    """Reads on when it has lost its partitions."""

    @property
    def holds(self) -> frozenset[TopicPartition]:
        return frozenset(self._ever_held)

    def __init__(self, *arguments: object, **settings: object) -> None:
        self._ever_held: set[TopicPartition] = set()
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]

    def _on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        super()._on_assigned(partitions)
        self._ever_held |= set(partitions)


@pytest.mark.parametrize(
    ("member_class", "told"), [(Dawdling, "committed too far"), (Keeping, "two owners")]
)
def test_the_simulation_notices(member_class: type[SimulatedMember], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        run_with(member_class)


def run_with(member_class: type[SimulatedMember]) -> None:
    for seed in range(30):
        simulation = GroupSimulation(seed, member_class=member_class)
        simulation.run()
