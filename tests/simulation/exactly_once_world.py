"""CopyWorld: brokers for copiers of a topic and their group, with failures one after another.

Brokers and coordinators are the fake cluster's, in simulated time. Requests are refused, dropped,
or executed without a response; they arrive late, after the client has retried them; connections
break, brokers stop, leaders and coordinators move, and markers are delayed.

Owner: the simulation.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from pykclient.errors.broker import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    IllegalGenerationError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.groups.group import GroupSettings
from pykclient.testing.fake.transactions.settings import TransactionSettings
from pykclient.types import TopicPartition
from tests.simulation.transaction_world import (
    COORDINATOR_ERRORS,
    REQUEST_TIMEOUT_MS,
    TransactionWorld,
)

if TYPE_CHECKING:
    from pykclient.protocol.message import Request
    from pykclient.testing.fake.faults import Fault
    from pykclient.testing.fake.transactions.metadata import TransactionMetadata
    from tests.simulation.simulated_world import ApiFaults

SOURCE: Final = "source"
SINK: Final = "sink"
GROUP: Final = "g"
COPIER_IDS: Final = ("c0", "c1")
FEEDER_ID: Final = "feeder"
BROKER_COUNT: Final = 3
MAX_POLL_RECORDS: Final = 4

SESSION_TIMEOUT_MS: Final = 6_000
MAX_POLL_INTERVAL_MS: Final = 4_000
TRANSACTION_TIMEOUT_MS: Final = 9_000
CALL_TIMEOUT_MS: Final = 4_000

API_FAULTS: Final[ApiFaults] = {
    ApiKey.PRODUCE: (NotLeaderOrFollowerError,),
    ApiKey.FETCH: (NotLeaderOrFollowerError,),
    ApiKey.FIND_COORDINATOR: (CoordinatorNotAvailableError,),
    ApiKey.INIT_PRODUCER_ID: (*COORDINATOR_ERRORS, ConcurrentTransactionsError),
    ApiKey.ADD_PARTITIONS_TO_TXN: (*COORDINATOR_ERRORS, ConcurrentTransactionsError),
    ApiKey.ADD_OFFSETS_TO_TXN: (*COORDINATOR_ERRORS, ConcurrentTransactionsError),
    ApiKey.TXN_OFFSET_COMMIT: COORDINATOR_ERRORS,
    ApiKey.END_TXN: (*COORDINATOR_ERRORS, ConcurrentTransactionsError),
    ApiKey.OFFSET_FETCH: (*COORDINATOR_ERRORS, UnstableOffsetCommitError),
}
CLASSIC_FAULTS: Final[ApiFaults] = {
    **API_FAULTS,
    ApiKey.TXN_OFFSET_COMMIT: (*COORDINATOR_ERRORS, IllegalGenerationError, UnknownMemberIdError),
    ApiKey.JOIN_GROUP: (*COORDINATOR_ERRORS, UnknownMemberIdError),
    ApiKey.SYNC_GROUP: (*COORDINATOR_ERRORS, UnknownMemberIdError, RebalanceInProgressError),
    ApiKey.HEARTBEAT: (NotCoordinatorError, UnknownMemberIdError, RebalanceInProgressError),
}
KIP848_FAULTS: Final[ApiFaults] = {
    **API_FAULTS,
    ApiKey.TXN_OFFSET_COMMIT: (*COORDINATOR_ERRORS, StaleMemberEpochError, UnknownMemberIdError),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        *COORDINATOR_ERRORS,
        UnknownMemberIdError,
        FencedMemberEpochError,
    ),
}


class CopyWorld(TransactionWorld):
    """The brokers and the client settings, for a classic group."""

    api_faults: ClassVar[ApiFaults] = CLASSIC_FAULTS

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random, clock = Random(seed), ManualClock(1_000)
        cluster = FakeCluster(
            BROKER_COUNT,
            min_insync_replicas=2,
            group_settings=GroupSettings(
                group_consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
                group_consumer_heartbeat_interval_ms=1_000,
                group_consumer_assignment_interval_ms=1_000,
            ),
            transaction_settings=TransactionSettings(
                transaction_version=random.choice((1, 2)),
                marker_delay_ms=random.choice((0, 0, 5, 300)),
            ),
            now_ms=clock.now_ms,
        )
        super().__init__(random, clock, cluster)
        self.partition_count = random.choice((2, 3, 4))
        cluster.create_topic(SOURCE, self.partition_count)
        cluster.create_topic(SINK, self.partition_count)
        self._group_settings = self._draw_group_settings()
        self._on_stall = random.choice(("raise", "log"))
        self.max_poll_interval_ms = MAX_POLL_INTERVAL_MS
        self.met[f"transaction version {cluster.transactions.settings.transaction_version}"] += 1
        self._note_doubled()

    def _draw_group_settings(self) -> dict[str, object]:
        strategies = ("range", "sticky", "roundrobin", "cooperative-sticky")
        return {
            "partition_assignment_strategy": self.random.choice(strategies),
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": 1_000,
        }

    def _move(self) -> None:
        broker_id = self.random.choice(sorted(self.cluster.alive))
        what = self.random.choice(("leader", "group coordinator", "transaction coordinator"))
        self.met[f"{what} moved"] += 1
        if what == "leader":
            topic, number = self.random.choice((SOURCE, SINK)), self.random.randrange(2)
            self.cluster.move_leader(TopicPartition(topic, number), broker_id)
        elif what == "group coordinator":
            self.cluster.move_coordinator(0, GROUP, broker_id)
        else:
            name = self.random.choice((*COPIER_IDS, FEEDER_ID))
            self.cluster.move_coordinator(1, name, broker_id)

    def _hold_markers_back(self) -> None:
        self.met["markers delayed"] += 1
        self.cluster.stall_markers()
        until_ms = self.clock.now_ms + self.random.choice((50, 300, 1_000, 5_000))
        self.network.after(until_ms, self.cluster.resume_markers)

    # Events that are counted.

    def on_time_out(self, metadata: TransactionMetadata) -> None:
        """Count a timed-out transaction."""
        del metadata
        self.met["transaction timed out"] += 1

    def _note_doubled(self) -> None:
        """Count the batches that are repeated to brokers that may have handled them."""
        take = self.cluster.faults.take
        handled: set[bytes] = set()

        def noted(broker_id: int, api_key: int, request: Request) -> Fault | None:
            fault = take(broker_id, api_key, request)
            if isinstance(request, ProduceRequest) and (fault is None or fault.acts):
                for topic in request.topic_data:
                    for partition in topic.partition_data:
                        records = bytes(partition.records or b"")
                        self.met["doubled"] += records in handled
                        handled.add(records)
            return fault

        self.cluster.faults.take = noted  # type: ignore[method-assign]

    # Client settings.

    def client_settings(self, client_id: str) -> dict[str, object]:
        """Return the settings of any client."""
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": client_id,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metadata_max_age_ms": 5_000,
        }

    def producer_settings(self, name: str) -> dict[str, object]:
        """Return the settings of a producer with a transactional id."""
        return self.client_settings(name) | {
            "transactional_id": name,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            "max_block_ms": CALL_TIMEOUT_MS,
            "delivery_timeout_ms": CALL_TIMEOUT_MS,
            "linger_ms": 0,
        }

    def consumer_settings(self, name: str) -> dict[str, object]:
        """Return the settings of a member of the group."""
        settings = self.client_settings(name) | self._group_settings
        return settings | {
            "group_id": GROUP,
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "default_api_timeout_ms": CALL_TIMEOUT_MS,
            "max_poll_interval_ms": self.max_poll_interval_ms,
            "max_poll_records": MAX_POLL_RECORDS,
            "fetch_max_wait_ms": 500,
            "on_stall": self._on_stall,
        }
