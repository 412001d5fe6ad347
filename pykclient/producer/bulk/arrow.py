"""ArrowTables: converts Arrow data to row tables, without copying where possible.

Arrow converts columns to a layout that the core reads. Binary and string arrays, views included,
are not copied. Arrow trusts the offsets that another library wrote, and reads memory by them, so
Arrow validates a column before it converts it; the core checks what it reads itself. This is the
only module of the producer that imports pyarrow.

Source: the Arrow columnar format and PyCapsule interface; the columns are those of Spark's Kafka
sink.
"""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal

from pykclient.accel import ByteColumn, RowBlock
from pykclient.arguments import check_topic
from pykclient.config.unknown_keys import did_you_mean
from pykclient.errors import SerializationError, UsageError
from pykclient.producer.bulk.table import RowTable, TableBlock, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow

    from pykclient.producer.record import ProducerRecord
    from pykclient.producer.serializers import RecordSerializer
    from pykclient.types import Headers

COLUMNS: Final = ("value", "key", "headers", "partition", "timestamp", "topic")
BYTE_KINDS: Final = "binary or string (large, view, fixed-size and dictionary ones as well)"
TOPIC: Final = "topic"
NUMBER_BYTES_MAX: Final = 8
ROWS_PER_PIECE_MIN: Final = 1024
"""Minimum average rows per chunk: a table in smaller chunks is copied into one chunk, since each
chunk costs as much as this many rows."""


class ArrowTables:
    """Converts Arrow data to tables. `clock_ms` is the time of records without a timestamp."""

    def __init__(self, serializer: RecordSerializer, clock_ms: Callable[[], int]) -> None:
        self._serializer = serializer
        self._clock_ms = clock_ms

    def table(self, topic: object, data: object) -> RowTable:
        """Return the records as a table. With `topic` None, each row names its own topic."""
        names, table = _with_topics(topic, _arrow_table(data))
        blocks: list[TableBlock] = []
        first_row = 0
        for batch in batches_of(table):
            blocks.append(self._block(names, batch, first_row))
            first_row += batch.num_rows
        return RowTable(names, tuple(block for block in blocks if len(block.rows)))

    def records(self, topic: object, data: object) -> list[ProducerRecord[object, object]]:
        """Return the records one by one, for interceptors and serializers that take headers."""
        names, table = _with_topics(topic, _arrow_table(data))
        records: list[ProducerRecord[object, object]] = []
        for batch in table.to_batches():
            fields = ArrowFields(batch)
            records += records_of(
                zip(
                    _topics(names, fields),
                    fields.objects("value", is_raw=not self._serializer.has_serializer("values")),
                    fields.objects("key", is_raw=not self._serializer.has_serializer("keys")),
                    _or_none(fields.partitions()),
                    fields.timestamps_ms(None) or repeat(None),
                    fields.header_lists(),
                    strict=False,
                )
            )
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
        raise UsageError("send_arrow needs pyarrow: pip install pyarrow") from error
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
        f"send_arrow takes a table or a record batch of Arrow, or an object with "
        f"__arrow_c_stream__, not {type(data).__name__}"
    )


def _with_topics(topic: object, table: pyarrow.Table) -> tuple[tuple[str, ...], pyarrow.Table]:
    """Check the columns; return the topic names, and the table with numbers for its topics."""
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
    """Check that a table has each required column once, and no unknown columns."""
    for name in names:
        if name not in COLUMNS:
            raise UsageError(
                f"unknown column {name!r}.{did_you_mean(name, COLUMNS)} The columns are "
                f"{', '.join(COLUMNS)}"
            )
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


class ArrowFields:
    """Columns of one record batch. `first_row` is the number of its first row, for errors.

    A missing column counts as all null.
    """

    def __init__(self, batch: pyarrow.RecordBatch, first_row: int = 0) -> None:
        self._batch = batch
        self._first_row = first_row

    def has(self, name: str) -> bool:
        return name in self._batch.schema.names

    def bytes(self, name: str) -> ByteColumn:
        return _byte_column(self._batch.column(name), name, f"or set {name}_serializer")

    def objects(self, name: str, *, is_raw: bool) -> Sequence[object]:
        """Return a column as Python objects; with `is_raw` as bytes or None."""
        if not self.has(name):
            return [None] * self._batch.num_rows
        column = self._batch.column(name)
        check_layout(name, column, full=True)
        if is_raw:
            column = _binary(column, name, f"or set {name}_serializer")
        try:
            found: list[object] = column.to_pylist()
        except UnicodeDecodeError as error:
            raise SerializationError(_not_utf8(name, error)) from error
        return found

    def headers(self) -> ByteColumn | None:
        """Return the encoded headers; None if no record has any."""
        if not self.has("headers") or self._batch.column("headers").null_count == len(self):
            return None
        counts, names, values = self._header_columns()
        return ByteColumn.from_header_columns(
            _numbers(counts, "q"),
            _byte_column(names, "headers", ""),
            _byte_column(values, "headers", "as the value of a header"),
        )

    def header_lists(self) -> Iterable[Headers]:
        if not self.has("headers") or self._batch.column("headers").null_count == len(self):
            return [()] * len(self)
        counts, names, values = self._header_columns()
        values = _binary(values, "headers", "as a value")
        check_layout("headers", values, full=True)
        pairs = iter(zip(names.to_pylist(), values.to_pylist(), strict=True))
        return [tuple(next(pairs) for _ in range(count)) for count in counts.to_pylist()]

    def partitions(self) -> Sequence[int] | None:
        """Return the partition of each row, -1 for null; None if all are null."""
        import pyarrow as pa

        column = self._column("partition")
        if column is None:
            return None
        if not pa.types.is_integer(column.type):
            raise _wrong_type("partition", column.type, "int32")
        try:
            column = column.cast(pa.int32())
        except pa.ArrowInvalid as error:
            raise UsageError(f"the column 'partition' exceeds int32: {error}") from error
        self._refuse_negative("partition", column)
        return _numbers(column.fill_null(-1), "i")

    def timestamps_ms(self, now_ms: int | None) -> Sequence[int] | None:
        """Return the time of each row, `now_ms` for null; None if all are null."""
        import pyarrow as pa

        column = self._column("timestamp")
        if column is None:
            return None
        if not pa.types.is_timestamp(column.type):
            raise _wrong_type("timestamp", column.type, "timestamp (of any unit and time zone)")
        milliseconds = pa.timestamp("ms", tz=column.type.tz)
        try:
            # Finer units are truncated, which cannot overflow.
            column = column.cast(milliseconds, safe=column.type.unit in ("s", "ms"))
        except pa.ArrowInvalid as error:
            raise UsageError(f"the column 'timestamp' is out of range: {error}") from error
        column = column.cast(pa.int64())
        self._refuse_negative("timestamp", column)
        if column.null_count and now_ms is None:
            found: list[int] = column.to_pylist()
            return found
        return _numbers(column.fill_null(now_ms) if column.null_count else column, "q")

    def topics(self) -> Sequence[int] | None:
        """Return the topic of each row as a number of `topic_codes`; None if there is one topic."""
        return _numbers(self._batch.column(TOPIC), "i") if self.has(TOPIC) else None

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def _column(self, name: str) -> pyarrow.Array | None:
        """Return a column; None if it is missing or all null."""
        if not self.has(name) or self._batch.column(name).type == "null":
            return None
        column = self._batch.column(name)
        return column if len(column) == 0 or column.null_count < len(column) else None

    def _header_columns(self) -> tuple[pyarrow.Array, pyarrow.Array, pyarrow.Array]:
        """Return the number of headers per record, and all names (as text) and values."""
        import pyarrow as pa

        column = self._batch.column("headers")
        kind = column.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if (
            not is_list
            or not pa.types.is_struct(kind.value_type)
            or sorted(field.name for field in kind.value_type) != ["key", "value"]
        ):
            raise SerializationError(
                f"the column 'headers' is of type {kind}; it takes "
                f"list<struct<key: string, value: binary>>"
            )
        # Arrow divides the headers by these offsets. Names are checked below, values by the core.
        lists = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        outline = lists.from_arrays(column.offsets, pa.nulls(len(column.values)))
        check_layout("headers", outline, full=True)
        headers = column.flatten()
        names = _binary(headers.field("key"), "headers", "as the name of a header")
        check_layout("headers", names, full=True)
        texts = _as_text(names)
        if headers.null_count or texts.null_count:
            raise SerializationError(
                "the column 'headers' has a header without a name; only its value may be null"
            )
        counts = column.value_lengths().fill_null(0).cast(pa.int64())
        return counts, texts, headers.field("value")

    def _refuse_negative(self, name: str, column: pyarrow.Array) -> None:
        import pyarrow.compute as pc

        least = pc.min(column).as_py()
        if least is not None and least < 0:
            row = self._first_row + pc.index(column, least).as_py()
            raise UsageError(
                f"the column {name!r} is {least} at row {row}; it must be 0 or more, or null to "
                f"let the producer choose"
            )


def check_layout(name: str, column: pyarrow.Array | pyarrow.ChunkedArray, *, full: bool) -> None:
    """Check that a column's buffers have the size it says; with `full`, their content too.

    UTF-8 is checked only for text nested in another type.
    """
    import pyarrow as pa

    if full and pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif full and pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    elif full and pa.types.is_string_view(column.type):
        column = column.cast(pa.binary_view())
    try:
        column.validate(full=full)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise SerializationError(
            f"the column {name!r} is not what Arrow says it is: {error}"
        ) from error


def batches_of(table: pyarrow.Table) -> list[pyarrow.RecordBatch]:
    import pyarrow as pa

    return table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def topic_codes(table: pyarrow.Table) -> tuple[tuple[str, ...], pyarrow.Table]:
    """Return the topics in a table, and the table with topic numbers instead of names.

    If all rows have the same topic, the column is removed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(TOPIC)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        raise _wrong_type(TOPIC, column.type, "string")
    check_layout(TOPIC, column, full=True)
    text = pa.large_string()
    column = pa.chunked_array([_decoded(chunk).cast(text) for chunk in column.chunks], text)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise UsageError(f"the column 'topic' is null at row {row}; each row needs its topic")
    found = column.unique()
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UsageError(_not_utf8(TOPIC, error)) from error
    names = tuple(check_topic(name, "send_arrow") for name in found.to_pylist())
    place = table.column_names.index(TOPIC)
    if len(names) < 2:
        return names, table.remove_column(place)
    return names, table.set_column(place, TOPIC, pc.index_in(column, value_set=found))


def _byte_column(column: pyarrow.Array, name: str, cure: str) -> ByteColumn:
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_binary_view(column.type) or pa.types.is_string_view(column.type):
        validity, views, *buffers = column.buffers()
        return ByteColumn.from_views(
            len(column),
            column.offset,
            validity=validity if column.null_count else None,
            views=views,
            buffers=buffers,
        )
    column = _binary(column, name, cure)
    validity, offsets, data = column.buffers()
    return ByteColumn.from_arrow(
        len(column),
        column.offset,
        validity=validity if column.null_count else None,
        offsets=None if offsets is None else _aligned(offsets),
        data=data,
        offset_size=8 if column.type == "large_binary" else 4,
    )


def _binary(column: pyarrow.Array, name: str, cure: str) -> pyarrow.Array:
    """Return a column as binary or large binary, without a copy if it is binary or text."""
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.view(pa.binary())
    if pa.types.is_large_string(kind):
        return column.view(pa.large_binary())
    if pa.types.is_dictionary(kind):
        column = _checked_decoded(name, column)
        kind = column.type
    else:
        check_layout(name, column, full=True)
    if pa.types.is_large_binary(kind):
        return column
    if pa.types.is_large_string(kind):
        return column.view(pa.large_binary())
    if (
        pa.types.is_binary_view(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_null(kind)
    ):
        return column.cast(pa.large_binary())
    raise SerializationError(
        f"the column {name!r} is of type {column.type}; it takes {BYTE_KINDS}, {cure}"
    )


def _as_text(names: pyarrow.Array) -> pyarrow.Array:
    import pyarrow as pa

    try:
        return names.cast(
            pa.large_string() if pa.types.is_large_binary(names.type) else pa.string()
        )
    except pa.ArrowInvalid as error:
        raise SerializationError(
            f"the column 'headers' has a name that is not UTF-8: {error}"
        ) from error


def _checked_decoded(name: str, column: pyarrow.Array) -> pyarrow.Array:
    import pyarrow as pa

    check_layout(name, column, full=False)
    check_layout(name, column.dictionary, full=True)
    try:
        return _decoded(column)
    except (pa.ArrowIndexError, pa.ArrowInvalid) as error:
        raise SerializationError(
            f"the column {name!r} is not what Arrow says it is: {error}"
        ) from error


def _decoded(column: pyarrow.Array) -> pyarrow.Array:
    """Return a dictionary array decoded; any other array as it is."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    items = column.dictionary
    # Arrow cannot take views; and a small dictionary may decode to a large array.
    if pa.types.is_string_view(items.type) or pa.types.is_string(items.type):
        items = items.cast(pa.large_string())
    elif pa.types.is_binary_view(items.type) or pa.types.is_binary(items.type):
        items = items.cast(pa.large_binary())
    return items.take(column.indices)


def _numbers(column: pyarrow.Array, form: Literal["i", "q"]) -> Sequence[int]:
    """Return an array of 32 or 64-bit numbers without nulls, without a copy if aligned."""
    if not len(column):
        return array(form)
    numbers = memoryview(_aligned(column.buffers()[1])).cast("B").cast(form)
    return numbers[column.offset : column.offset + len(column)]


def _aligned(numbers: pyarrow.Buffer) -> pyarrow.Buffer:
    """Return numbers at an aligned address; in an IPC message they may be at any address."""
    import pyarrow as pa

    if numbers.address % NUMBER_BYTES_MAX == 0:
        return numbers
    return pa.py_buffer(numbers.to_pybytes())


def _not_utf8(name: str, error: Exception) -> str:
    return f"the column {name!r} has text that is not UTF-8: {error}"


def _wrong_type(name: str, kind: pyarrow.DataType, taken: str) -> UsageError:
    return UsageError(f"the column {name!r} is of type {kind}; it takes {taken}")
