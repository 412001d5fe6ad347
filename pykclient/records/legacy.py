"""Messages of the old formats, magic 0 and 1, as readable batches.

Topics filled before Kafka 0.11 may still have them, and brokers before 4.0 return them unchanged. A
message that wraps compressed ones is one batch; any other message is a batch of one. They are never
written.

Owner: whoever iterates.
Source: Kafka protocol guide, "Old Message Format"; KIP-31 (relative offsets), KIP-32 (timestamps);
Java class ``AbstractLegacyRecordBatch``.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient import accel
from pykclient.accel.batch_layout import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    CHUNK_RECORD_COUNT_MAX,
    LENGTH_END,
)
from pykclient.accel.pure.contiguous import UNORDERED
from pykclient.errors.base import DecodeError
from pykclient.records.batch import RecordBatch, corrupt_batch
from pykclient.records.compression import Codec, decompress, mend_old_lz4
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel.abc import RecordColumns
    from pykclient.records.compression import Data

START: Final = struct.Struct(">qiIbB")
"""Offset, size of what follows, checksum, magic, attributes."""
CRC_START: Final = 16
TIMESTAMP: Final = struct.Struct(">q")
LENGTH: Final = struct.Struct(">i")

NO_TIMESTAMP_MS: Final = -1
UNKNOWN: Final = -1

_CODECS: Final = {codec.value: codec for codec in Codec if codec is not Codec.ZSTD}


class _Message(NamedTuple):
    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class LegacyBatch(RecordBatch):
    """One outer message. If it is compressed, only the last offset is known without decompressing.

    `base_offset` is then the same as `last_offset`, and `record_count` 1 means "some"; producer,
    transaction and leader epoch did not exist.
    """

    __slots__ = ("_check_crcs", "_message")

    def __init__(
        self, data: memoryview, *, topic: str, partition: int, check_crcs: bool = True
    ) -> None:
        """Parse and check the one message that fills `data`.

        Raises:
            CorruptRecordError: the message is malformed, or, with `check_crcs`, its checksum wrong.
        """
        self.topic = topic
        self.partition = partition
        self.size_bytes = len(data)
        try:
            message, end = _read_message(data, 0, check_crcs=check_crcs)
            if message.offset < 0:
                raise DecodeError(f"its offset is {message.offset}")
            assert end == len(data)
        except DecodeError as error:
            corrupt = corrupt_batch(topic, partition, data, str(error))
            corrupt.next_offset = _sealed_end_offset(data)
            raise corrupt from error
        self._message = message
        self.payload = memoryview(message.value or b"")
        self._check_crcs = check_crcs
        self.magic = message.magic
        self.crc = START.unpack_from(data)[2]
        # Other bits of the attributes had no meaning yet.
        self.attributes = message.attributes & (ATTRIBUTE_CODEC | ATTRIBUTE_LOG_APPEND_TIME)
        self.base_offset = self.last_offset = message.offset
        self.last_offset_delta = 0
        self.base_timestamp_ms = self.max_timestamp_ms = message.timestamp_ms
        self.record_count = 1
        self.partition_leader_epoch = UNKNOWN
        self.producer_id = self.producer_epoch = self.base_sequence = UNKNOWN
        self.codec = _CODECS[message.attributes & ATTRIBUTE_CODEC]
        if message.magic == 0:
            self.timestamp_type = TimestampType.NO_TIMESTAMP_TYPE
        elif message.attributes & ATTRIBUTE_LOG_APPEND_TIME:
            self.timestamp_type = TimestampType.LOG_APPEND_TIME
        else:
            self.timestamp_type = TimestampType.CREATE_TIME

    def _decompressed(self, size_bytes_max: int) -> Data:
        if self.magic == 0 and self.codec is Codec.LZ4:
            return decompress(Codec.LZ4, mend_old_lz4(self.payload), size_bytes_max)
        return super()._decompressed(size_bytes_max)

    def _decoded(
        self, unpacked: Data, start_offset: int, record_count_max: int
    ) -> Iterator[RecordColumns]:
        """Yield the chunks of `chunks`.

        An error comes after the valid chunks, unless the sizes and offsets of all messages show it
        at once.
        """
        if self.codec is Codec.NONE:
            if self._message.offset >= start_offset:
                yield self._own_columns()
            return
        shift = self._shift(unpacked)
        append_timestamp_ms = None
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            # But a message of magic 0 has no time, whatever holds it.
            append_timestamp_ms = self.max_timestamp_ms
        position, end = 0, len(unpacked)
        while position < end:
            columns, position = accel.decode_messages(
                unpacked,
                position,
                end,
                min(record_count_max, CHUNK_RECORD_COUNT_MAX),
                shift,
                append_timestamp_ms,
                self._check_crcs,
            )
            if columns is None:
                raise self._flaw(memoryview(unpacked), position)
            if start_offset > columns.first_offset:
                columns = columns.rows(columns.find(start_offset))
            if len(columns):
                yield columns

    def _own_columns(self) -> RecordColumns:
        """Return the message itself, which is not compressed."""
        message = self._message
        key, value = message.key, message.value
        return accel.ListColumns(
            [message.offset],
            [message.timestamp_ms],
            [key],
            [value],
            [()],
            size_bytes=len(key or b"") + len(value or b""),
        )

    def _flaw(self, data: memoryview, position: int) -> DecodeError:
        """Return the error of a message inside this one, or raise it."""
        message, _ = _read_message(data, position, check_crcs=self._check_crcs)
        assert message.attributes & ATTRIBUTE_CODEC, "the message can be decoded"
        return DecodeError("a message inside it is compressed again")

    def _shift(self, data: Data) -> int:
        """Return the shift of the offsets of the messages in `data`, and check them.

        The wrapper's magic decides their meaning; the messages inside may have another
        (KAFKA-4298). Since magic 1 they count from any number, and the last one has the wrapper's
        offset: so all are scanned before the first one is read, and none is kept.
        """
        first_offset, last_offset = accel.message_offsets(data)
        shift: int = self.last_offset - last_offset if self.magic else 0
        if min(first_offset, first_offset + shift) < 0 or last_offset + shift > self.last_offset:
            raise DecodeError(UNORDERED)
        return shift


def _read_message(data: memoryview, position: int, *, check_crcs: bool) -> tuple[_Message, int]:
    try:
        offset, size_bytes, crc, magic, attributes = START.unpack_from(data, position)
        end = position + LENGTH_END + size_bytes
        body = data[position + CRC_START : end]
        at = START.size - CRC_START
        timestamp_ms = NO_TIMESTAMP_MS
        if magic == 1:
            (timestamp_ms,) = TIMESTAMP.unpack_from(body, at)
            at += TIMESTAMP.size
        key, at = _read_bytes(body, at)
        value, at = _read_bytes(body, at)
    except struct.error as error:
        raise DecodeError(f"its message is cut off: {error}") from error
    if magic not in (0, 1) or attributes & ATTRIBUTE_CODEC not in _CODECS:
        raise DecodeError(f"its message has magic {magic} and attributes {attributes}")
    if at != size_bytes - (CRC_START - LENGTH_END) or end > len(data):
        raise DecodeError(f"its message claims {size_bytes} bytes, and its fields take others")
    if check_crcs and (actual := zlib.crc32(body)) != crc:
        raise DecodeError(f"its checksum is {actual:#010x}, its header says {crc:#010x}")
    return _Message(offset, magic, attributes, timestamp_ms, key, value), end


def _sealed_end_offset(data: memoryview) -> int | None:
    """Return the offset after a message with a valid checksum; None if it is invalid."""
    if len(data) < START.size:
        return None
    offset, _, crc, *_ = START.unpack_from(data)
    is_sealed = offset >= 0 and zlib.crc32(data[CRC_START:]) == crc
    return offset + 1 if is_sealed else None


def _read_bytes(body: memoryview, at: int) -> tuple[bytes | None, int]:
    (length,) = LENGTH.unpack_from(body, at)
    at += LENGTH.size
    if length == -1:
        return None, at
    if not 0 <= length <= len(body) - at:
        raise DecodeError(f"a field of its message claims {length} of {len(body) - at} bytes")
    return bytes(body[at : at + length]), at + length
