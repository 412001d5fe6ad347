"""RecordAccumulator: records that wait to be sent, in batches, by partition.

Each partition has a queue of batches; only the last one may be open. `OpenBatches` is the half that
application threads use, this class the sender thread's half. The cost of a step does not depend on
the number of partitions.

Owner: a queue's `open` changes under its lock. The sender thread owns everything else, except where
a method says that any thread may call it. The sender thread never waits long for a lock: it skips a
queue whose lock it does not get, and looks at it again a moment later.
Source: Java class ``RecordAccumulator``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from pykclient.producer.accumulator.acceptance import Acceptance
from pykclient.producer.accumulator.append import OpenBatches
from pykclient.producer.accumulator.batch import BatchState
from pykclient.producer.accumulator.queues import TopicTable
from pykclient.producer.accumulator.ready import ReadyQueues
from pykclient.producer.delivery import ResultState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from pykclient.accel import TopicAppenders
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.manager import Operation
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.accumulator.buffer_pool import BufferPool
    from pykclient.producer.accumulator.queues import PartitionQueue
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.failure_reports import FailureReports
    from pykclient.producer.record import RecordMetadata
    from pykclient.types import TopicPartition

HELD_LOOK_MS = 50
"""Time after which the sender looks again at a queue whose lock an interrupted thread holds."""


class RecordAccumulator:
    """The queues of all partitions.

    `clock_ms` is the monotonic clock; `wakeup` wakes the sender thread. `send` finds appenders by
    topic in `fast_topics`; None sends every record through `send_slowly`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        pool: BufferPool,
        *,
        reports: FailureReports,
        waiting: Waiting,
        clock_ms: Callable[[], int],
        wakeup: Callable[[], None],
        random: Random,
        fast_topics: dict[object, TopicAppenders[RecordMetadata]] | None = None,
    ) -> None:
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._pool = pool
        self._clock_ms = clock_ms
        self._ready = ReadyQueues(self._may_linger)
        self._topics = TopicTable(config, random, fast_topics)
        self._open_batches = OpenBatches(
            config,
            self._topics,
            pool=pool,
            reports=reports,
            waiting=waiting,
            clock_ms=clock_ms,
            wakeup=wakeup,
        )
        self._mailbox = self._open_batches.mailbox
        self.acceptance = Acceptance()
        # Bound directly: a forwarding method would cost a call per record.
        self.append = self._open_batches.append
        self.take_turn = self._open_batches.take_turn
        self.next_choice = self._topics.next_choice
        self._incomplete: OrderedDict[ProducerBatch, PartitionQueue] = OrderedDict()
        self._queues_waiting: dict[PartitionQueue, None] = {}
        self._unreported: set[ProducerBatch] = set()
        self._flushes = Flushes()
        self._held_look_ms = 0
        """Time to look again at a lock that was held; in the past if none is."""

    # Appending: any thread.

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None while it is unknown. Any thread."""
        queues = self._topics.get(topic)
        return None if queues is None else queues.sticky.partition_count

    @property
    def inside(self) -> set[int]:
        """The threads that must not wait for the sender thread. Any thread."""
        return self._open_batches.inside

    def want_memory(self) -> None:
        """Send every batch now, since a thread waits for memory. Any thread."""
        self._mailbox.is_memory_wanted = True
        self._mailbox.wake(0)

    def on_bulk_call_ended(self) -> None:
        """Wake the sender thread if it waits for bulk calls to end. Any thread."""
        if self._open_batches.closed_by is not None:
            self._mailbox.wake(0)

    def flush(self, operation: Operation[None]) -> None:
        """Send every batch that exists now; `operation` ends when all are done. Any thread.

        The callback of `operation` runs in the sender thread.
        """
        self._flushes.want(operation)
        self._mailbox.wake(0)

    # Ready queues: the sender thread, from here on.

    def on_cluster(self, cluster: Cluster) -> None:
        now_ms = self._clock_ms()
        for queue in self._topics.on_cluster(cluster, now_ms):
            self._follow(queue, now_ms)

    def on_slow_nodes(self, node_ids: frozenset[int]) -> None:
        """Set the nodes that sticky partitions avoid (KIP-794)."""
        self._topics.slow_node_ids = node_ids

    def look(self, now_ms: int) -> None:
        """Process messages from other threads and expired timers."""
        mailbox = self._mailbox
        mailbox.begin_look()
        # Before the batches below: a thread's flush covers the records that it sent before.
        wanted_flushes = self._flushes.take_wanted()
        if not self._open_batches.try_queue_aside():
            self._held_look_ms = now_ms + HELD_LOOK_MS
        while mailbox.created:
            queue, batch = mailbox.created.popleft()
            self._topics.keep(queue.topic)
            # It may have been drained and even acknowledged already, if its queue was ready anyway.
            if batch.state is not BatchState.DONE:
                self._incomplete[batch] = queue
                self._queues_waiting[queue] = None
            # Another thread may have made the queue while the metadata changed.
            self._follow(queue, now_ms)
            self._ready.look_at(queue, now_ms)
        while mailbox.sealed:
            self._ready.look_at(mailbox.sealed.popleft(), now_ms)
        if wanted_flushes:
            for queue in self._queues_waiting:
                if queue.waiting:
                    queue.forced_serial = queue.waiting[-1].serial
            aside = [batch for _, batch in list(mailbox.aside)]
            batches = [*self._incomplete, *self._unreported, *aside]
            self._flushes.begin(wanted_flushes, batches)
            self.look_at_all(now_ms)
        if mailbox.is_memory_wanted:
            mailbox.is_memory_wanted = False
            self.look_at_all(now_ms)
        self._ready.look_at_due(now_ms)
        mailbox.end_look(self._held_look_ms if mailbox.aside else self._ready.next_timer_ms())

    def next_look_ms(self) -> int:
        """Return when to call `look` or `overdue` again."""
        due_ms = self._ready.next_timer_ms()
        if self._incomplete:
            oldest = next(iter(self._incomplete))
            due_ms = min(due_ms, oldest.created_ms + self._delivery_timeout_ms)
        return self._held_look_ms if self._mailbox.aside else max(due_ms, self._held_look_ms)

    def look_at(self, partition: TopicPartition, now_ms: int) -> None:
        """Look again at a queue that `drain` skipped, since it may be possible to send from it."""
        queue = self._topics.find_queue(partition)
        if queue is not None:
            self._ready.look_at(queue, now_ms)

    def look_at_all(self, now_ms: int) -> None:
        for queue in self._queues_waiting:
            self._ready.look_at(queue, now_ms)

    def ready_node_ids(self) -> list[int]:
        return self._ready.node_ids()

    def leaderless_topics(self) -> set[str]:
        return {queue.key.topic for queue in self._ready.led_by(None)}

    def _follow(self, queue: PartitionQueue, now_ms: int) -> None:
        """Update a queue's leader from the metadata."""
        leader = queue.topic.leader(queue.key.partition)
        if leader != queue.leader:
            self._ready.remove(queue)
            queue.leader = leader
            self._ready.look_at(queue, now_ms)

    def _may_linger(self) -> bool:
        return self._open_batches.closed_by is None and not self._pool.has_waiters

    # Removing and requeueing.

    def drain(
        self,
        node_id: int,
        now_ms: int,
        *,
        size_bytes_max: int,
        may_send: Callable[[ProducerBatch], bool],
    ) -> list[ProducerBatch]:
        """Remove batches for one request to a node: at most one per partition, as Kafka requires.

        Their total size is at most `size_bytes_max`, except that the first batch always fits. A
        queue in which `may_send` accepts no batch is skipped until `look_at`.
        """
        batches: list[ProducerBatch] = []
        size_bytes = 0
        for queue in self._ready.led_by(node_id):
            index = _next_index(queue.waiting, may_send)
            if index is None:
                self._ready.remove(queue)
                continue
            batch = queue.waiting[index]
            if index and batch.attempt_count and batch.retry_due_ms(queue.leader) > now_ms:
                self._ready.remove(queue)
                self._ready.look_later(queue, batch.retry_due_ms(queue.leader))
                continue
            if not self._open_batches.try_seal(queue, batch):
                self._ready.remove(queue)
                self._ready.look_later(queue, now_ms + HELD_LOOK_MS)
                continue
            if batches and size_bytes + batch.size_bytes > size_bytes_max:
                break  # the others come first next time
            del queue.waiting[index]
            self._ready.remove(queue)
            batch.on_sent(queue.leader)
            queue.in_flight_count += 1
            self._topics.keep(queue.topic)  # `look` may not have seen the batch yet
            batches.append(batch)
            size_bytes += batch.size_bytes
            self._after_removal(queue, now_ms)
        return batches

    def in_flight_count(self, partition: TopicPartition) -> int:
        return self._topics.queue(partition).in_flight_count

    def requeue(self, batch: ProducerBatch) -> None:
        """Put a batch back that is to be retried, before all later batches."""
        queue = self._topics.queue(batch.partition)
        # No lock needed: meanwhile other threads only append at the end.
        position = sum(1 for _ in _older(list(queue.waiting), batch))
        queue.waiting.insert(position, batch)
        self._queues_waiting[queue] = None

    def split(self, batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
        """Replace a batch that was too large by two (KIP-126); return those."""
        queue = self._topics.queue(batch.partition)
        parts = batch.split(queue.append_lock)
        self._incomplete.pop(batch, None)
        for part in reversed(parts):
            self._incomplete[part] = queue
            self._incomplete.move_to_end(part, last=False)
            self.requeue(part)
        # The parts are as old as the whole: older batches stay before them.
        older = [other for other in self._incomplete if other.created_ms < batch.created_ms]
        for other in reversed(older):
            self._incomplete.move_to_end(other, last=False)
        self._flushes.on_split(batch, parts)
        self._pool.divide(batch, parts)
        self._pool.release_if_over(batch)
        return parts

    def on_request_ended(self, batch: ProducerBatch) -> None:
        batch.is_in_request = False
        self._topics.queue(batch.partition).in_flight_count -= 1
        self._pool.release_if_over(batch)

    def finish(self, batch: ProducerBatch) -> None:
        assert batch.state is BatchState.DONE
        self._incomplete.pop(batch, None)
        self._unreported.add(batch)
        self._pool.release_if_over(batch)

    def on_reported(self, batch: ProducerBatch) -> None:
        """Handle a batch whose result was reported and whose callbacks have run."""
        self._unreported.discard(batch)
        self._flushes.on_done(batch)

    def forget_flush(self, operation: Operation[None]) -> None:
        self._flushes.forget(operation)

    def fail_flushes(self, error: KafkaError) -> None:
        self._flushes.fail(error)

    def withdraw(
        self, now_ms: int, *, is_queued_wanted: bool, is_in_flight_wanted: bool
    ) -> list[ProducerBatch]:
        """Remove and return the batches that wait, those in flight, or both.

        A batch that an interrupted thread holds open stays.
        """
        self.look(now_ms)
        batches = [
            batch
            for batch in self._incomplete
            if (is_in_flight_wanted if batch.state is BatchState.IN_FLIGHT else is_queued_wanted)
        ]
        return [batch for batch in batches if self._try_withdraw(batch, now_ms)]

    def overdue(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return expired batches, oldest first, those in flight included."""
        batches = list(self._overdue(now_ms))
        return [batch for batch in batches if self._try_withdraw(batch, now_ms)]

    def has_overdue_in_flight(self, now_ms: int) -> bool:
        return any(batch.state is BatchState.IN_FLIGHT for batch in self._overdue(now_ms))

    def _overdue(self, now_ms: int) -> Iterator[ProducerBatch]:
        latest_ms = now_ms - self._delivery_timeout_ms
        return takewhile(lambda batch: batch.created_ms <= latest_ms, self._incomplete)

    # Closing.

    def close(self, error: KafkaError, now_ms: int) -> None:
        """Refuse further records with `error`, and send all that wait."""
        self._open_batches.close(error)
        self.look(now_ms)
        self.look_at_all(now_ms)

    def pause(self, error: KafkaError) -> None:
        """Refuse further records with `error` until `resume`. No effect after `close`."""
        self._open_batches.pause(error)

    def resume(self) -> None:
        self._open_batches.resume()

    def withdraw_unsent(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return the batches that no request carries. Requires `pause`.

        Call it until the accumulator `is_empty`, as `withdraw_all`.
        """
        assert self._open_batches.closed_by is not None
        self.look(now_ms)
        unsent = [b for b in self._incomplete if b.state is not BatchState.IN_FLIGHT]
        return [batch for batch in unsent if self._try_withdraw(batch, now_ms)]

    def withdraw_all(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return every batch that is not done. Requires `close`.

        Call it until the accumulator `is_empty`: a batch may be held open, or come later.
        """
        assert self._open_batches.closed_by is not None
        self.look(now_ms)
        batches = list(self._incomplete)
        return [batch for batch in batches if self._try_withdraw(batch, now_ms)]

    def abandon(self, error: KafkaError) -> list[Callable[[], None]]:
        """Fail every record; return the callbacks to run.

        Used when the sender thread itself has failed: it relies on little, and leaves the queues as
        they are.
        """
        self._open_batches.close(error)
        came = [*list(self._mailbox.created), *list(self._mailbox.aside)]
        batches = [*self._incomplete, *(batch for _, batch in came)]
        self._flushes.fail(error)
        calls = []
        for batch in batches:
            if batch.result.state is ResultState.PENDING:
                batch.appender.seal()
                batch.result.fail(error)
                calls.append(batch.result.take_call())
        return [call for call in calls if call is not None]

    @property
    def is_empty(self) -> bool:
        """True if all batches are done and reported and no thread can add another one.

        A thread that entered before `close` still can.
        """
        if list(self._open_batches.inside):
            return False
        mailbox = self._mailbox
        return not (self._incomplete or mailbox.created or mailbox.aside or self._unreported)

    def left(self) -> dict[TopicPartition, int]:
        """Return the number of unfinished records by partition.

        Any thread. Concurrent changes by the sender thread may or may not be counted.
        """
        counts: dict[TopicPartition, int] = {}
        came = [*list(self._mailbox.created), *list(self._mailbox.aside)]
        for batch in {*list(self._incomplete), *(batch for _, batch in came)}:
            if batch.state is not BatchState.DONE:
                appender = getattr(batch, "appender", None)  # none once the batch is done
                count = batch.record_count or (0 if appender is None else appender.count)
                counts[batch.partition] = counts.get(batch.partition, 0) + count
        return counts

    def _try_withdraw(self, batch: ProducerBatch, now_ms: int) -> bool:
        """Remove a batch from its queue; return False while an interrupted thread holds it open."""
        if batch.state is BatchState.IN_FLIGHT:
            return True
        queue = self._incomplete[batch]
        if not self._open_batches.try_seal(queue, batch):
            self._held_look_ms = now_ms + HELD_LOOK_MS
            return False
        queue.waiting.remove(batch)
        self._ready.remove(queue)
        self._after_removal(queue, now_ms)
        return True

    def _after_removal(self, queue: PartitionQueue, now_ms: int) -> None:
        if queue.waiting:
            self._ready.look_at(queue, now_ms)
        else:
            self._queues_waiting.pop(queue, None)


def _older(batches: Iterable[ProducerBatch], batch: ProducerBatch) -> Iterator[ProducerBatch]:
    return takewhile(lambda other: other.serial < batch.serial, batches)


class _Flush(NamedTuple):
    operation: Operation[None]
    batches: set[ProducerBatch]


class Flushes:
    """All flushes that are requested or under way.

    Source: Java classes ``RecordAccumulator.awaitFlushCompletion``, ``IncompleteBatches``.
    """

    def __init__(self) -> None:
        self._wanted: deque[Operation[None]] = deque()
        self._under_way: list[_Flush] = []
        self._failed_by: KafkaError | None = None

    def want(self, operation: Operation[None]) -> None:
        """Request a flush; fail it at once after `fail`. Any thread."""
        self._wanted.append(operation)
        if self._failed_by is not None:
            self._fail_wanted(self._failed_by)

    def take_wanted(self) -> list[Operation[None]]:
        """Remove and return the requested flushes, for `begin`.

        Call it before gathering the batches to wait for: the requesting thread has queued all of
        its batches by then.
        """
        taken = []
        while True:
            try:
                taken.append(self._wanted.popleft())
            except IndexError:  # `want` may remove them at the same time
                return taken

    def begin(
        self, operations: Iterable[Operation[None]], batches: Iterable[ProducerBatch]
    ) -> None:
        """Begin flushes from `take_wanted`; they end when all `batches` are done."""
        waited_for = set(batches)
        for operation in operations:
            if self._failed_by is not None:
                operation.fail(self._failed_by)
            else:
                self._under_way.append(_Flush(operation, set(waited_for)))
        self._end()

    def on_done(self, batch: ProducerBatch) -> None:
        for flush in self._under_way:
            flush.batches.discard(batch)
        self._end()

    def on_split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        for flush in self._under_way:
            if batch in flush.batches:
                flush.batches.discard(batch)
                flush.batches.update(parts)

    def forget(self, operation: Operation[None]) -> None:
        """Drop a flush whose caller has stopped waiting. Its operation does not end."""
        self._under_way = [flush for flush in self._under_way if flush.operation is not operation]

    def fail(self, error: KafkaError) -> None:
        """Fail every flush, and every later one."""
        self._failed_by = error
        self._fail_wanted(error)
        for flush in self._under_way:
            flush.operation.fail(error)
        self._under_way.clear()

    def _fail_wanted(self, error: KafkaError) -> None:
        for operation in self.take_wanted():
            operation.fail(error)

    def _end(self) -> None:
        if not self._under_way:
            return
        for flush in self._under_way:
            if not flush.batches:
                flush.operation.succeed(None)
        self._under_way = [flush for flush in self._under_way if flush.batches]


def _next_index(
    waiting: deque[ProducerBatch], may_send: Callable[[ProducerBatch], bool]
) -> int | None:
    """Return the index of the first batch that may be sent now; None if none may.

    This is batch 0, unless its sequence number blocks it. Then a later batch with a sequence number
    may have to be resolved first. A batch without a number waits for all before it, since its
    number follows theirs.
    """
    # By index: an application thread may append a batch at any time.
    for index in range(len(waiting)):
        if index and not waiting[index].has_sequence:
            break
        if may_send(waiting[index]):
            return index
    return None
