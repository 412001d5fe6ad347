"""What became of a batch, and so of each record in it: what every `Delivery` looks at.

An outcome is *pending* until it has *succeeded* or *failed*; that of a batch too large for the
broker is *split*, and its parts tell from then on. The first ending counts. What follows is in the
order that users count on: first the delivery callbacks, record by record, then whoever waits goes
on, then the done callbacks. So who returns from `result` or `flush` knows that his callbacks have
run, and a done callback finds its delivery done. None of this happens inside `succeed` or `fail`,
which never call user code: `take_call` hands it to whoever ended the outcome.

`Delivery` itself, the object that `send` returns, belongs to the per-record core.

Owner: the sender thread ends it; its lock guards the announcement against those who come to wait.
Source: Java classes ``ProduceRequestResult``, ``FutureRecordMetadata``; KIP-467 (record errors).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pykclient.accel import BatchFate, Delivery
from pykclient.errors import KafkaTimeoutError
from pykclient.network.call_timeout import FOREVER_MS, timeout_ms
from pykclient.producer.record import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pykclient.accel.abc import Appender, OnDelivery
    from pykclient.errors import KafkaError
    from pykclient.types import TopicPartition

__all__ = ["Awaited", "BatchOutcome", "Delivery", "OutcomeState", "Waiting"]

log = logging.getLogger("pykclient.producer")


class OutcomeState(Enum):
    """What is known about a batch."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SPLIT = "split"


NEXT: dict[OutcomeState, frozenset[OutcomeState]] = {
    OutcomeState.PENDING: frozenset(
        {OutcomeState.SUCCEEDED, OutcomeState.FAILED, OutcomeState.SPLIT}
    ),
    OutcomeState.SUCCEEDED: frozenset(),
    OutcomeState.FAILED: frozenset(),
    OutcomeState.SPLIT: frozenset(),
}


class Awaited(Protocol):
    """What a thread can wait for: the record at `index` of a batch, or what stands for many."""

    def is_done(self, index: int) -> bool:
        """Whether its fate is known."""
        ...

    def is_decided(self, index: int) -> bool:
        """Whether it is about to be known, so that a delivery callback may already ask."""
        ...

    def add_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Call `waker` when there is news, at once if there is. It must not block."""
        ...

    def remove_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Forget a waker that is not wanted any more."""
        ...


class Waiting(Protocol):
    """How a thread waits for an outcome. The front-end has it, since the core never waits."""

    def wait(self, outcome: Awaited, index: int, timeout: float | None) -> bool:
        """Wait until the record's fate is known, at most `timeout` seconds; return whether it is.

        Raises:
            UsageError: waiting here would never end.
        """
        ...


class BatchOutcome(BatchFate[RecordMetadata]):
    """The fate of the records of one batch. An index is a record's place in that batch.

    What the records brought along, delivery callbacks and timestamps, comes from the batch's
    appender, which goes on filling it while the batch is open.
    """

    __slots__ = (
        "_callbacks",
        "_done_callbacks",
        "_error",
        "_is_announced",
        "_lock",
        "_parts",
        "_record_errors",
        "_waiting",
        "_wakers",
        "partition",
        "state",
    )

    def __init__(
        self, partition: TopicPartition, lock: AbstractContextManager[object], waiting: Waiting
    ) -> None:
        super().__init__(RecordMetadata, partition.topic, partition.partition)
        self.partition = partition
        self.state = OutcomeState.PENDING
        self._lock = lock
        self._waiting = waiting
        self._callbacks: Collection[tuple[int, OnDelivery[RecordMetadata]]] = ()
        self._is_announced = False
        self._error: KafkaError | None = None
        self._record_errors: Mapping[int, KafkaError] = {}
        self._parts: Sequence[tuple[int, BatchOutcome]] = ()
        self._wakers: list[Callable[[], None]] = []
        self._done_callbacks: list[tuple[int, Callable[[], object]]] = []

    def follow(self, appender: Appender[RecordMetadata]) -> None:
        """Learn from `appender` what comes with the records. Before the first one."""
        super().follow(appender)
        self._callbacks = appender.callbacks

    def another(self) -> BatchOutcome:
        """Return a pending outcome for a further batch of the same partition."""
        return BatchOutcome(self.partition, self._lock, self._waiting)

    # What a delivery asks.

    def is_done(self, index: int) -> bool:
        """Whether the record's fate is known."""
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            return part.is_done(index)
        return self._is_announced

    def is_decided(self, index: int) -> bool:
        """Whether it is about to be known: delivery callbacks may still be running."""
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            return part.is_decided(index)
        return self.state is not OutcomeState.PENDING

    def result(self, index: int, timeout: float | None) -> RecordMetadata:
        """Wait at most `timeout` seconds (None: until it ends) and return where the record stands.

        Raises:
            KafkaTimeoutError: the time ran out; the record is still under way.
            KafkaError: the record failed, `DeliveryTimeoutError` among the reasons.
        """
        error = self.exception(index, timeout)
        if error is not None:
            # Each delivery raises the batch's one error, which must not pile up their tracebacks.
            raise error.with_traceback(None)
        return self.metadata(index)

    def exception(self, index: int, timeout: float | None) -> KafkaError | None:
        """Wait likewise and return why the record failed, or None when it did not.

        Raises:
            UsageError: there is something to wait for, and `timeout` is negative.
        """
        if self.is_done(index):
            return self.error(index)
        wait_ms = timeout_ms(timeout, FOREVER_MS)
        if not self._waiting.wait(self, index, timeout):
            raise KafkaTimeoutError(
                f"a record for {self.partition} was neither delivered nor given up after waiting "
                f"{wait_ms} ms; it is still under way, for at most delivery_timeout_ms"
            )
        return self.error(index)

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        """Call `function` once the record's fate is known: in the sender thread, or here and now
        if it is. Should it fail, that is logged."""
        with self._lock:
            is_early = not self._is_announced
            if is_early:
                self._done_callbacks.append((index, function))
        if is_early:
            return
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            part.add_done_callback(index, function)
        else:
            self._call(function)

    # What a waiting asks.

    def add_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Call `waker` when there is news of the record, at once if there is. It must not block."""
        with self._lock:
            is_early = not self._is_announced
            if is_early:
                self._wakers.append(waker)
        if is_early:
            return
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            part.add_waker(index, waker)
        else:
            waker()

    def remove_waker(self, index: int, waker: Callable[[], None]) -> None:
        """Forget a waker that is not wanted any more."""
        with self._lock:
            if waker in self._wakers:
                self._wakers.remove(waker)
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            part.remove_waker(index, waker)

    # What the fate is; once it is known.

    def metadata(self, index: int) -> RecordMetadata:
        """Return where the record stands; without an offset when it failed."""
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            return part.metadata(index)
        return self.where(index)

    def error(self, index: int) -> KafkaError | None:
        """Return why the record failed, or None."""
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            return part.error(index)
        return self._record_errors.get(index, self._error)

    def told_by(self, index: int, count: int) -> tuple[BatchOutcome, int, int]:
        """Return who tells of the record at `index`, its place there, and of how many of the
        `count` records from it on he tells."""
        if self.state is not OutcomeState.SPLIT:
            return self, index, count
        place = bisect_right(self._parts, index, key=_first_index) - 1
        first_index, part = self._parts[place]
        if place + 1 < len(self._parts):
            count = min(count, self._parts[place + 1][0] - index)
        return part.told_by(index - first_index, count)

    # How it ends.

    def succeed(self, base_offset: int | None, log_append_time_ms: int | None) -> None:
        """End well.

        `base_offset` is the first record's, None when not known; `log_append_time_ms` is None where
        records keep their own time.
        """
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._to(OutcomeState.SUCCEEDED)

    def fail(
        self, error: KafkaError, record_errors: Mapping[int, KafkaError] | None = None
    ) -> None:
        """End badly: by the records' own errors, where given, by `error` for all others."""
        self._error = error
        self._record_errors = record_errors or {}
        self._to(OutcomeState.FAILED)

    def split(self, parts: Sequence[tuple[int, BatchOutcome]]) -> None:
        """Let parts tell from now on, each with the index of its first record; they begin at 0.

        The parts' records brought the delivery callbacks along.
        """
        self._parts = parts
        self._callbacks = ()
        self._to(OutcomeState.SPLIT)
        for index, function in self._announce():
            part, index_in_part = self._part(index)
            part.add_done_callback(index_in_part, function)

    def take_call(self) -> Callable[[], None] | None:
        """Announce the end. Where user code is to be called for it, return a function that makes
        all calls and announces the end in between; the driver calls it, once."""
        assert self.state in (OutcomeState.SUCCEEDED, OutcomeState.FAILED)
        callbacks, self._callbacks = self._callbacks, ()
        if not callbacks:
            done_callbacks = self._announce()
            if not done_callbacks:
                return None
            return lambda: self._call_all(done_callbacks)

        def call() -> None:
            try:
                if self.state is OutcomeState.SUCCEEDED:
                    self.tell(callbacks, self._log_failed)
                else:
                    self._tell_of_failure(callbacks)
            finally:
                done_callbacks = self._announce()
            self._call_all(done_callbacks)

        return call

    def _announce(self) -> list[tuple[int, Callable[[], object]]]:
        """Let those go on who wait; return the done callbacks, in the records' order."""
        with self._lock:
            self._is_announced = True
            self.is_well = self.state is OutcomeState.SUCCEEDED
            wakers, self._wakers = self._wakers, []
            done_callbacks, self._done_callbacks = self._done_callbacks, []
        for waker in wakers:
            waker()
        return sorted(done_callbacks, key=_first_index)

    def _tell_of_failure(
        self, callbacks: Collection[tuple[int, OnDelivery[RecordMetadata]]]
    ) -> None:
        for index, on_delivery in callbacks:
            try:
                on_delivery(self.metadata(index), self.error(index))
            except Exception:  # noqa: BLE001  # user code; `_log_failed` logs what it raised
                self._log_failed(on_delivery)

    def _log_failed(self, on_delivery: OnDelivery[RecordMetadata]) -> None:
        log.exception("a delivery callback for %s failed: %r", self.partition, on_delivery)

    def _call_all(self, functions: Sequence[tuple[int, Callable[[], object]]]) -> None:
        for _, function in functions:
            self._call(function)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:
            log.exception("a done callback for %s failed: %r", self.partition, function)

    def _part(self, index: int) -> tuple[BatchOutcome, int]:
        first_index, part = self._parts[bisect_right(self._parts, index, key=_first_index) - 1]
        return part, index - first_index

    def _to(self, state: OutcomeState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _first_index(entry: tuple[int, object]) -> int:
    return entry[0]
