"""Lifecycle: ends a producer, and wakes the threads that wait for its end or for metadata.

A producer is *open*, *closing* once it accepts no more records, and *over* when its sender thread
has ended. The sender thread knows this object and not the producer, which can therefore be dropped.

Owner: any thread, and a handler or destructor that interrupts one, may use `refuse`,
`request_close` and the waiters: no lock is taken. Everything else is the sender thread's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import ClosedError, ForkedClientError, KafkaError
from pykclient.errors.tracebacks import renewed
from pykclient.network.log import ClientLog
from pykclient.network.long_close import LongClose
from pykclient.producer.sender.sender import describe_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel import Gate, TopicAppenders
    from pykclient.network.engine import Engine
    from pykclient.producer.accumulator.accumulator import RecordAccumulator
    from pykclient.producer.accumulator.buffer_pool import BufferPool
    from pykclient.producer.failure_reports import FailureReports
    from pykclient.producer.interceptors import ProducerInterceptors
    from pykclient.producer.record import RecordMetadata
    from pykclient.producer.sender.sender import Sender
    from pykclient.producer.sender.transactions import Transactions

log = ClientLog("pykclient.producer", "")


class Lifecycle:
    """See the module. `topics` holds the open batches for `send`; cleared, it finds none."""

    sender: Sender
    engine: Engine
    transactions: Transactions | None = None

    def __init__(
        self,
        topics: dict[object, TopicAppenders[RecordMetadata]],
        pool: BufferPool,
        accumulator: RecordAccumulator,
        interceptors: ProducerInterceptors,
        reports: FailureReports,
        client_id: str,
    ) -> None:
        self.refusal: KafkaError | None = None
        """Reason why records are refused; None while they are accepted."""
        self.is_over = False
        self.waiters: dict[Gate, None] = {}
        """Gates of waiting threads; opening them makes the threads check again."""
        self._topics = topics
        self._pool = pool
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._reports = reports
        self._log = ClientLog("pykclient.producer", client_id)
        self._is_closing = False
        self._failed_before: int | None = None
        """Number of failed records when it was closed; None before."""

    # Any thread, and whatever interrupts one.

    def undelivered_count(self) -> int:
        """Return how many records have failed since `close`, plus those under way."""
        failed_count = 0
        if self._failed_before is not None:
            failed_count = self.sender.metrics.failed_record_count - self._failed_before
        return failed_count + sum(self._accumulator.left().values())

    @property
    def failure(self) -> KafkaError | None:
        """Reason why the producer can no longer be used; None while it can."""
        return self.refusal or self.sender.failure

    def check_usable(self) -> None:
        error = self.refusal or self.sender.failure
        if error is not None:
            raise renewed(error)

    def refuse(self, error: KafkaError) -> None:
        """Accept no more records. The first reason counts."""
        if self.refusal is None:
            self.refusal = error
        self._topics.clear()

    def request_close(self, time_ms: int, *, is_program_end: bool = False) -> None:
        """Accept no more records, and end when all are sent, or after `time_ms`."""
        error = ClosedError("the producer is closed; create a new one")
        self.refuse(error)

        def close(now_ms: int) -> None:
            self._pool.close()
            if self._failed_before is None:
                self._failed_before = self.sender.metrics.failed_record_count
            deadline_ms = now_ms + time_ms
            self.sender.close(error, now_ms, deadline_ms, is_program_end=is_program_end)
            self._is_closing = True
            self.on_news()

        self.engine.post(close)

    def long_close(self, call: str, started_ms: int, wait_ms: int) -> LongClose:
        """Return the notice of a call that waits for records, for when the wait is long."""
        return LongClose(
            self._log,
            call,
            what=self._describe_waiting,
            why=self.engine.client.describe_failures,
            cost="records that are not delivered by then are lost",
            started_ms=started_ms,
            deadline_ms=started_ms + wait_ms,
        )

    def _describe_waiting(self) -> str:
        counts = self._accumulator.left()
        if not counts:
            return "the brokers' last responses"
        return f"the delivery of {sum(counts.values())} records for {len(counts)} partitions"

    def log_left(self, why: str, *, is_program_end: bool = False) -> None:
        """Log that the sender thread has not finished, and which records are left."""
        log.error("close: the sender thread has not ended its work: %s", why)
        counts = self._accumulator.left()
        if counts:
            log.error("%s", describe_left(counts, is_program_end=is_program_end))

    def end_program(self) -> None:
        self._reports.end_program()

    def on_fork(self) -> None:
        self.refusal = ForkedClientError(
            "the producer was created in another process; create a new one after a fork"
        )
        self._topics.clear()
        self._reports.on_fork()

    # The sender thread.

    def on_news(self) -> None:
        """Wake the threads that wait for metadata or for the end."""
        for gate in list(self.waiters):
            gate.open()

    def on_failed(self) -> None:
        """End every wait, since the producer has failed."""
        self._pool.close()
        self.on_news()

    def is_finished(self) -> bool:
        if not self._is_closing or not self._accumulator.is_empty or self.engine.user_calls:
            return False
        return self.transactions is None or self.transactions.is_settled

    def on_death(self, cause: BaseException) -> None:
        """Fail everything, since the sender thread has failed."""
        error = KafkaError(
            f"the producer has stopped: its sender thread failed with {cause!r}. This should not "
            f"happen; please report it, and create a new producer"
        )
        error.__cause__ = cause
        self.refuse(error)
        self._pool.close()
        calls: list[Callable[..., object]] = [call.function for call in self.engine.user_calls]
        for call in [*calls, *self._accumulator.abandon(error)]:
            try:
                call()
            except BaseException:  # the others must be called all the same
                log.exception("a delivery callback failed: %r", call)
        self.engine.user_calls.clear()
        self.on_news()

    def on_end(self) -> None:
        """Fail what came too late for the sender thread. Nothing follows this."""
        self._accumulator.fail_flushes(self.refusal or ClosedError("the producer is closed"))
        self._reports.end()
        self._interceptors.close()
        self.is_over = True
        self.on_news()
