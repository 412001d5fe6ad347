"""ProduceResult: the result of a batch, and so of each record in it: what every `Delivery` reads.

It is *pending* until it has *succeeded* or *failed*; that of a batch too large for the broker is
*split*, and its parts have the results from then on. The first ending counts. Delivery callbacks
follow, record by record, then waiting threads go on, then done callbacks run: so after `result` or
`flush` the callbacks have run. None of this happens inside `succeed` or `fail`, which never call
user code: `take_call` returns it.

There is no lock: a signal handler or a destructor may interrupt any line of this and come in again,
and the sender thread must not wait for it. What registers looks afterwards whether the end has come
meanwhile; the sender notes the end first, and then goes through what is registered. So none is
forgotten, a waker may be called twice, and a done callback is called by the thread that takes it.

Owner: the sender thread ends it; wakers and done callbacks are registered by any.
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
from pykclient.producer.record import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pykclient.accel import RecordAppender
    from pykclient.accel.abc import OnDelivery
    from pykclient.errors import KafkaError
    from pykclient.network.gate import Gate
    from pykclient.producer.failure_reports import FailureReports, UnseenFailure
    from pykclient.types import TopicPartition

__all__ = ["Awaited", "Delivery", "ProduceResult", "ResultState", "Waiting"]

_numbers = itertools.count()
"""Numbers for done callbacks: `next` on it is safe from any thread and any handler."""


class ResultState(Enum):
    __hash__ = object.__hash__  # without a call

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
    """What a thread can wait for: the record at `index` of a batch, or what stands for many."""

    def is_done(self, index: int) -> bool:
        """Whether its result is known."""
        ...

    def is_decided(self, index: int) -> bool:
        """Whether it is about to be known, so that a delivery callback may read it already."""
        ...

    def add_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Call `waker` when there is news, at once if there is. It must not block, and may be
        called twice."""
        ...

    def remove_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Forget a waker that is not wanted any more."""
        ...


class Waiting(Protocol):
    """How a thread of the application waits; the core itself has no threads."""

    def is_current(self) -> bool:
        """Whether this is the sender thread."""
        ...

    def check_may_wait(self, what: str) -> None:
        """Raise if the sender thread cannot go on before the caller has.

        Raises:
            UsageError: waiting here would never end.
        """
        ...

    def await_gate(self, gate: Gate, timeout_s: float, what: str) -> bool:
        """Wait at most so long (negative: without limit); return whether the gate was opened.

        Raises:
            UsageError: as `check_may_wait` does; that may also come about meanwhile.
        """
        ...

    def wait(self, result: Awaited, index: int, timeout: float | None) -> bool:
        """Wait until the record's result is known, at most `timeout` seconds; return whether it is.

        Raises:
            UsageError: waiting here would never end.
            ForkedClientError: this is a child process.
        """
        ...


class ProduceResult(BatchResult[RecordMetadata]):
    """The result of the records of one batch. An index is a record's place in that batch.

    What the records brought along, delivery callbacks and timestamps, comes from the batch's
    appender, which goes on filling it while the batch is open.
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
        """Return a pending result for a further batch of the same partition."""
        return ProduceResult(self.partition, self._reports, self._waiting)

    # What a delivery reads.

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
            # Each delivery raises the batch's one error, which must not pile up their tracebacks.
            raise error.with_traceback(None)
        return self.metadata(index)

    def exception(self, index: int, timeout: float | None) -> KafkaError | None:
        if self.is_done(index):
            return self.seen_error(index)
        wait_ms = timeout_ms(timeout, FOREVER_MS)
        if not self._waiting.wait(self, index, timeout):
            raise KafkaTimeoutError(
                f"a record for {self.partition} was neither delivered nor given up after waiting "
                f"{wait_ms} ms; it is still under way, for at most delivery_timeout_ms"
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

    # What a waiting thread uses.

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

    # What the result is; once it is known.

    def metadata(self, index: int) -> RecordMetadata:
        """Return where the record stands; without an offset when it failed."""
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.metadata(index)
        return self.where(index)

    def error(self, index: int) -> KafkaError | None:
        """Return why the record failed, or None."""
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.error(index)
        return self._record_errors.get(index, self._error)

    def on_seen(self, count: int) -> None:
        """Note that the application has seen why so many of the records failed."""
        if self._unseen is not None:
            self._unseen.see(count)

    def seen_error(self, index: int) -> KafkaError | None:
        """As `error`, for an application that sees it."""
        if self.state is ResultState.SPLIT:
            part, index = self._part(index)
            return part.seen_error(index)
        if self._unseen is not None:
            self._unseen.see()  # one record's error is that of all in its batch
        return self.error(index)

    def leaf_of(self, index: int, count: int) -> tuple[ProduceResult, int, int]:
        """Return the result that has the record at `index`, its place there, and how many of the
        `count` records from it on it has."""
        if self.state is not ResultState.SPLIT:
            return self, index, count
        place = bisect_right(self._parts, index, key=_first_index) - 1
        first_index, part = self._parts[place]
        if place + 1 < len(self._parts):
            count = min(count, self._parts[place + 1][0] - index)
        return part.leaf_of(index - first_index, count)

    # How it ends.

    def succeed(self, base_offset: int | None, log_append_time_ms: int | None) -> None:
        """End well.

        `base_offset` is the first record's, None when not known; `log_append_time_ms` is None where
        records keep their own time.
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
        """End badly: by the records' own errors, where given, by `error` for all others.

        `record_count` is how many records there are, for the report on what was not seen.
        """
        self._error = error
        unseen_count = record_count - len(self._callbacks)
        # That an abort drops records is what it is for; why it was necessary, its calls raise.
        if unseen_count > 0 and not isinstance(error, TransactionAbortedError):
            self._unseen = self._reports.unseen(str(self.partition), unseen_count, error)
        self._record_errors = record_errors or {}
        self._to(ResultState.FAILED)

    def split(self, parts: Sequence[tuple[int, ProduceResult]]) -> None:
        """Let parts have the results from now on, each with the index of its first record.

        They begin at 0. The parts' records brought the delivery callbacks along.
        """
        self._parts = parts
        self._callbacks = ()
        self._to(ResultState.SPLIT)
        for index, function in self._announce():
            part, index_in_part = self._part(index)
            part.add_done_callback(index_in_part, function)

    def take_call(self) -> Callable[[], None] | None:
        """Announce the end. Where user code is to be called for it, return a function that makes
        all calls and announces the end in between; the driver calls it, once."""
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
        """Wake the threads that wait; return the done callbacks, in the records' order."""
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
                raise  # the application's own thread: an exit or an interrupt is its own

    def _part(self, index: int) -> tuple[ProduceResult, int]:
        first_index, part = self._parts[bisect_right(self._parts, index, key=_first_index) - 1]
        return part, index - first_index

    def _to(self, state: ResultState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _first_index(entry: tuple[int, object]) -> int:
    return entry[0]
