"""Producer and consumer survive whatever a seed does to the cluster.

A failing seed is the bug report: ``pytest -k "simulated and 123" tests/simulation`` repeats its run
to the byte.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.simulation import Simulation
from tests.soak import seeds

SEED_COUNT = 40
MEETING_SEED_COUNT = 10
SOAK_SEED_COUNT = 200


@pytest.mark.promise("a clean change of leaders loses and doubles nothing")
@pytest.mark.promise("producer and consumer survive 200 seeds of simulated faults")
@pytest.mark.parametrize("seed", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT)[MEETING_SEED_COUNT:])
def test_simulated_records_are_not_lost_doubled_or_reordered(seed: int) -> None:
    Simulation(seed).run()


def test_the_simulation_meets_every_fault_and_most_records_arrive() -> None:
    """The first seeds. A run without faults, or one that delivers nothing, would prove nothing."""
    met: Counter[str] = Counter()
    delivered = read = 0
    for seed in range(MEETING_SEED_COUNT):
        simulation = Simulation(seed)
        simulation.run()
        met.update(simulation.met)
        delivered += sum(sent.delivery.exception() is None for sent in simulation.sent)
        read += sum(map(len, simulation.consumer.read.values()))
    expected = {"leader move", "broker stop", "stall", "cut", "error", "delay", "drop"}
    assert expected | {"lost answer", "disconnect"} <= met.keys()
    assert read >= delivered > 500


@pytest.mark.promise("producer and consumer survive 200 seeds of simulated faults")
def test_the_simulation_notices_what_a_producer_without_sequences_doubles() -> None:
    with pytest.raises(AssertionError, match=r"doubled|reordered"):
        run_without_sequences()


def run_without_sequences() -> None:
    for seed in range(50):
        Simulation(seed, enable_idempotence=False).run()
