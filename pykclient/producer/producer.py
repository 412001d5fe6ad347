"""Producer: the blocking front-end. It adds to `ProducerCore` what waits.

It is *open*, *closing* and *closed*. A record that can be appended at once never comes here; `send`
waits here for metadata and for memory, `flush` and `close` for the sender thread.

Owner: any thread may call anything. The sender thread may call everything that does not wait.
Source: Java class ``KafkaProducer``.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, overload

from pykclient.errors import (
    BufferExhaustedError,
    ForkedClientError,
    KafkaError,
    KafkaTimeoutError,
    UsageError,
)
from pykclient.network.call_timeout import FOREVER_MS
from pykclient.network.call_timeout import timeout_ms as milliseconds
from pykclient.network.drive import now_ms
from pykclient.network.manager import NEVER_MS, Operation
from pykclient.network.selector import SelectorPort
from pykclient.producer.buffer_pool import MemoryWaiter
from pykclient.producer.bulk_producer import BulkProducer
from pykclient.producer.config import ProducerConfig
from pykclient.producer.open_batches import Blocked, Need
from pykclient.producer.record import ProducerRecord, RecordMetadata
from pykclient.producer.record_serializer import checked_topic
from pykclient.producer.sender_thread import SenderThread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from pykclient.accel import Delivery
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.network.cluster import PartitionInfo
    from pykclient.producer.record import SerializedRecord

__all__ = ["Producer"]

log = logging.getLogger("pykclient.producer")

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

    A producer does not survive a fork. Use it in a ``with`` block, or call `close`: records of a
    producer that was never closed may be lost when the process ends.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `ProducerConfig`, as a mapping, as keywords, or both.

        Connecting begins at once, in the background.

        Raises:
            ConfigError: a setting is unknown, malformed, not built yet, or cannot be imported.
        """
        config = ProducerConfig.from_settings(settings, **keywords)
        self._news = threading.Condition()
        self._is_forked = self._is_closed = False
        self._thread = SenderThread(
            f"pykclient-producer {config.client_id}".rstrip(), on_fork=self._on_fork
        )
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
        self._thread.start(
            self._engine,
            port,
            until=self._is_finished,
            on_death=self._on_death,
            on_end=self._on_end,
        )

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
        topic = checked_topic(topic)
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
            UsageError: called in a delivery callback, which would wait for itself; or `timeout` is
                negative.
            ClosedError: the producer is closed.
        """
        self._check_usable()
        wait_ms = milliseconds(timeout, FOREVER_MS)
        if self._thread.is_current():
            raise UsageError("flush() in a delivery callback would wait for itself")
        gate = threading.Lock()
        gate.acquire()
        operation: Operation[None] = Operation()
        operation.on_done(lambda _: gate.release())
        self._accumulator.flush(operation)
        try:
            if not gate.acquire(timeout=min(wait_ms / 1000, threading.TIMEOUT_MAX)):
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
        fails with `ClosedError`. In a delivery callback it does not wait, the rest is the same.

        Raises:
            UsageError: `timeout` is negative.
        """
        if self._is_forked:
            return  # what there is to close is the parent's
        wait_ms = milliseconds(timeout, self._config.delivery_timeout_ms)
        timeout_s = min(wait_ms / 1000, threading.TIMEOUT_MAX / 2)
        self._begin_close(now_ms() + wait_ms)
        self._on_news()
        if self._thread.is_current():
            return
        if not self._thread.join(timeout_s + END_GRACE_S):
            log.warning(
                "close: the sender thread has not ended; is a delivery callback still running?"
            )
            return
        if not self._is_closed:
            self._is_closed = True
            self._interceptors.close()

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
            self._tell_of_refusal([record], error)
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
        self._want_topic(topic)
        with self._news:
            while True:
                self._check_usable()
                if self._has_partition(topic, partition):
                    return
                error = self._final_topic_error(topic, version)
                if error is not None:
                    raise error.with_traceback(None)
                remaining_ms = deadline_ms - now_ms()
                if remaining_ms <= 0:
                    raise self._no_metadata(topic, partition, self._config.max_block_ms)
                if self._metadata.cluster.version > asked_version:
                    asked_version = self._metadata.cluster.version
                    self._want_topic(topic)  # that answer did not have it; the next one may
                self._news.wait(remaining_ms / 1000)

    @contextmanager
    def _memory(self, topic: str, size_bytes: int, deadline_ms: int) -> Iterator[MemoryWaiter]:
        """Wait for memory; what is not used in the context goes back."""
        self._refuse_to_wait(f"{size_bytes} bytes of memory")
        gate = threading.Lock()
        gate.acquire()
        waiter = MemoryWaiter(size_bytes, gate.release)
        try:
            self._pool.wait_for(waiter)
            self._accumulator.want_memory()
            remaining_s = max(0, deadline_ms - now_ms()) / 1000
            if not gate.acquire(timeout=min(remaining_s, threading.TIMEOUT_MAX)):
                raise BufferExhaustedError(
                    f"a record for topic {topic!r} got no {size_bytes} bytes of memory "
                    f"within {self._config.max_block_ms} ms (max_block_ms): buffer_memory is "
                    f"{self._pool.size_bytes}, all taken by records that are not delivered yet"
                )
            self._check_usable()
            yield waiter
        finally:
            self._pool.give_up(waiter)

    def _refuse_to_wait(self, what: str) -> None:
        if self._thread.is_current():
            raise BufferExhaustedError(
                f"send() in a delivery callback would have to wait for {what}, and nothing comes "
                f"while the callback runs; send from another thread"
            )

    def _block_deadline_ms(self) -> int:
        return min(now_ms() + self._config.max_block_ms, NEVER_MS)

    # Told by the sender thread, and at a fork.

    def _on_news(self) -> None:
        with self._news:
            self._news.notify_all()

    def _on_fork(self) -> None:
        self._is_forked = True
        self._refusal = ForkedClientError(
            "the producer was made in another process; make a new one after a fork"
        )
        self.topics.clear()


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
