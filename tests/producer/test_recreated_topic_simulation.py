"""Topics that are recreated during transactions, mostly while EndTxn is in flight.

This is the simulation of `test_transaction_simulation`, in which the output topic is sometimes
deleted and recreated. The log of the former topic is kept, and still gets markers, so that each
transaction can be checked as a whole.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pykclient.producer.sender import transactions
from pykclient.producer.sender.transaction_state import SENDING, TransactionState
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.producer.sender_bench import TOPIC_ID, batches_of
from tests.producer.test_transaction_simulation import (
    PARTITION_COUNT,
    Application,
    Log,
    Simulation,
    World,
    topic_id_of,
)
from tests.soak import seeds

if TYPE_CHECKING:
    from random import Random

    from pykclient.network.manager import Request
    from pykclient.protocol.message import Message

UNKNOWN_TOPIC_ID = 100
SEEDS_UNTIL_NOTICED = 40


class RecreatingWorld(World):
    """A world that keeps the logs of former topics."""

    def __init__(self, version: int, random: Random) -> None:
        super().__init__(version, random)
        self.topic_id = TOPIC_ID
        self._count = 0

    def recreate(self) -> None:
        """Delete and recreate the topic."""
        self._count += 1
        self.topic_id = self._count.to_bytes(16, "big")
        self.logs += self.logs[:PARTITION_COUNT]
        self.logs[:PARTITION_COUNT] = [Log(number, self) for number in range(PARTITION_COUNT)]

    def handle(self, request: Request) -> Message:
        """Reject requests for a topic that was deleted."""
        message = request.message
        is_by_id = self.version == 2
        if isinstance(message, ProduceRequest) and is_by_id:
            topic_id = topic_id_of(message)
            if topic_id != self.topic_id:
                parts = [
                    PartitionProduceResponse(
                        index=each.partition, error_code=UNKNOWN_TOPIC_ID, base_offset=-1
                    )
                    for each in batches_of(request)
                ]
                topic = TopicProduceResponse(topic_id=topic_id, partition_responses=parts)
                return ProduceResponse(responses=[topic])
        response = super().handle(request)
        if isinstance(message, ProduceRequest):
            self._forget_what_is_written_again()
        return response

    def _forget_what_is_written_again(self) -> None:
        """Show readers the record in the present topic only, as the former topic is deleted."""
        present = {value for log in self.logs[:PARTITION_COUNT] for value in log.values}
        for log in self.logs[PARTITION_COUNT:]:
            log.fates = [
                False if value in present else fate
                for value, fate in zip(log.values, log.fates, strict=True)
            ]

    def complete(self) -> None:
        """Write the pending markers to the former logs as well."""
        if self._completing is not None:
            epoch, is_committed = self._completing
            for log in self.logs[PARTITION_COUNT:]:
                log.mark(epoch, is_committed=is_committed)
        super().complete()


class RecreatingApplication(Application):
    """An application that learns that its topic was recreated, at once or later."""

    simulation: RecreatingSimulation

    def __init__(self, simulation: RecreatingSimulation) -> None:
        super().__init__(simulation)
        self.bench.lead(*simulation.leaders, topic_id=simulation.world.topic_id)

    @property
    def is_end_in_flight(self) -> bool:
        return bool([r for r in self.bench.requests if isinstance(r.message, EndTxnRequest)])

    def step(self) -> None:
        """Maybe learn the new topic."""
        world = self.simulation.world
        known_id = self.bench.metadata.cluster.topic_id("t")
        if known_id != world.topic_id and (self.is_stopping or self.random.random() < 0.3):
            self.simulation.faults["learned"] += 1
            self.bench.lead(*self.simulation.leaders, topic_id=world.topic_id)
        super().step()


class RecreatingSimulation(Simulation):
    """One run."""

    world: RecreatingWorld

    def new_world(self, version: int) -> World:
        return RecreatingWorld(version, self.random)

    def new_application(self) -> Application:
        return RecreatingApplication(self)

    def _step(self) -> None:
        application = self.applications[-1]
        assert isinstance(application, RecreatingApplication)
        drawn = self.random.random()
        if application.is_end_in_flight and drawn < 0.15:
            self.faults["recreated during EndTxn"] += 1
            self.world.recreate()
            if drawn < 0.10:  # and the producer learns of it before EndTxn has its response
                application.bench.lead(*self.leaders, topic_id=self.world.topic_id)
        elif drawn > 0.995:
            self.faults["recreated"] += 1
            self.world.recreate()
        super()._step()


def run(seed: int) -> RecreatingSimulation:
    simulation = RecreatingSimulation(seed)
    simulation.run()
    simulation.check()
    return simulation


@pytest.mark.parametrize("first_seed", seeds(20, soak_count=1_000, step=20))
def test_transactions_are_whole_whenever_their_topic_is_recreated(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_simulation_recreates_topics_at_every_moment() -> None:
    faults: Counter[str] = Counter()
    committed = 0
    for seed in range(10):
        simulation = run(seed)
        faults.update(simulation.faults)
        committed += sum(each.is_committed is True for each in simulation.transactions)
    assert min(faults[what] for what in ("recreated during EndTxn", "recreated", "learned")) >= 10
    assert committed > 30


def take_a_commit_in_flight_for_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a commit abortable by a broken sequence although it may have been carried out."""
    monkeypatch.setattr(transactions, "SENDING", SENDING | {TransactionState.COMMIT_REQUESTED})


def test_the_simulation_notices_a_planted_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    take_a_commit_in_flight_for_one_that_waits(monkeypatch)
    for seed in range(SEEDS_UNTIL_NOTICED):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"none of {SEEDS_UNTIL_NOTICED} seeds notices it")
