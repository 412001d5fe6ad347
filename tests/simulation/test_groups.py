"""Groups of real consumers on a fake cluster: many seeds, each of which breaks other things."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.group_simulation import GroupSimulation

SEEDS_PER_TEST = 25
SEED_COUNT = 500


@pytest.mark.parametrize("first", range(0, SEED_COUNT, SEEDS_PER_TEST))
def test_a_simulated_group_shares_its_partitions_and_loses_nothing(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        GroupSimulation(seed).run()
