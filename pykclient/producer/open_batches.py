"""OpenBatches: where records are appended, from any thread.

A record goes to its partition's open batch, which grows as it fills; to a new one if it does not
fit; or it is *blocked* until the topic is known, or until there is memory. Rows, which come many at
once, go the same way as many at a time as fit; but a new batch is filled with them before anybody
else can see it, so without a lock. The batches that begin and end here are told to the sender by
its mailbox.

Owner: `waiting` and `open` of a queue change under its lock; nothing else here changes but at the
end, in the sender thread.
Source: Java class ``RecordAccumulator``, method ``append``; KIP-480, KIP-794 (sticky partitions).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.producer.batch import ProducerBatch
from pykclient.producer.delivery import BatchOutcome
from pykclient.producer.partitioner import partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.accel import Delivery, RowRun
    from pykclient.errors import KafkaError
    from pykclient.producer.accumulator import AccumulatorSettings
    from pykclient.producer.buffer_pool import BufferPool, MemoryWaiter
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.partition_queue import PartitionQueue, TopicQueues
    from pykclient.producer.record import RecordMetadata, SerializedRecord
    from pykclient.producer.sender_mailbox import SenderMailbox
    from pykclient.producer.topic_table import TopicTable

__all__ = ["CHUNK_BYTES", "AppendedRows", "Blocked", "Need", "OpenBatches"]

CHUNK_BYTES = 16_384
"""What an open batch reserves at first; it doubles that as it fills. Whole batches reserved at once
would let 1,000 partitions with large batches exhaust the pool with little in it."""


class Need(Enum):
    """What a record waits for."""

    METADATA = "metadata"
    MEMORY = "memory"


class Blocked(NamedTuple):
    """The record could not be appended; `size_bytes` is the memory it needs."""

    need: Need
    size_bytes: int = 0


class AppendedRows(NamedTuple):
    """Rows that stand in a batch, in order from `first_index` on; `rows` has their numbers."""

    outcome: BatchOutcome
    first_index: int
    rows: Sequence[int]


class OpenBatches:
    """What of the accumulator's batches takes records. `closed_by` tells why it does not any more.

    `clock_ms` tells monotonic milliseconds.
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        topics: TopicTable,
        mailbox: SenderMailbox,
        *,
        pool: BufferPool,
        waiting: Waiting,
        clock_ms: Callable[[], int],
    ) -> None:
        self.closed_by: KafkaError | None = None
        self._settings = settings
        self._limit_bytes = settings.batch_size_bytes
        self._topics = topics
        self._mailbox = mailbox
        self._pool = pool
        self._waiting = waiting
        self._clock_ms = clock_ms

    def append(
        self, record: SerializedRecord, memory: MemoryWaiter | None = None
    ) -> Delivery[RecordMetadata] | Blocked:
        """Append a record, to a new batch if need be, or tell what it waits for. Any thread.

        `memory` is what the caller has waited for; it is taken if a new batch is needed.

        Raises:
            KafkaError: the producer was closed or has failed.
            SerializationError, EncodeError: the record cannot be written.
        """
        topic = self._topics.get(record.topic)
        while True:
            if topic is None:
                self._check_open()
                return Blocked(Need.METADATA)
            queue, is_sticky = self._choose(topic, record)
            if queue is None:
                return Blocked(Need.METADATA)
            with queue.lock:
                self._check_open()
                if is_sticky and queue.key.partition != topic.sticky.partition:
                    continue
                outcome = self._append_to(queue, record, memory, is_sticky=is_sticky)
            if outcome is not None:
                return outcome

    def append_rows(
        self,
        topic_name: str,
        partition: int | None,
        rows: RowRun,
        memory: MemoryWaiter | None = None,
    ) -> AppendedRows | Blocked:
        """Append rows to one batch, as many as fit, and take them; or tell what they wait for.

        There must be some. With `partition` None they go where it is the turn. `memory` is what the
        caller has waited for; it is taken if a new batch is needed. Any thread.

        Raises:
            KafkaError: the producer was closed or has failed.
        """
        topic = self._topics.get(topic_name)
        while True:
            if topic is None:
                self._check_open()
                return Blocked(Need.METADATA)
            number = topic.sticky.partition if partition is None else partition
            if number >= topic.partition_count:
                return Blocked(Need.METADATA)
            queue = topic.queues[number]
            with queue.lock:
                self._check_open()
                if partition is None and number != topic.sticky.partition:
                    continue
                full = queue.open
                if full is not None:
                    appended = self._append_rows_to_open(full, rows)
                    if appended is not None:
                        self._install(queue, full, is_sticky=partition is None)
                        return appended
                    self._end_full(queue)
                if partition is None and self._has_turn_ended(queue, full):
                    continue
            return self._append_rows_to_new(queue, rows, memory, is_sticky=partition is None)

    def close(self, error: KafkaError) -> None:
        """Refuse further records with `error`, and close every batch. Sender thread."""
        self.closed_by = error
        for queue in self._topics.close():
            # Whoever came before has his record in; whoever comes now is refused.
            with queue.lock:
                if queue.open is not None:
                    queue.seal()

    def _choose(
        self, topic: TopicQueues, record: SerializedRecord
    ) -> tuple[PartitionQueue | None, bool]:
        if record.partition is not None:
            is_there = record.partition < topic.partition_count
            return (topic.queues[record.partition] if is_there else None), False
        if record.key is not None and topic.hash_keys:
            return topic.queues[partition_for_key(record.key, topic.partition_count)], False
        return topic.queues[topic.sticky.partition], True

    def _append_to(
        self,
        queue: PartitionQueue,
        record: SerializedRecord,
        memory: MemoryWaiter | None,
        *,
        is_sticky: bool,
    ) -> Delivery[RecordMetadata] | Blocked | None:
        """Append to `queue`; None when the sticky partition has changed. Needs the queue's lock."""
        full = queue.open
        if full is not None:
            delivery = self._append_to_open(full, record)
            if delivery is not None:
                self._install(queue, full, is_sticky=is_sticky)
                return delivery
            self._end_full(queue)
        if is_sticky and self._has_turn_ended(queue, full):
            return None
        return self._append_to_new(queue, record, memory, is_sticky=is_sticky)

    def _append_to_open(
        self, batch: ProducerBatch, record: SerializedRecord
    ) -> Delivery[RecordMetadata] | None:
        delivery = _append(batch, record)
        if delivery is None and self._grow(batch, record):
            delivery = _append(batch, record)
        return delivery

    def _grow(self, batch: ProducerBatch, record: SerializedRecord) -> bool:
        """Reserve more memory for an open batch; False when it is large enough, or there is none.

        A batch that cannot grow counts as full, and makes room by being sent.
        """
        limit_bytes = self._limit_bytes
        wanted_bytes = batch.appender.size_bytes + record.size_bytes_max()
        if wanted_bytes > limit_bytes:
            return False
        target_bytes = min(limit_bytes, max(wanted_bytes, 2 * batch.reserved_bytes))
        if not self._pool.try_reserve(target_bytes - batch.reserved_bytes, batch):
            return False
        batch.grow()
        return True

    def _append_to_new(
        self,
        queue: PartitionQueue,
        record: SerializedRecord,
        memory: MemoryWaiter | None,
        *,
        is_sticky: bool,
    ) -> Delivery[RecordMetadata] | Blocked:
        limit_bytes = self._limit_bytes
        chunk_bytes = min(CHUNK_BYTES, limit_bytes, self._pool.size_bytes)
        size_bytes = max(chunk_bytes, record.size_bytes_max())
        batch = self._new_batch(queue, size_bytes)
        try:
            if not self._reserve(batch, size_bytes, memory):
                return Blocked(Need.MEMORY, size_bytes)
            delivery = _append(batch, record)
            assert delivery is not None, "a batch takes its first record"
            self._begin(queue, batch)
        finally:
            if queue.open is not batch:
                self._pool.release(batch.take_reserved())
        try:
            self._install(queue, batch, is_sticky=is_sticky)
        finally:
            self._mailbox.wake(batch.created_ms + self._settings.linger_ms)
        return delivery

    def _append_rows_to_open(self, batch: ProducerBatch, rows: RowRun) -> AppendedRows | None:
        wanted_bytes = HEADER_SIZE_BYTES + batch.appender.size_bytes + rows.size_bytes_estimate
        missing_bytes = min(wanted_bytes, self._limit_bytes) - batch.reserved_bytes
        if missing_bytes > 0 and self._pool.try_reserve(missing_bytes, batch):
            batch.grow()
        first_index, count = rows.append_to(batch.appender)
        return AppendedRows(batch.outcome, first_index, rows.take(count)) if count else None

    def _append_rows_to_new(
        self,
        queue: PartitionQueue,
        rows: RowRun,
        memory: MemoryWaiter | None,
        *,
        is_sticky: bool,
    ) -> AppendedRows | Blocked:
        wanted_bytes = max(CHUNK_BYTES, HEADER_SIZE_BYTES + rows.size_bytes_estimate)
        size_bytes = max(
            min(wanted_bytes, self._limit_bytes, self._pool.size_bytes),
            HEADER_SIZE_BYTES + rows.next_size_bytes_max,
        )
        batch = self._new_batch(queue, size_bytes)
        try:
            if not self._reserve(batch, size_bytes, memory):
                return Blocked(Need.MEMORY, size_bytes)
            # Nobody else knows of the batch yet.
            count = rows.fill(batch.appender)
            with queue.lock:
                self._check_open()
                if queue.open is not None:  # somebody was faster
                    self._end_full(queue)
                self._begin(queue, batch)
                try:
                    is_turn = queue.topic.sticky.partition == queue.key.partition
                    self._install(queue, batch, is_sticky=is_sticky and is_turn)
                finally:
                    self._mailbox.wake(batch.created_ms + self._settings.linger_ms)
        finally:
            if not batch.serial:
                self._pool.release(batch.take_reserved())
        return AppendedRows(batch.outcome, 0, rows.take(count))

    def _new_batch(self, queue: PartitionQueue, size_bytes: int) -> ProducerBatch:
        return ProducerBatch(
            BatchOutcome(queue.key, queue.append_lock, self._waiting),
            queue.append_lock,
            serial=(),
            created_ms=self._clock_ms(),
            capacity_bytes=min(size_bytes, self._limit_bytes),
            compression=self._settings.compression,
        )

    def _reserve(self, batch: ProducerBatch, size_bytes: int, memory: MemoryWaiter | None) -> bool:
        if memory is None:
            return self._pool.try_reserve(size_bytes, batch)
        memory.hand_to(batch)
        return True

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Make a batch that has its memory the open one, with its serial. Requires the lock."""
        # All or nothing: an interrupt (Ctrl-C) comes in only where something is called.
        batch.serial = (queue.next_serial,)
        queue.next_serial += 1
        queue.waiting += (batch,)
        queue.open = batch
        self._mailbox.created += ((queue, batch),)

    def _end_full(self, queue: PartitionQueue) -> None:
        """Have a batch sent that is full. Requires the queue's lock."""
        queue.seal()
        self._mailbox.sealed.append(queue)
        self._mailbox.wake(0)

    def _install(self, queue: PartitionQueue, batch: ProducerBatch, *, is_sticky: bool) -> None:
        """Let `send` find the open batch by itself from now on."""
        topic, partition = queue.topic, queue.key.partition
        appenders = topic.appenders
        if partition < len(appenders.open):
            appenders.open[partition] = batch.appender
        if is_sticky:
            appenders.sticky = batch.appender
            if topic.sticky_batch is not batch:
                if topic.sticky_batch is not None:
                    topic.sticky.on_produced(topic.sticky_batch.size_bytes)
                topic.sticky_batch = batch

    def _has_turn_ended(self, queue: PartitionQueue, full: ProducerBatch | None) -> bool:
        """Return whether records without a key go to another partition from now on.

        They do after a full batch, or after smaller ones that come to the same.
        """
        topic = queue.topic
        batch, topic.sticky_batch = topic.sticky_batch, None
        has_had_its_share = batch is not None and topic.sticky.on_produced(batch.size_bytes)
        if full is None and not has_had_its_share and queue.leader.node_id is not None:
            return False
        return topic.sticky.switch(self._clock_ms()) != queue.key.partition

    def _check_open(self) -> None:
        if self.closed_by is not None:
            raise self.closed_by.with_traceback(None)


def _append(batch: ProducerBatch, record: SerializedRecord) -> Delivery[RecordMetadata] | None:
    return batch.appender.append(
        record.timestamp_ms, record.key, record.value, record.headers, record.on_delivery
    )
