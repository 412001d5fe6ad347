"""SinkWorld: brokers for an exactly-once sink, of which a seed breaks one thing after the other.

They are the fake cluster's, with its coordinators, in virtual time. Requests are refused, dropped,
and handled without a response; they arrive late, after the client has sent them again; connections
break, brokers stop, leaders and coordinators move, a coordinator that was replaced responds with
what it knew, markers are held back, and transactions run out of time while whoever is to end them
stands still.

Owner: the simulation.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from pykclient.errors.broker import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotLeaderOrFollowerError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake import faults
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.transactions.metadata import TransactionState
from pykclient.testing.fake.transactions.settings import TransactionSettings
from pykclient.types import TopicPartition
from spark_connector.exactly_once.names import driver_id, sink_group
from tests.simulation.transaction_world import COORDINATOR_ERRORS, TransactionWorld
from tests.spark.sink_judge import Identity
from tests.spark.stale_coordinator import StaleCoordinator

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.transactions.metadata import (
        ProducerIdentity,
        Refusal,
        TransactionMetadata,
    )
    from tests.simulation.simulated_world import ApiFaults

SINK: Final = "orders"
TOPIC: Final = "rows"
PARTITION_COUNT: Final = 2
BROKER_COUNT: Final = 3
TRANSACTION_TIMEOUT_MS: Final = 20_000
CALL_TIMEOUT_MS: Final = 3_000

API_FAULTS: Final[ApiFaults] = {
    ApiKey.PRODUCE: (NotLeaderOrFollowerError,),
    ApiKey.FIND_COORDINATOR: (CoordinatorNotAvailableError,),
    ApiKey.INIT_PRODUCER_ID: (*COORDINATOR_ERRORS, ConcurrentTransactionsError),
    ApiKey.TXN_OFFSET_COMMIT: COORDINATOR_ERRORS,
    ApiKey.END_TXN: (*COORDINATOR_ERRORS, ConcurrentTransactionsError),
    ApiKey.OFFSET_FETCH: (*COORDINATOR_ERRORS, UnstableOffsetCommitError),
    ApiKey.LIST_TRANSACTIONS: (CoordinatorLoadInProgressError,),
    ApiKey.DESCRIBE_TRANSACTIONS: COORDINATOR_ERRORS,
}


class SinkWorld(TransactionWorld):
    """The brokers. `is_faulty` while things go wrong."""

    api_faults: ClassVar[ApiFaults] = API_FAULTS

    def __init__(self, seed: int) -> None:
        random, clock = Random(seed), ManualClock(1_000)
        cluster = FakeCluster(
            BROKER_COUNT,
            min_insync_replicas=2,
            transaction_settings=TransactionSettings(
                transaction_version=random.choice((1, 2, 2)),
                marker_delay_ms=random.choice((0, 0, 5, 300)),
            ),
            now_ms=clock.now_ms,
        )
        super().__init__(random, clock, cluster)
        cluster.create_topic(TOPIC, PARTITION_COUNT)
        self._stale_until_ms = 0
        self.lost: set[Identity] = set()
        """The open transactions that no living client has ended: their time ran out, or an
        InitProducerId without an epoch arrived over a connection that its client had closed."""
        self._note_late_initializations()

    def on_time_out(self, metadata: TransactionMetadata) -> None:
        """Keep whose it was."""
        self.lost.add(Identity(metadata.transactional_id, *metadata.producer))

    def on_late_initialization(self, identity: Identity) -> None:
        """Keep whose open transaction a late InitProducerId aborts."""
        self.met["late InitProducerId"] += 1
        self.lost.add(identity)

    def _note_late_initializations(self) -> None:
        transactions = self.cluster.transactions
        initialize = transactions.initialize

        def noted(
            transactional_id: str, expected: ProducerIdentity | None, timeout_ms: int, now_ms: int
        ) -> ProducerIdentity | Refusal:
            metadata = transactions.find(transactional_id)
            is_first = expected is None and self.network.delivers_late
            if is_first and metadata and metadata.state is TransactionState.ONGOING:
                self.on_late_initialization(Identity(transactional_id, *metadata.producer))
            return initialize(transactional_id, expected, timeout_ms, now_ms)

        transactions.initialize = noted  # type: ignore[method-assign]

    def break_brokers(self) -> None:
        """Break one thing, or nothing."""
        self._break_one(
            (0.0015, self._move_coordinator),
            (0.0025, self._stop_or_start),
            (0.0035, self._stall_or_resume_markers),
            (0.0050, self._cut),
            (0.0065, self._hold_back),
            (0.0150, self._add_fault),
        )

    def _add_fault(self) -> None:
        """Fail the ends of transactions, now and then for so long that calls give up."""
        if self.random.random() < 0.8:
            super()._add_fault()
            return
        self.met["ends fail"] += 1
        error = self.random.choice(COORDINATOR_ERRORS)
        until_ms = self.clock.now_ms + self.random.choice((500, 2 * CALL_TIMEOUT_MS))

        def fits(request: Request) -> bool:
            assert isinstance(request, EndTxnRequest)
            is_of_rows = request.transactional_id != driver_id(SINK)
            return is_of_rows and self.clock.now_ms < until_ms

        self.cluster.faults.add(faults.fail_with(error), ApiKey.END_TXN, times=None, when=fits)

    def _move_coordinator(self) -> None:
        self.met["coordinator move"] += 1
        broker_id = self.random.choice(sorted(self.cluster.alive))
        names = [each.transactional_id for each in self._known_transactions()]
        kind = self.random.randrange(3)
        if kind == 0:
            if self._stale_until_ms < self.clock.now_ms and self.random.random() < 0.5:
                self._leave_stale_coordinator()
            self.cluster.move_coordinator(0, sink_group(SINK), broker_id)
        elif kind == 1 and names:
            self.cluster.move_coordinator(1, self.random.choice(names), broker_id)
        else:
            partition = self.random.randrange(PARTITION_COUNT)
            self.cluster.move_leader(TopicPartition(TOPIC, partition), broker_id)

    def _leave_stale_coordinator(self) -> None:
        """Hang the coordinator of the sink's group, replace it, and wake it up.

        For a while the stale coordinator responds with its own state, and brokers name either of
        the two.
        """
        group = sink_group(SINK)
        if self.cluster.groups.partition(group).leader_id not in self.cluster.alive:
            return
        self.met["stale coordinator"] += 1
        stale = StaleCoordinator.of_group(self.cluster, group)
        until_ms = self.clock.now_ms + self.random.choice((500, 5_000, 15_000))
        self._stale_until_ms = until_ms

        def is_read(request: Request) -> bool:
            assert isinstance(request, OffsetFetchRequest)
            return request.group_id == group and self.clock.now_ms < until_ms

        def is_misled(request: Request) -> bool:
            assert isinstance(request, FindCoordinatorRequest)
            is_of_group = request.key == group and self.clock.now_ms < until_ms
            return is_of_group and self.random.random() < 0.5

        waiting = self.cluster.faults
        waiting.add(
            stale.responds(),
            ApiKey.OFFSET_FETCH,
            broker_id=stale.broker_id,
            times=None,
            when=is_read,
        )
        waiting.add(stale.named, ApiKey.FIND_COORDINATOR, times=None, when=is_misled)

    def _known_transactions(self) -> list[TransactionMetadata]:
        return list(self.cluster.transactions._known.values())

    def _stall_or_resume_markers(self) -> None:
        if self.random.random() < 0.5:
            self.met["markers held back"] += 1
            self.cluster.stall_markers()
        else:
            self.cluster.resume_markers()
