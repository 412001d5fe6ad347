"""ProduceResult: the result of a batch, which the `Delivery` of each of its records reads.

It is *pending*, then *succeeded* or *failed*; the result of a batch too large for the broker is
*split*, and its parts hold the results from then on. Only the first end counts. Then delivery
callbacks run, record by record; waiting threads continue; done callbacks run. After `result` or
`flush` the delivery callbacks have therefore run. `succeed` and `fail` never call user code:
`take_call` returns it.

There is no lock: a signal handler or a destructor may interrupt any line and call this class again,
and the sender thread must not wait for it. A thread that registers a callback checks afterwards
whether the end has come; the sender notes the end first, and then reads the registered callbacks.
So none is forgotten, a waker may be called twice, and a done callback is called by the thread that
removes it.

Owner: the sender thread ends it; any thread adds wakers and done callbacks.
Source: Java classes ``ProduceRequestResult``, ``FutureRecordMetadata``; KIP-467 (record errors).
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pykclient.accel import BatchResult, Delivery
from pykclient.arguments import FOREVER_MS, timeout_ms
from pykclient.errors import KafkaTimeoutError, TransactionAbortedError
from pykclient.network.broker.errors import both
from pykclient.producer.record import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pykclient.accel import Gate, RecordAppender
    from pykclient.accel.abc import OnDelivery
    from pykclient.errors import KafkaError
    from pykclient.producer.failure_reports import FailureReports, UnseenFailure
    from pykclient.types import TopicPartition

__all__ = ["Awaited", "Delivery", "ProduceResult", "ResultState", "Waiting"]

_numbers = itertools.count()
"""Numbers of done callbacks; `next` is atomic, so safe in any thread and signal handler."""


class ResultState(Enum):
    __hash__ = object.__hash__  # faster than Enum's

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SPLIT = "split"


NEXT: dict[ResultState, frozenset[ResultState]] = {
    ResultState.PENDING: frozenset({ResultState.SUCCEEDED, ResultState.FAILED, ResultState.SPLIT}),
    ResultState.SUCCEEDED: frozenset(),
    ResultState.FAILED: frozenset(),
    ResultState.SPLIT: frozenset(),
}


class Awaited(Protocol):
    """A result that a thread can wait for: of the record at `index`, or of many records."""

    def is_done(self, index: int) -> bool:
        """Return True if the result is known and delivery callbacks have run."""
        ...

    def is_decided(self, index: int) -> bool:
        """Return True if the result is known; a delivery callback may read it already."""
        ...

    def add_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Call `waker` when the result is known, at once if it is.

        It must not block, and may be called twice.
        """
        ...

    def remove_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Remove a waker."""
        ...


class Waiting(Protocol):
    """Waiting of application threads; the core itself has no threads."""

    def is_current(self) -> bool:
        """Return True if the caller is the sender thread."""
        ...

    def failures(self) -> tuple[str, KafkaError | None]:
        """Return why brokers do not take records, in words, and a broker's refusal of the client.

        The words are empty, and the refusal None, if there is none. Any thread may call it.
        """
        ...

    def check_may_wait(self, what: str) -> None:
        """Raise if the sender thread would have to wait for the caller.

        Raises:
            UsageError: waiting here would be a deadlock.
        """
        ...

    def await_gate(self, gate: Gate, timeout_s: float, what: str) -> bool:
        """Wait at most `timeout_s` (negative: no limit); return whether the gate was opened.

        Raises:
            UsageError: as `check_may_wait`, at once or later during the wait.
        """
        ...

    def wait(self, result: Awaited, index: int, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds for a record's result; return whether it is known.

        Raises:
            UsageError: waiting here would be a deadlock.
            ForkedClientError: this is a child process.
        """
        ...


def still_under_way(text: str, waiting: Waiting) -> KafkaTimeoutError:
    """Return the error of a wait for a result: a text, and why brokers do not take records."""
    failures, refusal = waiting.failures()
    error = KafkaTimeoutError(both(text, failures))
    error.__cause__ = refusal
    return error


class ProduceResult(BatchResult[RecordMetadata]):
    """The result of the records of one batch. An index is a record's place in the batch.

    Delivery callbacks and timestamps come from the batch's appender, which adds to them while the
    batch is open.
    """

    __slots__ = (
        "_callbacks",
        "_done_callbacks",
        "_error",
        "_is_announced",
        "_parts",
        "_record_errors",
        "_reports",
        "_unseen",
        "_waiting",
        "_wakers",
        "partition",
        "state",
    )

    def __init__(
        self, partition: TopicPartition, reports: FailureReports, waiting: Waiting
    ) -> None:
        super().__init__(RecordMetadata, partition.topic, partition.partition)
        self.partition = partition
        self.state = ResultState.PENDING
        self._reports = reports
        self._waiting = waiting
        self._callbacks: Collection[tuple[int, OnDelivery[RecordMetadata]]] = ()
        self._is_announced = False
        self._error: KafkaError | None = None
        self._record_errors: Mapping[int, KafkaError] = {}
        self._parts: Sequence[tuple[int, ProduceResult]] = ()
        self._wakers: dict[Callable[[], None], None] = {}
        self._done_callbacks: dict[int, tuple[int, Callable[[], object]]] = {}
        self._unseen: UnseenFailure | None = None

    def follow(self, appender: RecordAppender[RecordMetadata]) -> None:
        super().follow(appender)
        self._callbacks = appender.callbacks

    def another(self) -> ProduceResult:
        """Return a pending result for another batch of the same partition."""
        return ProduceResult(self.partition, self._reports, self._waiting)

    # The interface of `Delivery`.

    def is_done(self, index: int) -> bool:
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.is_done(index)
        return self._is_announced

    def is_decided(self, index: int) -> bool:
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.is_decided(index)
        return self.state is not ResultState.PENDING

    def result(self, index: int, timeout: float | None) -> RecordMetadata:
        error = self.exception(index, timeout)
        if error is not None:
            # All deliveries raise the same error object: tracebacks must not pile up in it.
            raise error.with_traceback(None)
        return self.metadata(index)

    def exception(self, index: int, timeout: float | None) -> KafkaError | None:
        if self.is_done(index):
            return self.seen_error(index)
        wait_ms = timeout_ms(timeout, FOREVER_MS)
        if not self._waiting.wait(self, index, timeout):
            raise still_under_way(
                f"a record for {self.partition} was neither delivered nor failed within {wait_ms} "
                f"ms; it is still under way, for at most delivery_timeout_ms",
                self._waiting,
            )
        return self.seen_error(index)

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        if self._is_announced and self.state is ResultState.SPLIT:
            part, index = self._part(index)
            part.add_done_callback(index, function)
            return
        number = next(_numbers)
        self._done_callbacks[number] = (index, function)
        if self._is_announced and self._done_callbacks.pop(number, None) is not None:
            if self.state is ResultState.SPLIT:
                self.add_done_callback(index, function)
            else:
                self._call(function)

    def describe(self, index: int) -> str:
        if not self.is_done(index):
            return f"{self.partition}, under way"
        error = self.error(index)
        if error is not None:
            return f"{self.partition}, failed by {type(error).__name__}: {error}"
        offset = self.metadata(index).offset
        return f"{self.partition}, delivered" + ("" if offset is None else f" at offset {offset}")

    # For waiting threads.

    def add_waker(self, index: int, waker: Callable[[], None]) -> None:
        if self._is_announced and self.state is ResultState.SPLIT:
            part, index = self._part(index)
            part.add_waker(index, waker)
            return
        self._wakers[waker] = None
        if self._is_announced:
            waker()

    def remove_waker(self, index: int, waker: Callable[[], None]) -> None:
        self._wakers.pop(waker, None)
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            part.remove_waker(index, waker)

    # The result, once it is known.

    def metadata(self, index: int) -> RecordMetadata:
        """Return the record's position; without an offset if it failed."""
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.metadata(index)
        return self.where(index)

    def error(self, index: int) -> KafkaError | None:
        """Return the record's error, or None."""
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.error(index)
        return self._record_errors.get(index, self._error)

    def on_seen(self, count: int) -> None:
        """Record that the application has read the error of `count` records."""
        if self._unseen is not None:
            self._unseen.see(count)

    def seen_error(self, index: int) -> KafkaError | None:
        """Return the record's error, and note that the application has read it."""
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.seen_error(index)
        if self._unseen is not None:
            self._unseen.see()  # the records of a batch share one error
        return self.error(index)

    def leaf_of(self, index: int, count: int) -> tuple[ProduceResult, int, int]:
        """Return the result that holds the record at `index`, and the record's place there.

        The third item is how many of the `count` records from `index` on it holds.
        """
        if self.state is not ResultState.SPLIT:
            return self, index, count
        place = bisect_right(self._parts, index, key=_first_index) - 1
        first_index, part = self._parts[place]
        if place + 1 < len(self._parts):
            count = min(count, self._parts[place + 1][0] - index)
        return part.leaf_of(index - first_index, count)

    # Ending.

    def succeed(self, base_offset: int | None, log_append_time_ms: int | None) -> None:
        """Mark as succeeded.

        `base_offset` is the first record's offset, None if unknown. `log_append_time_ms` is None if
        records keep their own timestamps.
        """
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._to(ResultState.SUCCEEDED)

    def fail(
        self,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None = None,
        *,
        record_count: int = 0,
    ) -> None:
        """Mark as failed: records in `record_errors` with their own error, others with `error`.

        `record_count` is the number of records, for the report of failures that are not read.
        """
        self._error = error
        unseen_count = record_count - len(self._callbacks)
        # An abort is meant to drop records; the calls of the transaction raise its reason.
        if unseen_count > 0 and not isinstance(error, TransactionAbortedError):
            self._unseen = self._reports.unseen(str(self.partition), unseen_count, error)
        self._record_errors = record_errors or {}
        self._to(ResultState.FAILED)

    def split(self, parts: Sequence[tuple[int, ProduceResult]]) -> None:
        """Mark as split into `parts`, each with the index of its first record, from 0 on.

        The delivery callbacks are in the parts' own records.
        """
        self._parts = parts
        self._callbacks = ()
        self._to(ResultState.SPLIT)
        for index, function in self._announce():
            part, index_in_part = self._part(index)
            part.add_done_callback(index_in_part, function)

    def take_call(self) -> Callable[[], None] | None:
        """Announce the end, or return a function that runs the callbacks and announces it.

        The driver calls that function once. It announces the end between delivery callbacks and
        done callbacks.
        """
        assert self.state in (ResultState.SUCCEEDED, ResultState.FAILED)
        callbacks, self._callbacks = self._callbacks, ()
        if not callbacks:
            done_callbacks = self._announce()
            if not done_callbacks:
                return None
            return lambda: self._call_all(done_callbacks)

        def call() -> None:
            try:
                if self.state is ResultState.SUCCEEDED:
                    self.report(callbacks, self._report_failed)
                else:
                    self._report_failure(callbacks)
            finally:
                done_callbacks = self._announce()
            self._call_all(done_callbacks)

        return call

    def _announce(self) -> list[tuple[int, Callable[[], object]]]:
        """Wake waiting threads; return the done callbacks, in the order of the records."""
        self._is_announced = True
        self.is_well = self.state is ResultState.SUCCEEDED
        for waker in list(self._wakers):
            waker()
        self._wakers.clear()
        taken = [self._done_callbacks.pop(number, None) for number in list(self._done_callbacks)]
        return sorted((entry for entry in taken if entry is not None), key=_first_index)

    def _report_failure(
        self, callbacks: Collection[tuple[int, OnDelivery[RecordMetadata]]]
    ) -> None:
        for index, on_delivery in callbacks:
            try:
                on_delivery(self.metadata(index), self.error(index))
            except BaseException:  # noqa: BLE001  # user code; it must not end the sender thread
                self._report_failed(on_delivery)

    def _report_failed(self, on_delivery: OnDelivery[RecordMetadata]) -> None:
        self._reports.on_callback_error("a delivery callback", str(self.partition), on_delivery)

    def _call_all(self, functions: Sequence[tuple[int, Callable[[], object]]]) -> None:
        for _, function in functions:
            self._call(function)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            self._reports.on_callback_error("a done callback", str(self.partition), function)
            if not isinstance(error, Exception) and not self._waiting.is_current():
                raise  # the application's own thread: let its exit or interrupt through

    def _part(self, index: int) -> tuple[ProduceResult, int]:
        first_index, part = self._parts[bisect_right(self._parts, index, key=_first_index) - 1]
        return part, index - first_index

    def _to(self, state: ResultState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _first_index(entry: tuple[int, object]) -> int:
    return entry[0]
