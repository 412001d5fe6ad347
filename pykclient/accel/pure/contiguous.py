"""Contiguous plain batches, found and decoded together.

An uncompressed message of magic 0 or 1 counts as a batch of one record. This core decodes one batch
of version 2 at a time, since joining lists would save nothing; messages are decoded together.

Owner: no state.
Source: Kafka protocol guide, "Record Batch" and "Old Message Format".
"""

from __future__ import annotations

import struct
import zlib
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
    MAGIC_AT,
    OFFSET_MAX,
)
from pykclient.accel.pure.decoder import (
    RECORD_SIZE_BYTES_MIN,
    ListColumns,
    decode_records,
    record_bytes,
)
from pykclient.accel.pure.hashes import crc32c
from pykclient.errors.base import DecodeError
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from pykclient.types import Headers

    Data = bytes | bytearray | memoryview

ATTRIBUTES_SPECIAL: Final = ATTRIBUTE_CODEC | ATTRIBUTE_CONTROL | ATTRIBUTE_DELETE_HORIZON
"""Attributes that no plain batch has: compression, markers, a delete horizon."""

MESSAGE: Final = struct.Struct(">qiIbB")
"""Start of a message: offset, size of the rest, checksum, magic, attributes."""
MESSAGE_CRC_START: Final = 16
MESSAGE_FIELD_AT: Final = {0: 18, 1: 26}
"""Position of a message's key by magic; magic 1 has a timestamp before it."""
LENGTH_SIZE_BYTES: Final = 4
NO_TIMESTAMP_MS: Final = -1
NO_LEADER_EPOCH: Final = -1

UNORDERED: Final = "the offsets of the messages inside it do not ascend to its own"


class ContiguousBatches(NamedTuple):
    """Plain batches in ascending order, of one version, leader epoch and timestamp type.

    Compaction may have removed records in them and batches between them. `size_bytes` covers all,
    `head_last_offset` the first one; `leader_epoch` is -1 if the broker did not report it. Headers
    are not verified before the batches are decoded.
    """

    size_bytes: int
    base_offset: int
    head_last_offset: int
    last_offset: int
    leader_epoch: int
    timestamp_type: TimestampType


class _Header(NamedTuple):
    base_offset: int
    last_offset: int
    end: int
    magic: int
    leader_epoch: int
    crc: int
    timestamp_type: TimestampType
    base_timestamp_ms: int
    max_timestamp_ms: int
    record_count: int


def find_contiguous(
    data: Data, position: int, special: int, readable_end: int
) -> ContiguousBatches | None:
    """Return the plain batches from `position` on; None if there is none.

    `special` are further attributes that exclude a batch. Except for the first, no batch follows a
    gap of offsets and reaches `readable_end`.
    """
    special |= ATTRIBUTES_SPECIAL
    first = last = _plain_header(data, position, len(data), special)
    if first is None or last is None:
        return None
    while (header := _plain_header(data, last.end, len(data), special)) is not None:
        due = last.last_offset + 1
        if (
            header.base_offset < due
            or (header.base_offset > due and header.last_offset >= readable_end)
            or header.magic != first.magic
            or header.leader_epoch != first.leader_epoch
            or header.timestamp_type is not first.timestamp_type
        ):
            break
        last = header
    return ContiguousBatches(
        last.end - position,
        first.base_offset,
        first.last_offset,
        last.last_offset,
        first.leader_epoch,
        first.timestamp_type,
    )


def decode_contiguous(
    data: Data, position: int, end: int, check_crcs: bool
) -> tuple[ListColumns | None, int]:
    """Decode contiguous batches that end at `end`, up to `CHUNK_RECORD_COUNT_MAX` records.

    Return their columns, and the position of the next batch. The columns are None if the first
    batch is invalid, and then nothing was decoded.
    """
    if not 0 <= position <= end <= len(data):
        raise IndexError("contiguous batches are inside their data")
    header = _plain_header(data, position, end, ATTRIBUTES_SPECIAL)
    if header is None:
        return None, position
    if header.magic != MAGIC:
        return decode_messages(data, position, end, CHUNK_RECORD_COUNT_MAX, 0, None, check_crcs)
    batch = memoryview(data)[position : header.end]
    if check_crcs and crc32c(batch[CRC_START:]) != header.crc:
        return None, position
    records = record_bytes(batch[HEADER_SIZE_BYTES:])
    has_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    try:
        columns, records_end = decode_records(
            records,
            0,
            0,
            header.record_count,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms if has_append_time else None,
        )
    except DecodeError:
        return None, position
    if records_end != len(records) or columns.last_offset > header.last_offset:
        return None, position
    return columns, header.end


def decode_messages(
    data: Data,
    position: int,
    end: int,
    count_max: int,
    shift: int,
    append_timestamp_ms: int | None,
    check_crcs: bool,
) -> tuple[ListColumns | None, int]:
    """Decode up to `count_max` messages of magic 0 and 1 from `position` on, not beyond `end`.

    Return their columns, and the position of the next message. The columns are None if the first
    one is compressed or invalid. `shift` is added to their offsets, which must fit;
    `append_timestamp_ms` is the time of all that have one.
    """
    whole = memoryview(data)
    offsets: list[int] = []
    timestamps_ms: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    size_bytes = 0
    while len(offsets) < count_max:
        header = None
        if 0 <= position <= end - MESSAGE.size:
            header = _message_header(data, position, end)
        if header is None:
            break
        body = whole[position : header.end]
        if check_crcs and zlib.crc32(body[MESSAGE_CRC_START:]) != header.crc:
            break
        try:
            key, at = _nullable_bytes(body, MESSAGE_FIELD_AT[header.magic])
            value, at = _nullable_bytes(body, at)
        except DecodeError:
            break
        if at != len(body):
            break
        timestamp_ms = header.base_timestamp_ms
        if append_timestamp_ms is not None and header.magic:
            timestamp_ms = append_timestamp_ms
        offsets.append(header.base_offset + shift)
        timestamps_ms.append(timestamp_ms)
        keys.append(key)
        values.append(value)
        size_bytes += len(body)
        position = header.end
    if not offsets:
        return None, position
    headers: list[Headers] = [()] * len(offsets)
    columns = ListColumns(offsets, timestamps_ms, keys, values, headers, size_bytes=size_bytes)
    return columns, position


def message_offsets(
    data: Data, position: int = 0, offsets: tuple[int, int] | None = None
) -> tuple[int, int]:
    """Return the first and last offset of the messages in `data` without decoding them.

    `offsets` are those of the messages before `position`.

    Raises:
        DecodeError: there is none, one is truncated, or their offsets do not ascend.
    """
    while position < len(data):
        try:
            offset, size_bytes, *_ = MESSAGE.unpack_from(data, position)
        except struct.error as error:
            raise DecodeError(f"its message is cut off: {error}") from error
        if size_bytes < MESSAGE.size - LENGTH_END:
            raise DecodeError(f"a message inside it claims {size_bytes} bytes")
        if offsets is None:
            offsets = offset, offset
        elif offset <= offsets[1]:
            raise DecodeError(UNORDERED)
        offsets = offsets[0], offset
        position += LENGTH_END + size_bytes
    if offsets is None:
        raise DecodeError("there is no message inside it")
    return offsets


def _nullable_bytes(body: memoryview, at: int) -> tuple[bytes | None, int]:
    """Return the field at `at` and its end."""
    start = at + LENGTH_SIZE_BYTES
    size_bytes = int.from_bytes(body[at:start], "big", signed=True)
    if size_bytes == -1:
        return None, start
    if not 0 <= size_bytes <= len(body) - start:
        raise DecodeError(f"a field claims {size_bytes} of {len(body) - start} bytes")
    return bytes(body[start : start + size_bytes]), start + size_bytes


def _plain_header(data: Data, position: int, end: int, special: int) -> _Header | None:
    """Return the header of a whole and plain batch, or None."""
    if not 0 <= position <= end - MESSAGE.size:
        return None
    if data[position + MAGIC_AT] != MAGIC:
        return _message_header(data, position, end)
    if position > end - HEADER_SIZE_BYTES:
        return None
    (
        base_offset,
        length,
        leader_epoch,
        _magic,
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
        attributes & special
        or not position + HEADER_SIZE_BYTES <= batch_end <= end
        or not 0 < record_count <= CHUNK_RECORD_COUNT_MAX
        or record_count * RECORD_SIZE_BYTES_MIN > batch_end - position - HEADER_SIZE_BYTES
        or record_count - 1 > last_delta
        or not 0 <= base_offset <= OFFSET_MAX - last_delta
    ):
        return None
    has_append_time = attributes & ATTRIBUTE_LOG_APPEND_TIME
    return _Header(
        base_offset,
        base_offset + last_delta,
        batch_end,
        MAGIC,
        leader_epoch,
        crc,
        TimestampType.LOG_APPEND_TIME if has_append_time else TimestampType.CREATE_TIME,
        base_timestamp_ms,
        max_timestamp_ms,
        record_count,
    )


def _message_header(data: Data, position: int, end: int) -> _Header | None:
    """Return the header of a plain message of magic 0 or 1, or None; `MESSAGE` must fit."""
    offset, length, crc, magic, attributes = MESSAGE.unpack_from(data, position)
    field_at = MESSAGE_FIELD_AT.get(magic)
    message_end = position + LENGTH_END + length
    if (
        field_at is None
        or attributes & ATTRIBUTE_CODEC
        or offset < 0
        or not position + field_at + 2 * LENGTH_SIZE_BYTES <= message_end <= end
    ):
        return None
    timestamp_ms = NO_TIMESTAMP_MS
    timestamp_type = TimestampType.NO_TIMESTAMP_TYPE
    if magic:
        time_at = position + MESSAGE.size
        timestamp_ms = int.from_bytes(data[time_at : position + field_at], "big", signed=True)
        has_append_time = attributes & ATTRIBUTE_LOG_APPEND_TIME
        timestamp_type = (
            TimestampType.LOG_APPEND_TIME if has_append_time else TimestampType.CREATE_TIME
        )
    return _Header(
        offset,
        offset,
        message_end,
        magic,
        NO_LEADER_EPOCH,
        crc,
        timestamp_type,
        timestamp_ms,
        timestamp_ms,
        1,
    )
