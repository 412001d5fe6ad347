"""Record batches as a broker would send them, and spans of records as the buffer returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.accel import ListColumns
from pykclient.accel.batch_layout import HEADER_SIZE_BYTES
from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.record import RecordSpan
from pykclient.records.builder import RecordBatchBuilder
from pykclient.records.compression import Codec
from pykclient.types import TimestampType, TopicPartition
from tests.records.batches import build, header_changed, resealed

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from pykclient.types import Headers

A, B = TopicPartition("t", 0), TopicPartition("u", 1)
CONFIG = ConsumerConfig.from_settings(
    bootstrap_servers="boot:9092", decompressed_max_bytes=1_000_000
)
TIMESTAMP_MS = 1_700_000_000_000
LEADER_EPOCH_AT = 12
LAST_OFFSET_DELTA_AT = 23
ATTRIBUTES_AT = 21
PRODUCER_ID_AT = 43
RECORD_COUNT_AT = 57
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT_KEY, COMMIT_KEY = b"\0\0\0\0", b"\0\0\0\1"


def value_at(offset: int) -> bytes:
    """Return the value of the record at an offset."""
    return b"value %d" % offset


def batch(offsets: Iterable[int], *, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch with records at consecutive offsets."""
    wanted = list(offsets)
    assert wanted == list(range(wanted[0], wanted[0] + len(wanted)))
    rows = [(TIMESTAMP_MS + offset, b"key", value_at(offset), ()) for offset in wanted]
    return build(rows, codec, base_offset=wanted[0])


def compacted(data: bytes, *, last_offset_delta: int) -> bytes:
    """Return the batch as if compaction had removed records after its last one."""
    return header_changed(data, LAST_OFFSET_DELTA_AT, last_offset_delta, 4)


def thinned(offsets: Iterable[int], *, kept: Container[int]) -> bytes:
    """Return a batch with records removed by compaction, also in the middle."""
    wanted = list(offsets)
    data = batch(wanted)
    left, position, count = data[:HEADER_SIZE_BYTES], HEADER_SIZE_BYTES, 0
    for offset in wanted:
        end = position + 1 + (data[position] >> 1)  # lengths this small take one byte
        if offset in kept:
            left += data[position:end]
            count += 1
        position = end
    assert position == len(data)
    return header_changed(left, RECORD_COUNT_AT, count, 4)


def empty_batch(base_offset: int, last_offset: int) -> bytes:
    """Return a batch of which compaction has left only the header."""
    header = batch([base_offset])[:HEADER_SIZE_BYTES]
    header = header_changed(header, RECORD_COUNT_AT, 0, 4)
    return compacted(resealed(header), last_offset_delta=last_offset - base_offset)


def aborted_batch(offsets: Iterable[int], producer_id: int) -> bytes:
    """Return a batch of a transaction; the Fetch response says whether it was aborted."""
    data = header_changed(batch(offsets), ATTRIBUTES_AT, TRANSACTIONAL, 2)
    return header_changed(data, PRODUCER_ID_AT, producer_id, 8)


def marker(offset: int, producer_id: int, *, key: bytes = ABORT_KEY) -> bytes:
    """Return a control batch, which ends a transaction."""
    builder = RecordBatchBuilder[None](batch_size_bytes=1_000, codec=Codec.NONE)
    builder.try_append(TIMESTAMP_MS, key, b"\0\0\0\0\0\0")
    data = bytes(builder.close(base_offset=offset))
    data = header_changed(data, ATTRIBUTES_AT, TRANSACTIONAL | CONTROL, 2)
    return header_changed(data, PRODUCER_ID_AT, producer_id, 8)


def span(
    partition: TopicPartition,
    offsets: Sequence[int],
    *,
    values: Sequence[bytes | None] | None = None,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
    timestamps_ms: Sequence[int] | None = None,
) -> RecordSpan:
    """Return a span with records at these offsets; other fields have default values."""
    count = len(offsets)
    columns = ListColumns(
        offsets,
        [TIMESTAMP_MS] * count if timestamps_ms is None else timestamps_ms,
        [None] * count if keys is None else keys,
        [b"v%d" % offset for offset in offsets] if values is None else values,
        [()] * count if headers is None else headers,
        size_bytes=0,
    )
    return RecordSpan(partition, columns, TimestampType.CREATE_TIME, 5)
