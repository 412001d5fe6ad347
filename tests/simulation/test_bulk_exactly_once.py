"""Copiers that send in bulk with little memory, and continue after a partly accepted call.

The simulation is that of `exactly_once_simulation`. An application that ignores the errors of its
bulk calls must not commit its input's offsets without the output.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import BufferExhaustedError, KafkaTimeoutError
from pykclient.producer.accumulator.acceptance import Acceptance
from pykclient.producer.bulk.delivery import BulkResult
from tests.simulation.exactly_once_judge import Copy
from tests.simulation.exactly_once_simulation import (
    Copier,
    ExactlyOnceSimulation,
    StoppingProducer,
)
from tests.simulation.exactly_once_world import SINK
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.consumer.record import ConsumerRecords

SEED_COUNT = 4
SOAK_SEED_COUNT = 200
SEEDS_UNTIL_NOTICED = 50
PADDING = [("padding", bytes(800))]
"""Makes a record large enough to fill a batch."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the clients: logging so many failures takes too long."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class BulkCopier(Copier):
    """A copier that sends each partition's records in one call and ignores the result."""

    def copy(self, producer: StoppingProducer, records: ConsumerRecords[bytes, bytes]) -> None:
        """Send the copies of a batch in bulk."""
        by_partition: dict[int, list[bytes]] = {}
        for record in records:
            assert record.value is not None
            value = Copy(record.partition, record.offset, record.value).to_value()
            by_partition.setdefault(record.partition, []).append(value)
        for partition, values in by_partition.items():
            self._send(producer, partition, values)
            self.stop_here()

    def _send(self, producer: StoppingProducer, partition: int, values: list[bytes]) -> None:
        met = self.world.met
        try:
            delivery = producer.send_batch(SINK, values, partition=partition, headers=PADDING)
        except (BufferExhaustedError, KafkaTimeoutError):
            met["a call that accepts nothing"] += 1
            return
        result = delivery.batch
        assert isinstance(result, BulkResult)
        met["a call that accepts a part" if result._refused else "a call that accepts all"] += 1


class BulkSimulation(ExactlyOnceSimulation):
    """A run."""

    def new_copier(self, name: str) -> Copier:
        return BulkCopier(self, name)

    def producer_settings(self, name: str) -> dict[str, object]:
        """Return settings with which two batches use up the memory."""
        return super().producer_settings(name) | {
            "batch_size": 1_000,
            "buffer_memory": 2_500,
            "max_request_size": 2_500,
            "max_block_ms": 500,
        }


def run(seed: int) -> Counter[str]:
    simulation = BulkSimulation(seed)
    simulation.run()
    return simulation.met


MET: dict[int, Counter[str]] = {}


def met_in(seed: int) -> Counter[str]:
    """Run a seed, once for all tests, and return its counters."""
    if seed not in MET:
        MET[seed] = run(seed)
    return MET[seed]


@pytest.mark.promise("no transaction commits without a record that was not accepted")
@pytest.mark.parametrize("seed", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT))
def test_copiers_in_bulk_copy_each_record_once(seed: int) -> None:
    met_in(seed)


def test_some_bulk_calls_accept_all_and_some_a_part() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        met += met_in(seed)
    assert met["copied"] > 100
    assert met["a call that accepts all"] > 50
    assert met["a call that accepts a part"] >= 3


def test_the_simulation_notices_a_commit_around_what_was_not_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Acceptance, "take_failure", lambda _: None)
    for seed in range(SEEDS_UNTIL_NOTICED):
        try:
            run(seed)
        except AssertionError as error:
            if re.search("committed too far", str(error)):
                return
    pytest.fail("no seed has noticed it")
