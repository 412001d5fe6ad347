"""Random faults in transactions that one process prepares and another one ends.

This is the simulation of transactions, with applications that prepare. The result of a call goes to
an `Ender`, which makes an admin client's call; its requests are lost, duplicated, rejected and
delayed too. The producer may wait for it. Or it initialises again, ends the transaction itself,
dies, or continues as a zombie after another producer has replaced it.

A prepared transaction must be in the logs, complete, at that moment, and the reported end must be
the real one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pykclient.admin.call import AdminCall
from pykclient.admin.config import AdminConfig
from pykclient.admin.prepared_transactions import EndTransactions
from pykclient.errors import DisconnectedError
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.retry import Backoff
from pykclient.producer.sender.transaction_state import TransactionState
from pykclient.producer.sender.transactions import Transactions
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.producer.test_transaction_simulation import (
    REFUSED_BY_COORDINATOR,
    REQUEST_TIMED_OUT,
    Application,
    Simulation,
)
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.errors import KafkaError
    from pykclient.network.manager import Request
    from pykclient.types import PreparedTransaction, TopicPartition
    from tests.producer.test_transaction_simulation import Transaction


class Ender:
    """The process that ends one transaction: its call, and how brokers handle the requests."""

    def __init__(
        self, simulation: PreparedSimulation, prepared: PreparedTransaction, ended: Transaction
    ) -> None:
        self.simulation = simulation
        self.is_commit = simulation.random.random() < 0.7
        self._transaction = ended
        ended.is_committed = None if self.is_commit else False
        self._is_uncertain = False
        """True if a request may have been handled although its response was lost."""
        self._now_ms = 1_000
        self._requests: list[Request] = []
        self._late: list[Request] = []
        config = AdminConfig.from_settings(bootstrap_servers="boot:9092")
        metadata = Metadata(config, allow_auto_topic_creation=False)
        (request,) = metadata.poll(self._now_ms).requests
        request.on_response(MetadataResponse(), self._now_ms)
        self.call = AdminCall(
            EndTransactions({prepared.transactional_id: prepared}, is_commit=self.is_commit),
            [prepared.transactional_id],
            metadata,
            config=config,
            backoff=Backoff(10, 100),
            deadline_ms=2**62,
        )

    def step(self, *, is_healed: bool = False) -> None:
        random = self.simulation.random
        if self._late and (is_healed or random.random() < 0.1):
            self.handle_late()
        if self.call.is_done:
            return
        self._now_ms += random.choice((1, 20, 150))
        self._requests += self.call.poll(self._now_ms).requests
        for request in list(self._requests):
            if is_healed or random.random() < 0.4:
                self._requests.remove(request)
                self._serve(request, 0.0 if is_healed else random.random())
        if not self.call.unfinished:
            self._on_done()

    def _on_done(self) -> None:
        if not self.call.errors:
            self._transaction.is_committed = self.is_commit
            self.simulation.outcomes["ended" if self.is_commit else "aborted"] += 1
            return
        self.simulation.outcomes["refused"] += 1
        if not self._is_uncertain:
            self._transaction.is_committed = False

    def handle_late(self) -> None:
        """Make a paused broker handle the requests it had received."""
        for request in self._late:
            self.simulation.world.handle(request)
        self._late.clear()

    def _serve(self, request: Request, drawn: float) -> None:
        world, now_ms = self.simulation.world, self._now_ms
        if isinstance(request.message, FindCoordinatorRequest):
            request.on_response(world.handle(request), now_ms)
            return
        assert isinstance(request.message, EndTxnRequest)
        assert request.max_version == (4 if world.version == 1 else None)
        if drawn < 0.5:
            if drawn < 0.1:  # twice: the response to the first one is lost
                self._is_uncertain = True
                world.handle(request)
            request.on_response(world.handle(request), now_ms)
            return
        self.simulation.faults["end"] += 1
        if drawn < 0.7:
            code = self.simulation.random.choice(REFUSED_BY_COORDINATOR)
            request.on_response(world.refuse(request, code), now_ms)
            return
        self._is_uncertain = True
        if drawn < 0.8:
            world.handle(request)
            request.on_response(world.refuse(request, REQUEST_TIMED_OUT), now_ms)
            return
        if drawn < 0.9:
            world.handle(request)
        else:
            self._late.append(request)
        request.on_failure(DisconnectedError("lost"), now_ms)


class PreparingApplication(Application):
    """An application that prepares most of its transactions, and has another process end them."""

    simulation: PreparedSimulation

    def __init__(self, simulation: PreparedSimulation) -> None:
        super().__init__(simulation)
        self._ender: Ender | None = None

    def is_idle(self) -> bool:
        return super().is_idle() and self._ender is None

    def serve(self, *, is_healed: bool) -> None:
        super().serve(is_healed=is_healed)
        if is_healed and self._ender is not None:
            self._ender.step(is_healed=True)

    def _chosen_end(self) -> str:
        if self.random.random() < 0.7:
            return "prepare_transaction"
        return super()._chosen_end()

    def _live(self) -> None:
        if self.is_ended or self._operation is not None or self._call or self._ender is None:
            super()._live()
        elif self._ender.call.is_done or (not self.is_stopping and self.random.random() < 0.02):
            if not self._ender.call.is_done:
                self.simulation.outcomes["given up"] += 1
            self._ender = None
            self._call = "init_transactions"

    def _on_ended(self, error: KafkaError | None) -> None:
        call, operation, transaction = self._call, self._operation, self._transaction
        super()._on_ended(error)
        if call != "prepare_transaction" or error is not None:
            return
        assert operation is not None
        assert transaction is not None
        prepared = operation.result()
        if prepared is None:
            assert not transaction.values
            self._transaction = None
            return
        self.simulation.check_written(transaction)
        drawn = self.random.random()
        if drawn < 0.1:
            self._call = self.random.choice(("commit_transaction", "abort_transaction"))
            if self._call == "commit_transaction":
                transaction.is_committed = None
            return
        self._ender = self.simulation.ship(prepared, transaction)
        self._transaction = None
        if drawn < 0.2:
            self.simulation.outcomes["died"] += 1
            self.is_ended = True


class PreparedSimulation(Simulation):
    """One run."""

    def __init__(self, seed: int) -> None:
        self.enders: list[Ender] = []
        self.outcomes: Counter[str] = Counter()
        self._written: set[bytes | None] = set()
        self._read_to: Counter[TopicPartition] = Counter()
        super().__init__(seed)

    def new_application(self) -> Application:
        return PreparingApplication(self)

    def ship(self, prepared: PreparedTransaction, transaction: Transaction) -> Ender:
        self.outcomes["prepared"] += 1
        self.enders.append(Ender(self, prepared, transaction))
        return self.enders[-1]

    def check_written(self, transaction: Transaction) -> None:
        """Make sure that all of a transaction is in the logs, which nothing but it can end."""
        for partition in self.world.topic.partitions:
            for batch in partition.log.batches(self._read_to[partition.name]):
                self._read_to[partition.name] = batch.last_offset + 1
                self._written.update(() if batch.is_control else batch.records().values)
        missing = set(transaction.values) - self._written
        assert not missing, f"{missing} were not written when it was prepared"

    def _step(self) -> None:
        for ender in self.enders:
            ender.step()
        super()._step()

    def _heal(self) -> None:
        while not all(ender.call.is_done for ender in self.enders):
            self.world.complete()
            for ender in self.enders:
                ender.step(is_healed=True)
        for ender in self.enders:
            ender.handle_late()
        super()._heal()


def run(seed: int) -> PreparedSimulation:
    simulation = PreparedSimulation(seed)
    simulation.run()
    simulation.check()
    return simulation


@pytest.mark.parametrize("first_seed", seeds(40, soak_count=600, step=20))
def test_what_is_prepared_is_whole_or_not_at_all(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_simulation_meets_every_fault_and_every_end() -> None:
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed in range(40):
        simulation = run(seed)
        faults.update(simulation.faults)
        outcomes.update(simulation.outcomes)
    assert set(faults) == {
        *("disconnect", "refused", "interrupt", "late"),
        *("replaced", "stale", "end"),
    }
    assert faults.pop("stale") >= 10
    assert min(faults.values()) >= 50
    assert set(outcomes) == {"prepared", "ended", "aborted", "refused", "given up", "died"}
    assert min(outcomes.values()) >= 10


def prepare_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Transactions._is_quiet.fget  # type: ignore[attr-defined]

    def is_quiet(manager: Transactions) -> bool:
        return manager.state is TransactionState.PREPARING or real(manager)

    monkeypatch.setattr(Transactions, "_is_quiet", property(is_quiet))


def keep_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on after another process's end as if it had been this producer's."""
    real = Transactions.initialize

    def initialize(manager: Transactions, operation: object, now_ms: int) -> None:
        if manager.state is TransactionState.PREPARED:
            manager.state = TransactionState.READY
            manager._reset()
            operation.succeed(None)  # type: ignore[attr-defined]
        else:
            real(manager, operation, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(Transactions, "initialize", initialize)


def take_a_refusal_for_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        EndTransactions, "results", lambda self, message, keys: [(key, key) for key in keys]
    )


@pytest.mark.parametrize(
    ("plant", "seed_count"),
    [(prepare_too_early, 20), (keep_the_identity, 200), (take_a_refusal_for_an_end, 20)],
)
def test_the_simulation_notices_a_planted_defect(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], seed_count: int
) -> None:
    """Which seed does depends on the other simulation, whose faults this one has."""
    plant(monkeypatch)
    for seed in range(seed_count):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"none of {seed_count} seeds notices it")
