"""Batches that follow one another with nothing special about them, found and decoded as one.

Here one batch is decoded at a time: putting lists together would save nothing.

Owner: no state.
Source: Kafka protocol guide, "Record Batch".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.accel.batch_layout import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_DELETE_HORIZON,
    ATTRIBUTE_LOG_APPEND_TIME,
    CHUNK_RECORD_COUNT_MAX,
    CRC_START,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_END,
    MAGIC,
    OFFSET_MAX,
)
from pykclient.accel.pure.decoder import RECORD_SIZE_BYTES_MIN, decode_records, record_bytes
from pykclient.accel.pure.hashes import crc32c
from pykclient.errors.base import DecodeError

if TYPE_CHECKING:
    from pykclient.accel.pure.decoder import ListColumns

ATTRIBUTES_SPECIAL: Final = ATTRIBUTE_CODEC | ATTRIBUTE_CONTROL | ATTRIBUTE_DELETE_HORIZON
"""Compression, markers, a horizon for deleting: what no plain batch has."""


class ContiguousBatches(NamedTuple):
    """Plain batches without a gap between them, and with the same kind of times and epoch.

    `size_bytes` is that of all, `head_last_offset` of the first alone; `leader_epoch` is -1 when
    the broker did not report it. What headers say is not vouched for by anything before the batches
    are decoded.
    """

    size_bytes: int
    base_offset: int
    head_last_offset: int
    last_offset: int
    leader_epoch: int
    has_append_time: bool


class _Header(NamedTuple):
    base_offset: int
    last_offset: int
    end: int
    leader_epoch: int
    crc: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int


def find_contiguous(
    data: bytes | bytearray | memoryview, position: int, special: int
) -> ContiguousBatches | None:
    """Return what stands from `position` on, as far as it is plain; None if not even one batch is.

    `special` are attributes that a plain batch does not have, beside those that none has.
    """
    special |= ATTRIBUTES_SPECIAL
    first = last = _plain_header(data, position, len(data), special)
    if first is None or last is None:
        return None
    while (header := _plain_header(data, last.end, len(data), special)) is not None:
        if (
            header.base_offset != last.last_offset + 1
            or header.leader_epoch != first.leader_epoch
            or (header.attributes ^ first.attributes) & ATTRIBUTE_LOG_APPEND_TIME
        ):
            break
        last = header
    return ContiguousBatches(
        last.end - position,
        first.base_offset,
        first.last_offset,
        last.last_offset,
        first.leader_epoch,
        bool(first.attributes & ATTRIBUTE_LOG_APPEND_TIME),
    )


def decode_contiguous(
    data: bytes | bytearray | memoryview, position: int, end: int, check_crcs: bool
) -> tuple[ListColumns | None, int]:
    """Decode whole contiguous batches that end at `end`, up to `CHUNK_RECORD_COUNT_MAX` records.

    Return their columns, and where the next batch stands. Columns are None where the first batch
    is not what it should be: nothing of it was decoded.
    """
    if not 0 <= position <= end <= len(data):
        raise IndexError("contiguous batches are inside their data")
    header = _plain_header(data, position, end, ATTRIBUTES_SPECIAL)
    if header is None:
        return None, position
    batch = memoryview(data)[position : header.end]
    if check_crcs and crc32c(batch[CRC_START:]) != header.crc:
        return None, position
    records = record_bytes(batch[HEADER_SIZE_BYTES:])
    try:
        columns, records_end = decode_records(
            records,
            0,
            0,
            header.record_count,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms if header.attributes & ATTRIBUTE_LOG_APPEND_TIME else None,
        )
    except DecodeError:
        return None, position
    if records_end != len(records) or columns.last_offset != header.last_offset:
        return None, position
    return columns, header.end


def _plain_header(
    data: bytes | bytearray | memoryview, position: int, end: int, special: int
) -> _Header | None:
    """Return the header of a batch that is whole and plain, None if it is not."""
    if not 0 <= position <= end - HEADER_SIZE_BYTES:
        return None
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        _producer_id,
        _producer_epoch,
        _base_sequence,
        record_count,
    ) = HEADER.unpack_from(data, position)
    batch_end = position + LENGTH_END + length
    if (
        magic != MAGIC
        or attributes & special
        or not position + HEADER_SIZE_BYTES <= batch_end <= end
        or not 0 < record_count <= CHUNK_RECORD_COUNT_MAX
        or record_count * RECORD_SIZE_BYTES_MIN > batch_end - position - HEADER_SIZE_BYTES
        # As many as there are offsets: compaction has taken none away.
        or record_count - 1 != last_delta
        or not 0 <= base_offset <= OFFSET_MAX - last_delta
    ):
        return None
    return _Header(
        base_offset,
        base_offset + last_delta,
        batch_end,
        leader_epoch,
        crc,
        attributes,
        base_timestamp_ms,
        max_timestamp_ms,
        record_count,
    )
