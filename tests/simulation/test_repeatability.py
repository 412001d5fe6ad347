"""A seed repeats its run to the byte, so that a failing one can be debugged.

Goal: only the seed decides what happens. Method: processes with different hash seeds and addresses
run the same seeds, and the bytes of all connections with their times have equal digests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.exactly_once_simulation import (
    ExactlyOnceSimulation,
    Kip848ExactlyOnceSimulation,
)
from tests.simulation.group_simulation import GroupSimulation, Kip848GroupSimulation
from tests.simulation.position_simulation import PositionSimulation
from tests.simulation.simulation import Simulation
from tests.spark.sink_simulation import SinkSimulation

ROOT = Path(__file__).parents[2]
KINDS = (
    Simulation,
    PositionSimulation,
    GroupSimulation,
    Kip848GroupSimulation,
    ExactlyOnceSimulation,
    Kip848ExactlyOnceSimulation,
    SinkSimulation,
)
RUNS = (*((kind, 0) for kind in KINDS), (Simulation, 1))
HASH_SEED = "4000000000"
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def traces_here() -> list[str]:
    return traces()


def traces() -> list[str]:
    """Return the digest of each run."""
    digests = []
    for kind, seed in RUNS:
        simulation = kind(seed)
        simulation.run()
        digests.append(simulation.network.trace())
    return digests


def traces_of_process(hash_seed: str) -> list[str]:
    """Return the digests of another process, whose hash seed also sets its initial memory use."""
    program = (
        f"taken = [object() for _ in range({hash_seed} % 100_003)]\n"
        "from tests.simulation.test_repeatability import traces\n"
        "print(*traces(), sep=chr(10))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return run.stdout.split()


def test_a_seed_repeats_its_run_in_another_process(traces_here: list[str]) -> None:
    assert traces_here == traces_of_process(HASH_SEED)
    assert len(set(traces_here)) == len(RUNS), "each seed has a run of its own"


@pytest.mark.soak
def test_a_seed_repeats_its_run_in_the_same_process(traces_here: list[str]) -> None:
    assert traces_here == traces()
