"""RowTable: the input of `send_batch` or `send_arrow`, checked as a whole before any row is sent.

Once there is a table, its records are valid; only sending can fail.

Owner: none, a table is immutable; the application's thread creates it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pykclient.accel import ByteColumn, RowBlock, largest_partitions
from pykclient.accel.pure.appender import encode_headers
from pykclient.arguments import check_topic
from pykclient.errors import UsageError
from pykclient.producer.record import ProducerRecord
from pykclient.producer.serializers import checked_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.accel.abc import HeadersInput
    from pykclient.producer.serializers import RecordSerializer

BulkHeaders = (
    Mapping[str, bytes | None]
    | Sequence[tuple[str, bytes | None]]
    | Sequence["HeadersInput | None"]
)
"""Headers of many records: the pairs of all of them, or one entry per record, pairs or None."""

Timestamps = int | Sequence[int | None]
"""Timestamps of many records in milliseconds since 1970: one for all, or one per record."""

TEXT: Final = (str, bytes, bytearray, memoryview)


class TableBlock(NamedTuple):
    """Rows of a table that are contiguous in memory.

    `topics` holds each row's topic, as an index into the table's topics; None if there is one
    topic. `partitions` holds each row's partition, -1 to let the producer choose; an int if all
    rows go to the same, None if the producer chooses for all.
    """

    rows: RowBlock
    topics: Sequence[int] | None
    partitions: Sequence[int] | int | None


class RowTable(NamedTuple):
    """Checked records in non-empty blocks, and the names of their topics."""

    topics: tuple[str, ...]
    blocks: tuple[TableBlock, ...]

    @property
    def row_count(self) -> int:
        return sum(len(block.rows) for block in self.blocks)

    def largest_partitions(self) -> list[tuple[str, int | None]]:
        """Return each topic with the largest partition that its rows name, or None."""
        largest = [-1] * len(self.topics)
        for _, topics, partitions in self.blocks:
            if isinstance(partitions, int):
                found = [partitions] * len(self.topics)
            elif partitions is not None:
                found = largest_partitions(partitions, topics, len(self.topics))
            else:
                continue
            largest = list(map(max, largest, found))
        return [
            (topic, None if partition < 0 else partition)
            for topic, partition in zip(self.topics, largest, strict=True)
        ]


class BulkInput(NamedTuple):
    """The arguments of `send_batch`."""

    topic: object
    values: Iterable[object]
    keys: Iterable[object] | None = None
    partition: int | None = None
    timestamps_ms: Timestamps | None = None
    headers: BulkHeaders | None = None


class RowTables:
    """Converts sequences to tables. `clock_ms` is the time of records without a timestamp."""

    def __init__(self, serializer: RecordSerializer, clock_ms: Callable[[], int]) -> None:
        self._serializer = serializer
        self._clock_ms = clock_ms

    def table(self, given: BulkInput) -> RowTable:
        """Return the records as a table."""
        topic, values, keys, partition, timestamps_ms, headers = given
        topic = check_topic(topic, "send_batch")
        listed = _listed("values", values)
        count = len(listed)
        block = RowBlock(
            self._serializer.column("values", repeat(topic), listed),
            keys=None
            if keys is None
            else self._serializer.column("keys", repeat(topic), _listed("keys", keys, count)),
            headers=None if headers is None else header_column(headers, count),
            timestamps_ms=self.timestamps(timestamps_ms, count),
            first_row=0,
        )
        self._serializer.check_sizes(block)
        chosen = None if partition is None else checked_number(partition, "partition")
        return RowTable((topic,), (TableBlock(block, None, chosen),) if count else ())

    def records(self, given: BulkInput) -> list[ProducerRecord[object, object]]:
        """Return the records one by one, for interceptors and serializers that take headers."""
        topic, values, keys, partition, timestamps_ms, headers = given
        topic = check_topic(topic, "send_batch")
        listed = _listed("values", values)
        count = len(listed)
        times: Iterable[int | None] = (
            repeat(timestamps_ms)
            if timestamps_ms is None or isinstance(timestamps_ms, int)
            else cast("list[int | None]", _listed("timestamps_ms", timestamps_ms, count))
        )
        return records_of(
            zip(
                repeat(topic),
                listed,
                repeat(None) if keys is None else _listed("keys", keys, count),
                repeat(partition),
                times,
                _header_lists(headers, count),
                strict=False,
            )
        )

    def timestamps(self, timestamps_ms: Timestamps | None, count: int) -> int | Sequence[int]:
        """Return timestamps in the form that a block takes."""
        if timestamps_ms is None:
            return self._clock_ms()
        if isinstance(timestamps_ms, int):
            return checked_number(timestamps_ms, "timestamps_ms")
        listed = _listed("timestamps_ms", timestamps_ms, count)
        if None in listed:
            now_ms = self._clock_ms()
            listed = [now_ms if time_ms is None else time_ms for time_ms in listed]
        try:
            found = array("q", cast("list[int]", listed))
        except (TypeError, OverflowError):
            found = None
        if found is None or min(found, default=0) < 0:
            for index, time_ms in enumerate(listed if found is None else found):
                checked_number(time_ms, f"timestamps_ms[{index}]")
        assert found is not None, "one of them is invalid"
        return found


def records_of(
    rows: Iterable[tuple[str, object, object, Any, Any, Any]],
) -> list[ProducerRecord[object, object]]:
    return [
        ProducerRecord(
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers or (),
        )
        for topic, value, key, partition, timestamp_ms, headers in rows
    ]


def header_column(headers: BulkHeaders, count: int) -> ByteColumn | None:
    """Return headers in the form that a block takes."""
    listed = _listed_headers(headers)
    if not listed:
        return None
    if is_pair(listed[0]):
        return ByteColumn.repeated(encode_headers(cast("HeadersInput", listed)), count)
    return ByteColumn.from_headers(
        cast("list[HeadersInput | None]", _listed("headers", listed, count)), "headers"
    )


def _header_lists(headers: BulkHeaders | None, count: int) -> Iterable[HeadersInput | None]:
    listed = [] if headers is None else _listed_headers(headers)
    if not listed or is_pair(listed[0]):
        return repeat(cast("HeadersInput", listed))
    return cast("list[HeadersInput | None]", _listed("headers", listed, count))


def _listed_headers(headers: BulkHeaders) -> list[object]:
    return _listed("headers", headers.items() if isinstance(headers, Mapping) else headers)


def is_pair(entry: object) -> bool:
    """Return True if an entry is a pair for all records, not the headers of one record."""
    return isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], str)


def _listed(name: str, items: Iterable[object], count: int | None = None) -> list[object]:
    if isinstance(items, TEXT):
        listed = None
    elif isinstance(items, list):
        listed = items
    else:
        try:
            listed = list(items)
        except TypeError:
            listed = None
    if listed is None:
        raise UsageError(
            f"{name} has one entry for each record, in a list or other iterable; it is of type "
            f"{type(items).__name__}"
        )
    if count is not None and len(listed) != count:
        raise UsageError(f"{name} has {len(listed)} entries for {count} values")
    return listed
