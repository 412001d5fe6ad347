"""ProducerCore: builds the parts of a producer, and implements its calls.

It has no clock and no thread; `waiting` makes an application thread wait.

Owner: methods run in any thread; the work that they post runs in the sender thread.
Source: Java class ``KafkaProducer``, methods ``doSend`` and ``waitOnMetadata``.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, nullcontext
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING

from pykclient.accel import Gate
from pykclient.arguments import check_callable
from pykclient.errors import (
    BufferExhaustedError,
    ClosedError,
    ForkedClientError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    TransactionStateError,
    UsageError,
)
from pykclient.network.broker.client import NetworkClient
from pykclient.network.broker.errors import both
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.coordinators import Coordinators
from pykclient.network.engine import Engine
from pykclient.network.log import ClientLog, LongWaits
from pykclient.network.manager import NEVER_MS, Operation
from pykclient.network.retry import Backoff
from pykclient.producer.accumulator.accumulator import RecordAccumulator
from pykclient.producer.accumulator.append import Blocked, Need
from pykclient.producer.accumulator.buffer_pool import BufferPool, MemoryWaiter
from pykclient.producer.failure_reports import FailureReports
from pykclient.producer.interceptors import ProducerInterceptors
from pykclient.producer.metrics import CallMetrics, Memory, Wait
from pykclient.producer.partitioner import (
    checked_partition,
    chooses_each_record,
    partition_function,
)
from pykclient.producer.record import ProducerRecord
from pykclient.producer.sender.idempotence import Idempotence
from pykclient.producer.sender.lifecycle import Lifecycle
from pykclient.producer.sender.sender import Sender
from pykclient.producer.sender.transactions import Transactions
from pykclient.producer.serializers import RecordSerializer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pykclient.accel import Delivery, TopicAppenders
    from pykclient.accel.abc import HeadersInput, OnDelivery, SendSlowly
    from pykclient.metrics import MetricName
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.network.io.port import Port
    from pykclient.network.manager import Manager, UserCall
    from pykclient.producer.accumulator.append import AppendedRows
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.delivery import Waiting
    from pykclient.producer.record import RecordMetadata, Rows, SerializedRecord


REFUSALS = (
    ClosedError,
    ForkedClientError,
    SerializationError,
    TransactionAbortableError,
    TransactionStateError,
)
"""Errors of `send` that do not fail an open transaction. Java's ``doSend`` does not fail one for a
serializer's error either."""

LOOK_AGAIN_S = 1.0
"""Interval at which `flush` on a closing producer checks whether records are left."""

WAIT_S_MAX = 3600.0
"""Interval at which an unlimited wait checks its condition."""


class ProducerCore:
    """See the module. `topics` holds the open batches for `send`.

    `clock_ms` is the monotonic clock in milliseconds, `clock_ns` the same one in nanoseconds,
    `wall_clock_ns` nanoseconds since 1970.
    """

    transactions: Transactions | None = None

    def __init__(
        self,
        config: ProducerConfig,
        *,
        port: Port,
        waiting: Waiting,
        clock_ms: Callable[[], int],
        clock_ns: Callable[[], int],
        wall_clock_ns: Callable[[], int],
    ) -> None:
        self.config = config
        self.port = port
        self.waiting = waiting
        self.topics: dict[object, TopicAppenders[RecordMetadata]] = {}
        self._clock_ms = clock_ms
        self.calls = CallMetrics(config, clock_ns)
        self._long_waits = LongWaits(ClientLog("pykclient.producer", config.client_id))
        self._waiting_for_memory: set[int] = set()
        self.wall_clock_ms: Callable[[], int] = lambda: wall_clock_ns() // 1_000_000
        self.serializer = RecordSerializer(config, self.wall_clock_ms)
        self.interceptors = ProducerInterceptors.from_setting(
            config.interceptors, clock_ms=clock_ms, client_id=config.client_id
        )
        self.partitioner = partition_function(config.partitioner)
        self.metadata = Metadata(
            config, allow_auto_topic_creation=True, topic_idle_ms=config.metadata_max_idle_ms
        )
        self.client = NetworkClient(
            config,
            port,
            self.metadata,
            max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
        )
        self.pool = BufferPool(config.buffer_memory)
        self.reports = FailureReports(config.client_id, clock_ms)
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.accumulator = RecordAccumulator(
            config,
            self.pool,
            reports=self.reports,
            waiting=waiting,
            clock_ms=clock_ms,
            wakeup=port.wakeup,
            random=backoff.random,
            fast_topics=self.topics if self._is_plain() else None,
        )
        if chooses_each_record(config):
            self.partitioner = self._next_choice
        self.lifecycle = Lifecycle(
            *(self.topics, self.pool, self.accumulator, self.interceptors, self.reports),
            config.client_id,
        )
        self.metadata.add_listener(self.accumulator.on_cluster)
        self.metadata.add_listener(lambda _: self.lifecycle.on_news())
        idempotence, managers_before, managers_after = self._sequences(backoff)
        user_calls: deque[UserCall] = deque()
        sender = self.lifecycle.sender = Sender(
            config,
            self.accumulator,
            client=self.client,
            metadata=self.metadata,
            idempotence=idempotence,
            backoff=backoff,
            reports=self.reports,
            user_calls=user_calls,
            on_failed=self.lifecycle.on_failed,
            transactions=self.transactions,
        )
        managers = [self.metadata, *managers_before, sender, *managers_after]
        self.engine = self.lifecycle.engine = Engine(self.client, managers, user_calls)

    def _is_plain(self) -> bool:
        """Return True if `send` may append to an open batch without calling user code."""
        is_own = not self.serializer.takes_bytes_only or self.partitioner is not None
        return not is_own and not self.interceptors

    def _sequences(
        self, backoff: Backoff
    ) -> tuple[Idempotence | None, tuple[Manager, ...], tuple[Manager, ...]]:
        """Return the keeper of sequence numbers, and the managers before and after the sender."""
        config, lifecycle = self.config, self.lifecycle
        if not config.enable_idempotence:
            return None, (), ()

        def on_failed(error: KafkaError, now_ms: int) -> None:
            lifecycle.sender.fail(error, now_ms)

        if config.transactional_id is None:
            idempotence = Idempotence(
                in_flight_max=config.max_in_flight_requests_per_connection,
                backoff=backoff,
                on_assigned=self.accumulator.look_at_all,
                on_failed=on_failed,
                client_id=config.client_id,
            )
            self.metadata.add_listener(idempotence.on_cluster)
            return idempotence, (idempotence,), ()
        coordinators = Coordinators(
            self.metadata, self.client, retry_backoff=backoff, client_id=config.client_id
        )
        transactions = self.transactions = lifecycle.transactions = Transactions(
            config,
            self.accumulator,
            client=self.client,
            coordinators=coordinators,
            backoff=backoff,
            withdraw=lambda error, now_ms: lifecycle.sender.withdraw_unsent(error, now_ms),
            on_fatal=on_failed,
        )
        self.metadata.add_listener(transactions.sequences.on_cluster)
        return transactions.sequences, (), (transactions, coordinators)

    @property
    def state(self) -> str:
        error = self.lifecycle.failure
        if error is None:
            return "open"
        return "closed" if isinstance(error, ClosedError) else f"ended by {error!r}"

    def metrics(self) -> dict[MetricName, float]:
        memory = Memory(self.pool.size_bytes, self.pool.free_bytes, len(self._waiting_for_memory))
        metadata_ms = self.metadata.updated_ms  # read before the clock: an age is not negative
        now_ms = self._clock_ms()
        return (
            self.lifecycle.sender.metrics.snapshot(now_ms, memory, metadata_ms=metadata_ms)
            | self.calls.snapshot(now_ms)
            | self.client.metrics(now_ms)
        )

    # Sending a record.

    @property
    def send_slowly(self) -> SendSlowly[RecordMetadata]:
        """Function that `send` calls for a record that it cannot append; it may wait."""
        return self._send_slowly

    def _send_slowly(
        self,
        topic: object,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersInput | None,
        on_delivery: OnDelivery[RecordMetadata] | None,
    ) -> Delivery[RecordMetadata]:
        self.lifecycle.check_usable()
        check_callable(on_delivery, "send: on_delivery", "metadata and error")
        try:
            if isinstance(topic, ProducerRecord) or self.interceptors:
                record = _record_of(topic, value, key, partition, timestamp_ms, headers)
                if self.interceptors:
                    return self._send_intercepted(record, on_delivery)
                return self.append(self.serialized(record, on_delivery))
            return self.append(
                self.serializer.serialize(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                    on_delivery=on_delivery,
                )
            )
        except RecordTooLargeError as error:
            self.on_not_accepted(error)
            raise

    def _send_intercepted(
        self, record: ProducerRecord[object, object], on_delivery: OnDelivery[RecordMetadata] | None
    ) -> Delivery[RecordMetadata]:
        record = self.interceptors.on_send(record)
        try:
            return self.append(self.serialized(record, self.interceptors.before(on_delivery)))
        except KafkaError as error:
            self.interceptors.on_not_sent([record], error)
            raise

    def serialized(
        self, record: ProducerRecord[object, object], on_delivery: OnDelivery[RecordMetadata] | None
    ) -> SerializedRecord:
        return self.serializer.serialize(
            record.topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
            on_delivery=on_delivery,
        )

    def append(
        self, record: SerializedRecord, *, record_count: int = 1
    ) -> Delivery[RecordMetadata]:
        """Append a record. If that fails, `record_count` records count as not sent."""
        deadline_ms: int | None = None
        if self.partitioner is not None and record.partition is None:
            if not self.has_partition(record.topic, None):
                deadline_ms = self.block_deadline_ms()
                self.await_topic_to_send(record.topic, deadline_ms)
            record = self.partitioned(record)
        try:
            appended = self.accumulator.append(record)
            while isinstance(appended, Blocked):
                if deadline_ms is None:
                    deadline_ms = self.block_deadline_ms()
                # `partial` rather than a closure: a closure's cell would cost every record.
                count_left = partial(int, record_count)
                with self._awaited(appended, record, deadline_ms, count_left) as memory:
                    appended = self.accumulator.append(record, memory)
        except BaseException as error:  # includes an interrupt of the wait
            self.on_not_accepted(error)
            raise
        return appended

    def on_not_accepted(self, error: BaseException) -> None:
        """Make the open transaction abortable: it lacks a record that `send` could not accept.

        Not if the record was refused for its content, or because none is accepted now.
        """
        if self.transactions is not None and not isinstance(error, REFUSALS):
            self.accumulator.acceptance.fail(error)

    def append_rows(self, rows: Rows, count_left: Callable[[], int]) -> AppendedRows:
        """Append as many rows as fit into one batch. The caller reports errors to the transaction.

        `count_left` returns the number of records that count as not sent if it fails.
        """
        appended = self.accumulator.append(rows)
        while isinstance(appended, Blocked):
            deadline_ms = self.block_deadline_ms()
            with self._awaited(appended, rows, deadline_ms, count_left) as memory:
                appended = self.accumulator.append(rows, memory)
        return appended

    def _awaited(
        self,
        blocked: Blocked,
        item: SerializedRecord | Rows,
        deadline_ms: int,
        count_left: Callable[[], int],
    ) -> AbstractContextManager[MemoryWaiter | None]:
        """Wait for metadata or memory, whichever is missing."""
        if blocked.need is Need.MEMORY:
            return self._memory(item.topic, blocked.size_bytes, deadline_ms, count_left)
        self.await_topic(item.topic, item.partition, deadline_ms)
        return nullcontext()

    # Partitioners that are called for each record: custom ones, round_robin and random.

    def partitioned(self, record: SerializedRecord) -> SerializedRecord:
        """Return the record with the partitioner's choice. The topic must be known."""
        partition = self.choose_partition(record.topic, record.key, record.value)
        return record._replace(partition=partition)

    def choose_partition(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        assert self.partitioner is not None
        partitions = self.metadata.cluster.partitions_for(topic)
        if not partitions:  # a broker with stale metadata has dropped the topic
            self.await_topic_to_send(topic, self.block_deadline_ms())
            partitions = self.partitions_for(topic)
        chosen = self.partitioner(topic, key, value, partitions)
        return checked_partition(chosen, topic, len(partitions))

    def _next_choice(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: tuple[PartitionInfo, ...],
    ) -> int:
        """Choose as the fast path of `send` does: round_robin and random."""
        chosen = self.accumulator.next_choice(topic)
        return chosen if 0 <= chosen < len(partitions) else partitions[0].partition

    # Waiting for metadata.

    def now_ms(self) -> int:
        return self._clock_ms()

    def block_deadline_ms(self) -> int:
        """Return the deadline of a call that begins now."""
        return min(self._clock_ms() + self.config.max_block_ms, NEVER_MS)

    def partitions_for(
        self, topic: str, timeout_ms: int | None = None
    ) -> tuple[PartitionInfo, ...]:
        deadline_ms = self.block_deadline_ms()
        if timeout_ms is not None:
            deadline_ms = min(self._clock_ms() + timeout_ms, NEVER_MS)
        while True:
            partitions = self.metadata.cluster.partitions_for(topic)
            if partitions:
                return partitions
            self.await_topic(topic, None, deadline_ms, timeout_ms)

    def has_partition(self, topic: str, partition: int | None) -> bool:
        count = self.accumulator.partition_count(topic)
        if self.partitioner is not None and not self.metadata.cluster.partitions_for(topic):
            return False  # a partitioner needs the partitions, not only their number
        return count is not None and (partition is None or partition < count)

    def await_topic_to_send(
        self, topic: str, deadline_ms: int, partition: int | None = None
    ) -> None:
        """Wait as `await_topic` does; on failure make the open transaction abortable."""
        try:
            self.await_topic(topic, partition, deadline_ms)
        except BaseException as error:
            self.on_not_accepted(error)
            raise

    def await_topic(
        self, topic: str, partition: int | None, deadline_ms: int, timeout_ms: int | None = None
    ) -> None:
        """Wait for a topic's metadata. `timeout_ms` is for the error; None: `max_block_ms`."""
        self._check_may_wait(f"metadata of topic {topic!r}")
        requested_version = self.metadata.cluster.version
        before = self.metadata.cluster.topic_errors.get(topic)
        fatal_count = self.metadata.fatal_count
        self.want_topic(topic)
        wait = self._long_waits.begin(
            f"topic {topic!r}" if partition is None else f"partition {topic}-{partition}",
            lambda: self._why_not_known(topic, partition),
            self._clock_ms(),
        )
        waiters = self.lifecycle.waiters
        while True:
            gate = Gate()
            try:
                waiters[gate] = None
                self.lifecycle.check_usable()
                if self.has_partition(topic, partition):
                    return
                error = self._final_topic_error(topic, before, fatal_count)
                if error is not None:
                    raise error.with_traceback(None)
                started_ms = self._clock_ms()
                if started_ms >= deadline_ms:
                    raise self._no_metadata(topic, partition, timeout_ms)
                if self.metadata.cluster.version > requested_version:
                    requested_version = self.metadata.cluster.version
                    self.want_topic(topic)  # the response did not have it; the next one may
                wait_s = max(0, wait.until_ms(deadline_ms) - started_ms) / 1000
                with self.calls.waiting(Wait.METADATA):
                    self.waiting.await_gate(gate, wait_s, "send(), which waits for metadata,")
            finally:
                waiters.pop(gate, None)
            wait.look(self._clock_ms())

    def want_topic(self, topic: str) -> None:
        def request(now_ms: int) -> None:
            self.metadata.add_topic(topic, now_ms)
            self.metadata.request_update()

        self.engine.post(request)

    def _final_topic_error(
        self, topic: str, before: KafkaError | None, fatal_count: int
    ) -> KafkaError | None:
        """Return why waiting for a topic is useless, None if it is not.

        Such an error is newer than `before`, the topic's error when the wait began, or was found
        fatal since `fatal_count`.
        """
        fatal_error = self.metadata.fatal_since(fatal_count)
        if fatal_error is not None:
            return fatal_error
        error = self.metadata.cluster.topic_errors.get(topic)
        if error is None or error is before or error.retriable:
            return None
        return error

    def _no_metadata(
        self, topic: str, partition: int | None, timeout_ms: int | None
    ) -> KafkaTimeoutError:
        waited = f"{self.config.max_block_ms} ms (max_block_ms)"
        if timeout_ms is not None:
            waited = f"{timeout_ms} ms"
        missing = self._why_no_partition(topic, partition)
        if missing:
            return KafkaTimeoutError(f"{missing}, also after waiting {waited} for one to be added")
        reason, cause = self._why_no_metadata(topic)
        error = KafkaTimeoutError(f"no metadata of topic {topic!r} within {waited}: {reason}")
        error.__cause__ = cause
        return error

    def _why_not_known(self, topic: str, partition: int | None) -> str:
        """Return why a partition, or with None the topic, is not known."""
        return self._why_no_partition(topic, partition) or self._why_no_metadata(topic)[0]

    def _why_no_partition(self, topic: str, partition: int | None) -> str:
        """Return which partitions a topic has instead; empty if the topic itself is unknown."""
        count = self.accumulator.partition_count(topic)
        if count is None:
            return ""
        return f"topic {topic!r} has no partition {partition}, only 0 to {count - 1}"

    def _why_no_metadata(self, topic: str) -> tuple[str, KafkaError | None]:
        """Return why a topic is unknown, in words and, if there is one, as an error."""
        cause: KafkaError | None = self.metadata.cluster.topic_errors.get(topic)
        if cause is not None:
            how = "create the topic, or set auto.create.topics.enable on the brokers"
            return f"{cause}; {how}", cause
        failures = self.client.describe_failures()
        if failures:
            return f"no broker could be reached: {failures}", None
        cause = self.metadata.last_error
        return str(cause or "the brokers have not responded yet"), cause

    # Waiting for memory.

    @contextmanager
    def _memory(
        self, topic: str, size_bytes: int, deadline_ms: int, count_left: Callable[[], int]
    ) -> Iterator[MemoryWaiter]:
        """Wait for memory. Memory not used in the context is released."""
        try:
            self._check_may_wait(f"{size_bytes} bytes of memory")
        except BufferExhaustedError:
            self.calls.on_exhausted(count_left())
            raise
        gate = Gate()
        waiter = MemoryWaiter(size_bytes, gate.open)
        me = get_ident()
        try:
            self._waiting_for_memory.add(me)
            self.pool.wait_for(waiter)
            self.accumulator.want_memory()
            if not self._await_memory(gate, waiter, deadline_ms):
                self.calls.on_exhausted(count_left())
                raise BufferExhaustedError(
                    both(
                        f"no memory for a record of topic {topic!r}, which needs {size_bytes} "
                        f"bytes, within {self.config.max_block_ms} ms (max_block_ms): "
                        f"buffer_memory is {self.pool.size_bytes}, all taken by records that are "
                        f"not delivered yet",
                        self.client.describe_failures(),
                    )
                ) from self.client.refusal()
            self.lifecycle.check_usable()
            yield waiter
        finally:
            self._waiting_for_memory.discard(me)
            self.pool.give_up(waiter)

    def _await_memory(self, gate: Gate, waiter: MemoryWaiter, deadline_ms: int) -> bool:
        wait = self._long_waits.begin(
            f"{waiter.size_bytes} bytes of memory",
            lambda: (
                f"buffer_memory is {self.pool.size_bytes}, all taken by records that are not "
                f"delivered yet. {self.client.describe_failures()}"
            ),
            self._clock_ms(),
        )
        while True:
            started_ms = self._clock_ms()
            wait_s = max(0, wait.until_ms(deadline_ms) - started_ms) / 1000
            with self.calls.waiting(Wait.MEMORY):
                is_opened = self.waiting.await_gate(gate, wait_s, "send(), which waits for memory,")
            if is_opened:
                return True
            if waiter.is_granted or started_ms >= deadline_ms:
                return waiter.is_granted
            wait.look(self._clock_ms())

    def _check_may_wait(self, what: str) -> None:
        if self.waiting.is_current():
            raise BufferExhaustedError(
                f"send() in a delivery callback would have to wait for {what}, which is not "
                f"possible while the callback runs; send from another thread"
            )
        self.waiting.check_may_wait(f"send(), which has to wait for {what},")
        if get_ident() in self._waiting_for_memory:
            raise UsageError(
                f"send() was called by a signal handler or destructor that interrupted a send() "
                f"waiting for memory, and would have to wait for {what} behind it"
            )

    # Purging and flushing.

    def purge(self, *, is_queued_wanted: bool, is_in_flight_wanted: bool) -> int:
        if self.waiting.is_current():
            raise UsageError("purge() in a delivery callback would wait for itself")
        self.waiting.check_may_wait("purge()")  # before it has an effect
        operation: Operation[int] = Operation()

        def purge(now_ms: int) -> None:
            operation.succeed(
                self.lifecycle.sender.purge(
                    now_ms,
                    is_queued_wanted=is_queued_wanted,
                    is_in_flight_wanted=is_in_flight_wanted,
                )
            )
            self.lifecycle.on_news()

        self.engine.post(purge)
        waiters = self.lifecycle.waiters
        while True:
            gate = Gate()
            try:
                waiters[gate] = None
                if operation.is_done:
                    return operation.result()
                if self.lifecycle.is_over:  # closed meanwhile: nothing is left
                    return 0
                self.waiting.await_gate(gate, WAIT_S_MAX, "purge()")
            finally:
                waiters.pop(gate, None)

    def flush(self, wait_ms: int) -> None:
        if self.waiting.is_current():
            raise UsageError("flush() in a delivery callback would wait for itself")
        self.waiting.check_may_wait("flush()")  # before it has an effect
        gate = Gate()
        operation: Operation[None] = Operation()
        operation.on_done(lambda _: gate.open())
        try:
            with self.calls.waiting(Wait.FLUSH):
                self.accumulator.flush(operation)
                is_opened = self._await_flush(gate, wait_ms)
            if not is_opened:
                raise self._not_flushed(wait_ms)
        except BaseException:  # includes an interrupt; failed flushes must not pile up
            self.engine.post(lambda _: self.accumulator.forget_flush(operation))
            raise
        operation.result()

    def await_closed(self, wait_ms: int) -> None:
        """Wait until a closing or closed producer has no records under way."""
        deadline_ms = self._clock_ms() + wait_ms
        waiters = self.lifecycle.waiters
        while not self.lifecycle.is_over and self.accumulator.left():
            if self.waiting.is_current():
                raise UsageError("flush() in a delivery callback would wait for itself")
            remaining_ms = deadline_ms - self._clock_ms()
            if remaining_ms < 0:
                raise self._not_flushed(wait_ms)
            gate = Gate()
            try:
                waiters[gate] = None
                if not self.lifecycle.is_over:
                    wait_s = min(remaining_ms / 1_000, LOOK_AGAIN_S)
                    self.waiting.await_gate(gate, wait_s, "flush()")
            finally:
                waiters.pop(gate, None)

    def _not_flushed(self, wait_ms: int) -> KafkaTimeoutError:
        return KafkaTimeoutError(
            both(
                f"flush: not everything was delivered within {wait_ms} ms; the rest is still under "
                f"way",
                self.client.describe_failures(),
            )
        )

    def _await_flush(self, gate: Gate, wait_ms: int) -> bool:
        deadline_ms = self._clock_ms() + wait_ms
        limit_ms = min(wait_ms, self.config.delivery_timeout_ms)
        notice = self.lifecycle.long_close("flush", self._clock_ms(), limit_ms)
        for until_ms in dict.fromkeys((notice.until_ms(deadline_ms), deadline_ms)):
            wait_s = max(0, until_ms - self._clock_ms()) / 1_000
            if self.waiting.await_gate(gate, wait_s, "flush()"):
                return True
            notice.look(self._clock_ms())
        return False


def _record_of(
    topic: object,
    value: object,
    key: object,
    partition: int | None,
    timestamp_ms: int | None,
    headers: HeadersInput | None,
) -> ProducerRecord[object, object]:
    if not isinstance(topic, ProducerRecord):
        return ProducerRecord(
            topic,  # type: ignore[arg-type]  # checked together with the others
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers or (),
        )
    if any(field is not None for field in (value, key, partition, timestamp_ms, headers)):
        raise UsageError(
            "send(ProducerRecord) takes all fields from the record; only on_delivery may be added"
        )
    return topic
