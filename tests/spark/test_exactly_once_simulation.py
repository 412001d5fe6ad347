"""The exactly-once sink under random faults: many seeds, each of which breaks other things.

`sink_simulation` says what runs, and `sink_judge` what must hold after each step. A failing seed is
the bug report, since it repeats its run to the byte.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from spark_connector.exactly_once.names import ATOMIC_BATCH, ATOMIC_TASK
from tests.soak import seeds
from tests.spark import sink_defects
from tests.spark.sink_simulation import SinkSimulation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.sink_defects import Defect

SEED_COUNT = 4
SEEDS_PER_TEST = 2
SEEDS_UNTIL_NOTICED = 200

FIRST_NOTICED = {
    sink_defects.IdsByTask: 0,
    sink_defects.EndsBeforeDecision: 0,
    sink_defects.IgnoresDecision: 0,
    sink_defects.AbortIgnoresDecision: 1,
    sink_defects.WritesUnfenced: 12,
    sink_defects.AbortsLaterTurns: 8,
    sink_defects.TrustsAnyCoordinator: 200,
}
"""The first seed that has noticed each defect; others may, when the simulation has changed."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What clients log of so many faults takes longer than they."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.promise(
    "1,000 seeds of the simulated exactly-once sink show each row once, for each unit"
)
@pytest.mark.parametrize("atomicity", [ATOMIC_TASK, ATOMIC_BATCH])
@pytest.mark.parametrize("first", seeds(SEED_COUNT, soak_count=1_000, step=SEEDS_PER_TEST))
def test_each_row_is_visible_once_whatever_spark_and_brokers_do(first: int, atomicity: str) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        SinkSimulation(seed, atomicity).run()


def test_what_a_late_init_producer_id_aborts_is_reported() -> None:
    """A copy of a worker's first one comes when the transaction is prepared, and decided."""
    simulation = SinkSimulation(381, ATOMIC_BATCH)
    simulation.run()
    assert simulation.met["late InitProducerId"]
    assert simulation.met["rows missing"]


@pytest.mark.parametrize("defect", FIRST_NOTICED)
def test_a_planted_defect_is_noticed(defect: type[Defect]) -> None:
    first = FIRST_NOTICED[defect]
    for seed in range(first, first + SEEDS_UNTIL_NOTICED):
        try:
            SinkSimulation(seed, ATOMIC_BATCH, defect()).run()
        except AssertionError:
            return
    pytest.fail("no seed has noticed it")
