"""Topics that are recreated during transactions, mostly while EndTxn is in flight.

This is the simulation of `test_transaction_simulation`, in which the output topic is sometimes
deleted and recreated. The log of the former topic is kept, and still gets markers, so that each
transaction can be checked as a whole.
"""

from __future__ import annotations

from collections import Counter

import pytest

from pykclient.producer.sender import transactions
from pykclient.producer.sender.transaction_state import SENDING, TransactionState
from pykclient.protocol.messages.end_txn import EndTxnRequest
from tests.producer.test_transaction_simulation import (
    PARTITION_COUNT,
    TRANSACTIONAL_ID,
    Application,
    Simulation,
    World,
)
from tests.simulation.exactly_once_judge import CommittedRecords
from tests.soak import seeds

SEEDS_UNTIL_NOTICED = 40


class RecreatingWorld(World):
    """A world that keeps the logs of former topics, after those of the present one."""

    def recreate(self) -> None:
        """Delete and recreate the topic."""
        self.visible()
        self.recreate_topic()
        self.logs[:0] = [CommittedRecords(each) for each in self.topic.partitions]

    def complete(self) -> None:
        """Write the pending markers, and end the transaction in the former logs as well."""
        self.visible()
        metadata = self.cluster.transactions.find(TRANSACTIONAL_ID)
        if metadata is not None and metadata.is_prepared:
            for log in self.logs[PARTITION_COUNT:]:
                for ended in log.open.values():
                    log.records.update(ended if metadata.is_commit else [])
                log.open.clear()
        super().complete()

    def visible(self) -> list[list[bytes]]:
        """Show a record in the newest topic only that has it, as the others are deleted."""
        shown: set[bytes] = set()
        visible = []
        for values in super().visible():
            visible.append([value for value in values if value not in shown])
            shown.update(values)
        return visible


class RecreatingApplication(Application):
    """An application that learns that its topic was recreated, at once or later."""

    simulation: RecreatingSimulation

    def __init__(self, simulation: RecreatingSimulation) -> None:
        super().__init__(simulation)
        self.bench.lead(*simulation.leaders, topic_id=simulation.world.topic.topic_id)

    @property
    def is_end_in_flight(self) -> bool:
        return bool([r for r in self.bench.requests if isinstance(r.message, EndTxnRequest)])

    def step(self) -> None:
        """Maybe learn the new topic."""
        world = self.simulation.world
        known_id = self.bench.metadata.cluster.topic_id("t")
        if known_id != world.topic.topic_id and (self.is_stopping or self.random.random() < 0.3):
            self.simulation.faults["learned"] += 1
            self.bench.lead(*self.simulation.leaders, topic_id=world.topic.topic_id)
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
                application.bench.lead(*self.leaders, topic_id=self.world.topic.topic_id)
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
