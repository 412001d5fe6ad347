"""Producer: the calls that an application makes, and the thread that does the sending.

Owner: any thread may call anything. The sender thread may call everything that does not wait.
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
    """Sends records. Any number of threads may use one producer, and should: it batches better.

    `send` takes a record and returns its `Delivery`; `send_batch` and `send_arrow` take many. K and
    V are what the serializers take as keys and values, bytes where there is none; None is null. A
    type checker infers them from serializers given as keywords; where it cannot (they are named, or
    in the mapping), write ``Producer[str, Order](settings)``.

    What can be found wrong at once `send` raises; everything later is the delivery's. Idempotence
    is on by default: retries neither lose, double nor reorder records (KIP-98). A delivery that
    fails all the same may still be in the log, once. What may be in the log is not sent as if it
    were new: if the log has lost the records before it, by an unclean leader election, or these
    ran out of time, it fails with `OutOfOrderSequenceNumberError`, where Java's producer sends it
    again and may double it.

    A producer does not survive a fork. Use it in a ``with`` block, or call `close`: when the
    process ends, what was not closed is sent for five seconds at most, and the rest is lost, and
    logged. A signal handler ends a producer by `request_close`. Where a handler or destructor
    interrupts a `send`, it may send, but what would wait for the sender thread may raise
    `UsageError`.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[ProducerSettings[K_contra, V_contra]],
    ) -> None:
        """Take the settings of `ProducerConfig`, as a mapping, as keywords, or both.

        Connecting begins at once, in the background.

        Raises:
            ConfigError: a setting is unknown, malformed, not built yet, or cannot be imported.
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
        # The lifecycle, not this object, which can be dropped while the thread runs.
        inside = core.accumulator.inside
        self._thread.start(core.engine, port, self._lifecycle, inside=inside)
        self._is_started = True

    def __repr__(self) -> str:
        if not hasattr(self, "_core"):  # its settings were refused
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
        # `send` is inherited, without a layer that each record would pay for. These are its types.

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

        `values` and `keys` have one entry for each record: bytes or None, or what the serializers
        take. All records go to `partition`; with None those with a key go where its hash says, the
        others fill batches, one partition after the other. `timestamps_ms` is in milliseconds since
        1970, one for all or one for each, None for now; `headers` are pairs of a name and bytes or
        None that all records get, or for each record its pairs or None. Within a partition the
        order is that of the input.

        Everything is checked before any record is sent. Then the records are appended a batch at a
        time, each wait for memory at most ``max_block_ms``. The delivery's result is a list of
        `RecordMetadataRange`: without keys, in the order of the input. If some records failed, or
        all, it raises `BatchDeliveryError`, which has their indexes; when this call itself can go
        no further, the rest of the records are among them.

        Serializers, an own partitioner and interceptors work as with `send`, and cost as much.

        Raises:
            UsageError: an argument has a value that no record can have, or the lengths differ.
            SerializationError: a serializer failed, or something is not bytes and has none.
            RecordTooLargeError: more than ``max_request_size`` or ``buffer_memory`` allow.
            KafkaTimeoutError: no metadata in time; the message says why.
            BufferExhaustedError: no memory in time for the first of the records.
            ClosedError, ForkedClientError: the producer was closed, or is another process's.
            KafkaError: brokers refuse the topic, or us, for good.
        """
        return self._bulk.send_batch(
            BulkInput(topic, values, keys, partition, timestamps_ms, headers)
        )

    def send_arrow(self, topic: str | None, table: object) -> Delivery[list[RecordMetadataRange]]:
        """Send the rows of an Arrow table or record batch, with one delivery for all of them.

        `table` is pyarrow's, or anything with ``__arrow_c_stream__``. Its columns are ``value``
        and, where wanted, ``key`` (both binary or string), ``headers`` (``list<struct<key: string,
        value: binary>>``), ``partition`` (integers), ``timestamp`` (of any unit) and, when `topic`
        is None, ``topic`` (string). A null is what None is for `send`. With a serializer, ``value``
        or ``key`` may have any type; it gets Python's objects.

        Everything else is as with `send_batch`; indexes are those of the rows.

        Raises:
            UsageError: pyarrow is missing, or a column has a wrong name, type or content.
            KafkaError: as `send_batch`.
        """
        return self._bulk.send_arrow(topic, table)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions in order.

        `timeout` is in seconds, None means `max_block_ms`.

        Raises:
            KafkaTimeoutError: no metadata in time; the message says why, and `__cause__` is the
                brokers' last error for the topic, if there is one.
            UsageError: no topic can have this name, or `timeout` is negative.
            KafkaError: as `send` does for topics.
        """
        self._lifecycle.check_usable()
        checked = check_topic(topic, "partitions_for")
        if timeout is None:
            return self._core.partitions_for(checked)
        return self._core.partitions_for(checked, milliseconds(timeout, 0))

    def metrics(self) -> dict[MetricName, float]:
        """Return what the producer has measured, by name; by topic and broker, too.

        Names, units and meanings are those of `docs/metrics.md`. What nothing is known of is left
        out. It may be called from any thread, also after `close`, and sends no request.

        Raises:
            ForkedClientError: this is a child process.
        """
        if isinstance(self._lifecycle.refusal, ForkedClientError):
            raise self._lifecycle.refusal.with_traceback(None)
        return self._core.metrics()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is delivered or has failed.

        What lingers is sent at once. Delivery callbacks have run by then. `timeout` is in seconds;
        None waits as long as it takes, which `delivery_timeout_ms` limits. Whether each record was
        delivered, its delivery says.

        On a producer that is closed it returns at once, as in Java: every record is delivered or
        has failed. While one is being closed it waits for that.

        Raises:
            KafkaTimeoutError: the time was not enough; the records are still under way.
            UsageError: called in a delivery callback, which would wait for itself, or by a handler
                that interrupted `send` at a bad moment, or a handler of log records through which
                the sender thread logs; or `timeout` is negative.
            ForkedClientError: the producer is another process's.
            KafkaError: the producer has failed, and can send no more.
        """
        wait_ms = milliseconds(timeout, FOREVER_MS)
        if isinstance(self._lifecycle.refusal, ClosedError):
            self._core.await_closed(wait_ms)
            return
        self._lifecycle.check_usable()
        self._core.flush(wait_ms)

    # Transactions (KIP-98). Each of these calls waits at most `max_block_ms`, goes on after that,
    # and may be made again to wait further.

    def init_transactions(self) -> None:
        """Get the producer's identity for transactions, once and before all else.

        A producer with the same `transactional_id` that is still running is fenced, and the
        transaction that it has left open is aborted.

        After `prepare_transaction` it gets a new identity in the same way: if the transaction that
        was prepared is still open, it is aborted, and nobody can commit it any more.

        Raises:
            KafkaTimeoutError: the coordinator has not responded within `max_block_ms`. Call again.
            TransactionStateError: there is no `transactional_id`, or it was called before, and no
                transaction is prepared.
            ProducerFencedError: another producer with the id was quicker.
            TransactionalIdAuthorizationFailedError, InvalidTransactionTimeoutError: the brokers
                refuse the id or `transaction_timeout_ms`; a new producer may do better.
            UsageError: it would wait for itself, in a delivery callback for one.
            ClosedError, ForkedClientError: the producer was closed, or is another process's.
            KafkaError: the producer can do no more, as the message says.
        """
        self._transaction_calls.initialize()

    def begin_transaction(self) -> None:
        """Begin a transaction: what is sent from now on, by any thread, belongs to it.

        It waits for an abort whose call has ended before the abort: its time ran out, say.

        Raises:
            TransactionStateError: `init_transactions` was not called, or a transaction is open.
            KafkaError: as `init_transactions` does.
        """
        self._transaction_calls.begin()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
    ) -> None:
        """Have the transaction commit a group's offsets, when it is committed (KIP-447).

        `offsets` are as those of `Consumer.commit`, such as the `next_offsets` of what `poll`
        returned; `group_metadata` is what the consumer's `group_metadata()` returns now. If the
        group has removed the member since the poll, brokers refuse the offsets. For a consumer that
        uses `assign`, or none of this process, ``GroupMetadata(group_id)`` will do; nothing then
        prevents two processes from committing the same records. The consumer must not commit by
        itself (`enable_auto_commit` off).

        Raises:
            TransactionAbortableError: the group has moved on (the cause is a `CommitFailedError`),
                or refuses us; call `abort_transaction`.
            TransactionStateError: no transaction is open.
            UsageError: an argument is malformed, or the consumer has subscribed and was assigned
                nothing by its group yet.
            KafkaTimeoutError: not done within `max_block_ms`. Call again, or abort.
            UnsupportedVersionError: brokers before Kafka 2.5 take no offsets of members.
            KafkaError: as `init_transactions` does.
        """
        self._transaction_calls.send_offsets(offsets, group_metadata)

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Wait until everything that was sent is written, and leave the transaction open.

        Returns what another process needs to end it, with `Admin.commit_prepared_transactions` or
        `Admin.abort_prepared_transactions`; None if nothing was sent: then the transaction has
        ended. Until it is ended this producer takes nothing more, and when called again returns
        the same. `commit_transaction` and `abort_transaction` end it here. When it is ended
        elsewhere, or given up, `init_transactions` makes the producer ready for the next one.

        A transaction that is prepared stays open when the producer closes, and readers with
        ``isolation_level="read_committed"`` wait for its end. The coordinator aborts it after
        `transaction_timeout_ms`, and never with `transaction_two_phase_commit_enable` (KIP-939);
        without that it works on all brokers that have transactions.

        Raises:
            TransactionAbortableError: a record or an offset was not written. Call
                `abort_transaction`, then do the transaction again.
            KafkaTimeoutError: not done within `max_block_ms`. It goes on: call again, or abort.
            TransactionStateError: no transaction is open.
            UsageError: it would wait for itself, in a delivery callback for one.
            KafkaError: as `init_transactions` does.
        """
        return self._transaction_calls.prepare()

    def commit_transaction(self) -> None:
        """Wait until everything that was sent is written, and commit it, with the offsets.

        Delivery callbacks have run by then. Other threads' records are in the transaction if their
        `send` came before; later ones are refused.

        Raises:
            TransactionAbortableError: a record or an offset was not written; nothing is committed.
                Call `abort_transaction`, then do the transaction again.
            KafkaTimeoutError: not done within `max_block_ms`. It goes on, and may be committed:
                call again until it returns or raises something else.
            TransactionStateError: no transaction is open.
            ProducerFencedError: another producer has the `transactional_id` now, or the transaction
                has exceeded `transaction_timeout_ms`. Nothing is committed, unless the message says
                that this is not known.
            KafkaError: as `init_transactions` does.
        """
        self._transaction_calls.commit()

    def abort_transaction(self) -> None:
        """Abort the transaction: drop what was not sent, and have readers skip what was.

        Records that were not sent fail with `TransactionAbortedError`. After it the producer can
        begin another transaction.

        Raises:
            KafkaTimeoutError: not done within `max_block_ms`. Call again.
            TransactionStateError: no transaction is open.
            KafkaError: as `init_transactions` does.
        """
        self._transaction_calls.abort()

    def transaction(self) -> Transaction:
        """Return a context manager: a transaction that is committed at the end of the block.

        What leaves the block as an exception has it aborted, and is raised. So is what a commit
        raises; after a `TransactionAbortableError` the transaction has been aborted, and the block
        can be run again. After a `KafkaTimeoutError`, or an interrupt, of the commit itself it goes
        on: `commit_transaction` says how it ended.
        """
        return Transaction(self._transaction_calls)

    def purge(self, *, queued: bool = True, in_flight: bool = True) -> int:
        """Give up records that are not delivered yet; return how many.

        Their deliveries fail with `PurgedError`. With `queued` those that wait to be sent, for the
        first time or again; with `in_flight` those in requests without a response: they may be in
        the log, and no response changes what their deliveries have reported. Callbacks may run
        after it has returned; `flush` waits for them. Records that are sent meanwhile may be among
        them or not; the producer takes more, and their memory is free, that of records in flight
        once their requests end. A transaction that is open can only be aborted after it.

        Raises:
            UsageError: called in a delivery callback, which would wait for itself, or by a handler
                that interrupted `send` at a bad moment, or a handler of log records through which
                the sender thread logs.
            ClosedError, ForkedClientError: the producer is closed, or is another process's.
        """
        self._lifecycle.check_usable()
        return self._core.purge(is_queued_wanted=queued, is_in_flight_wanted=in_flight)

    def close(self, timeout: float | None = None) -> int:
        """Send what is left, wait for it, and close; return how many records were not delivered.

        A transaction that is open is aborted; one that is being committed is committed; one that
        `prepare_transaction` has returned stays open.

        Those are records that were under way when it was called. `timeout` is in seconds, None
        means `delivery_timeout_ms`. What is not delivered by then fails with `ClosedError`, and an
        ERROR is logged that says how many records that are. In a delivery callback, in a signal
        handler or destructor that interrupted `send` at a bad moment or a bulk call of a
        transaction, and in a handler of log
        records through which the sender thread logs just then, it does as `request_close`, does not
        wait, and returns how many are under way. Calling it again only returns their number.

        A WARNING after two seconds says what it waits for. A Ctrl-C after that, or a second one
        while the first is being handled, gives up what is not delivered.

        Raises:
            UsageError: `timeout` is negative.
        """
        wait_ms = milliseconds(timeout, self._core.config.delivery_timeout_ms)
        if isinstance(self._lifecycle.refusal, ForkedClientError):
            return 0  # what there is to close is the parent's
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
        """Take no more records from now on, and close when those there are were delivered.

        A transaction that is open is aborted; one that is being committed is committed.

        It does not wait, and may be called anywhere: by a signal handler, a destructor, a delivery
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
            f"{dropped} was dropped without close(); what it has is sent in the background",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )


explain_names_of_others(Producer)
