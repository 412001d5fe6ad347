"""Flushes: who waits until the batches of a moment are done.

Owner: the sender thread; `want` may be called from any.
Source: Java classes ``RecordAccumulator.awaitFlushCompletion``, ``IncompleteBatches``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation
    from pykclient.producer.accumulator.batch import ProducerBatch

__all__ = ["Flushes"]


class _Flush(NamedTuple):
    """One flush: its operation, and the batches that it still waits for."""

    operation: Operation[None]
    batches: set[ProducerBatch]


class Flushes:
    """All flushes that are wanted or under way."""

    def __init__(self) -> None:
        self._wanted: deque[Operation[None]] = deque()
        self._under_way: list[_Flush] = []
        self._failed_by: KafkaError | None = None

    def want(self, operation: Operation[None]) -> None:
        """Ask for a flush; after `fail` it fails at once. Any thread."""
        self._wanted.append(operation)
        if self._failed_by is not None:
            self._fail_wanted(self._failed_by)

    def take_wanted(self) -> list[Operation[None]]:
        """Take out what was asked for, to `begin` it: before the batches are gathered that it is
        to wait for. Whoever asks has put all his batches where they will be found."""
        taken = []
        while True:
            try:
                taken.append(self._wanted.popleft())
            except IndexError:  # `want` may be taking them out as well
                return taken

    def begin(
        self, operations: Iterable[Operation[None]], batches: Iterable[ProducerBatch]
    ) -> None:
        """Begin flushes that were taken out: they end when these batches are done."""
        waited_for = set(batches)
        for operation in operations:
            if self._failed_by is not None:
                operation.fail(self._failed_by)
            else:
                self._under_way.append(_Flush(operation, set(waited_for)))
        self._end()

    def on_done(self, batch: ProducerBatch) -> None:
        """Note that a batch is done."""
        for flush in self._under_way:
            flush.batches.discard(batch)
        self._end()

    def on_split(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Wait for the parts of a batch instead of the batch."""
        for flush in self._under_way:
            if batch in flush.batches:
                flush.batches.discard(batch)
                flush.batches.update(parts)

    def forget(self, operation: Operation[None]) -> None:
        """Drop a flush for which nobody waits any more. Its operation does not end."""
        self._under_way = [flush for flush in self._under_way if flush.operation is not operation]

    def fail(self, error: KafkaError) -> None:
        """End every flush with an error, those to come as well."""
        self._failed_by = error
        self._fail_wanted(error)
        for flush in self._under_way:
            flush.operation.fail(error)
        self._under_way.clear()

    def _fail_wanted(self, error: KafkaError) -> None:
        for operation in self.take_wanted():
            operation.fail(error)

    def _end(self) -> None:
        if not self._under_way:
            return
        for flush in self._under_way:
            if not flush.batches:
                flush.operation.succeed(None)
        self._under_way = [flush for flush in self._under_way if flush.batches]
