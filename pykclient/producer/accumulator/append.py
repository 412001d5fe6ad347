"""OpenBatches: where records are appended, from any thread.

A record goes to its partition's open batch, which grows as it fills; to a new one if it does not
fit; or it is *blocked* until the topic is known, or until there is memory. Rows go the same way, as
many at a time as fit. A new batch is made and filled before other threads can see it, so without a
lock. The mailbox reports to the sender which batches begin and end here.

A signal handler, a destructor or a logging handler may interrupt a thread while it holds a queue's
lock, and send. Such a thread is *inside*: it takes no lock again. Its record gets a batch of its
own, which is put *aside*, and queued as soon as the interrupted call has left.

Owner: a queue's `open`, and what is open, change under its lock; nothing else here changes but at
the end, in the sender thread.
Source: Java class ``RecordAccumulator``, method ``append``; KIP-480, KIP-794 (sticky partitions).
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.batch import (
    BatchState,
    Compression,
    ProducerBatch,
    batch_size_bytes,
)
from pykclient.producer.delivery import ProduceResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.accel import Delivery, RowRun
    from pykclient.errors import KafkaError
    from pykclient.producer.accumulator.buffer_pool import BufferPool, MemoryWaiter
    from pykclient.producer.accumulator.mailbox import SenderMailbox
    from pykclient.producer.accumulator.queues import PartitionQueue, TopicTable
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.failure_reports import FailureReports
    from pykclient.producer.record import RecordMetadata, SerializedRecord

__all__ = ["CHUNK_BYTES", "AppendedRows", "Blocked", "Need", "OpenBatches"]

CHUNK_BYTES = 16_384
"""What an open batch reserves at first; it doubles that as it fills. Whole batches reserved at once
would let 1,000 partitions with large batches exhaust the pool with little in it."""

LOCK_WAIT_S = 0.02
"""How long the sender thread waits for a queue's lock: only an interrupted thread has it longer."""


class Need(Enum):
    METADATA = "metadata"
    MEMORY = "memory"


class Blocked(NamedTuple):
    """The record could not be appended; `size_bytes` is the memory it needs."""

    need: Need
    size_bytes: int = 0


class AppendedRows(NamedTuple):
    """Rows that stand in a batch, in order from `first_index` on; `rows` has their numbers."""

    result: ProduceResult
    first_index: int
    rows: Sequence[int]


class OpenBatches:
    """What of the accumulator's batches takes records. `closed_by` is why it does not any more.

    `clock_ms` is the monotonic clock.
    """

    def __init__(
        self,
        config: ProducerConfig,
        topics: TopicTable,
        mailbox: SenderMailbox,
        *,
        pool: BufferPool,
        reports: FailureReports,
        waiting: Waiting,
        clock_ms: Callable[[], int],
    ) -> None:
        self.closed_by: KafkaError | None = None
        self.inside: set[int] = set()
        """The threads that hold a queue's lock, or are about to."""
        self._linger_ms = config.linger_ms
        self._compression = Compression.from_config(config)
        self._limit_bytes = batch_size_bytes(config)
        self._topics = topics
        self._mailbox = mailbox
        self._pool = pool
        self._reports = reports
        self._waiting = waiting
        self._clock_ms = clock_ms

    def append(
        self, record: SerializedRecord, memory: MemoryWaiter | None = None
    ) -> Delivery[RecordMetadata] | Blocked:
        """Append a record, to a new batch if need be, or return what it waits for. Any thread.

        `memory` is what the caller has waited for; it is taken if a new batch is needed.

        Raises:
            KafkaError: the producer was closed or has failed.
            SerializationError, EncodeError: the record cannot be written.
        """
        topic = self._topics.get(record.topic)
        me = get_ident()  # before: nothing is to be called between leaving a lock and `discard`
        while True:
            if topic is None:
                self._check_open()
                return Blocked(Need.METADATA)
            queue, is_sticky = topic.choose(record)
            if queue is None:
                return Blocked(Need.METADATA)
            if me in self.inside:
                return self._append_to_new(queue, record, None, is_sticky=is_sticky)
            try:
                self.inside.add(me)
                with queue.lock:
                    self._check_open()
                    if is_sticky and queue.key.partition != topic.sticky.partition:
                        continue
                    full = queue.open
                    delivery = self._append_to_open(queue, record, is_sticky=is_sticky)
                    if delivery is not None:
                        return delivery
                    if is_sticky and topic.end_turn(queue, full, self._clock_ms()):
                        continue
            finally:
                self.inside.discard(me)
                if self._mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
            return self._append_to_new(queue, record, memory, is_sticky=is_sticky)

    def append_rows(
        self,
        topic_name: str,
        partition: int | None,
        rows: RowRun,
        memory: MemoryWaiter | None = None,
    ) -> AppendedRows | Blocked:
        """Append rows to one batch, as many as fit, and take them; or return what they wait for.

        There must be some. With `partition` None they go where it is the turn. `memory` is what the
        caller has waited for; it is taken if a new batch is needed. Any thread.

        Raises:
            KafkaError: the producer was closed or has failed.
        """
        topic = self._topics.get(topic_name)
        me = get_ident()
        while True:
            if topic is None:
                self._check_open()
                return Blocked(Need.METADATA)
            number = topic.sticky.partition if partition is None else partition
            if number >= topic.partition_count:
                return Blocked(Need.METADATA)
            queue = topic.queues[number]
            if me in self.inside:
                return self._append_rows_to_new(queue, rows, None, is_sticky=partition is None)
            try:
                self.inside.add(me)
                with queue.lock:
                    self._check_open()
                    if partition is None and number != topic.sticky.partition:
                        continue
                    full = queue.open
                    appended = self._append_rows_to_open(queue, rows, is_sticky=partition is None)
                    if appended is not None:
                        return appended
                    if partition is None and topic.end_turn(queue, full, self._clock_ms()):
                        continue
            finally:
                self.inside.discard(me)
                if self._mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
            return self._append_rows_to_new(queue, rows, memory, is_sticky=partition is None)

    def take_turn(self, topic_name: str, size_bytes: int) -> tuple[int, int]:
        """Count bytes for the sticky partition; return whose turn it is, and for how many bytes.

        For rows that are divided before they are appended, since their order counts. Any thread.
        """
        topic = self._topics.get(topic_name)
        me = get_ident()
        while topic is not None:
            queue = topic.queues[topic.sticky.partition]
            if me in self.inside:
                return queue.key.partition, self._limit_bytes
            try:
                self.inside.add(me)
                with queue.lock:
                    if queue.key.partition == topic.sticky.partition:
                        return topic.take_turn(queue, size_bytes, self._clock_ms())
            finally:
                self.inside.discard(me)
                if self._mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
        return 0, self._limit_bytes  # it is gone; whoever appends to it waits until it is back

    # The sender thread, which never waits long.

    def close(self, error: KafkaError) -> None:
        """Refuse further records with `error`. Those who are inside may still come through."""
        self.closed_by = error
        self._topics.close()

    def try_seal(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Let a batch take no more records; False if its lock is held for too long."""
        if batch.state is not BatchState.OPEN:
            return True
        if not queue.lock.acquire(timeout=LOCK_WAIT_S):
            return False
        try:
            self.inside.add(get_ident())
            if batch is queue.open:
                queue.seal()
            else:
                batch.seal()
        finally:
            queue.lock.release()
            self.inside.discard(get_ident())
        return True

    def try_queue_aside(self) -> bool:
        """Queue what was put aside; False if a lock is held for too long."""
        for queue, batch in list(self._mailbox.aside):
            if not queue.lock.acquire(timeout=LOCK_WAIT_S):
                return False
            try:
                self.inside.add(get_ident())
                self._queue_aside(queue, batch)
            finally:
                queue.lock.release()
                self.inside.discard(get_ident())
        return True

    # Any thread.

    def _after_leaving(self) -> None:
        """Queue what was put aside meanwhile. Holds no lock."""
        while self._mailbox.aside:
            self._queue_first_aside()
        if self.closed_by is not None:
            self._mailbox.wake(0)  # the sender thread waits for us to have left

    def _queue_first_aside(self) -> None:
        me = get_ident()
        for queue, batch in list(self._mailbox.aside)[:1]:
            try:
                self.inside.add(me)
                with queue.lock:
                    self._queue_aside(queue, batch)
            finally:
                self.inside.discard(me)

    def _queue_aside(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Requires the queue's lock."""
        if not batch.serial:  # another thread may have been faster
            if queue.open is not None:
                self._end_full(queue)
            self._begin(queue, batch)
        with suppress(ValueError):  # as above
            self._mailbox.aside.remove((queue, batch))
        self._mailbox.wake(0)

    def _append_to_open(
        self, queue: PartitionQueue, record: SerializedRecord, *, is_sticky: bool
    ) -> Delivery[RecordMetadata] | None:
        """Append to the open batch; None if there is none, or none any more. Requires the lock."""
        batch = queue.open
        if batch is None:
            return None
        if batch.state is BatchState.OPEN:  # else an interrupt has left it half closed
            delivery = _append(batch, record)
            if delivery is None and self._grow(batch, record):
                delivery = _append(batch, record)
            if delivery is not None:
                queue.install(batch, is_sticky=is_sticky)
                return delivery
        self._end_full(queue)
        return None

    def _grow(self, batch: ProducerBatch, record: SerializedRecord) -> bool:
        """Reserve more memory for an open batch; False when it is large enough, or there is none.

        A batch that cannot grow counts as full, and makes room by being sent.
        """
        limit_bytes = self._limit_bytes
        wanted_bytes = batch.appender.size_bytes + record.size_bytes_max
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
        size_bytes = max(chunk_bytes, record.size_bytes_max)
        batch = self._new_batch(queue, size_bytes)
        me = get_ident()
        try:
            if not self._reserve(batch, size_bytes, memory):
                return Blocked(Need.MEMORY, size_bytes)
            delivery = _append(batch, record)
            assert delivery is not None, "a batch takes its first record"
            if me in self.inside:
                self._put_aside(queue, batch)
                return delivery
            try:
                self.inside.add(me)
                with queue.lock:
                    self._check_open()
                    # Another thread may have been faster.
                    if queue.open is not None:
                        other = self._append_to_open(queue, record, is_sticky=is_sticky)
                        if other is not None:
                            return other
                    self._begin(queue, batch)
                    queue.install(batch, is_sticky=is_sticky)
            finally:
                self.inside.discard(me)
                if self._mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
        finally:
            self._after_new(batch)
        return delivery

    def _append_rows_to_open(
        self, queue: PartitionQueue, rows: RowRun, *, is_sticky: bool
    ) -> AppendedRows | None:
        """Append to the open batch; None if there is none, or none any more. Requires the lock."""
        batch = queue.open
        if batch is None:
            return None
        if batch.state is BatchState.OPEN:  # else an interrupt has left it half closed
            wanted_bytes = HEADER_SIZE_BYTES + batch.appender.size_bytes + rows.size_bytes_estimate
            missing_bytes = min(wanted_bytes, self._limit_bytes) - batch.reserved_bytes
            if missing_bytes > 0 and self._pool.try_reserve(missing_bytes, batch):
                batch.grow()
            first_index, count = rows.append_to(batch.appender)
            if count:
                queue.install(batch, is_sticky=is_sticky)
                return AppendedRows(batch.result, first_index, rows.take(count))
        self._end_full(queue)
        return None

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
        me = get_ident()
        try:
            if not self._reserve(batch, size_bytes, memory):
                return Blocked(Need.MEMORY, size_bytes)
            # No other thread knows of the batch yet.
            count = rows.fill(batch.appender)
            if me in self.inside:
                self._put_aside(queue, batch)
                return AppendedRows(batch.result, 0, rows.take(count))
            try:
                self.inside.add(me)
                with queue.lock:
                    self._check_open()
                    if queue.open is not None:  # another thread was faster
                        self._end_full(queue)
                    self._begin(queue, batch)
                    queue.install(batch, is_sticky=is_sticky)
            finally:
                self.inside.discard(me)
                if self._mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
        finally:
            self._after_new(batch)
        return AppendedRows(batch.result, 0, rows.take(count))

    def _after_new(self, batch: ProducerBatch) -> None:
        """Wake the sender for a batch that was begun; give back the memory of one that was not."""
        aside = self._mailbox.aside
        if aside and any(batch is other for _, other in list(aside)):
            return
        if batch.serial:  # set before it is taken from those aside
            self._mailbox.wake(batch.due_ms)
        else:
            self._pool.release(batch)

    def _put_aside(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._check_open()
        entry = ((queue, batch),)
        batch.seal()
        self._mailbox.aside += entry
        self._mailbox.wake(0)

    def _new_batch(self, queue: PartitionQueue, size_bytes: int) -> ProducerBatch:
        now_ms = self._clock_ms()
        return ProducerBatch(
            ProduceResult(queue.key, self._reports, self._waiting),
            queue.append_lock,
            serial=(),
            created_ms=now_ms,
            due_ms=min(NEVER_MS, now_ms + self._linger_ms),
            capacity_bytes=min(size_bytes, self._limit_bytes),
            compression=self._compression,
        )

    def _reserve(self, batch: ProducerBatch, size_bytes: int, memory: MemoryWaiter | None) -> bool:
        if memory is None or not memory.size_bytes:
            return self._pool.try_reserve(size_bytes, batch)
        self._pool.hand_to(memory, batch)
        return True

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Put a batch that has its memory into the queue, with its serial. Requires the lock."""
        # All or nothing: an interrupt (Ctrl-C) comes in only where something is called.
        batch.serial = (queue.next_serial,)
        queue.next_serial += 1
        queue.waiting += (batch,)
        queue.open = batch if batch.state is BatchState.OPEN else None
        self._mailbox.created += ((queue, batch),)

    def _end_full(self, queue: PartitionQueue) -> None:
        """Have a batch sent that is full. Requires the queue's lock."""
        queue.seal()
        self._mailbox.sealed.append(queue)
        self._mailbox.wake(0)

    def _check_open(self) -> None:
        if self.closed_by is not None:
            raise self.closed_by.with_traceback(None)


def _append(batch: ProducerBatch, record: SerializedRecord) -> Delivery[RecordMetadata] | None:
    return batch.appender.append(
        record.timestamp_ms, record.key, record.value, record.headers, record.on_delivery
    )
