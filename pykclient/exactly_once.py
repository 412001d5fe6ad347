"""ExactlyOnce: reads records, and commits the results together with their offsets, or neither.

A batch holds the records of one poll. It is *polled*, then *open* (its transaction is), then
*committing* and *finished*; or *aborting*, *rewinding* and *finished*, after which the consumer
reads the same records again. If brokers prevent a step, the batch stays in its state and continues
before the next poll.

Owner: the thread that uses the consumer.
Source: KIP-98, KIP-447; Java's guide to ``KafkaProducer`` (consume, transform, produce).
"""

from __future__ import annotations

import logging
import time
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic

from pykclient.consumer.batch_guard import BatchUse
from pykclient.consumer.consumer import Consumer
from pykclient.errors import (
    GroupRebalancedError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    RetriableError,
    TransactionAbortableError,
    TransactionStateError,
    UnknownProducerIdError,
    UsageError,
    WakeupError,
)
from pykclient.network.drive import now_ms
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.network.retry import Backoff
from pykclient.producer.producer import Producer
from pykclient.type_parameters import K_co, V_co
from pykclient.types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any

    from pykclient.consumer.record import ConsumerRecords
    from pykclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

AS_IF_FENCED: Final = (InvalidProducerEpochError, InvalidTxnStateError)
"""Errors of a leader that refuses a producer's records because another producer, or a time-out, has
fenced it. If the leader asks a coordinator that hung and was replaced, a producer that is not
fenced may get them too. The abort shows whether another producer has the id."""

CURED_BY_ABORT: Final = (
    *AS_IF_FENCED,
    GroupRebalancedError,
    InvalidProducerIdMappingError,
    OutOfOrderSequenceNumberError,
    TransactionAbortableError,
    UnknownProducerIdError,
)
"""Errors after which the transaction must be aborted, and the next one may succeed. Brokers that
lost their state of a producer learn it again after an abort."""

LEFT_EARLY_MAX: Final = 10
"""Maximum blocks in a row that leave their loops early. A block that always does so would never
commit."""
MS_PER_S: Final = 1_000
LOG: Final = "log"


class BatchState(Enum):
    POLLED = "polled"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    REWINDING = "rewinding"
    FINISHED = "finished"


_S = BatchState
NEXT: Final[dict[BatchState, frozenset[BatchState]]] = {
    _S.POLLED: frozenset({_S.OPEN}),
    _S.OPEN: frozenset({_S.COMMITTING, _S.ABORTING}),
    _S.COMMITTING: frozenset({_S.FINISHED, _S.ABORTING}),
    _S.ABORTING: frozenset({_S.REWINDING}),
    _S.REWINDING: frozenset({_S.FINISHED}),
    _S.FINISHED: frozenset(),
}


class ExactlyOnce(Generic[K_co, V_co]):
    """Processes each record exactly once, in the topics that a producer writes and in the group.

    The records that a block sends and the offsets of the records it read are one transaction::

        for batch in ExactlyOnce(consumer, producer):
            with batch as records:
                for record in records:
                    producer.send("out", transformed(record))

    The block commits at its end. After an exception in it, the transaction is aborted, the consumer
    returns to the batch's first records, and the exception is raised. If the group has rebalanced,
    or a broker requires an abort, nothing is raised: the loop continues from the group's committed
    offsets. It does the same after a `RetriableError`, such as a delivery that failed because
    brokers were unreachable, if the consumer has ``on_stall="log"``. Other side effects of a block,
    such as on files or databases, may thus happen twice.

    A block that leaves the loop over its records early, by `break` or `return`, is aborted as well,
    since it is unknown whether the output of the current record was sent. Nothing is raised, and
    the next batch begins with the same records; the tenth such block in a row raises `UsageError`.

    Other readers see the output once with ``isolation_level="read_committed"``. Each running
    process needs its own `transactional_id`; a restarted process reuses its former one, which
    aborts the transaction it has left open. Brokers 2.5 or newer (KIP-447).

    Raises:
        UsageError: the consumer has no `group_id`, commits automatically, or reads uncommitted
            records; or the producer has no `transactional_id`.
    """

    def __init__(
        self,
        consumer: Consumer[K_co, V_co],
        producer: Producer[Any, Any],
        *,
        max_records: int | None = None,
    ) -> None:
        """Create the loop for clients that are not used otherwise.

        `max_records` is the maximum size of a batch; None means `max_poll_records`. The producer
        may have called `init_transactions` before, or have been used in another loop that has
        ended.
        """
        _check(consumer, producer)
        self._loop = _Loop(consumer, producer, max_records)

    def __iter__(self) -> Iterator[ExactlyOnceBatch[K_co, V_co]]:
        """Yield batches with records, endlessly.

        Raises:
            WakeupError: `wakeup` of the consumer was called; a block under way ends first.
            ProducerFencedError: another producer has the `transactional_id`, or a transaction took
                longer than `transaction_timeout_ms`. Make a new producer, or stop.
            UsageError: the last batch was not used in a ``with`` block.
            KafkaError: an error of `Consumer.poll` or `Producer.init_transactions`.

        The end of a block raises `TransactionStateError` if a call in it has ended the
        transaction: the next batch begins with the same records.
        """
        try:
            while True:
                yield self._loop.next_batch()
        finally:
            self._loop.guard.on_loop_left()

    def run(self, handler: Callable[[ConsumerRecords[K_co, V_co]], object]) -> None:
        """Call `handler` with the records of each batch, in its transaction, until `wakeup`.

        Raises:
            KafkaError: as the loop does.
            Exception: an exception of `handler`; its transaction is aborted.
        """
        try:
            while True:
                with self._loop.next_batch() as records:
                    handler(records)
        except WakeupError:
            return
        finally:
            self._loop.guard.on_loop_left()


class _Loop(Generic[K_co, V_co]):
    """State shared by the batches of an `ExactlyOnce`."""

    def __init__(
        self,
        consumer: Consumer[K_co, V_co],
        producer: Producer[Any, Any],
        max_records: int | None,
    ) -> None:
        config = consumer._wiring.config  # noqa: SLF001 - a part of the package
        self._consumer = consumer
        self.producer = producer
        self._max_records = max_records
        self._lives_on = config.on_stall == LOG
        self.log = ClientLog("pykclient.exactly_once", config.client_id)
        self._repeated = RateLimitedLog(self.log)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._failure_count = self._left_early_count = 0
        self._is_initialized = False
        self._batch: ExactlyOnceBatch[K_co, V_co] | None = None
        self.guard = consumer._wiring.batch_guard  # noqa: SLF001 - a part of the package

    def next_batch(self) -> ExactlyOnceBatch[K_co, V_co]:
        self.guard.on_loop_left()  # the polls below belong to the loop
        self._settle()
        while True:
            records = self._consumer.poll(max_records=self._max_records)
            if records:
                # If the member has been removed by now, brokers reject the offsets.
                self._batch = ExactlyOnceBatch(self, records, self._consumer.group_metadata())
                self.guard.state = BatchUse.UNUSED
                return self._batch

    def _settle(self) -> None:
        """Finish the last batch, or initialize transactions before the first one.

        With ``on_stall="log"`` it retries until it succeeds.
        """
        while True:
            try:
                if not self._is_initialized:
                    self.producer._transaction_calls.initialize_once()  # noqa: SLF001 - a part of the package
                    self._is_initialized = True
                if self._batch is not None:
                    self._batch.settle()
            except RetriableError as error:
                if not self._lives_on:
                    raise
                self.back_off(error)
            else:
                return

    @property
    def transaction_timeout_s(self) -> float:
        return self.producer._core.config.transaction_timeout_ms / MS_PER_S  # noqa: SLF001

    def on_committed(self, records: ConsumerRecords[K_co, V_co]) -> None:
        """Record that a batch was committed: none of its records is returned again."""
        self._failure_count = self._left_early_count = 0
        self._consumer._wiring.unprocessed.finish(records.next_offsets)  # noqa: SLF001

    def on_failed(self) -> None:
        """Record that a block failed, and not by leaving its records early."""
        self._left_early_count = 0

    def is_left_early(self) -> bool:
        """Return whether the loop over the last batch's records was left early.

        Raises:
            UsageError: so were those of the last `LEFT_EARLY_MAX` batches.
        """
        is_left = self._consumer._wiring.unprocessed.is_left_early  # noqa: SLF001
        if is_left:
            self._left_early_count += 1
            if self._left_early_count >= LEFT_EARLY_MAX:
                raise UsageError(
                    f"{LEFT_EARLY_MAX} blocks in a row have left the loops over their records "
                    f"early, by break, return, any() or zip(), so nothing is committed: process "
                    f"all records of a block, use smaller batches (max_records), or raise an "
                    f"exception to stop"
                )
            self._repeated.log(
                logging.WARNING,
                now_ms(),
                ("left early",),
                "a block has left the loop over its records early, so its transaction is aborted "
                "and the records come again: use smaller batches (max_records), or raise an "
                "exception to stop",
            )
        return is_left

    def goes_on_after(self, error: BaseException) -> bool:
        """Return whether the loop repeats the batch instead of raising the error."""
        if isinstance(error, TransactionAbortableError):
            cause = error.__cause__
            if cause is None or isinstance(cause, CURED_BY_ABORT):
                return True
            error = cause
        return isinstance(error, RetriableError) and self._lives_on

    def back_off(self, error: BaseException) -> None:
        """Pause before the next attempt, without reading records.

        Raises:
            WakeupError: `wakeup` was called.
        """
        self.log.warning("a batch of records is not committed yet and will be retried: %s", error)
        delay_ms = self._backoff.delay_ms(self._failure_count)
        self._failure_count += 1
        consumer = self._consumer
        active = consumer.assignment() - consumer.paused()
        consumer.pause(active)
        try:
            records = consumer.poll(delay_ms / MS_PER_S)
        finally:
            consumer.resume(active & consumer.assignment())
        for partition in records.partitions:  # including those assigned just now
            consumer.seek(partition, records[partition][0].offset)

    def wake_again(self) -> None:
        """Make the next wait raise the wakeup that was deferred by an exception of the block."""
        self._consumer.wakeup()

    def of_present_topics(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets without those of topics recreated since they were read."""
        commits = self._consumer._wiring.commits  # noqa: SLF001 - a part of the package
        assert commits is not None, "there is a group"
        return commits.of_present_topics(offsets)

    def rewind(self, records: ConsumerRecords[K_co, V_co]) -> None:
        """Return to the committed offsets, in the partitions of a batch that are still assigned.

        Raises:
            KafkaError: as in `Consumer.committed`; the positions do not change.
        """
        consumer = self._consumer
        present = self.of_present_topics(records.next_offsets)
        partitions = [each for each in present if each in consumer.assignment()]
        for partition, committed in consumer.committed(partitions).items():
            first = records[partition][0].offset
            consumer.seek(partition, first if committed is None else committed)


class ExactlyOnceBatch(Generic[K_co, V_co]):
    """The records of one poll and their transaction: a context manager for one ``with`` block."""

    def __init__(
        self,
        loop: _Loop[K_co, V_co],
        records: ConsumerRecords[K_co, V_co],
        group_metadata: GroupMetadata,
    ) -> None:
        self.state = BatchState.POLLED
        self.records = records
        self._loop = loop
        self._producer = loop.producer
        self._calls = loop.producer._transaction_calls  # noqa: SLF001 - a part of the package
        self._begun_count = 0
        self._begun_s = 0.0
        self._group_metadata = group_metadata
        """Metadata of the generation that read the records: a later one must not commit them."""

    def __enter__(self) -> ConsumerRecords[K_co, V_co]:
        """Begin the transaction and return the records.

        Raises:
            UsageError: the batch was used before.
            KafkaError: as in `Producer.begin_transaction`.
        """
        if self.state is not BatchState.POLLED:
            raise UsageError("a batch is for one with block; take the next one of the loop")
        self._producer.begin_transaction()
        self._begun_count = self._calls.begun_count
        self._begun_s = time.monotonic()
        self._to(BatchState.OPEN)
        self._loop.guard.state = BatchUse.OPEN
        return self.records

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._loop.guard.state = BatchUse.NONE
        try:
            return self._end(error)
        finally:
            self._loop.guard.state = BatchUse.ENDED

    def _end(self, error: BaseException | None) -> bool:
        """Commit, or abort and rewind; return whether the loop continues despite `error`."""
        if error is not None:
            return self._recover(error)
        try:
            self._check_own()
            if self._loop.is_left_early():
                self._to(BatchState.ABORTING)
            else:
                offsets = self._loop.of_present_topics(self.records.next_offsets)
                self._producer.send_offsets_to_transaction(offsets, self._group_metadata)
                self._to(BatchState.COMMITTING)
            self.settle()
        except BaseException as failure:
            if not self._recover(failure):
                raise
        return False

    def settle(self) -> None:
        """Finish the batch, as far as brokers allow.

        Raises:
            UsageError: there was no ``with`` block, or it has not ended.
            KafkaError: it cannot be finished now; the batch keeps the state it reached.
        """
        if self.state in {BatchState.POLLED, BatchState.OPEN}:
            raise UsageError(
                "the last batch has not been used in a with block that has ended: write "
                "`for batch in ...:` and in it `with batch as records:`"
            )
        if self.state is BatchState.COMMITTING:
            try:
                self._producer.commit_transaction()
            except TransactionAbortableError:
                self._to(BatchState.ABORTING)
                raise
            self._to(BatchState.FINISHED)
            self._loop.on_committed(self.records)
        if self.state is BatchState.ABORTING:
            self._abort()
            self._to(BatchState.REWINDING)
        if self.state is BatchState.REWINDING:
            self._loop.rewind(self.records)
            self._to(BatchState.FINISHED)

    def _check_own(self) -> None:
        """Check that the block's transaction is still open.

        Raises:
            TransactionStateError: a call in the block has ended it, or is about to.
        """
        if self._begun_count == self._calls.begun_count and not self._calls.is_ending:
            return
        raise TransactionStateError(
            "the block of a batch has ended its transaction itself, by commit_transaction() or "
            "abort_transaction(). The end of the block commits together with the offsets: leave "
            "these calls out, and raise an exception to abort. The offsets of this batch are not "
            "committed and its records come again; records committed in the block stay, and will "
            "be duplicated"
        )

    def _abort(self) -> None:
        """Abort the transaction; if the block has begun to end it itself, complete that first."""
        try:
            self._producer.abort_transaction()
        except TransactionStateError as ended:
            self._loop.log.warning("the block of a batch has ended its transaction: %s", ended)
            try:
                self._producer.commit_transaction()
            except TransactionStateError:
                return  # no transaction is open or ending

    def _recover(self, failure: BaseException) -> bool:
        """Abort and rewind after an error; complete a commit of unknown outcome first.

        Returns whether the loop continues.

        Raises:
            ProducerFencedError: this producer turns out to be fenced.
            WakeupError: `wakeup` was called.
        """
        self._loop.on_failed()
        if self.state is BatchState.OPEN:
            self._to(BatchState.ABORTING)
        if self.state is BatchState.ABORTING and not isinstance(failure, ProducerFencedError):
            try:
                self.settle()
            except KafkaError as error:
                is_ended = isinstance(error, WakeupError) and self._loop.goes_on_after(failure)
                if is_ended or isinstance(error, ProducerFencedError):
                    raise
                if isinstance(error, WakeupError):
                    self._loop.wake_again()
                self._loop.log.warning(
                    "the transaction of a batch is not aborted yet, after %r: %s", failure, error
                )
        self._check_time(failure)
        if not self._loop.goes_on_after(failure):
            return False
        self._loop.back_off(failure)
        return True

    def _check_time(self, failure: BaseException) -> None:
        """Check that a transaction was not aborted for its duration: the next one would be too.

        Raises:
            ProducerFencedError: it was.
        """
        open_s, limit_s = time.monotonic() - self._begun_s, self._loop.transaction_timeout_s
        if isinstance(failure.__cause__, AS_IF_FENCED) and open_s >= limit_s:
            raise ProducerFencedError(
                f"the transaction of a batch of {len(self.records)} records was open for "
                f"{open_s:.1f} s, and brokers abort it after transaction_timeout_ms="
                f"{limit_s * MS_PER_S:.0f}. Its records are read again: raise the time-out, or "
                f"make batches smaller (max_records)"
            ) from failure

    def _to(self, state: BatchState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _check(consumer: object, producer: object) -> None:
    where = "ExactlyOnce"
    if not isinstance(consumer, Consumer) or not isinstance(producer, Producer):
        raise UsageError(f"{where}: give a Consumer and a Producer of pykclient")
    config = consumer._wiring.config  # noqa: SLF001
    transactional_id = producer._core.config.transactional_id  # noqa: SLF001
    for is_wrong, cure in (
        (config.group_id is None, "the consumer has no group_id, which commits its offsets"),
        (
            config.enable_auto_commit,
            "the consumer commits automatically; give it enable_auto_commit=False",
        ),
        (
            config.isolation_level is not IsolationLevel.READ_COMMITTED,
            "the consumer reads uncommitted records; give it isolation_level='read_committed'",
        ),
        (
            transactional_id is None,
            "the producer has no transactions; give it a transactional_id",
        ),
    ):
        if is_wrong:
            raise UsageError(f"{where}: {cure}")
