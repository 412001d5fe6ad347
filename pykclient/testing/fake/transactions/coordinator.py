"""The transaction coordinators of a cluster, with all transactional ids.

A transactional id belongs to a partition of ``__transaction_state``, and that partition's leader is
its coordinator. Every change is written there. When the leader moves, the new one continues: it
writes the markers of prepared transactions and restarts the timeouts of open ones.

Only a marker can wait, while its partition has no leader.

Owner: the cluster.
Source: KIP-98, KIP-360, KIP-890, KIP-939; Java classes ``TransactionCoordinator``,
``TransactionStateManager``, ``TransactionMarkerChannelManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    BrokerUnsupportedVersionError,
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    NotCoordinatorError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
)
from pykclient.testing.fake.coordinator_log import append_records, records_of
from pykclient.testing.fake.groups.registry import OFFSETS_TOPIC, place
from pykclient.testing.fake.log import Refused
from pykclient.testing.fake.topics import NO_LEADER
from pykclient.testing.fake.transactions.metadata import (
    BUMPING_VERSION,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from pykclient.testing.fake.transactions.state_log import (
    STATE_TOPIC,
    read_state,
    state_record,
    transactional_id_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.testing.fake.coordinator_log import OnAppend
    from pykclient.testing.fake.groups.registry import GroupRegistry
    from pykclient.testing.fake.timers import Timer, TimingWheel
    from pykclient.testing.fake.topics import Partition, Topic
    from pykclient.testing.fake.transactions.metadata import Refusal
    from pykclient.testing.fake.transactions.settings import TransactionSettings
    from pykclient.types import TopicPartition


class TransactionCoordinator:
    """The transactions of a cluster.

    `state_topic()` returns the internal topic, created on first use; `find_partition` returns any
    partition, or None. `on_append` is called for partitions that were written to. `epoch_ms` is
    the wall clock at time 0.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        timers: TimingWheel,
        groups: GroupRegistry,
        *,
        state_topic: Callable[[], Topic],
        find_partition: Callable[[TopicPartition], Partition | None],
        new_producer_id: Callable[[], int],
        on_append: OnAppend,
        epoch_ms: int,
    ) -> None:
        self.settings = settings
        self._timers = timers
        self._groups = groups
        self._state_topic = state_topic
        self._find_partition = find_partition
        self._new_producer_id = new_producer_id
        self._on_append = on_append
        self._epoch_ms = epoch_ms
        self._known: dict[str, TransactionMetadata] = {}
        self._time_outs: dict[str, Timer] = {}
        self._are_markers_stalled = False

    # Coordinators.

    def partition(self, transactional_id: str) -> Partition:
        """Return the partition of a transactional id, known or not."""
        partitions = self._state_topic().partitions
        return partitions[place(transactional_id, len(partitions))]

    def check_coordinator(self, broker_id: int, transactional_id: str) -> Refusal | None:
        """Return an error if this broker does not coordinate the transactional id."""
        if self.partition(transactional_id).leader_id == broker_id:
            return None
        return NotCoordinatorError

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, or None."""
        return self._known.get(transactional_id)

    def coordinated_by(self, broker_id: int) -> list[TransactionMetadata]:
        """Return a broker's transactional ids, oldest first."""
        return [
            metadata
            for name, metadata in self._known.items()
            if self.partition(name).leader_id == broker_id
        ]

    # Requests of producers.

    def check_initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        is_two_phase: bool = False,
        keeps_prepared: bool = False,
    ) -> Refusal | None:
        """Return the error of an InitProducerId that any coordinator would refuse, or None.

        `is_two_phase` and `keeps_prepared` are from KIP-939; Kafka does not implement the latter.
        """
        if not transactional_id:
            return InvalidRequestError
        if is_two_phase and not self.settings.transaction_two_phase_commit_enable:
            return TransactionalIdAuthorizationFailedError
        if keeps_prepared:
            return BrokerUnsupportedVersionError
        is_allowed = is_two_phase or 0 < timeout_ms <= self.settings.transaction_max_timeout_ms
        return None if is_allowed else InvalidTransactionTimeoutError

    def initialize(
        self,
        transactional_id: str,
        expected: ProducerIdentity | None,
        timeout_ms: int,
        now_ms: int,
    ) -> ProducerIdentity | Refusal:
        """Begin a new epoch of a producer, after aborting an open transaction.

        `expected` is the identity of a producer that recovers from an error (KIP-360).
        """
        metadata = self._known.get(transactional_id) or TransactionMetadata(
            transactional_id, self._new_producer_id, self._wall_ms(now_ms)
        )
        refusal = metadata.check_initialize(expected)
        if refusal is not None:
            return refusal
        if metadata.state is TransactionState.ONGOING:
            self._fence(metadata, now_ms)
            return ConcurrentTransactionsError  # the producer must retry
        refusal = metadata.initialize(expected, timeout_ms, self._wall_ms(now_ms))
        if refusal is not None:
            return refusal
        self._known[transactional_id] = metadata
        self._write(metadata, now_ms)
        return metadata.producer

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        *,
        version: int,
        now_ms: int,
    ) -> Refusal | None:
        """Add partitions to the transaction; the first ones begin it."""
        if not transactional_id:
            return InvalidRequestError
        metadata = self._known.get(transactional_id)
        if metadata is None:
            return InvalidProducerIdMappingError
        refusal = metadata.check_producer(producer)
        if refusal is not None:
            return refusal
        is_new = metadata.state is not TransactionState.ONGOING
        if metadata.add(partitions, version, self._wall_ms(now_ms)):
            self._write(metadata, now_ms)
        if is_new:
            self._watch_time(metadata, now_ms)
        return None

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, Refusal | None]:
        """Check for each partition that it is in the transaction."""
        metadata = self._known.get(transactional_id)
        refusal: Refusal | None = InvalidProducerIdMappingError
        if not transactional_id:
            refusal = InvalidRequestError
        elif metadata is not None:
            refusal = metadata.check_producer(producer)
        if refusal is not None or metadata is None:
            return dict.fromkeys(partitions, refusal)
        return {
            name: None if name in metadata.partitions else TransactionAbortableError
            for name in partitions
        }

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        version: int,
        now_ms: int,
        *,
        is_commit: bool,
    ) -> ProducerIdentity | Refusal:
        """Commit or abort; return the producer's next identity."""
        if not transactional_id:
            return InvalidRequestError
        metadata = self._known.get(transactional_id)
        if metadata is None:
            return InvalidProducerIdMappingError
        checked = metadata.check_end(producer, version, is_commit=is_commit)
        if isinstance(checked, type):
            return checked
        if checked:
            metadata.prepare_end(version, self._wall_ms(now_ms), is_commit=is_commit)
            self._on_prepared(metadata, now_ms)
        return metadata.next_producer

    # Time.

    def _watch_time(self, metadata: TransactionMetadata, now_ms: int) -> None:
        """Schedule the abort of a transaction at its timeout, if it has one."""
        name = metadata.transactional_id
        if not metadata.has_time_out:
            return
        deadline_ms = metadata.started_ms + metadata.timeout_ms - self._epoch_ms
        self._stop_watching(name)
        self._time_outs[name] = self._timers.add(
            max(now_ms, deadline_ms), lambda then_ms: self._on_time_out(metadata, then_ms)
        )

    def _stop_watching(self, transactional_id: str) -> None:
        timer = self._time_outs.pop(transactional_id, None)
        if timer is not None:
            timer.cancel()

    def _on_time_out(self, metadata: TransactionMetadata, now_ms: int) -> None:
        has_coordinator = self.partition(metadata.transactional_id).leader_id != NO_LEADER
        if has_coordinator and metadata.state is TransactionState.ONGOING:
            self._fence(metadata, now_ms)

    def _fence(self, metadata: TransactionMetadata, now_ms: int) -> None:
        version = self.settings.transaction_version
        metadata.fence(version if version >= BUMPING_VERSION else 0, self._wall_ms(now_ms))
        self._on_prepared(metadata, now_ms)

    def expire(self, now_ms: int) -> None:
        """Remove transactional ids that were unused for long and have no open transaction."""
        wall_ms = self._wall_ms(now_ms)
        oldest_ms = wall_ms - self.settings.transactional_id_expiration_ms
        for name, metadata in list(self._known.items()):
            has_coordinator = self.partition(name).leader_id != NO_LEADER
            if has_coordinator and metadata.may_expire and metadata.updated_ms <= oldest_ms:
                metadata.to(TransactionState.DEAD, wall_ms)
                self._write(metadata, now_ms)
                del self._known[name]

    # Markers.

    def stall_markers(self) -> None:
        """Stop writing markers until `resume_markers`."""
        self._are_markers_stalled = True

    def resume_markers(self, now_ms: int) -> None:
        """Write all delayed markers."""
        self._are_markers_stalled = False
        self._mark_all(now_ms)

    def _on_prepared(self, metadata: TransactionMetadata, now_ms: int) -> None:
        self._stop_watching(metadata.transactional_id)
        self._write(metadata, now_ms)
        delay_ms = self.settings.marker_delay_ms
        if delay_ms:
            self._timers.add(now_ms + delay_ms, lambda then_ms: self._mark(metadata, then_ms))
        else:
            self._mark(metadata, now_ms)

    def _mark_all(self, now_ms: int) -> None:
        for metadata in list(self._known.values()):
            self._mark(metadata, now_ms)

    def _mark(self, metadata: TransactionMetadata, now_ms: int) -> None:
        """Write all possible markers, and complete the transaction after the last one."""
        coordinator = self.partition(metadata.transactional_id)
        if (
            self._are_markers_stalled
            or not metadata.is_prepared
            or coordinator.leader_id == NO_LEADER
        ):
            return
        for name in list(metadata.partitions):
            partition = self._find_partition(name)
            if partition is None or self._has_marker(metadata, partition, coordinator, now_ms):
                metadata.partitions.pop(name, None)
        if not metadata.partitions and metadata.is_prepared:
            metadata.complete(self._wall_ms(now_ms))
            self._write(metadata, now_ms)

    def _has_marker(
        self,
        metadata: TransactionMetadata,
        partition: Partition,
        coordinator: Partition,
        now_ms: int,
    ) -> bool:
        """Write a marker; return False if its partition has no leader or refuses it."""
        if partition.leader_id == NO_LEADER:
            return False
        producer_id, epoch = metadata.producer
        is_commit = metadata.is_commit
        refusal = self.write_marker(
            partition,
            ProducerIdentity(producer_id, epoch),
            coordinator.leader_epoch,
            now_ms,
            is_commit=is_commit,
        )
        return refusal is None

    def write_marker(
        self,
        partition: Partition,
        producer: ProducerIdentity,
        coordinator_epoch: int,
        now_ms: int,
        *,
        is_commit: bool,
    ) -> Refusal | None:
        """Write a marker to a partition, or return why it was refused."""
        appended = partition.log.append_marker(
            *producer,
            is_commit=is_commit,
            leader_epoch=partition.leader_epoch,
            now_ms=self._wall_ms(now_ms),
            coordinator_epoch=coordinator_epoch,
        )
        if isinstance(appended, Refused):
            return appended.error
        if partition.name.topic == OFFSETS_TOPIC:
            self._groups.on_marker(producer.producer_id, partition, is_commit=is_commit)
        self._on_append(partition, now_ms)
        return None

    # Events of the cluster.

    def on_leader(self, partition: Partition, now_ms: int) -> None:
        """Continue writing markers after a partition's leader has changed."""
        if partition.leader_id == NO_LEADER or not self._known:
            return
        self._mark_all(now_ms)
        if partition.name.topic != STATE_TOPIC:
            return
        for name, metadata in list(self._known.items()):
            is_here = self.partition(name) is partition
            if is_here and metadata.state is TransactionState.ONGOING:
                self._watch_time(metadata, now_ms)

    def load(self, now_ms: int) -> None:
        """Load the logs of an earlier run and continue from there."""
        for partition in self._state_topic().partitions:
            for key, value in records_of(partition):
                name = transactional_id_of(key)
                if value is None:
                    self._known.pop(name, None)
                else:
                    self._known[name] = read_state(name, value, self._new_producer_id)
        for metadata in self._known.values():
            if metadata.state is TransactionState.ONGOING:
                self._watch_time(metadata, now_ms)
        self._mark_all(now_ms)

    def on_topic_deleted(self, now_ms: int) -> None:
        """Write markers again: none needs to wait for a deleted topic."""
        self._mark_all(now_ms)

    def _write(self, metadata: TransactionMetadata, now_ms: int) -> None:
        """Append the current state to the log."""
        partition = self.partition(metadata.transactional_id)
        version = 1 if self.settings.transaction_version else 0
        append_records(partition, [state_record(metadata, version)], self._wall_ms(now_ms))
        self._on_append(partition, now_ms)

    def _wall_ms(self, now_ms: int) -> int:
        return self._epoch_ms + now_ms
