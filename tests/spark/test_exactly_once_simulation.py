"""The exactly-once sink under random faults: many seeds, each of which breaks other things.

`sink_simulation` says what runs, and `sink_judge` what must hold after each step. A failing seed is
the bug report, since it repeats its run to the byte.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.protocol.api_keys import ApiKey
from spark_connector.exactly_once.names import ATOMIC_BATCH, ATOMIC_TASK, slot_prefix
from spark_connector.exactly_once.protocol import End
from tests.simulation.transaction_world import REQUEST_TIMEOUT_MS
from tests.soak import seeds
from tests.spark import sink_defects
from tests.spark.sink_simulation import SinkSimulation
from tests.spark.sink_world import SINK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connector.exactly_once.protocol import Step
    from tests.simulation.simulated_network import Link
    from tests.simulation.simulated_process import ProcessThread
    from tests.spark.sink_defects import Defect
    from tests.spark.sink_judge import Identity

SEED_COUNT = 2
SEEDS_PER_TEST = 2
SEEDS_UNTIL_NOTICED = 200
FIRST_LATE = 12
"""The first seed in which a late InitProducerId aborts what is decided."""

FIRST_NOTICED = {
    sink_defects.IdsByTask: 75,
    sink_defects.EndsBeforeDecision: 0,
    sink_defects.IgnoresDecision: 0,
    sink_defects.AbortIgnoresDecision: 18,
    sink_defects.WritesUnfenced: 18,
    sink_defects.AbortsLaterTurns: 11,
    sink_defects.TrustsAnyCoordinator: 213,
}
"""The first seed that has noticed each defect; others may, when the simulation has changed."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the clients: logging so many faults takes longer than the runs."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("atomicity", [ATOMIC_TASK, ATOMIC_BATCH])
@pytest.mark.parametrize("first", seeds(SEED_COUNT, soak_count=1_000, step=SEEDS_PER_TEST))
def test_each_row_is_visible_once_whatever_spark_and_brokers_do(first: int, atomicity: str) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        SinkSimulation(seed, atomicity).run()


class StopsBeforeEnd(sink_defects.Defect):
    """No defect: drivers that often stand still when they have decided."""

    stops_before = (End,)


class LateInitializations(SinkSimulation):
    """A run in which the first InitProducerId of a worker often arrives late, after its repeat."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ATOMIC_BATCH, StopsBeforeEnd())
        self.late: set[Identity] = set()
        """The open transactions that a late copy has aborted."""
        self._late_ms = 0
        self.network.before_write = self._hold_first

    def on_late_initialization(self, identity: Identity) -> None:
        super().on_late_initialization(identity)
        self.late.add(identity)

    def stop_before(self, step: Step, thread: ProcessThread) -> None:
        """Stop a driver that has decided until the last copy has arrived."""
        del step
        thread.sleep(max(0, self._late_ms - self.clock.now_ms) + 50)

    def _hold_first(self, link: Link, data: bytes) -> None:
        key = int.from_bytes(data[4:6], "big")
        is_of_worker = slot_prefix(SINK).encode() in data
        if key == ApiKey.INIT_PRODUCER_ID and is_of_worker and self.chance(0.15):
            self._late_ms = self.clock.now_ms + REQUEST_TIMEOUT_MS + 3_000
            link.hold("up", self._late_ms)


def test_what_a_late_init_producer_id_aborts_is_reported() -> None:
    """A copy of a worker's first one comes when the transaction is prepared, and decided."""
    for seed in range(FIRST_LATE, FIRST_LATE + SEEDS_UNTIL_NOTICED):
        simulation = LateInitializations(seed)
        simulation.run()
        if simulation.late & simulation.judge.missing:
            assert simulation.met["late InitProducerId"]
            assert simulation.met["rows missing"]
            return
    pytest.fail("no seed has met it")


@pytest.mark.parametrize("defect", FIRST_NOTICED)
def test_a_planted_defect_is_noticed(defect: type[Defect]) -> None:
    first = FIRST_NOTICED[defect]
    for seed in range(first, first + SEEDS_UNTIL_NOTICED):
        try:
            SinkSimulation(seed, ATOMIC_BATCH, defect()).run()
        except AssertionError:
            return
    pytest.fail("no seed has noticed it")
