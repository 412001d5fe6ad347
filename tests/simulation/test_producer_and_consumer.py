"""Producer and consumer survive every failure that a seed chooses.

A failing seed is the bug report: ``pytest -k "simulated and 123" tests/simulation`` repeats its run
to the byte.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest

from pykclient.errors import BatchDeliveryError, BufferExhaustedError, KafkaTimeoutError
from pykclient.producer.bulk.table import BulkInput
from pykclient.producer.record import RecordMetadata
from tests.simulation.simulation import PARTITIONS, TOPIC, Sent, Simulation
from tests.soak import seeds

if TYPE_CHECKING:
    from pykclient.accel import Delivery
    from pykclient.producer.bulk.delivery import RecordMetadataRange

SEED_COUNT = 40
MEETING_SEED_COUNT = 10
SOAK_SEED_COUNT = 200
BULK_SEED_COUNT = 20
BULK_SOAK_SEED_COUNT = 100
BUFFER_MEMORY = 20_000
"""Small enough that calls are accepted in part."""


@pytest.mark.parametrize("seed", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT)[MEETING_SEED_COUNT:])
def test_simulated_records_are_not_lost_doubled_or_reordered(seed: int) -> None:
    Simulation(seed).run()


def test_the_simulation_meets_every_fault_and_most_records_arrive() -> None:
    """A run without failures, or without deliveries, would prove nothing."""
    met: Counter[str] = Counter()
    delivered = read = 0
    for seed in range(MEETING_SEED_COUNT):
        simulation = Simulation(seed)
        simulation.run()
        met.update(simulation.met)
        delivered += sum(sent.delivery.exception() is None for sent in simulation.sent)
        read += sum(map(len, simulation.consumer.read.values()))
    expected = {"leader move", "broker stop", "stall", "cut", "error", "delay", "drop"}
    assert expected | {"lost response", "disconnect"} <= met.keys()
    assert read >= delivered > 500


def test_the_simulation_notices_what_a_producer_without_sequences_doubles() -> None:
    with pytest.raises(AssertionError, match=r"doubled|reordered"):
        run_without_sequences()


def run_without_sequences() -> None:
    for seed in range(50):
        Simulation(seed, enable_idempotence=False).run()


# Bulk sending, mixed with single records.


class RowDelivery:
    """A row of a bulk delivery whose rows all go to one partition."""

    def __init__(self, delivery: Delivery[list[RecordMetadataRange]], row: int) -> None:
        self._delivery = delivery
        self._row = row

    def done(self) -> bool:
        return self._delivery.done()

    def exception(self) -> Exception | None:
        # A partly failed bulk delivery does not report the offsets of the others.
        return self._delivery.exception()

    def result(self) -> RecordMetadata:
        row = self._row
        for topic, partition, first_offset, count in self._delivery.result():
            if row < count:
                assert first_offset is not None
                return RecordMetadata(topic, partition, first_offset + row, None)
            row -= count
        raise AssertionError("the ranges do not reach as far as the rows")


class BulkSimulation(Simulation):
    """A run in which most records are sent in bulk."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, buffer_memory=BUFFER_MEMORY)
        self.stuck_count = 0

    def _send_some(self) -> None:
        if self.random.random() < 0.3:
            super()._send_some()
            return
        partition = self.random.choice(PARTITIONS)
        index = partition.partition
        count = self.random.choice((1, 5, 40, 200))
        values = [
            b"%d-%d" % (index, len(self.sent) + row) + bytes(self.random.choice((0, 10, 100)))
            for row in range(count)
        ]
        try:
            delivery = self.producer.send_batch(BulkInput(TOPIC, values, partition=index))
        except (KafkaTimeoutError, BufferExhaustedError):
            return
        for row, value in enumerate(values):
            own = cast("Delivery[RecordMetadata]", RowDelivery(delivery, row))
            self.sent.append(Sent(partition, value, own))

    def check_end(self) -> None:
        super().check_end()
        for sent in self.sent:
            error = sent.delivery.exception()
            if isinstance(error, BatchDeliveryError):
                self.stuck_count += isinstance(error.errors[-1], BufferExhaustedError)
        assert self.producer.core.pool.free_bytes == BUFFER_MEMORY


@pytest.mark.parametrize(
    "seed", seeds(BULK_SEED_COUNT, soak_count=BULK_SOAK_SEED_COUNT)[MEETING_SEED_COUNT:]
)
def test_simulated_rows_are_not_lost_doubled_or_reordered(seed: int) -> None:
    BulkSimulation(seed).run()


def test_the_simulation_meets_calls_that_get_stuck_and_most_rows_arrive() -> None:
    """The first seeds."""
    stuck = delivered = sent_count = 0
    for seed in range(MEETING_SEED_COUNT):
        simulation = BulkSimulation(seed)
        simulation.run()
        stuck += simulation.stuck_count
        sent_count += len(simulation.sent)
        delivered += sum(sent.delivery.exception() is None for sent in simulation.sent)
    assert stuck > 0
    assert delivered > 0.1 * sent_count, (delivered, sent_count)
