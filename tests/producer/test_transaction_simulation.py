"""Random faults against fake brokers and their coordinator: transactions are all or nothing.

A seed chooses what happens to each request. It is handled and gets its response; it is handled, but
the response is lost; it is lost with its connection; it is rejected; or a broker that was paused
handles it after the producer has abandoned it. Calls are interrupted and repeated, leaders move,
groups rebalance, and a producer is replaced by another with the same id and continues as a zombie.
In the end the network heals, and the committed records are compared with what each producer knows.
To reproduce a failure, use its seed.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from pykclient.errors import DisconnectedError, KafkaError, TransactionAbortableError
from pykclient.network.broker.handshake import FinalizedFeatures
from pykclient.network.manager import Operation
from pykclient.producer.sender import transactions
from pykclient.producer.sender.idempotence import Idempotence
from pykclient.producer.sender.transaction_state import TransactionState
from pykclient.producer.sender.transactions import FEATURE, Transactions
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from pykclient.testing.fake.groups.registry import GroupRegistry
from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.network.responding import respond_checked
from tests.producer.fake_broker import FakeBroker
from tests.producer.sender_bench import SenderBench
from tests.simulation.exactly_once_judge import CommittedRecords
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.network.manager import Request
    from pykclient.producer.sender.call_under_way import CallOperation
    from pykclient.protocol.message import Message
    from pykclient.testing.fake.groups.offsets import CommittedOffset

PARTITION_COUNT = 2
NODE_IDS = (1, 2, 3)
STEP_COUNT = 300
HEALING_STEP_COUNT = 3_000
MEETING_SEED_COUNT = 40
"""Number of first seeds that together meet every fault."""
SEEDS_UNTIL_NOTICED = 100
TRANSACTIONAL_ID = "x"
GROUP = GroupMetadata("g")
SOURCE = TopicPartition("in", 0)

REQUEST_TIMED_OUT, ILLEGAL_GENERATION = 7, 22
INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED = 47, 48, 90
REFUSED_BY_LEADER: Final = (6, 19, 3)
REFUSED_BY_COORDINATOR: Final = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""
ELSEWHERE: Final = (ProduceRequest, TxnOffsetCommitRequest)
"""Requests that go to other brokers than the transaction's coordinator."""
STALE: Final = (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE)
"""Errors of a coordinator that hung and does not know yet that it was replaced."""


class World(FakeBroker):
    """The brokers of one transactional id. Markers are written at once, or by `complete`."""

    def __init__(self, version: int, random: Random) -> None:
        super().__init__(PARTITION_COUNT, transaction_version=version)
        self.version = version
        self.logs = [CommittedRecords(each) for each in self.topic.partitions]
        self.committed_offsets: list[int] = []
        self._random = random
        self.cluster.create_topic(SOURCE.topic, 1)
        self.cluster.stall_markers()

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        metadata = self.cluster.transactions.find(TRANSACTIONAL_ID)
        assert metadata is not None
        return metadata.producer.epoch

    def handle(self, request: Request, *, version_max: int | None = None) -> Message:
        if isinstance(request.message, ProduceRequest):
            assert (self.version == 1) == (request.max_version == 11)
        response = super().handle(request, version_max=version_max)
        self._note_offset()
        if isinstance(request.message, EndTxnRequest) and self._random.random() < 0.5:
            self.complete()
        return response

    def complete(self) -> None:
        """Write the pending markers."""
        self.cluster.resume_markers()
        self.cluster.stall_markers()
        self._note_offset()

    def _note_offset(self) -> None:
        committed = self.cluster.groups.offsets(GROUP.group_id).get(SOURCE)
        if committed is not None and self.committed_offsets[-1:] != [committed.offset]:
            self.committed_offsets.append(committed.offset)

    def visible(self) -> list[list[bytes]]:
        """Return the committed values of each log, in the order of their offsets."""
        for log in self.logs:
            log.look()
        return [[value for _, value in sorted(log.records.items())] for log in self.logs]


class Transaction:
    """One transaction, as its producer sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: list[bytes] = []
        self.has_offset = False
        self.is_committed: bool | None = False
        """True if it was committed, False if not, None if the producer does not know."""


class Application:
    """A producer, and the application that runs one transaction after another with it."""

    def __init__(self, simulation: Simulation) -> None:
        self.random = simulation.random
        self.simulation = simulation
        self.bench = SenderBench(
            leaders=simulation.leaders,
            transactional_id=TRANSACTIONAL_ID,
            max_in_flight_requests_per_connection=self.random.choice((1, 2, 5)),
            batch_size=self.random.choice((200, 1_000)),
            linger_ms=self.random.choice((0, 5)),
            delivery_timeout_ms=self.random.choice((500, 2_000, 10_000)),
            seed=self.random.randrange(2**31),
        )
        self.bench.client.features = FinalizedFeatures(1, {FEATURE: simulation.world.version})
        assert self.bench.transactions is not None
        self.manager: Transactions = self.bench.transactions
        self.late: list[Request] = []
        self.is_ended = False
        self.is_stopping = False
        self._call = "init_transactions"
        self._operation: CallOperation | None = None
        self._transaction: Transaction | None = None
        self._left_count = 0
        self._is_misled = False
        """True if the coordinator's last response is out of date."""

    def step(self) -> None:
        bench, random = self.bench, self.random
        bench.poll(after_ms=random.choice((0, 1, 5, 20, 150)))
        bench.run_user_calls()
        for request in list(bench.requests):
            if isinstance(request.message, FindCoordinatorRequest):
                self._take(request, self.simulation.world.handle(request))
        self._live()

    def is_idle(self) -> bool:
        return not self._call and self._transaction is None

    # The application.

    def _live(self) -> None:
        if self.is_ended:
            return
        if self._operation is not None:
            self._wait(self._operation)
        elif self._call:
            self._make()
        elif self._transaction is not None:
            self._work(self._transaction)
        elif not self.is_stopping:
            self._call = "begin_transaction"

    def _wait(self, operation: CallOperation) -> None:
        if operation.is_done:
            self._on_ended(operation.error)
        elif not self.is_stopping and self.random.random() < 0.03:
            self.simulation.faults["interrupt"] += 1
            self.manager.forget(self._call, operation, self.bench.now_ms)
            self._operation = None

    def _work(self, transaction: Transaction) -> None:
        if self._left_count:
            self._left_count -= 1
            self._send()
        elif self.random.random() < 0.3 and not transaction.has_offset:
            transaction.has_offset = True
            self._call = "send_offsets_to_transaction"
        else:
            self._call = self._chosen_end()
            if self._call == "commit_transaction":
                transaction.is_committed = None

    def _chosen_end(self) -> str:
        return self.random.choice(("commit_transaction",) * 4 + ("abort_transaction",))

    def _make(self) -> None:
        self._operation = Operation()
        number = self._transaction.number if self._transaction is not None else 0
        calls: dict[str, Callable[[CallOperation, int], None]] = {
            "init_transactions": self.manager.initialize,
            "begin_transaction": self.manager.begin,
            "prepare_transaction": self.manager.prepare,
            "commit_transaction": self.manager.commit,
            "abort_transaction": self.manager.abort,
            "send_offsets_to_transaction": partial(
                self.manager.send_offsets, {SOURCE: OffsetAndMetadata(number)}, GROUP
            ),
        }
        calls[self._call](self._operation, self.bench.now_ms)

    def _on_ended(self, error: KafkaError | None) -> None:
        call, self._call = self._call, ""
        self._operation = None
        transaction = self._transaction
        if self.manager.state is TransactionState.FATAL_ERROR:
            assert not self._is_misled or self._is_outdated(), "what is stale has ended a producer"
            if transaction is not None and call == "commit_transaction" and error is not None:
                transaction.is_committed = None if "not known" in str(error) else False
            self.is_ended = True
        elif isinstance(error, TransactionAbortableError):
            assert transaction is not None
            transaction.is_committed = False
            self._call = "abort_transaction"
        elif error is not None:
            raise error
        elif call == "begin_transaction":
            self._transaction = self.simulation.begin()
            self._left_count = self.random.randrange(12)
        elif call in ("commit_transaction", "abort_transaction"):
            assert transaction is not None
            transaction.is_committed = call == "commit_transaction"
            self.simulation.ended_count += 1
            self._transaction = None

    def _is_outdated(self) -> bool:
        """Tell whether a newer epoch than its own exists."""
        return self.manager.sequences.identity.epoch < self.simulation.world.epoch

    def _send(self) -> None:
        assert self._transaction is not None
        partition = self.random.randrange(PARTITION_COUNT)
        value = b"%d:%d:%d" % (partition, self._transaction.number, len(self._transaction.values))
        value += bytes(self.random.choice((0, 20, 150)))
        try:
            self.bench.send(value, partition=partition)
        except KafkaError:
            # Its calls raise the error that aborts the transaction, too.
            assert self.manager.state is not TransactionState.IN_TRANSACTION
            self._left_count = 0
        else:
            self._transaction.values.append(value)

    # Requests.

    def serve(self, *, is_healed: bool) -> None:
        """Choose and apply an event for the first request on some connections."""
        for request in list(self.bench.requests):
            if request not in self.bench.requests:
                continue
            if is_healed:
                self._take(request, self.simulation.world.handle(request))
            elif self.random.random() < 0.5:
                first = next(r for r in self.bench.requests if r.node_id == request.node_id)
                self._end(first)

    def _end(self, request: Request) -> None:
        drawn = self.random.random()
        if drawn < 0.70:
            if not isinstance(request.message, ELSEWHERE):
                self._is_misled = False
            self._take(request, self.simulation.world.handle(request))
        elif drawn < 0.78:
            self._disconnect(request, is_handled=True)
        elif drawn < 0.86:
            self._disconnect(request, is_handled=False)
        else:
            self._refuse(request, is_handled=drawn >= 0.93)

    def _refuse(self, request: Request, *, is_handled: bool) -> None:
        self.simulation.faults["refused"] += 1
        if is_handled:  # and then REQUEST_TIMED_OUT, as far as the response says
            self.simulation.world.handle(request)
        message = request.message
        refusals = (
            REFUSED_BY_LEADER if isinstance(message, ProduceRequest) else REFUSED_BY_COORDINATOR
        )
        code = REQUEST_TIMED_OUT if is_handled else self.random.choice(refusals)
        may_mislead = not (is_handled or self._is_misled or isinstance(message, ELSEWHERE))
        if may_mislead and self.random.random() < 0.3:
            self.simulation.faults["stale"] += 1
            code = self.random.choice(STALE)
            self._is_misled = True
        elif isinstance(message, TxnOffsetCommitRequest) and not is_handled:
            code = ILLEGAL_GENERATION if self.random.random() < 0.3 else code
        self._take(request, self.simulation.world.refuse(request, code))

    def _disconnect(self, request: Request, *, is_handled: bool) -> None:
        """Break a connection and fail all its requests; the first may have been handled."""
        self.simulation.faults["disconnect"] += 1
        lost = [r for r in self.bench.requests if r.node_id == request.node_id]
        if is_handled:
            self.simulation.world.handle(request)
        elif self.random.random() < 0.5:
            self.late.extend(lost)
        for each in lost:
            self.bench.lose(each, DisconnectedError("lost"))

    def handle_late(self) -> None:
        """Make a paused broker handle the requests it had received."""
        if self.late:
            self.simulation.faults["late"] += 1
        for request in self.late:
            self.simulation.world.handle(request)
        self.late.clear()

    def _take(self, request: Request, response: Message) -> None:
        self.bench.requests.remove(request)
        assert respond_checked(request, response, self.bench.now_ms) is None


class Simulation:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = self.new_world(1 + seed % 2)
        self.leaders = [self.random.choice(NODE_IDS) for _ in range(PARTITION_COUNT)]
        self.transactions: list[Transaction] = []
        self.ended_count = 0
        self.faults: Counter[str] = Counter()
        self.applications = [self.new_application()]

    def new_world(self, version: int) -> World:
        return World(version, self.random)

    def new_application(self) -> Application:
        return Application(self)

    def begin(self) -> Transaction:
        self.transactions.append(Transaction(len(self.transactions) + 1))
        return self.transactions[-1]

    def run(self) -> None:
        for _ in range(STEP_COUNT):
            self._step()
        self._heal()

    def _step(self) -> None:
        random = self.random
        for application in self.applications:
            application.step()
            application.serve(is_healed=False)
            if random.random() < 0.1:
                application.handle_late()
        if random.random() < 0.3:
            self.world.complete()
        if random.random() < 0.05:
            self.leaders = [random.choice(NODE_IDS) for _ in range(PARTITION_COUNT)]
            for application in self.applications:
                application.bench.lead(*self.leaders)
        if random.random() < 0.02:
            self.applications[-1].bench.now_ms += 600
        if self.applications[-1].is_ended or random.random() < 0.01:
            self.faults["replaced"] += 1
            self.applications.append(self.new_application())

    def _heal(self) -> None:
        for application in self.applications:
            application.handle_late()
            application.is_stopping = True
        # Another producer with the same id ends any transaction that is open.
        for _ in range(HEALING_STEP_COUNT):
            self.world.complete()
            for application in self.applications:
                application.step()
                application.serve(is_healed=True)
            if all(a.is_ended or a.is_idle() for a in self.applications):
                break
        else:
            raise AssertionError("a call does not end")
        last = self.new_application()
        last.is_stopping = True
        while not last.is_idle():
            last.step()
            last.serve(is_healed=True)
            self.world.complete()

    # Invariants.

    def check(self) -> None:
        visible = self.world.visible()
        assert not any(log.open for log in self.world.logs), "left open"
        counts = Counter(value for values in visible for value in values)
        for transaction in self.transactions:
            found = [counts[value] for value in transaction.values]
            if transaction.is_committed:
                assert set(found) <= {1}, f"transaction {transaction.number} is torn"
            elif transaction.is_committed is False:
                assert not any(found), f"transaction {transaction.number} was not committed"
            else:
                assert set(found) in ({0}, {1}, set()), f"half of {transaction.number} was"
            if transaction.values and transaction.has_offset:
                # If the producer has failed, its last offset may not have been accepted.
                is_offset_there = transaction.number in self.world.committed_offsets
                if not found[0]:
                    assert not is_offset_there, f"the offset of {transaction.number} is alone"
                elif transaction.is_committed:
                    assert is_offset_there, f"the offset of {transaction.number} is lost"
        for values in visible:
            order = [tuple(map(int, value.rstrip(b"\0").split(b":")))[1:] for value in values]
            assert order == sorted(order), "reordered"
        assert sorted(self.world.committed_offsets) == self.world.committed_offsets


@pytest.mark.parametrize(
    "first_seed", seeds(60, soak_count=1_500, step=20)[MEETING_SEED_COUNT // 20 :]
)
def test_transactions_are_whole_or_not_at_all(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        try:
            run(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def run(seed: int) -> Simulation:
    simulation = Simulation(seed)
    simulation.run()
    simulation.check()
    return simulation


def test_the_simulation_meets_every_fault_and_most_transactions_end() -> None:
    """A run without faults, or one in which nothing gets through, would prove nothing."""
    faults: Counter[str] = Counter()
    ended = committed = 0
    for seed in range(MEETING_SEED_COUNT):
        simulation = run(seed)
        faults.update(simulation.faults)
        ended += simulation.ended_count
        committed += sum(each.is_committed is True for each in simulation.transactions)
    assert set(faults) == {"disconnect", "refused", "interrupt", "late", "replaced", "stale"}
    assert min(faults.values()) >= 20
    assert ended - committed > 50
    assert committed > 100


def end_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "_is_quiet", True)


def bump_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Idempotence.__init__

    def init(self: Idempotence, **keywords: Any) -> None:
        real(self, **{**keywords, "on_broken": None})

    monkeypatch.setattr(Idempotence, "__init__", init)


def commit_without_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "on_batch_failed", lambda *_: None)


def keep_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transactions, "_is_identity_due", False)


def believe_what_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "STALE_ERRORS", ())


def commit_offsets_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold(
        groups: GroupRegistry,
        name: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        now_ms: int,
        **_: int,
    ) -> None:
        for partition, committed in offsets.items():
            groups.commit(name, partition, committed, now_ms)

    monkeypatch.setattr(GroupRegistry, "hold", hold)


@pytest.mark.parametrize(
    ("plant", "first_seed"),
    [
        (end_too_early, 0),
        (bump_an_epoch, 0),
        (commit_without_what_failed, 0),
        (keep_the_epoch, 60),
        (commit_offsets_outside, 0),
        (believe_what_is_stale, 0),
    ],
)
def test_the_simulation_notices_a_planted_defect(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], first_seed: int
) -> None:
    plant(monkeypatch)
    for seed in range(first_seed, first_seed + SEEDS_UNTIL_NOTICED):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"none of {SEEDS_UNTIL_NOTICED} seeds notices it")
