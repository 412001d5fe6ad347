"""BulkResult: the result of one `send_batch` or `send_arrow`, whose rows are in many batches.

It is *filling* while rows are being appended, *pending* until all parts are settled, then *done*.
When a batch ends, its part shrinks to the range of its rows or their error, so that memory is used
per batch and not per row. There is no lock, for the reason given in `producer/delivery.py`: two
threads that complete the result at the same time set the same result.

Owner: a part belongs to the thread that settles it, the sender thread once its batch has ended;
any thread adds wakers and done callbacks.
"""

from __future__ import annotations

import itertools
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pykclient.arguments import timeout_ms
from pykclient.errors import BatchDeliveryError
from pykclient.producer.delivery import ResultState, still_under_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pykclient.errors import KafkaError
    from pykclient.producer.accumulator.append import AppendedRows
    from pykclient.producer.delivery import ProduceResult, Waiting
    from pykclient.producer.failure_reports import FailureReports, UnseenFailure

_numbers = itertools.count()
"""Numbers of done callbacks; `next` is atomic, so safe in any thread and signal handler."""


class RecordMetadataRange(NamedTuple):
    """A run of `count` records with consecutive offsets in one partition.

    `first_offset` is None when it is unknown, as `RecordMetadata.offset`.
    """

    topic: str
    partition: int
    first_offset: int | None
    count: int  # type: ignore[assignment]  # hides tuple.count


class _Failure(NamedTuple):
    start: int
    stop: int
    error: KafkaError


class _Part:
    """Neighbouring rows in one batch; `settled_count` of them have a result."""

    __slots__ = ("count", "failures", "first_index", "ranges", "result", "rows", "settled_count")

    def __init__(self, result: ProduceResult, first_index: int, rows: Sequence[int]) -> None:
        self.result: ProduceResult | None = result
        self.first_index = first_index
        self.rows = rows
        self.count = len(rows)
        self.settled_count = 0
        self.ranges: list[RecordMetadataRange] = []
        self.failures: list[_Failure] = []


class BulkResult:
    """The result of `row_count` rows, in the form that `Delivery` reads; the only index is 0."""

    def __init__(self, row_count: int, reports: FailureReports, waiting: Waiting) -> None:
        self._row_count = row_count
        self._reports = reports
        self._waiting = waiting
        self._parts: list[_Part] = []
        self._last: _Part | None = None
        self._refused: list[_Failure] = []
        self._is_filling = True
        self._pending: dict[_Part, None] = {}
        self._is_done = False
        self._error: BatchDeliveryError | None = None
        self._unseen: UnseenFailure | None = None
        self._wakers: dict[Callable[[], None], None] = {}
        self._done_callbacks: dict[int, Callable[[], object]] = {}

    # Filling: the thread that sends.

    @property
    def has_rows(self) -> bool:
        return self._last is not None or bool(self._parts)

    def add(self, appended: AppendedRows) -> None:
        """Add rows that were appended to a batch."""
        last = self._last
        if last is not None:
            if _continues(last, appended):
                last.rows = range(last.rows[0], appended.rows[-1] + 1)
                last.count = len(last.rows)
                return
            self._follow(last)
        self._last = _Part(*appended)

    def refuse(self, rows: Sequence[int], error: KafkaError) -> None:
        self._refused += [_Failure(start, stop, error) for start, stop in _spans(rows)]

    def seal(self) -> None:
        """End filling: all rows were added or refused."""
        last, self._last = self._last, None
        if last is not None:
            self._follow(last)
        self._is_filling = False
        self._end_if_complete()

    def _follow(self, part: _Part) -> None:
        self._parts.append(part)
        self._pending[part] = None
        self._settle(part)

    # Settling.

    def _settle(self, part: _Part) -> None:
        """Settle a part as far as its results are known; continue when there are more."""
        result = part.result
        assert result is not None
        while part.settled_count < part.count:
            index = part.first_index + part.settled_count
            # A batch too large for the broker was split; its parts end one by one.
            leaf, leaf_index, count = result.leaf_of(index, part.count - part.settled_count)
            if leaf.state is ResultState.SPLIT:
                continue
            if not leaf.is_done(leaf_index):
                result.add_done_callback(index, lambda: self._settle(part))
                return
            rows = part.rows[part.settled_count : part.settled_count + count]
            part.settled_count += count
            if leaf.state is ResultState.SUCCEEDED:
                topic, partition, offset, _ = leaf.metadata(leaf_index)
                part.ranges.append(RecordMetadataRange(topic, partition, offset, count))
            else:
                part.failures += _failures(leaf, leaf_index, rows)
                leaf.on_seen(count)  # `BatchDeliveryError` reports it
        part.result = None
        part.rows = ()
        self._pending.pop(part, None)
        self._end_if_complete()

    def _end_if_complete(self) -> None:
        if self._is_filling or self._pending:
            return
        if not self._is_done:
            error = self._error = self._make_error()
            if error is not None and self._unseen is None:
                failed_count = sum(len(rows) for rows in error.failed)
                what = "a send_batch or send_arrow"
                self._unseen = self._reports.unseen(what, failed_count, error.errors[0])
            self._is_done = True
        for waker in list(self._wakers):
            waker()
        self._wakers.clear()
        for number in list(self._done_callbacks):
            function = self._done_callbacks.pop(number, None)
            if function is not None:
                self._call(function)

    def _make_error(self) -> BatchDeliveryError | None:
        found = [*self._refused, *(failure for part in self._parts for failure in part.failures)]
        if not found:
            return None
        failures = _merged(sorted(found, key=lambda failure: failure.start))
        failed_count = sum(failure.stop - failure.start for failure in failures)
        first = failures[0]
        error = BatchDeliveryError(
            f"{failed_count} of {self._row_count} records were not delivered, the first of them at "
            f"index {first.start}: {first.error}",
            sent=tuple(_between(failures, self._row_count)),
            failed=tuple(range(failure.start, failure.stop) for failure in failures),
            errors=tuple(failure.error for failure in failures),
        )
        error.__cause__ = first.error
        return error

    # The interface of `Delivery`.

    def is_done(self, index: int) -> bool:
        return self._is_done

    def result(self, index: int, timeout: float | None) -> list[RecordMetadataRange]:
        """Wait at most `timeout` seconds (None: until done); return the rows' ranges."""
        error = self.exception(index, timeout)
        if error is not None:
            raise error.with_traceback(None)
        return _joined(found for part in self._parts for found in part.ranges)

    def exception(self, index: int, timeout: float | None) -> BatchDeliveryError | None:
        if timeout is not None:
            timeout_ms(timeout, 0)  # an invalid timeout is refused even when already done
        if not self._is_done and not self._waiting.wait(self, index, timeout):
            raise still_under_way(
                f"not all of {self._row_count} records were delivered or failed within "
                f"{round((timeout or 0) * 1000)} ms; they are still under way, each for at most "
                f"delivery_timeout_ms",
                self._waiting,
            )
        if self._unseen is not None:
            self._unseen.see()
        return self._error

    def add_done_callback(self, index: int, function: Callable[[], object]) -> None:
        number = next(_numbers)
        self._done_callbacks[number] = function
        if self._is_done and self._done_callbacks.pop(number, None) is not None:
            self._call(function)

    def describe(self, index: int) -> str:
        if not self._is_done:
            return f"{self._row_count} records, under way"
        return f"{self._row_count} records delivered" if self._error is None else str(self._error)

    def _call(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            where = f"{self._row_count} records"
            self._reports.on_callback_error("a done callback", where, function)
            if not isinstance(error, Exception) and not self._waiting.is_current():
                raise  # the application's own thread: let its exit or interrupt through

    # For waiting threads.

    def is_decided(self, index: int) -> bool:
        """Return True if the results of all rows are known."""
        return self._is_done

    def add_waker(self, index: int, waker: Callable[[], None]) -> None:
        self._wakers[waker] = None
        if self._is_done:
            waker()

    def remove_waker(self, index: int, waker: Callable[[], None]) -> None:
        self._wakers.pop(waker, None)


def _continues(last: _Part, appended: AppendedRows) -> bool:
    return (
        appended.result is last.result
        and appended.first_index == last.first_index + last.count
        and isinstance(last.rows, range)
        and isinstance(appended.rows, range)
        and appended.rows.start == last.rows.stop
    )


def _spans(rows: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return ascending rows as (start, stop) spans."""
    if isinstance(rows, range):
        return [(rows.start, rows.stop)] if rows else []
    numbered = groupby(enumerate(rows), key=lambda entry: entry[1] - entry[0])
    spans = ([row for _, row in span] for _, span in numbered)
    return [(span[0], span[-1] + 1) for span in spans]


def _failures(result: ProduceResult, index: int, rows: Sequence[int]) -> Iterable[_Failure]:
    errors = groupby(
        ((result.error(index + place), row) for place, row in enumerate(rows)),
        key=lambda entry: entry[0],
    )
    for error, entries in errors:
        assert error is not None
        for start, stop in _spans([row for _, row in entries]):
            yield _Failure(start, stop, error)


def _merged(failures: Sequence[_Failure]) -> list[_Failure]:
    """Join neighbouring failures that have the same reason."""
    merged = [failures[0]]
    for failure in failures[1:]:
        last = merged[-1]
        # A broker error is a separate object per record, even if it refused all of them.
        if last.stop == failure.start and str(last.error) == str(failure.error):
            merged[-1] = last._replace(stop=failure.stop)
        else:
            merged.append(failure)
    return merged


def _between(failures: Sequence[_Failure], row_count: int) -> Iterable[range]:
    edges = [
        0,
        *(edge for failure in failures for edge in (failure.start, failure.stop)),
        row_count,
    ]
    return [
        range(start, stop)
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
        if start < stop
    ]


def _joined(ranges: Iterable[RecordMetadataRange]) -> list[RecordMetadataRange]:
    """Join ranges that continue the one before."""
    joined: list[RecordMetadataRange] = []
    for found in ranges:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last[:2] == found[:2]
            and last.first_offset is not None
            and last.first_offset + last.count == found.first_offset
        ):
            joined[-1] = last._replace(count=last.count + found.count)
        else:
            joined.append(found)
    return joined
