"""Producer: the public calls, and the sender thread behind them.

Owner: any thread may call anything. The sender thread may make every call that does not wait.
Source: Java class ``KafkaProducer``.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Generic, overload

from pykclient.accel import SendCore
from pykclient.arguments import FOREVER_MS, check_topic
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.config.given_settings import hidden
from pykclient.errors import ClosedError, ForkedClientError
from pykclient.errors.tracebacks import renewed
from pykclient.network.drive import now_ms, now_ns
from pykclient.network.interrupts import interrupt_count
from pykclient.network.io.canonical import with_canonical_names
from pykclient.network.io.secured import secured
from pykclient.network.io.selector import SelectorPort
from pykclient.network.live_client import LiveClient, describe_client, explain_names_of_others
from pykclient.producer.bulk.sending import BulkSender
from pykclient.producer.bulk.table import BulkInput
from pykclient.producer.config import ProducerConfig
from pykclient.producer.core import ProducerCore
from pykclient.producer.record import RecordMetadata
from pykclient.producer.sender.thread import END_GRACE_S, SenderThread
from pykclient.producer.transaction import Transaction, TransactionCalls
from pykclient.type_parameters import K_contra, V_contra

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType
    from typing import Self, Unpack

    from pykclient.accel import Delivery
    from pykclient.accel.abc import HeadersInput, OnDelivery
    from pykclient.config.keywords import ProducerSettings
    from pykclient.metrics import MetricName
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.producer.bulk.delivery import RecordMetadataRange
    from pykclient.producer.bulk.table import BulkHeaders, Timestamps
    from pykclient.producer.record import ProducerRecord
    from pykclient.types import (
        GroupMetadata,
        OffsetAndMetadata,
        PreparedTransaction,
        TopicPartition,
    )


class Producer(SendCore[RecordMetadata], LiveClient, Generic[K_contra, V_contra]):
    """Sends records to Kafka. It is thread-safe; share one producer between threads.

    `send` takes a record and returns its `Delivery`; `send_batch` and `send_arrow` take many. K and
    V are the types that the serializers take as keys and values, bytes without a serializer; None
    is null. A type checker infers them from serializers passed as keywords. If it cannot (they are
    named, or in the mapping), write ``Producer[str, Order](settings)``.

    `send` raises errors that it finds at once; the delivery reports all later ones. Idempotence is
    on by default: retries neither lose, duplicate nor reorder records (KIP-98). A record whose
    delivery fails may still be in the log, once. The producer never sends records under new
    sequence numbers if they may be in the log. If the log has lost the records before them (by an
    unclean leader election), or those have expired, they fail with
    `OutOfOrderSequenceNumberError`; Java's producer sends them again and may duplicate them.

    A producer does not survive a fork. Use it in a ``with`` block, or call `close`. If it is not
    closed when the process ends, records are sent for five seconds at most; the rest is lost, and
    logged. In a signal handler, close a producer by `request_close`. A handler or destructor that
    interrupts a `send` may send, but a call that would wait for the sender thread may raise
    `UsageError`.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[ProducerSettings[K_contra, V_contra]],
    ) -> None:
        """Create a producer with settings of `ProducerConfig`, as a mapping, keywords or both.

        It begins to connect at once, in the background.

        Raises:
            ConfigError: a setting is unknown, malformed, unsupported, or cannot be imported.
        """
        given, named = hidden(settings, ProducerConfig), hidden(keywords, ProducerConfig)
        del settings, keywords  # tracebacks may show variables
        config = with_canonical_names(ProducerConfig.from_settings(given, **named).named())
        self._thread = SenderThread(f"pykclient-sender {config.client_id}")
        sockets = SelectorPort.from_config(config)
        try:
            port = secured(sockets, config)
            core = self._core = ProducerCore(
                config,
                port=port,
                waiting=self._thread,
                clock_ms=now_ms,
                clock_ns=now_ns,
                wall_clock_ns=time.time_ns,
            )
            super().__init__(core.send_slowly, time.time_ns, core.topics)
            self._bulk = BulkSender(core)
            self._transaction_calls = TransactionCalls(core)
            self._lifecycle = core.lifecycle
        except BaseException:
            sockets.shutdown()
            raise
        # Passes the lifecycle and not this object, which can be dropped while the thread runs.
        inside = core.accumulator.inside
        self._thread.start(core.engine, port, self._lifecycle, inside=inside)
        self._is_started = True

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):  # the settings were invalid
            return object.__repr__(self)
        return describe_client(self, self._core.config, self._core.state)

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
        # `send` is inherited directly: a method here would cost every record. These are its types.

        @overload  # type: ignore[override]  # the core's `send` takes any object as topic
        def send(
            self,
            topic: ProducerRecord[K_contra, V_contra],
            /,
            *,
            on_delivery: OnDelivery[RecordMetadata] | None = None,
        ) -> Delivery[RecordMetadata]: ...
        @overload
        def send(
            self,
            topic: str,
            value: V_contra | None = None,
            key: K_contra | None = None,
            *,
            partition: int | None = None,
            timestamp_ms: int | None = None,
            headers: HeadersInput | None = None,
            on_delivery: OnDelivery[RecordMetadata] | None = None,
        ) -> Delivery[RecordMetadata]: ...
        def send(self, *args: object, **keywords: object) -> Delivery[RecordMetadata]: ...

    def send_batch(
        self,
        topic: str,
        values: Iterable[V_contra | None],
        keys: Iterable[K_contra | None] | None = None,
        *,
        partition: int | None = None,
        timestamps_ms: Timestamps | None = None,
        headers: BulkHeaders | None = None,
    ) -> Delivery[list[RecordMetadataRange]]:
        """Send many records to a topic, with one delivery for all of them.

        `values` and `keys` have one entry per record: bytes or None, or what the serializers take.
        All records go to `partition`. If it is None, records with a key go to the partition of its
        hash; the others fill batches, one partition after the other. `timestamps_ms` is in
        milliseconds since 1970: one for all, or one per record; None is now. `headers` are pairs of
        a name and bytes or None for all records, or one entry per record, pairs or None. Within a
        partition records keep the order of the input.

        Everything is checked before any record is sent. Then records are appended a batch at a
        time, and each wait for memory takes at most ``max_block_ms``. The delivery's result is a
        list of `RecordMetadataRange`, in the order of the input if there are no keys. If records
        fail, it raises `BatchDeliveryError` with their indexes. If this call has to stop in the
        middle, the rest of the records are among these.

        Serializers, a custom partitioner and interceptors work as with `send`, at the same cost.

        Raises:
            UsageError: an argument is invalid, or the lengths differ.
            SerializationError: a serializer failed, or a key or value without one is not bytes.
            RecordTooLargeError: a record exceeds ``max_request_size`` or ``buffer_memory``.
            KafkaTimeoutError: no metadata in time; the message says why.
            BufferExhaustedError: no memory in time for the first record.
            ClosedError, ForkedClientError: the producer was closed, or belongs to another process.
            KafkaError: brokers refuse the topic or this client permanently.
        """
        return self._bulk.send_batch(
            BulkInput(topic, values, keys, partition, timestamps_ms, headers)
        )

    def send_arrow(self, topic: str | None, table: object) -> Delivery[list[RecordMetadataRange]]:
        """Send the rows of an Arrow table or record batch, with one delivery for all of them.

        `table` is a pyarrow object, or any object with ``__arrow_c_stream__``. It has a column
        ``value``, and optionally ``key`` (both binary or string), ``headers`` (``list<struct<key:
        string, value: binary>>``), ``partition`` (integer), ``timestamp`` (of any unit) and, if
        `topic` is None, ``topic`` (string). A null is the same as None for `send`. With a
        serializer, ``value`` or ``key`` may have any type; the serializer gets Python objects.

        Everything else is as with `send_batch`; indexes are row numbers.

        Raises:
            UsageError: pyarrow is missing, or a column has a wrong name, type or content.
            KafkaError: as `send_batch`.
        """
        return self._bulk.send_arrow(topic, table)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions in order.

        `timeout` is in seconds; None is `max_block_ms`.

        Raises:
            KafkaTimeoutError: no metadata in time; the message says why, and `__cause__` is the
                brokers' last error for the topic, if there is one.
            UsageError: the topic name is invalid, or `timeout` is negative.
            KafkaError: as `send` for topics.
        """
        self._lifecycle.check_usable()
        checked = check_topic(topic, "partitions_for")
        if timeout is None:
            return self._core.partitions_for(checked)
        return self._core.partitions_for(checked, milliseconds(timeout, 0))

    def metrics(self) -> dict[MetricName, float]:
        """Return the producer's metrics by name, some also by topic and broker.

        `docs/metrics.md` lists names, units and meanings. A metric without a value is left out.
        Thread-safe, also after `close`; sends no request.

        Raises:
            ForkedClientError: this is a child process.
        """
        if isinstance(self._lifecycle.refusal, ForkedClientError):
            raise renewed(self._lifecycle.refusal)
        return self._core.metrics()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records sent before are delivered or have failed.

        Lingering batches are sent at once. Delivery callbacks have run when it returns. `timeout`
        is in seconds; None has no limit of its own, but `delivery_timeout_ms` limits each record.
        The deliveries tell which records were delivered.

        On a closed producer it returns at once, as in Java: every record is delivered or has
        failed. While a producer closes, it waits for that.

        Raises:
            KafkaTimeoutError: not done in time; the records are still under way.
            UsageError: called in a delivery callback, which would wait for itself; by a handler
                that interrupted `send` at a bad moment; or by a logging handler through which the
                sender thread logs. Or `timeout` is negative.
            ForkedClientError: the producer belongs to another process.
            KafkaError: the producer has failed and cannot send.
        """
        wait_ms = milliseconds(timeout, FOREVER_MS)
        if isinstance(self._lifecycle.refusal, ClosedError):
            self._core.await_closed(wait_ms)
            return
        self._lifecycle.check_usable()
        self._core.flush(wait_ms)

    # Transactions (KIP-98). Each call waits at most `max_block_ms`. The operation continues after
    # a time-out, and calling again waits for it.

    def init_transactions(self) -> None:
        """Get the producer's identity for transactions. Call it once, before all other calls.

        It fences a running producer with the same `transactional_id`, and aborts the transaction
        that this one left open.

        After `prepare_transaction` it gets a new identity in the same way: if the prepared
        transaction is still open, it is aborted, and can no longer be committed.

        Raises:
            KafkaTimeoutError: no response of the coordinator within `max_block_ms`. Call again.
            TransactionStateError: there is no `transactional_id`, or it was called before and no
                transaction is prepared.
            ProducerFencedError: another producer with the id was faster.
            TransactionalIdAuthorizationFailedError, InvalidTransactionTimeoutError: the brokers
                refuse the id or `transaction_timeout_ms`; create a new producer after a change.
            UsageError: it would wait for itself, for example in a delivery callback.
            ClosedError, ForkedClientError: the producer was closed, or belongs to another process.
            KafkaError: the producer has failed and can no longer be used.
        """
        self._transaction_calls.initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction: it includes everything that any thread sends from now on.

        It first waits for an abort that is still under way, for example after a time-out.

        Raises:
            TransactionStateError: `init_transactions` was not called, or a transaction is open.
            KafkaError: as `init_transactions`.
        """
        self._transaction_calls.begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
    ) -> None:
        """Commit a consumer group's offsets together with the transaction (KIP-447).

        `offsets` are as in `Consumer.commit`, such as the `next_offsets` of the result of `poll`;
        `group_metadata` is the current result of the consumer's `group_metadata()`. If the group
        has removed the member since the poll, brokers refuse the offsets. For a consumer that uses
        `assign`, or for a consumer outside this process, ``GroupMetadata(group_id)`` will do;
        nothing then prevents two processes from committing the same records. The consumer must not
        commit automatically: set its `enable_auto_commit` to False.

        Raises:
            TransactionAbortableError: the group has rebalanced (the cause is a
                `CommitFailedError`), refuses the offsets, has not accepted them within
                `delivery_timeout_ms`, or has not known a topic for `request_timeout_ms`; call
                `abort_transaction`.
            TransactionStateError: no transaction is open.
            UsageError: an argument is malformed, the consumer commits automatically, or it has
                subscribed and its group has not assigned it anything yet.
            KafkaTimeoutError: not done within `max_block_ms`. Call again, or abort.
            UnsupportedVersionError: brokers before Kafka 2.5 take no offsets of members.
            KafkaError: as `init_transactions`.
        """
        self._transaction_calls.send_offsets(offsets, group_metadata)

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Wait until everything sent is written, and leave the transaction open.

        Return what another process needs to end it, with `Admin.commit_prepared_transactions` or
        `Admin.abort_prepared_transactions`; None if nothing was sent, which ends the transaction.
        Until it is ended this producer accepts no records; calling again returns the same.
        `commit_transaction` and `abort_transaction` end it here. If it is ended elsewhere, or
        abandoned, `init_transactions` makes the producer ready for the next transaction.

        A prepared transaction stays open when the producer closes, and readers with
        ``isolation_level="read_committed"`` wait for its end. The coordinator aborts it after
        `transaction_timeout_ms`; never with `transaction_two_phase_commit_enable` (KIP-939).
        Without that setting it works with all brokers that support transactions.

        Raises:
            TransactionAbortableError: a record or an offset was not written. Call
                `abort_transaction`, then do the transaction again.
            KafkaTimeoutError: not done within `max_block_ms`. It continues: call again, or abort.
            TransactionStateError: no transaction is open.
            UsageError: it would wait for itself, for example in a delivery callback.
            KafkaError: as `init_transactions`.
        """
        return self._transaction_calls.prepare()

    def commit_transaction(self) -> None:
        """Wait until everything sent is written, and commit it, offsets included.

        Delivery callbacks have run when it returns. Records of other threads are in the transaction
        if their `send` came before; later ones are refused.

        Raises:
            TransactionAbortableError: a record or an offset was not written; nothing is committed.
                Call `abort_transaction`, then do the transaction again.
            KafkaTimeoutError: not done within `max_block_ms`. It continues, and may be committed:
                call again until it returns or raises something else.
            TransactionStateError: no transaction is open.
            ProducerFencedError: another producer uses the `transactional_id` now, or the
                transaction has exceeded `transaction_timeout_ms`. Nothing is committed, unless the
                message says that this is not known.
            KafkaError: as `init_transactions`.
        """
        self._transaction_calls.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction: drop unsent records; readers skip those already written.

        Unsent records fail with `TransactionAbortedError`. Afterwards the producer can begin
        another transaction.

        Raises:
            KafkaTimeoutError: not done within `max_block_ms`. Call again.
            TransactionStateError: no transaction is open.
            KafkaError: as `init_transactions`.
        """
        self._transaction_calls.abort()

    def transaction(self) -> Transaction:
        """Return a context manager for a transaction that is committed at the end of the block.

        An exception that leaves the block aborts the transaction. Errors of the commit are raised;
        after a `TransactionAbortableError` the transaction has been aborted, and the block can be
        run again. After a `KafkaTimeoutError` or an interrupt of the commit itself, the commit
        continues: call `commit_transaction` to see how it ended.
        """
        return Transaction(self._transaction_calls)

    def purge(self, *, queued: bool = True, in_flight: bool = True) -> int:
        """Drop records that are not delivered yet; return their number.

        Their deliveries fail with `PurgedError`. `queued` includes records that wait to be sent or
        retried. `in_flight` includes records in requests without a response: they may be in the
        log, and a late response does not change their deliveries. Callbacks may run after it has
        returned; `flush` waits for them. Records sent at the same time may or may not be included.
        The producer accepts further records. Memory of purged records is free, that of records in
        flight once their requests end. An open transaction can only be aborted afterwards.

        Raises:
            UsageError: called in a delivery callback, which would wait for itself; by a handler
                that interrupted `send` at a bad moment; or by a logging handler through which the
                sender thread logs.
            ClosedError, ForkedClientError: the producer is closed, or belongs to another process.
        """
        self._lifecycle.check_usable()
        return self._core.purge(is_queued_wanted=queued, is_in_flight_wanted=in_flight)

    def close(self, timeout: float | None = None) -> int:
        """Send the remaining records, wait for them, and close; return how many were not delivered.

        An open transaction is aborted, one that is being committed is committed, and one that
        `prepare_transaction` has returned stays open.

        `timeout` is in seconds; None is `delivery_timeout_ms`. Records that are not delivered by
        then fail with `ClosedError`, and their number is logged as an ERROR. Calling it again
        returns the number again.

        Some callers must not wait: a delivery callback; a signal handler or destructor that
        interrupted `send` at a bad moment, or a bulk call of a transaction; and a logging handler
        through which the sender thread is logging. There it does the same as `request_close`, and
        returns the number of records under way.

        After two seconds a WARNING says what it waits for. A Ctrl-C after that, or a second one
        while the first is being handled, drops the remaining records.

        Raises:
            UsageError: `timeout` is negative.
        """
        wait_ms = milliseconds(timeout, self._core.config.delivery_timeout_ms)
        if isinstance(self._lifecycle.refusal, ForkedClientError):
            return 0  # only the parent has records to send
        if interrupt_count(sys.exception()) > 1:
            wait_ms = 0
        self._lifecycle.request_close(wait_ms)
        is_waited_for = self._thread.is_current() or self._thread.needs_caller()
        if not (is_waited_for or self._core.accumulator.acceptance.is_in_bulk_call()):
            self._await_end(wait_ms)
        return self._lifecycle.undelivered_count()

    def _await_end(self, wait_ms: int) -> None:
        timeout_s = min(wait_ms / 1000, threading.TIMEOUT_MAX / 2) + END_GRACE_S
        notice = self._lifecycle.long_close("close", now_ms(), wait_ms)
        try:
            is_ended = self._thread.join(timeout_s, notice)
        except KeyboardInterrupt as interrupt:
            if notice.is_logged or interrupt_count(interrupt) > 1:
                self._thread.give_up()
            raise
        if not is_ended:
            if not self._thread.needs_caller():
                self._lifecycle.log_left("is a delivery callback still running?")
        elif not self._lifecycle.is_over:
            self._lifecycle.log_left("the interpreter has ended")

    def request_close(self) -> None:
        """Accept no more records, and close when the present ones are delivered.

        An open transaction is aborted; one that is being committed is committed.

        It does not wait, and may be called anywhere: in a signal handler, a destructor, a delivery
        callback. `close`, or the end of the ``with`` block, waits for the end; `send` raises
        `ClosedError`.
        """
        if not isinstance(self._lifecycle.refusal, ForkedClientError):
            self._lifecycle.request_close(self._core.config.delivery_timeout_ms)

    def __del__(self) -> None:
        if not getattr(self, "_is_started", False) or self._lifecycle.refusal is not None:
            return
        dropped = repr(self)  # before it is closed
        self._lifecycle.request_close(self._core.config.delivery_timeout_ms)
        warnings.warn(
            f"{dropped} was dropped without close(); its records are sent in the background",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )


explain_names_of_others(Producer)
