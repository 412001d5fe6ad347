"""ArrowTables: makes row tables of Arrow data, whose bytes are read where they are.

Columns are checked by name, type and content before anything is sent; `ArrowFields` reads them.

Owner: none.
Source: the Arrow PyCapsule interface; the columns are those that Spark's Kafka sink takes.
"""

from __future__ import annotations

from difflib import get_close_matches
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal

from pykclient.accel import ByteColumn, RowBlock
from pykclient.arguments import check_topic
from pykclient.errors import UsageError
from pykclient.producer.bulk.arrow_fields import ArrowFields, batches_of, check_layout, topic_codes
from pykclient.producer.bulk.table import RowTable, TableBlock
from pykclient.producer.record import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow

    from pykclient.producer.serializers import RecordSerializer

__all__ = ["ArrowTables"]

COLUMNS: Final = ("value", "key", "headers", "partition", "timestamp", "topic")
ROWS_PER_PIECE_MIN: Final = 1024
"""Tables in smaller pieces than this are copied into one: each piece costs as much as many rows."""


class ArrowTables:
    """Makes tables of Arrow data. `clock_ms` tells the time of records that bring none."""

    def __init__(self, serializer: RecordSerializer, clock_ms: Callable[[], int]) -> None:
        self._serializer = serializer
        self._clock_ms = clock_ms

    def table(self, topic: object, data: object) -> RowTable:
        """Return the records, ready to be sent; with `topic` None each row names its own.

        Raises:
            SerializationError: a key, value or header has a type that is not sent as it is.
            RecordTooLargeError: a record cannot be sent in one request, or be held at all.
            UsageError: pyarrow is missing, this is no Arrow data, it has other columns or types,
                or a field has a value that no record can have.
        """
        names, table = _with_topics(topic, _arrow_table(data))
        blocks: list[TableBlock] = []
        first_row = 0
        for batch in batches_of(table):
            blocks.append(self._block(names, batch, first_row))
            first_row += batch.num_rows
        return RowTable(names, tuple(block for block in blocks if len(block.rows)))

    def records(self, topic: object, data: object) -> list[ProducerRecord]:
        """Return the records one by one, for whoever wants to see each before it is sent.

        Raises:
            SerializationError, UsageError: as `table` does.
        """
        names, table = _with_topics(topic, _arrow_table(data))
        records: list[ProducerRecord] = []
        for batch in table.to_batches():
            fields = ArrowFields(batch)
            rows = zip(
                _topics(names, fields),
                fields.objects("value", is_raw=not self._serializer.has_serializer("values")),
                fields.objects("key", is_raw=not self._serializer.has_serializer("keys")),
                fields.header_lists(),
                _or_none(fields.partitions()),
                fields.timestamps_ms(None) or repeat(None),
                strict=False,
            )
            for name, value, key, headers, partition, timestamp_ms in rows:
                record = ProducerRecord(
                    name,
                    value,
                    key,
                    partition=partition,
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
                records.append(record)
        return records

    def _block(
        self, names: Sequence[str], batch: pyarrow.RecordBatch, first_row: int
    ) -> TableBlock:
        fields = ArrowFields(batch, first_row)
        now_ms = self._clock_ms()
        rows = RowBlock(
            self._bytes("values", fields, names) or ByteColumn.repeated(None, batch.num_rows),
            keys=self._bytes("keys", fields, names),
            headers=fields.headers(),
            timestamps_ms=fields.timestamps_ms(now_ms) or now_ms,
            first_row=first_row,
        )
        self._serializer.check_sizes(rows)
        return TableBlock(rows, fields.topics(), fields.partitions())

    def _bytes(
        self, name: Literal["keys", "values"], fields: ArrowFields, names: Sequence[str]
    ) -> ByteColumn | None:
        column = name.removesuffix("s")
        if not fields.has(column):
            return None
        if self._serializer.has_serializer(name):
            objects = fields.objects(column, is_raw=False)
            return self._serializer.column(name, _topics(names, fields), objects)
        return fields.bytes(column)


def _arrow_table(data: object) -> pyarrow.Table:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError("send_arrow needs pyarrow: pip install 'pykclient[arrow]'") from error
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        try:
            return pa.table(data)
        except (pa.ArrowInvalid, TypeError) as error:
            raise UsageError(
                f"send_arrow takes rows with columns, not {type(data).__name__}: {error}"
            ) from error
    raise UsageError(
        f"send_arrow takes a table or a record batch of Arrow, or what has __arrow_c_stream__, "
        f"not {type(data).__name__}"
    )


def _with_topics(topic: object, table: pyarrow.Table) -> tuple[tuple[str, ...], pyarrow.Table]:
    """Check the columns' names; return the topics, and a table that has numbers for them."""
    if topic is not None:
        topic = check_topic(topic, "send_arrow")
    _check_names(table.column_names, has_topic=topic is not None)
    is_in_pieces = len(table) > 0 and table.column(0).num_chunks * ROWS_PER_PIECE_MIN > len(table)
    for name, column in zip(table.column_names, table.columns, strict=True):
        check_layout(name, column, full=is_in_pieces)
    if is_in_pieces:
        table = table.combine_chunks()
    if topic is not None:
        return (topic,), table
    return topic_codes(table)


def _check_names(names: Sequence[str], *, has_topic: bool) -> None:
    """Check that a table has the columns that it must have, each once, and no others."""
    for name in names:
        if name not in COLUMNS:
            close = get_close_matches(name, COLUMNS, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"there is no column {name!r}, only {', '.join(COLUMNS)}{meant}")
        if names.count(name) > 1:
            raise UsageError(f"there is more than one column {name!r}")
    if "value" not in names:
        raise UsageError("the column 'value' is missing; send nulls where records have none")
    if has_topic and "topic" in names:
        raise UsageError(
            "the topic is given twice: pass None as topic to have the one of each row, or leave "
            "out the column 'topic'"
        )
    if not has_topic and "topic" not in names:
        raise UsageError("no topic is given, and there is no column 'topic'")


def _topics(names: Sequence[str], fields: ArrowFields) -> Iterable[str]:
    codes = fields.topics()
    return repeat(names[0] if names else "") if codes is None else map(names.__getitem__, codes)


def _or_none(partitions: Sequence[int] | None) -> Iterable[int | None]:
    if partitions is None:
        return repeat(None)
    return (None if partition < 0 else partition for partition in partitions)
