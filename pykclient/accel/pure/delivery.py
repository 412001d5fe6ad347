"""The delivery that `send` returns, and the shared result of its batch.

Owner: a delivery never changes; a `BatchResult` belongs to the thread that ends the batch, which
sets its fields, `is_well` last.
Source: the methods of `concurrent.futures.Future`; Java classes ``FutureRecordMetadata``,
``ProduceRequestResult``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

from pykclient.arguments import check_callable
from pykclient.errors.base import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pykclient.accel.abc import DeliveryBatch, OnDelivery
    from pykclient.accel.pure.appender import RecordAppender
    from pykclient.errors.base import KafkaError

T = TypeVar("T")


class BatchResult(Generic[T]):
    """The metadata of a batch's records.

    `kind` is a NamedTuple of topic, partition, offset and timestamp; the last two are None if
    unknown. `is_well`: every record is delivered and every callback has run, so that a `Delivery`
    takes its result from here. `base_offset` is the first record's offset; `log_append_time_ms` is
    None if records keep their own time.
    """

    __slots__ = (
        "_first_indexes",
        "_kind",
        "_timestamps_ms",
        "_topic_and_partition",
        "base_offset",
        "is_well",
        "log_append_time_ms",
    )

    def __init__(self, kind: type[T], topic: str, partition: int) -> None:
        self.is_well = False
        self.base_offset: int | None = None
        self.log_append_time_ms: int | None = None
        self._kind = kind
        self._topic_and_partition = (topic, partition)
        self._first_indexes: Sequence[int] = ()
        self._timestamps_ms: Sequence[int] = ()

    def follow(self, appender: RecordAppender[T]) -> None:
        """Take the records' timestamps from `appender`. Call it before the first record."""
        self._first_indexes = appender.first_indexes
        self._timestamps_ms = appender.timestamps_ms

    def where(self, index: int) -> T:
        timestamp_ms = self.log_append_time_ms
        if timestamp_ms is None:
            timestamp_ms = self._timestamps_ms[bisect_right(self._first_indexes, index) - 1]
        offset = None if self.base_offset is None else self.base_offset + index
        # This is the constructor of a NamedTuple, without its call.
        fields = (*self._topic_and_partition, offset, timestamp_ms)
        return tuple.__new__(self._kind, fields)  # type: ignore[type-var]  # it is a NamedTuple

    def report(
        self,
        callbacks: Iterable[tuple[int, OnDelivery[T]]],
        on_error: Callable[[OnDelivery[T]], object],
    ) -> None:
        """Call delivery callbacks in order with the metadata of their records.

        If a callback raises anything (even an exit, since this is the sender thread), `on_error` is
        called with it while the exception is being handled.
        """
        for index, on_delivery in callbacks:
            try:
                on_delivery(self.where(index), None)
            except BaseException:  # noqa: BLE001  # user code, and `on_error` logs what it raised
                on_error(on_delivery)


class Delivery(Generic[T]):
    """The pending result of one record.

    It has the methods of a `concurrent.futures.Future` that only read. `batch` is None if no code
    waits for records (a batch built outside a producer).
    """

    __slots__ = ("batch", "index")

    def __init__(self, batch: DeliveryBatch[T] | None, index: int) -> None:
        self.batch = batch
        self.index = index

    def __repr__(self) -> str:
        state = "without a batch" if self.batch is None else self.batch.describe(self.index)
        return f"<Delivery: {state}>"

    def __reduce__(self) -> NoReturn:
        """Raise an error: a delivery can be neither pickled nor copied.

        Raises:
            UsageError: always.
        """
        refuse_to_leave()

    def done(self) -> bool:
        """Return whether the record's result is known."""
        batch = self.batch
        assert batch is not None
        if isinstance(batch, BatchResult) and batch.is_well:
            return True
        return batch.is_done(self.index)

    def result(self, timeout: float | None = None) -> T:
        """Wait and return the record's metadata.

        `timeout` is in seconds; None waits until the record is delivered or has failed.

        Raises:
            KafkaTimeoutError: the time ran out; the record may still be delivered.
            KafkaError: the record failed.
        """
        batch = self.batch
        assert batch is not None
        if isinstance(batch, BatchResult) and batch.is_well:
            result: BatchResult[T] = batch
            return result.where(self.index)
        return batch.result(self.index, timeout)

    def get(self, timeout: float | None = None) -> T:
        """Return the same as `result`."""
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait like `result` and return the error of the record, or None if it succeeded.

        Raises:
            KafkaTimeoutError: the time ran out.
        """
        batch = self.batch
        assert batch is not None
        if isinstance(batch, BatchResult) and batch.is_well:
            return None
        return batch.exception(self.index, timeout)

    def add_done_callback(self, function: Callable[[Delivery[T]], object]) -> None:
        """Call `function` with this delivery when there is a result, or at once if there is."""
        assert self.batch is not None
        check_callable(function, "add_done_callback: function", "the delivery")
        self.batch.add_done_callback(self.index, lambda: function(self))


def refuse_to_leave() -> NoReturn:
    """Raise an error for pickling or copying a delivery.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "a Delivery cannot be pickled or copied: it waits for a producer of this process; send "
        "what its result() returns"
    )
