"""What the records of a delivered batch have in common, and where each of them stands.

It is empty until its batch has ended. Who ends the batch fills in the fields; `is_well` comes last.

Owner: whoever ends the batch.
Source: Java classes ``ProduceRequestResult``, ``FutureRecordMetadata``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pykclient.accel.abc import OnDelivery
    from pykclient.accel.pure.appender import RecordAppender

__all__ = ["BatchResult"]

T = TypeVar("T")


class BatchResult(Generic[T]):
    """Where the records of a batch stand. `kind` is a NamedTuple, made of topic, partition, offset
    and timestamp, the last two None where they are not known.

    `is_well`: every record is delivered and every callback has run, so that a `Delivery` takes its
    result from here. `base_offset` is the first record's; `log_append_time_ms` is None where
    records keep their own time.
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
        """Learn from `appender` the timestamps that come with the records. Before the first one."""
        self._first_indexes = appender.first_indexes
        self._timestamps_ms = appender.timestamps_ms

    def where(self, index: int) -> T:
        timestamp_ms = self.log_append_time_ms
        if timestamp_ms is None:
            timestamp_ms = self._timestamps_ms[bisect_right(self._first_indexes, index) - 1]
        offset = None if self.base_offset is None else self.base_offset + index
        # As the constructor of a NamedTuple does, less the call of it.
        fields = (*self._topic_and_partition, offset, timestamp_ms)
        return tuple.__new__(self._kind, fields)  # type: ignore[type-var]  # it is a NamedTuple

    def report(
        self,
        callbacks: Iterable[tuple[int, OnDelivery[T]]],
        on_error: Callable[[OnDelivery[T]], object],
    ) -> None:
        """Call delivery callbacks with where their records stand; they come in order.

        `on_error` is called with one that raises, whatever it is (an exit too: this is the sender
        thread, not the application's), while that is being handled.
        """
        for index, on_delivery in callbacks:
            try:
                on_delivery(self.where(index), None)
            except BaseException:  # noqa: BLE001  # user code, and `on_error` logs what it raised
                on_error(on_delivery)
