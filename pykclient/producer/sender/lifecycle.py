"""Lifecycle: how a producer ends, and who waits for that or for metadata.

A producer is *open*, *closing* once it takes no more records, and *over* when its sender thread has
ended. The sender thread knows this object and not the producer, which therefore can be dropped.

Owner: `refuse`, `request_close` and the waiters are for any thread, and for a handler or destructor
that interrupts it: no lock is taken. All else is the sender thread's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import ClosedError, ForkedClientError, KafkaError
from pykclient.network.log import ClientLog
from pykclient.network.long_close import LongClose
from pykclient.producer.sender.sender import describe_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.accel import TopicAppenders
    from pykclient.network.engine import Engine
    from pykclient.network.gate import Gate
    from pykclient.producer.accumulator.accumulator import RecordAccumulator
    from pykclient.producer.accumulator.buffer_pool import BufferPool
    from pykclient.producer.failure_reports import FailureReports
    from pykclient.producer.interceptors import ProducerInterceptors
    from pykclient.producer.record import RecordMetadata
    from pykclient.producer.sender.sender import Sender
    from pykclient.producer.sender.transactions import Transactions

log = ClientLog("pykclient.producer", "")


class Lifecycle:
    """See the module. `topics` is what `send` finds open batches in; empty, it finds none."""

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
        """Why no more records are taken; None while they are."""
        self.is_over = False
        self.waiters: dict[Gate, None] = {}
        """Gates of threads that look again at each news."""
        self._topics = topics
        self._pool = pool
        self._accumulator = accumulator
        self._interceptors = interceptors
        self._reports = reports
        self._log = ClientLog("pykclient.producer", client_id)
        self._is_closing = False
        self._failed_before: int | None = None
        """How many records had failed when it was closed; None before."""

    # Any thread, and whatever interrupts one.

    def undelivered_count(self) -> int:
        """Return how many records failed since it was closed, and how many are under way."""
        failed_count = 0
        if self._failed_before is not None:
            failed_count = self.sender.metrics.failed_record_count - self._failed_before
        return failed_count + sum(self._accumulator.left().values())

    @property
    def failure(self) -> KafkaError | None:
        """Why nothing can be sent any more; None while it can."""
        return self.refusal or self.sender.failure

    def check_usable(self) -> None:
        error = self.refusal or self.sender.failure
        if error is not None:
            raise error.with_traceback(None)

    def refuse(self, error: KafkaError) -> None:
        """Take no more records. The first reason counts."""
        if self.refusal is None:
            self.refusal = error
        self._topics.clear()

    def request_close(self, time_ms: int, *, is_program_end: bool = False) -> None:
        """Take no more records, and end when what there is was sent, or after `time_ms`."""
        error = ClosedError("the producer is closed; make a new one")
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
        """Return the notice of a call that waits for the records."""
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
        """Say that the sender thread has not ended its work, and what it leaves."""
        log.error("close: the sender thread has not ended its work: %s", why)
        counts = self._accumulator.left()
        if counts:
            log.error("%s", describe_left(counts, is_program_end=is_program_end))

    def end_program(self) -> None:
        self._reports.end_program()

    def on_fork(self) -> None:
        self.refusal = ForkedClientError(
            "the producer was made in another process; make a new one after a fork"
        )
        self._topics.clear()
        self._reports.on_fork()

    # The sender thread.

    def on_news(self) -> None:
        """Have threads look again that wait for metadata, or for the end."""
        for gate in list(self.waiters):
            gate.open()

    def on_failed(self) -> None:
        """End every wait, since nothing can be sent any more."""
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
            f"happen; please report it, and make a new producer"
        )
        error.__cause__ = cause
        self.refuse(error)
        self._pool.close()
        calls: list[Callable[..., object]] = [call.function for call in self.engine.user_calls]
        for call in [*calls, *self._accumulator.abandon(error)]:
            try:
                call()
            except BaseException:  # the next ones must be made all the same
                log.exception("a delivery callback failed: %r", call)
        self.engine.user_calls.clear()
        self.on_news()

    def on_end(self) -> None:
        """Fail what came too late for the sender thread to notice it. Nothing follows this."""
        self._accumulator.fail_flushes(self.refusal or ClosedError("the producer is closed"))
        self._reports.end()
        self._interceptors.close()
        self.is_over = True
        self.on_news()
