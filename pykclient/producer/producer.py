"""Producer: the blocking front-end. It adds to `ProducerCore` what waits.

It is *open*, *closing* and *closed*. A record that can be appended at once never comes here; `send`
waits here for metadata and for memory, `flush` and `close` for the sender thread.

Owner: any thread may call anything. The sender thread may call everything that does not wait.
Source: Java class ``KafkaProducer``.
"""

from __future__ import annotations

import threading
import time
import warnings
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, overload

from pykclient.arguments import FOREVER_MS, check_callable, check_topic
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.errors import (
    BufferExhaustedError,
    ForkedClientError,
    KafkaError,
    KafkaTimeoutError,
    UsageError,
)
from pykclient.network.drive import now_ms
from pykclient.network.gate import Gate
from pykclient.network.io.selector import SelectorPort
from pykclient.network.log import ClientLog, LongWaits
from pykclient.network.manager import NEVER_MS, Operation
from pykclient.producer.accumulator.append import Blocked, Need
from pykclient.producer.accumulator.buffer_pool import MemoryWaiter
from pykclient.producer.bulk.producer import BulkProducer
from pykclient.producer.config import ProducerConfig
from pykclient.producer.record import ProducerRecord, RecordMetadata
from pykclient.producer.sender.thread import SenderThread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from pykclient.accel import Delivery
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.record import SerializedRecord

__all__ = ["Producer"]

END_GRACE_S = 1.0
"""How long `close` waits, beyond its own time, for the sender thread to tell what it gave up."""


class Producer(BulkProducer):
    """Sends records. Any number of threads may use one producer, and should: it batches better.

    ``producer.send(topic, value, key, partition=, timestamp_ms=, headers=, on_delivery=)`` or
    ``producer.send(ProducerRecord(...), on_delivery=)`` appends a record to a batch and returns its
    `Delivery`, in general without waiting. `key` and `value` are bytes or None, or what the
    configured serializers take. Without a partition, the partitioner chooses: by the key's hash as
    Java does, or one partition after the other for records without a key. ``timestamp_ms`` is in
    milliseconds since 1970, None for now; ``headers`` are pairs of a name and bytes or None.
    ``on_delivery(metadata, error)`` is called once the record is delivered or has failed, in the
    sender thread, in the order in which a partition's records were sent; `metadata` has no offset
    when there is an `error`. It must not wait: a `send` in it that would have to raises
    `BufferExhaustedError`.

    `send` waits up to ``max_block_ms`` for metadata of a topic it does not know, and for memory
    when ``buffer_memory`` is used up. It raises:

    - `ClosedError`, `ForkedClientError`: the producer was closed, or is another process's.
    - `SerializationError`: a serializer failed, or something is not bytes and has none.
    - `RecordTooLargeError`: more than ``max_request_size`` or ``buffer_memory`` allow.
    - `KafkaTimeoutError`: no metadata in time; the message tells why.
    - `BufferExhaustedError`: no memory in time.
    - `UsageError`: a field has a value that no record can have.
    - another `KafkaError`: brokers refuse the topic, or us, for good (`InvalidTopicError`,
      `TopicAuthorizationFailedError`, `AuthenticationError`, `UnsupportedVersionError` ...).

    Everything later is the delivery's. Idempotence is on by default: retries neither lose, double
    nor reorder records (KIP-98). A delivery that fails all the same may still be in the log, once.
    What may be in the log is not sent as if it were new: if the log has lost the records before it,
    by an unclean leader election, it fails with `OutOfOrderSequenceNumberError`, where Java's
    producer sends it again and may double it.

    A producer does not survive a fork. Use it in a ``with`` block, or call `close`: when the
    process ends, what was not closed is sent for five seconds at most, and the rest is lost, and
    logged. A signal handler ends a producer by `request_close`. Where a handler or destructor
    interrupts a `send`, it may send, but what would wait for the sender thread may raise
    `UsageError`.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `ProducerConfig`, as a mapping, as keywords, or both.

        Connecting begins at once, in the background.

        Raises:
            ConfigError: a setting is unknown, malformed, not built yet, or cannot be imported.
        """
        config = ProducerConfig.from_settings(settings, **keywords).named()
        self._waits = LongWaits(ClientLog("pykclient.producer", config.client_id))
        self._waiting_for_memory: set[int] = set()
        self._thread = SenderThread(f"pykclient-sender {config.client_id}")
        port = SelectorPort.from_config(config)
        try:
            super().__init__(
                config,
                port,
                waiting=self._thread,
                clock_ms=now_ms,
                wall_clock_ns=time.time_ns,
            )
        except BaseException:
            port.shutdown()
            raise
        # The lifecycle, not this object, which can be dropped while the thread runs.
        inside = self._accumulator.inside
        self._thread.start(self._engine, port, self._lifecycle, inside=inside)
        self._is_started = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    if TYPE_CHECKING:
        # `send` is inherited, without a layer that each record would pay for. These are its types.

        @overload  # type: ignore[override]  # the core's `send` takes any object as topic
        def send(
            self,
            topic: ProducerRecord,
            /,
            *,
            on_delivery: OnDelivery[RecordMetadata] | None = None,
        ) -> Delivery[RecordMetadata]: ...
        @overload
        def send(
            self,
            topic: str,
            value: object = None,
            key: object = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: HeadersInput | None = None,
            on_delivery: OnDelivery[RecordMetadata] | None = None,
        ) -> Delivery[RecordMetadata]: ...
        def send(self, *args: object, **keywords: object) -> Delivery[RecordMetadata]: ...

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions in order, waiting up to `max_block_ms` for them.

        Raises:
            KafkaTimeoutError: no metadata in time; the message tells why.
            UsageError: the name is none that brokers can be asked about.
            KafkaError: as `send` does for topics.
        """
        self._check_usable()
        topic = check_topic(topic, "partitions_for")
        deadline_ms = self._block_deadline_ms()
        while True:
            partitions = self._metadata.cluster.partitions_for(topic)
            if partitions:
                return partitions
            self._await_topic(topic, None, deadline_ms)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is delivered or has failed.

        What lingers is sent at once. Delivery callbacks have run by then. `timeout` is in seconds;
        None waits as long as it takes, which `delivery_timeout_ms` limits. How each record ended,
        its delivery tells.

        Raises:
            KafkaTimeoutError: the time was not enough; the records are still under way.
            UsageError: called in a delivery callback, which would wait for itself, or by a handler
                that interrupted `send` at a bad moment, or a handler of log records through which
                the sender thread logs; or `timeout` is negative.
            ClosedError: the producer is closed.
        """
        self._check_usable()
        wait_ms = milliseconds(timeout, FOREVER_MS)
        if self._thread.is_current():
            raise UsageError("flush() in a delivery callback would wait for itself")
        self._thread.check_may_wait("flush()")  # before it is begun
        gate = Gate()
        operation: Operation[None] = Operation()
        operation.on_done(lambda _: gate.open())
        try:
            self._accumulator.flush(operation)
            if not self._thread.await_gate(gate, wait_ms / 1000, "flush()"):
                raise KafkaTimeoutError(
                    f"flush: not everything was delivered within {wait_ms} ms; the rest is still "
                    f"under way"
                )
        except BaseException:  # an interrupt as well; or each flush in vain would stay
            self._engine.post(lambda _: self._accumulator.forget_flush(operation))
            raise
        operation.result()

    def close(self, timeout: float | None = None) -> None:
        """Send what is left, wait for it, and close. Calling it again does nothing.

        `timeout` is in seconds, None means `delivery_timeout_ms`. What is not delivered by then
        fails with `ClosedError`, and an ERROR is logged that says how many records that are. In a
        delivery callback, in a signal handler or destructor that interrupted `send` at a bad
        moment, and in a handler of log records through which the sender thread logs just then, it
        does as `request_close` and does not wait.

        Raises:
            UsageError: `timeout` is negative.
        """
        wait_ms = milliseconds(timeout, self._config.delivery_timeout_ms)
        if isinstance(self._lifecycle.refusal, ForkedClientError):
            return  # what there is to close is the parent's
        self._lifecycle.request_close(wait_ms)
        if self._thread.is_current() or self._thread.needs_caller():
            return
        timeout_s = min(wait_ms / 1000, threading.TIMEOUT_MAX / 2) + END_GRACE_S
        if not self._thread.join(timeout_s):
            if self._thread.needs_caller():
                return
            self._lifecycle.log_left("is a delivery callback still running?")
        elif not self._lifecycle.is_over:
            self._lifecycle.log_left("the interpreter has ended")

    def request_close(self) -> None:
        """Take no more records from now on, and close when those there are were delivered.

        It does not wait, and may be called anywhere: by a signal handler, a destructor, a delivery
        callback. `close`, or the end of the ``with`` block, waits for the end; `send` raises
        `ClosedError`.
        """
        if not isinstance(self._lifecycle.refusal, ForkedClientError):
            self._lifecycle.request_close(self._config.delivery_timeout_ms)

    def __del__(self) -> None:
        if not getattr(self, "_is_started", False) or self._lifecycle.refusal is not None:
            return
        dropped = repr(self)  # before it is closed
        self._lifecycle.request_close(self._config.delivery_timeout_ms)
        warnings.warn(
            f"{dropped} was dropped without close(); what it has is sent in the background",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    # Sending slowly.

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
        self._check_usable()
        check_callable(on_delivery, "send: on_delivery", "metadata and error")
        if isinstance(topic, ProducerRecord) or self._interceptors:
            record = _record_of(topic, value, key, partition, timestamp_ms, headers)
            if self._interceptors:
                return self._send_intercepted(record, on_delivery)
            return self._send_record(record, on_delivery)
        return self._append(
            self._serializer.serialize(
                topic,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                on_delivery=on_delivery,
            )
        )

    def _send_intercepted(
        self, record: ProducerRecord, on_delivery: OnDelivery[RecordMetadata] | None
    ) -> Delivery[RecordMetadata]:
        record = self._interceptors.on_send(record)
        try:
            return self._send_record(record, self._interceptors.before(on_delivery))
        except KafkaError as error:
            self._interceptors.on_not_sent([record], error)
            raise

    def _send_record(
        self, record: ProducerRecord, on_delivery: OnDelivery[RecordMetadata] | None
    ) -> Delivery[RecordMetadata]:
        return self._append(self._serialized(record, on_delivery))

    def _append(self, record: SerializedRecord) -> Delivery[RecordMetadata]:
        """Append a record, waiting for what it needs."""
        deadline_ms: int | None = None
        if self._partitioner is not None and record.partition is None:
            if not self._has_partition(record.topic, None):
                deadline_ms = self._block_deadline_ms()
                self._await_topic(record.topic, None, deadline_ms)
            record = self._choose_partition(record)
        outcome = self._accumulator.append(record)
        while isinstance(outcome, Blocked):
            if deadline_ms is None:
                deadline_ms = self._block_deadline_ms()
            if outcome.need is Need.METADATA:
                self._await_topic(record.topic, record.partition, deadline_ms)
                outcome = self._accumulator.append(record)
            else:
                with self._memory(record.topic, outcome.size_bytes, deadline_ms) as memory:
                    outcome = self._accumulator.append(record, memory)
        return outcome

    def _await_topic(self, topic: str, partition: int | None, deadline_ms: int) -> None:
        """Wait until a topic, and the partition if one is named, is known."""
        self._refuse_to_wait(f"metadata of topic {topic!r}")
        version = asked_version = self._metadata.cluster.version
        fatal_count = self._metadata.fatal_count
        self._want_topic(topic)
        wait = self._waits.begin(
            f"topic {topic!r}" if partition is None else f"partition {topic}-{partition}",
            lambda: self._why_no_metadata(topic)[0],
            now_ms(),
        )
        waiters = self._lifecycle.waiters
        while True:
            gate = Gate()
            try:
                waiters[gate] = None
                self._check_usable()
                if self._has_partition(topic, partition):
                    return
                error = self._final_topic_error(topic, version, fatal_count)
                if error is not None:
                    raise error.with_traceback(None)
                started_ms = now_ms()
                if started_ms >= deadline_ms:
                    raise self._no_metadata(topic, partition, self._config.max_block_ms)
                if self._metadata.cluster.version > asked_version:
                    asked_version = self._metadata.cluster.version
                    self._want_topic(topic)  # that answer did not have it; the next one may
                wait_s = max(0, wait.until_ms(deadline_ms) - started_ms) / 1000
                self._thread.await_gate(gate, wait_s, "send(), which waits for metadata,")
            finally:
                waiters.pop(gate, None)
            wait.look(now_ms())

    @contextmanager
    def _memory(self, topic: str, size_bytes: int, deadline_ms: int) -> Iterator[MemoryWaiter]:
        """Wait for memory; what is not used in the context goes back."""
        self._refuse_to_wait(f"{size_bytes} bytes of memory")
        gate = Gate()
        waiter = MemoryWaiter(size_bytes, gate.open)
        me = get_ident()
        try:
            self._waiting_for_memory.add(me)
            self._pool.wait_for(waiter)
            self._accumulator.want_memory()
            if not self._await_memory(gate, waiter, deadline_ms):
                raise BufferExhaustedError(
                    f"a record for topic {topic!r} got no {size_bytes} bytes of memory "
                    f"within {self._config.max_block_ms} ms (max_block_ms): buffer_memory is "
                    f"{self._pool.size_bytes}, all taken by records that are not delivered yet"
                )
            self._check_usable()
            yield waiter
        finally:
            self._waiting_for_memory.discard(me)
            self._pool.give_up(waiter)

    def _await_memory(self, gate: Gate, waiter: MemoryWaiter, deadline_ms: int) -> bool:
        wait = self._waits.begin(
            f"{waiter.size_bytes} bytes of memory",
            lambda: (
                f"buffer_memory is {self._pool.size_bytes}, all taken by records that are not "
                f"delivered yet. {self._client.describe_failures()}"
            ),
            now_ms(),
        )
        while True:
            started_ms = now_ms()
            wait_s = max(0, wait.until_ms(deadline_ms) - started_ms) / 1000
            if self._thread.await_gate(gate, wait_s, "send(), which waits for memory,"):
                return True
            if waiter.is_granted or started_ms >= deadline_ms:
                return waiter.is_granted
            wait.look(now_ms())

    def _refuse_to_wait(self, what: str) -> None:
        if self._thread.is_current():
            raise BufferExhaustedError(
                f"send() in a delivery callback would have to wait for {what}, and nothing comes "
                f"while the callback runs; send from another thread"
            )
        self._thread.check_may_wait(f"send(), which has to wait for {what},")
        if get_ident() in self._waiting_for_memory:
            raise UsageError(
                f"send() was called by a signal handler or destructor that interrupted a send() "
                f"which waits for memory, and would have to wait for {what} behind it"
            )

    def _block_deadline_ms(self) -> int:
        return min(now_ms() + self._config.max_block_ms, NEVER_MS)


def _record_of(
    topic: object,
    value: object,
    key: object,
    partition: int | None,
    timestamp_ms: int | None,
    headers: HeadersInput | None,
) -> ProducerRecord:
    if not isinstance(topic, ProducerRecord):
        return ProducerRecord(
            topic,  # type: ignore[arg-type]  # checked with all the others
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers or (),
        )
    if any(field is not None for field in (value, key, partition, timestamp_ms, headers)):
        raise UsageError(
            "send(ProducerRecord) takes everything from the record; only on_delivery comes beside"
        )
    return topic
