"""OpenBatches: appends records to the open batches of partitions, from any thread.

A record goes to its partition's open batch, which grows as it fills, or to a new batch if it does
not fit. It is *blocked* while its topic is unknown or there is no memory. Rows go the same way, as
many at a time as fit. A new batch is filled before other threads can see it, so without a lock.
`StickyPartitioner` chooses the partition of a record without a key, and when to change it. The
mailbox tells the sender thread which batches begin and end here.

A signal handler, a destructor or a logging handler may interrupt a thread that holds a queue's
lock, and send. Such a thread is *inside*: it must not take the lock again. Its record gets a batch
of its own, which is put *aside* and queued when the interrupted call has left.

Owner: a queue's `open`, and the open batch, change under the queue's lock. Nothing else changes
here except on close, in the sender thread.
Source: Java class ``RecordAccumulator``, method ``append``; KIP-480, KIP-794 (sticky partitions).
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from enum import Enum
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple, overload

from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.errors.tracebacks import renewed
from pykclient.network.manager import NEVER_MS
from pykclient.producer.accumulator.batch import (
    BatchState,
    ProducerBatch,
    batch_size_bytes,
)
from pykclient.producer.delivery import ProduceResult
from pykclient.producer.record import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from pykclient.accel import Delivery, RowRun
    from pykclient.errors import KafkaError
    from pykclient.producer.accumulator.buffer_pool import BufferPool, MemoryWaiter
    from pykclient.producer.accumulator.queues import PartitionQueue, TopicTable
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.failure_reports import FailureReports
    from pykclient.producer.record import RecordMetadata, SerializedRecord

    Appended: TypeAlias = "Delivery[RecordMetadata] | AppendedRows"

CHUNK_BYTES = 16_384
"""Memory that an open batch reserves first; it doubles as the batch fills. Reserving whole batches
at once would let 1,000 partitions with large batches exhaust an almost empty pool."""

LOCK_WAIT_S = 0.02
"""Maximum time the sender waits for a queue's lock; only an interrupted thread holds it longer."""


class Need(Enum):
    METADATA = "metadata"
    MEMORY = "memory"


class Blocked(NamedTuple):
    """A record could not be appended; `size_bytes` is the memory it needs."""

    need: Need
    size_bytes: int = 0


class AppendedRows(NamedTuple):
    """Rows in a batch, in order from index `first_index` on; `rows` holds their row numbers."""

    result: ProduceResult
    first_index: int
    rows: Sequence[int]


class OpenBatches:
    """The batches that accept records. `closed_by` is why none is accepted now, None otherwise.

    `clock_ms` is the monotonic clock.
    """

    def __init__(
        self,
        config: ProducerConfig,
        topics: TopicTable,
        *,
        pool: BufferPool,
        reports: FailureReports,
        waiting: Waiting,
        clock_ms: Callable[[], int],
        wakeup: Callable[[], None],
    ) -> None:
        self.closed_by: KafkaError | None = None
        self._is_closed_for_good = False
        self.inside: set[int] = set()
        """Threads that hold a queue's lock, or are about to."""
        self._limit_bytes = batch_size_bytes(config)
        self._topics = topics
        self.mailbox = SenderMailbox(wakeup)
        self._pool = pool
        self._reports = reports
        self._waiting = waiting
        self._clock_ms = clock_ms

    @overload
    def append(
        self, item: SerializedRecord, memory: MemoryWaiter | None = None
    ) -> Delivery[RecordMetadata] | Blocked: ...
    @overload
    def append(self, item: Rows, memory: MemoryWaiter | None = None) -> AppendedRows | Blocked: ...
    def append(
        self, item: SerializedRecord | Rows, memory: MemoryWaiter | None = None
    ) -> Appended | Blocked:
        """Append to the open batch or to a new one, or return what to wait for.

        `memory` is the memory that the caller waited for; a new batch takes it. Any thread.

        Raises:
            KafkaError: the producer was closed or has failed.
            SerializationError, EncodeError: the record cannot be encoded.
        """
        topic = self._topics.get(item.topic)
        me = get_ident()  # here: nothing may be called between leaving a lock and `discard`
        while True:
            if topic is None:
                self._check_open()
                return Blocked(Need.METADATA)
            sticky = topic.sticky
            partition, is_sticky = sticky.choose(item)
            if partition >= sticky.partition_count:
                self._check_open()
                return Blocked(Need.METADATA)
            queue = topic.queues[partition]
            if me in self.inside:
                return self._append_to_new(queue, item, None, is_sticky=is_sticky)
            try:
                self.inside.add(me)
                with queue.lock:
                    self._check_open()
                    if is_sticky and partition != sticky.partition:
                        continue
                    full = queue.open
                    appended = self._append_to_open(queue, item, is_sticky=is_sticky)
                    if appended is not None:
                        return appended
                    has_leader = queue.leader.node_id is not None
                    if is_sticky and sticky.end_turn(
                        self._clock_ms(), is_batch_full=full is not None, has_leader=has_leader
                    ):
                        continue
            finally:
                self.inside.discard(me)
                if self.mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
            return self._append_to_new(queue, item, memory, is_sticky=is_sticky)

    def take_turn(self, topic_name: str, size_bytes: int) -> tuple[int, int]:
        """Count bytes for the sticky partition; return the partition, and the bytes left for it.

        Used for rows, which are divided by partition before they are appended. Any thread.
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
                        has_leader = queue.leader.node_id is not None
                        if topic.sticky.take(size_bytes, self._clock_ms(), has_leader=has_leader):
                            topic.appenders.sticky = None
                        return topic.sticky.partition, topic.sticky.room_bytes
            finally:
                self.inside.discard(me)
                if self.mailbox.aside or self.closed_by is not None:
                    self._after_leaving()
        return (
            0,
            self._limit_bytes,
        )  # the topic is unknown; an append to it waits until it is known

    # The sender thread, which never waits long for a lock.

    def close(self, error: KafkaError) -> None:
        """Refuse further records with `error`. A thread inside `append` may still append one."""
        self._is_closed_for_good = True
        self._refuse(error)

    def pause(self, error: KafkaError) -> None:
        """Refuse further records with `error` until `resume`. No effect after `close`."""
        if not self._is_closed_for_good:
            self._refuse(error)

    def resume(self) -> None:
        """Accept records again. No effect after `close`."""
        if not self._is_closed_for_good:
            self.closed_by = None
            self._topics.open()

    def _refuse(self, error: KafkaError) -> None:
        self.closed_by = error
        self._topics.close()

    def try_seal(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Seal a batch; return False if its lock is not free in time."""
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
        """Queue the batches put aside; return False if a lock is not free in time."""
        for queue, batch in list(self.mailbox.aside):
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
        """Queue the batches put aside meanwhile. Holds no lock."""
        while self.mailbox.aside:
            self._queue_first_aside()
        if self.closed_by is not None:
            self.mailbox.wake(0)  # the sender thread waits until this thread has left

    def _queue_first_aside(self) -> None:
        me = get_ident()
        for queue, batch in list(self.mailbox.aside)[:1]:
            try:
                self.inside.add(me)
                with queue.lock:
                    self._queue_aside(queue, batch)
            finally:
                self.inside.discard(me)

    def _queue_aside(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Queue a batch that was put aside. Requires the queue's lock."""
        if not batch.serial:  # another thread may have been faster
            if queue.open is not None:
                self._end_full(queue)
            self._begin(queue, batch)
        with suppress(ValueError):  # as above
            self.mailbox.aside.remove((queue, batch))
        self.mailbox.wake(0)

    def _append_to_open(
        self, queue: PartitionQueue, item: SerializedRecord | Rows, *, is_sticky: bool
    ) -> Appended | None:
        """Append to the open batch; return None if it is missing or full. Requires the lock."""
        batch = queue.open
        if batch is None:
            return None
        if batch.state is BatchState.OPEN:  # else an interrupt came while it was being sealed
            appended = (
                self._append_rows(batch, item.run)
                if isinstance(item, Rows)
                else self._append_record(batch, item)
            )
            if appended is not None:
                queue.install(batch, is_sticky=is_sticky)
                return appended
        self._end_full(queue)
        return None

    def _append_record(
        self, batch: ProducerBatch, record: SerializedRecord
    ) -> Delivery[RecordMetadata] | None:
        delivery = batch.appender.append(
            record.timestamp_ms, record.key, record.value, record.headers, record.on_delivery
        )
        if delivery is None:
            wanted_bytes = batch.appender.size_bytes + record.size_bytes_max
            target_bytes = max(wanted_bytes, 2 * batch.reserved_bytes)
            if wanted_bytes <= self._limit_bytes and self._grow(batch, target_bytes):
                delivery = batch.appender.append(
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    record.headers,
                    record.on_delivery,
                )
        return delivery

    def _append_rows(self, batch: ProducerBatch, run: RowRun) -> AppendedRows | None:
        self._grow(batch, HEADER_SIZE_BYTES + batch.appender.size_bytes + run.size_bytes_estimate)
        first_index, count = run.append_to(batch.appender)
        return AppendedRows(batch.result, first_index, run.take(count)) if count else None

    def _grow(self, batch: ProducerBatch, target_bytes: int) -> bool:
        """Reserve more memory for an open batch; False if it is large enough or memory is short.

        A batch that cannot grow counts as full, and is sent, which frees memory.
        """
        missing_bytes = min(target_bytes, self._limit_bytes) - batch.reserved_bytes
        if missing_bytes <= 0 or not self._pool.try_reserve(missing_bytes, batch):
            return False
        batch.grow()
        return True

    def _append_to_new(
        self,
        queue: PartitionQueue,
        item: SerializedRecord | Rows,
        memory: MemoryWaiter | None,
        *,
        is_sticky: bool,
    ) -> Appended | Blocked:
        run = item.run if isinstance(item, Rows) else None
        size_bytes = self._first_bytes(item)
        batch = self._new_batch(queue, size_bytes)
        me = get_ident()
        try:
            if not self._reserve(batch, size_bytes, memory):
                return Blocked(Need.MEMORY, size_bytes)
            # No other thread can see the batch yet.
            count = 0 if run is None else run.fill(batch.appender)
            delivery = None if isinstance(item, Rows) else self._append_record(batch, item)
            if me in self.inside:
                self._put_aside(queue, batch)
            else:
                try:
                    self.inside.add(me)
                    with queue.lock:
                        self._check_open()
                        if queue.open is not None:  # another thread was faster
                            if run is not None:
                                self._end_full(queue)
                            else:
                                other = self._append_to_open(queue, item, is_sticky=is_sticky)
                                if other is not None:
                                    return other
                        self._begin(queue, batch)
                        queue.install(batch, is_sticky=is_sticky)
                    # While still inside: a handler that interrupts this thread later may append to
                    # the batch and wait for it.
                    self.mailbox.wake(batch.due_ms)
                finally:
                    self.inside.discard(me)
                    if self.mailbox.aside or self.closed_by is not None:
                        self._after_leaving()
        finally:
            self._after_new(batch)
        if run is not None:
            return AppendedRows(batch.result, 0, run.take(count))
        assert delivery is not None, "a batch takes its first record"
        return delivery

    def _first_bytes(self, item: SerializedRecord | Rows) -> int:
        """Return the number of bytes that a new batch reserves first."""
        if isinstance(item, Rows):
            wanted_bytes = max(CHUNK_BYTES, HEADER_SIZE_BYTES + item.run.size_bytes_estimate)
            least_bytes = HEADER_SIZE_BYTES + item.run.next_size_bytes_max
        else:
            wanted_bytes, least_bytes = CHUNK_BYTES, item.size_bytes_max
        return max(min(wanted_bytes, self._limit_bytes, self._pool.size_bytes), least_bytes)

    def _after_new(self, batch: ProducerBatch) -> None:
        """Wake the sender if the batch was queued; release its memory if not."""
        aside = self.mailbox.aside
        if aside and any(batch is other for _, other in list(aside)):
            return
        if batch.serial:  # set before the batch leaves `aside`
            self.mailbox.wake(batch.due_ms)
        else:
            self._pool.release(batch)

    def _put_aside(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._check_open()
        entry = ((queue, batch),)
        batch.seal()
        self.mailbox.aside += entry
        self.mailbox.wake(0)

    def _new_batch(self, queue: PartitionQueue, size_bytes: int) -> ProducerBatch:
        now_ms = self._clock_ms()
        return ProducerBatch(
            ProduceResult(queue.key, self._reports, self._waiting),
            queue.append_lock,
            serial=(),
            created_ms=now_ms,
            due_ms=min(NEVER_MS, now_ms + queue.topic.batching.linger_ms),
            capacity_bytes=min(size_bytes, self._limit_bytes),
            compression=queue.topic.batching.compression,
        )

    def _reserve(self, batch: ProducerBatch, size_bytes: int, memory: MemoryWaiter | None) -> bool:
        if memory is None or not memory.size_bytes:
            return self._pool.try_reserve(size_bytes, batch)
        self._pool.hand_to(memory, batch)
        return True

    def _begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Queue a batch that has its memory, under the next serial. Requires the lock."""
        # All or nothing: an interrupt (Ctrl-C) can only come where something is called.
        batch.serial = (queue.next_serial,)
        queue.next_serial += 1
        queue.waiting += (batch,)
        queue.open = batch if batch.state is BatchState.OPEN else None
        self.mailbox.created += ((queue, batch),)

    def _end_full(self, queue: PartitionQueue) -> None:
        """Close a full batch, to be sent. Requires the queue's lock."""
        queue.seal()
        self.mailbox.sealed.append(queue)
        self.mailbox.wake(0)

    def _check_open(self) -> None:
        if self.closed_by is not None:
            raise renewed(self.closed_by)


class SenderMailbox:
    """Messages of application threads to the sender thread, and its wake-up.

    Any thread adds, the sender thread removes. `wakeup` wakes the sender thread.
    """

    def __init__(self, wakeup: Callable[[], None]) -> None:
        self.created: deque[tuple[PartitionQueue, ProducerBatch]] = deque()
        self.aside: deque[tuple[PartitionQueue, ProducerBatch]] = deque()
        """Batches to be queued; each is removed only after that."""
        self.sealed: deque[PartitionQueue] = deque()
        self.is_memory_wanted = False
        self._wakeup = wakeup
        self._is_woken = False
        self._waking: set[int] = set()
        """Threads that are about to wake the sender."""
        self._looks_at_ms = NEVER_MS
        """Time at which the sender looks next in any case."""

    def wake(self, wanted_ms: int) -> None:
        """Make the sender look by `wanted_ms`, after something was put into the mailbox.

        A wake-up may be left out because of this order: the sender (1) calls `begin_look`, (2)
        empties the mailbox, (3) calls `end_look`. A thread that reads an early time, or True for
        `_is_woken`, put its message in before (2), or before a look that is still to come.
        """
        if wanted_ms >= self._looks_at_ms:
            return
        me = get_ident()
        # A handler that interrupts between the mark and the wake-up may wait for the sender.
        if not self._is_woken or me in self._waking:
            try:
                self._waking.add(me)
                self._is_woken = True
                self._wakeup()
            except BaseException:  # an interrupt: no later call would wake it, since it is marked
                self._wakeup()
                raise
            finally:
                self._waking.discard(me)

    def begin_look(self) -> None:
        """Make every later message wake the sender. Sender thread."""
        self._is_woken = False
        self._looks_at_ms = NEVER_MS

    def end_look(self, next_look_ms: int) -> None:
        self._looks_at_ms = next_look_ms
