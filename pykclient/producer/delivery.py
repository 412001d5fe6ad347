"""What became of a batch, and so of each record in it: what every `Delivery` looks at.

An outcome is pending until it succeeds or fails; a batch that was too large for the broker is
split, and then its parts tell. The first ending counts, and wakes whoever waits. It never calls
user code: `take_calls` hands that to whoever ended it.

`Delivery` itself, the object that `send` returns, belongs to the per-record core.

Owner: ended by the sender thread; its lock guards the change against those who come to wait.
Source: Java classes ``ProduceRequestResult``, ``FutureRecordMetadata``; KIP-467 (record errors).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from pykclient.accel import Delivery
from pykclient.errors import KafkaTimeoutError
from pykclient.producer.record import RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pykclient.accel.abc import OnDelivery
    from pykclient.errors import KafkaError
    from pykclient.types import TopicPartition

__all__ = ["BatchOutcome", "Delivery", "OutcomeState", "Waiting"]

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


class Waiting(Protocol):
    """How a thread waits for an outcome. The front-end has it, since the core never waits."""

    def wait(self, outcome: BatchOutcome, index: int, timeout: float | None) -> bool:
        """Wait until the record's fate is known, at most `timeout` seconds; return whether it is.

        Raises:
            UsageError: waiting here would never end.
        """
        ...


class BatchOutcome:
    """The fate of the records of one batch. An index is a record's place in that batch.

    `callbacks` are the delivery callbacks with their records' indexes, in order; `timestamps` the
    records' timestamps, each with the index of the first record that has it, in order.
    """

    __slots__ = (
        "_base_offset",
        "_done_callbacks",
        "_error",
        "_lock",
        "_log_append_time_ms",
        "_parts",
        "_record_errors",
        "_wakers",
        "_waiting",
        "callbacks",
        "partition",
        "state",
        "timestamps",
    )

    def __init__(self, partition: TopicPartition, lock: AbstractContextManager[object], waiting: Waiting) -> None:
        self.partition = partition
        self.state = OutcomeState.PENDING
        self.callbacks: Sequence[tuple[int, OnDelivery[RecordMetadata]]] = ()
        self.timestamps: Sequence[tuple[int, int]] = ()
        self._lock = lock
        self._waiting = waiting
        self._base_offset: int | None = None
        self._log_append_time_ms: int | None = None
        self._error: KafkaError | None = None
        self._record_errors: Mapping[int, KafkaError] = {}
        self._parts: Sequence[tuple[int, BatchOutcome]] = ()
        self._wakers: list[Callable[[], None]] = []
        self._done_callbacks: list[tuple[int, Callable[[], object]]] = []

    # What a delivery asks.

    def is_done(self, index: int) -> bool:
        """Whether the record's fate is known."""
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            return part.is_done(index)
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
        """Wait likewise and return why the record failed, or None when it did not."""
        if not self.is_done(index) and not self._waiting.wait(self, index, timeout):
            raise KafkaTimeoutError(
                f"a record for {self.partition} was neither delivered nor given up after waiting "
                f"{round((timeout or 0) * 1000)} ms; it is still under way, for at most "
                f"delivery_timeout_ms"
            )
        return self.error(index)

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        """Call `function` once the record's fate is known: in the sender thread, or here and now
        if it is. Should it fail, that is logged."""
        with self._lock:
            if self.state is OutcomeState.PENDING:
                self._done_callbacks.append((index, function))
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
            if self.state is OutcomeState.PENDING:
                self._wakers.append(waker)
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
        offset = None if self._base_offset is None else self._base_offset + index
        timestamp_ms = self._log_append_time_ms
        if timestamp_ms is None:
            after = bisect_right(self.timestamps, index, key=_first_index)
            timestamp_ms = self.timestamps[after - 1][1]
        return RecordMetadata(*self.partition, offset, timestamp_ms)

    def error(self, index: int) -> KafkaError | None:
        """Return why the record failed, or None."""
        if self.state is OutcomeState.SPLIT:
            part, index = self._part(index)
            return part.error(index)
        return self._record_errors.get(index, self._error)

    # How it ends.

    def succeed(self, base_offset: int | None, log_append_time_ms: int | None) -> bool:
        """End well. Return False, and change nothing, if it has ended before.

        `base_offset` is the first record's, None when not known; `log_append_time_ms` is None where
        records keep their own time.
        """
        with self._lock:
            if self.state is not OutcomeState.PENDING:
                return False
            self._base_offset = base_offset
            self._log_append_time_ms = log_append_time_ms
            self._to(OutcomeState.SUCCEEDED)
        self._wake()
        return True

    def fail(
        self, error: KafkaError, record_errors: Mapping[int, KafkaError] | None = None
    ) -> bool:
        """End badly: by the records' own errors, where given, by `error` for all others.

        Return False, and change nothing, if it has ended before.
        """
        with self._lock:
            if self.state is not OutcomeState.PENDING:
                return False
            self._error = error
            self._record_errors = record_errors or {}
            self._to(OutcomeState.FAILED)
        self._wake()
        return True

    def split(self, parts: Sequence[tuple[int, BatchOutcome]]) -> None:
        """Let parts tell from now on, each with the index of its first record; they begin at 0.

        The parts' batches were given this outcome's `callbacks`.
        """
        with self._lock:
            self._parts = parts
            self.callbacks = ()
            self._to(OutcomeState.SPLIT)
        for index, function in self._done_callbacks:
            part, index_in_part = self._part(index)
            part.add_done_callback(index_in_part, function)
        self._done_callbacks.clear()
        self._wake()

    def take_calls(self) -> Callable[[], None] | None:
        """Return a function that makes all calls due, in the records' order; None if none are."""
        calls: list[tuple[int, Callable[[], object]]] = list(self._done_callbacks)
        callbacks, self.callbacks, self._done_callbacks = self.callbacks, (), []
        if not callbacks and not calls:
            return None

        def call_all() -> None:
            if not calls:
                for index, on_delivery in callbacks:
                    self._deliver(index, on_delivery)
                return
            due = [(index, self._delivering(index, function)) for index, function in callbacks]
            for _, function in sorted(due + calls, key=_first_index):
                self._call(function)

        return call_all

    def _delivering(
        self, index: int, on_delivery: OnDelivery[RecordMetadata]
    ) -> Callable[[], object]:
        return lambda: on_delivery(self.metadata(index), self.error(index))

    def _deliver(self, index: int, on_delivery: OnDelivery[RecordMetadata]) -> None:
        try:
            on_delivery(self.metadata(index), self.error(index))
        except Exception:
            log.exception("a delivery callback for %s failed: %r", self.partition, on_delivery)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:
            log.exception("a done callback for %s failed: %r", self.partition, function)

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()

    def _part(self, index: int) -> tuple[BatchOutcome, int]:
        first_index, part = self._parts[bisect_right(self._parts, index, key=_first_index) - 1]
        return part, index - first_index

    def _to(self, state: OutcomeState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _first_index(entry: tuple[int, object]) -> int:
    return entry[0]
