"""The codecs of a record batch: functions that compress and decompress.

gzip is in the standard library; cramjam has the other codecs, on every platform. If zstandard, an
extra, is installed, it is used for zstd, since small batches cost less with it
(`benchmarks/codecs.py`). The libraries are imported when their codec is first used.

Decompression stops at the caller's limit: a bomb costs at most that limit, with zstandard up to 32
MiB more, and with zstd the window that the frame requires (128 MiB at most). Uncompressed data is
as large as the fetched data, so it has no limit here. Truncated input and extra bytes after the end
are errors.

The work is bounded by the size of the input as well, however many blocks, frames and members it
contains: loops over these are in the libraries or the core (`accel`). gzip, which has an object per
member, limits their number.

Owner: idle zstd contexts are in lists that any thread may pop from; one in use is in no list.
Source: Kafka protocol guide, "Record Batch", attributes bits 0-2; KIP-110 (zstd); KIP-390 (levels);
LZ4 frame format; snappy-java's stream format.
"""

from __future__ import annotations

import sys
import zlib
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.accel import lz4_room_bytes, unlz4_small, unsnappy_blocks
from pykclient.accel.pure.blocks import LZ4_MAGIC
from pykclient.errors.base import ConfigError, DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from zstandard import ZstdCompressor, ZstdDecompressor

    Data = bytes | bytearray | memoryview

DECOMPRESSED_SIZE_BYTES_MAX: Final = 64 * 1_048_576
"""Default limit of the decompressed records of one batch."""

GZIP_WINDOW_BITS: Final = 31
"""zlib's code for a gzip header with the largest window."""

GZIP_MEMBER_COUNT_FREE: Final = 16
"""Number of members in a batch that may have any size. Kafka's writers make one; `bgzip` makes
members with 64 KiB of content."""
GZIP_MEMBER_SIZE_BYTES_MIN: Final = 256
"""Minimum average of compressed bytes per further member."""
GZIP_MEMBER_CONTENT_SIZE_BYTES_MIN: Final = 4096
"""Minimum average of content per member if members have fewer compressed bytes."""

FURTHER_MEMBERS_SLICE_SIZE_BYTES: Final = 1024
"""Input size per step for gzip members after the first one."""

LZ4_LEVEL_FAST: Final = 9
"""KIP-390's default level; as in Java it means the fast compressor, all others mean HC."""

LZ4_CHECKSUM_AT: Final = 6
"""Position of the descriptor's checksum in such a frame."""
LZ4_CONTENT_SIZE_FLAG: Final = 0x08
LZ4_DICTIONARY_FLAG: Final = 0x01

SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
SNAPPY_HEADER: Final = SNAPPY_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
"""The magic, the format's version, and the oldest version that can read it."""
SNAPPY_BLOCK_SIZE_BYTES: Final = 32 * 1024
"""Java's block size, so that Java readers get no larger blocks than Java's own."""

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
ZSTD_LEVEL: Final = 3
ZSTD_WINDOW_SIZE_BYTES_MAX: Final = 1 << 27
"""Window of the highest level of Java's producer; a frame that requires more is refused."""
ZSTD_SLICE_SIZE_BYTES: Final = 1024
"""Input size per step of zstandard: 4 bytes may yield 128 KiB, so this may yield 32 MiB."""

BUFFER_SIZE_BYTES_MIN: Final = 64 * 1024
BUFFER_GROWTH: Final = 16
"""Ratio of the first zstd output buffer to its input."""
BUFFER_GROWTH_AGAIN: Final = 4
"""Growth of the output buffer if it was too small. Large batches may compress well, and touching
the whole buffer costs time."""
BUFFER_FULL: Final = "failed to write whole buffer"
"""The error text for a full buffer; the library has no separate exception."""


class Codec(IntEnum):
    """The compression of a batch; the number is in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressedSizeError(DecodeError):
    """A batch that decompresses to more than the limit. Its reader names the limit's setting."""


def compress(codec: Codec, data: Data, level: int | None = None) -> bytes:
    """Return `data` compressed at `level`, or at Kafka's default level if None.

    Raises:
        ConfigError: the codec's library is not installed.
    """
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Data, size_bytes_max: int) -> Data:
    """Return `data` decompressed, or `data` itself if it is not compressed.

    Raises:
        DecodeError: `data` is malformed, truncated, or has extra bytes.
        DecompressedSizeError: it would decompress to more than `size_bytes_max`.
        ConfigError: the codec's library is not installed.
    """
    return _DECOMPRESS[codec](data, size_bytes_max)


def require_library(codec: Codec) -> None:
    """Import the codec's library, so that a missing one is an error before anything is opened.

    Raises:
        ConfigError: it is not installed.
    """
    if codec not in (Codec.NONE, Codec.GZIP) and not (codec is Codec.ZSTD and zstandard()):
        _cramjam(codec)


@cache
def zstandard() -> ModuleType | None:
    """Return the library that compresses small zstd batches faster, or None if not installed."""
    try:
        return import_module("zstandard")
    except ImportError:
        return None


def _cramjam(codec: Codec) -> ModuleType:
    try:
        # The lookup alone takes a tenth of the time of an import, and this is done for each batch.
        return sys.modules.get("cramjam") or import_module("cramjam")
    except ImportError as error:
        raise ConfigError(
            f"compression {codec.name.lower()} needs the package cramjam, which cannot be "
            f"imported ({error}): pip install cramjam"
        ) from error


def _too_large(codec: Codec, size_bytes_max: int, data: Data) -> DecompressedSizeError:
    claimed = _claimed_size_bytes(codec, memoryview(data))
    claim = f", and claim {claimed} bytes" if claimed and claimed > size_bytes_max else ""
    return DecompressedSizeError(
        f"its {codec.name.lower()} records decompress to more than the limit of "
        f"{size_bytes_max} bytes{claim}"
    )


def _claimed_size_bytes(codec: Codec, data: memoryview) -> int | None:
    """Return the decompressed size that the writer noted in the data; None if there is none.

    Writers of streams, Java's among them, note none with snappy, LZ4 and zstd.
    """
    if codec is Codec.GZIP:
        return int.from_bytes(data[-4:], "little")  # of the last member, modulo 4 GiB
    if codec is Codec.SNAPPY and bytes(data[: len(SNAPPY_MAGIC)]) != SNAPPY_MAGIC:
        return sum((byte & 0x7F) << 7 * at for at, byte in enumerate(_varint(data)))
    if codec is Codec.LZ4 and len(data) > LZ4_CHECKSUM_AT and data[4] & LZ4_CONTENT_SIZE_FLAG:
        return int.from_bytes(data[6:14], "little")
    if codec is Codec.ZSTD and bytes(data[:4]) == ZSTD_MAGIC and len(data) > len(ZSTD_MAGIC):
        descriptor = data[4]
        is_single = descriptor >> 5 & 1
        size_bytes = (is_single, 2, 4, 8)[descriptor >> 6]
        at = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
        # Two bytes count from 256 on: one byte is enough for less.
        least = 256 if size_bytes == 2 else 0
        return int.from_bytes(data[at : at + size_bytes], "little") + least if size_bytes else None
    return None


def _varint(data: memoryview) -> bytes:
    """Return the bytes of a varint of at most 32 bits at the start of the data."""
    length = next((at for at, byte in enumerate(data[:5]) if byte < 0x80), 4) + 1
    return bytes(data[:length])


def _malformed(codec: Codec, reason: object) -> DecodeError:
    return DecodeError(f"its {codec.name.lower()} records are malformed: {reason}")


# none ---------------------------------------------------------------------------------------------


def _keep(data: Data, level: int | None) -> bytes:
    return bytes(data)


def _as_is(data: Data, size_bytes_max: int) -> Data:
    return data


# gzip ---------------------------------------------------------------------------------------------


def _gzip(data: Data, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, wbits=GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Data, size_bytes_max: int) -> bytes:
    """Decompress members until `data` is used up.

    Each member is an object, which costs more than hundreds of its bytes, so their number is
    limited.
    """
    parts: list[bytes] = []
    room_bytes = size_bytes_max
    view = memoryview(data)
    position = 0
    # All at once, since nearly always there is one member. What is behind a member's end comes back
    # as a copy, so that of many tiny members each would cost as much as all that follow.
    slice_size_bytes = len(view)
    member_count = 0
    member_count_free = GZIP_MEMBER_COUNT_FREE + len(view) // GZIP_MEMBER_SIZE_BYTES_MIN
    while True:
        member_count += 1
        content_size_bytes = size_bytes_max - room_bytes
        if (
            member_count > member_count_free
            and (member_count - member_count_free) * GZIP_MEMBER_CONTENT_SIZE_BYTES_MIN
            > content_size_bytes
        ):
            raise _malformed(
                Codec.GZIP,
                f"they have {member_count} members or more, which hold {content_size_bytes} bytes",
            )
        decompressor = zlib.decompressobj(GZIP_WINDOW_BITS)
        while not decompressor.eof:
            piece = view[position : position + slice_size_bytes]
            if not piece:
                raise _malformed(Codec.GZIP, "they end in the middle of the stream")
            try:
                # One byte more than there is room for tells "exactly full" from "too large".
                part = decompressor.decompress(piece, room_bytes + 1)
            except zlib.error as error:
                raise _malformed(Codec.GZIP, error) from error
            position += len(piece)
            room_bytes -= len(part)
            if room_bytes < 0:
                raise _too_large(Codec.GZIP, size_bytes_max, data)
            if part:
                parts.append(part)
        position -= len(decompressor.unused_data)
        if position == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        slice_size_bytes = FURTHER_MEMBERS_SLICE_SIZE_BYTES


# lz4 and zstd of cramjam: all frames of the input at once, into a buffer of limited size ---------


def _decompress_into(
    codec: Codec,
    data: Data,
    size_bytes_max: int,
    buffer_size_bytes: int,
    *,
    filled_bytes: int = 0,
) -> bytearray:
    """Decompress into a buffer of `buffer_size_bytes`, growing it while it is too small.

    `filled_bytes` of `size_bytes_max` are used already.
    """
    room_bytes = size_bytes_max - filled_bytes
    cramjam = _cramjam(codec)
    library = cramjam.lz4 if codec is Codec.LZ4 else cramjam.zstd
    while True:
        # One byte more than is allowed tells "exactly full" from "too large".
        buffer = bytearray(min(buffer_size_bytes, room_bytes + 1))
        try:
            size_bytes = library.decompress_into(data, buffer)
        except cramjam.DecompressionError as error:
            if str(error) != BUFFER_FULL:
                raise _malformed(codec, error) from error
            size_bytes = len(buffer) + 1
        if size_bytes > room_bytes:
            raise _too_large(codec, size_bytes_max, data)
        if size_bytes <= len(buffer):
            del buffer[size_bytes:]
            return buffer
        del buffer  # before the next one: both would take twice the limit
        buffer_size_bytes = max(BUFFER_SIZE_BYTES_MIN, buffer_size_bytes * BUFFER_GROWTH_AGAIN)


def _lz4(data: Data, level: int | None) -> bytes:
    # Java reads blocks that do not refer to each other, and of 64 KiB, which is the default here.
    compressor = _cramjam(Codec.LZ4).lz4.Compressor(
        level=0 if level in (None, LZ4_LEVEL_FAST) else level,
        content_checksum=False,
        block_linked=False,
    )
    compressor.compress(bytes(data))  # it takes nothing else
    return bytes(compressor.finish())


def _unlz4(data: Data, size_bytes_max: int) -> Data:
    _cramjam(
        Codec.LZ4
    )  # a missing package is reported for the first batch, not the first large one
    small = unlz4_small(data, size_bytes_max)
    if small is not None:
        return small
    room_bytes = lz4_room_bytes(data, size_bytes_max)
    if room_bytes is None:
        room_bytes = max(BUFFER_SIZE_BYTES_MIN, len(data))
    return _decompress_into(Codec.LZ4, data, size_bytes_max, room_bytes)


# xxHash32, for a few bytes
_XXH_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_UINT32: Final = 0xFFFF_FFFF


def lz4_header_checksum(descriptor: Data) -> int:
    """Return the second byte of the xxHash32 of fewer than 16 bytes."""
    prime1, prime2, prime3, prime4, prime5 = _XXH_PRIMES
    value = prime5 + len(descriptor)
    lanes_end = len(descriptor) & ~3
    for start in range(0, lanes_end, 4):
        lane = int.from_bytes(descriptor[start : start + 4], "little")
        value = _rotated(value + lane * prime3, 17) * prime4
    for byte in descriptor[lanes_end:]:
        value = _rotated(value + byte * prime5, 11) * prime1
    value &= _UINT32
    value = (value ^ (value >> 15)) * prime2 & _UINT32
    value = (value ^ (value >> 13)) * prime3 & _UINT32
    return ((value ^ (value >> 16)) >> 8) & 0xFF


def _rotated(value: int, count: int) -> int:
    value &= _UINT32
    return value << count | value >> (32 - count)


def mend_old_lz4(data: Data) -> Data:
    """Return an LZ4 frame with a valid checksum of its descriptor.

    Clients before Kafka 0.10 computed it over the magic, too (KAFKA-3160). Data that is not a
    frame, or is truncated, is returned unchanged.
    """
    if len(data) <= LZ4_CHECKSUM_AT or data[:4] != LZ4_MAGIC:
        return data
    flags = data[4]
    at = LZ4_CHECKSUM_AT
    at += 8 * bool(flags & LZ4_CONTENT_SIZE_FLAG) + 4 * bool(flags & LZ4_DICTIONARY_FLAG)
    if len(data) <= at:
        return data
    mended = bytearray(data)
    mended[at] = lz4_header_checksum(mended[4:at])
    return mended


# snappy: blocks in the framing of snappy-java, or one bare block ----------------------------------


def _snappy(data: Data, level: int | None) -> bytes:
    compress_raw = _cramjam(Codec.SNAPPY).snappy.compress_raw
    parts = [SNAPPY_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), SNAPPY_BLOCK_SIZE_BYTES):
            block = bytes(compress_raw(view[start : start + SNAPPY_BLOCK_SIZE_BYTES]))
            parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: Data, size_bytes_max: int) -> Data:
    cramjam = _cramjam(Codec.SNAPPY)
    view = memoryview(data)
    try:
        if bytes(view[: len(SNAPPY_MAGIC)]) == SNAPPY_MAGIC:
            if len(view) < len(SNAPPY_HEADER):
                raise _malformed(Codec.SNAPPY, "they end in the middle of the header")
            return unsnappy_blocks(view, len(SNAPPY_HEADER), size_bytes_max, cramjam)
        if cramjam.snappy.decompress_raw_len(view) > size_bytes_max:
            raise _too_large(Codec.SNAPPY, size_bytes_max, data)
        return bytes(cramjam.snappy.decompress_raw(view))
    except OverflowError as error:
        raise _too_large(Codec.SNAPPY, size_bytes_max, data) from error
    except (ValueError, cramjam.DecompressionError) as error:
        raise _malformed(Codec.SNAPPY, error) from error


# zstd ---------------------------------------------------------------------------------------------


# Creating a context costs as much as compressing a small batch, and a context in use must not be
# shared.
_idle_compressors: dict[int, list[ZstdCompressor]] = {}
_idle_decompressors: list[ZstdDecompressor] = []

T = TypeVar("T")


def _take(idle: list[T], make: Callable[[], T]) -> T:
    try:
        return idle.pop()
    except IndexError:
        return make()


def _zstd(data: Data, level: int | None) -> bytes:
    wanted = ZSTD_LEVEL if level is None else level
    library = zstandard()
    if library is None:
        return bytes(_cramjam(Codec.ZSTD).zstd.compress(data, wanted))
    idle = _idle_compressors.setdefault(wanted, [])
    compressor = _take(idle, lambda: library.ZstdCompressor(level=wanted))
    try:
        return compressor.compress(data)
    finally:
        idle.append(compressor)


def _unzstd(data: Data, size_bytes_max: int) -> Data:
    library = zstandard()
    if library is None:
        return _decompress_into(Codec.ZSTD, data, size_bytes_max, _zstd_room_bytes(data))
    decompressor = _take(
        _idle_decompressors,
        lambda: library.ZstdDecompressor(max_window_size=ZSTD_WINDOW_SIZE_BYTES_MAX),
    )
    try:
        return _unzstd_with(decompressor, memoryview(data), size_bytes_max)
    except library.ZstdError as error:
        raise _malformed(Codec.ZSTD, error) from error
    finally:
        _idle_decompressors.append(decompressor)


def _unzstd_with(decompressor: ZstdDecompressor, data: memoryview, size_bytes_max: int) -> Data:
    """Decompress the first frame, nearly always the only one; cramjam decompresses the rest.

    With cramjam a frame costs a twentieth, since it needs no Python object.
    """
    parts: list[Data] = []
    size_bytes = 0
    position = 0
    frame = decompressor.decompressobj()
    while not frame.eof:
        piece = data[position : position + ZSTD_SLICE_SIZE_BYTES]
        if not piece:
            raise _malformed(Codec.ZSTD, "they end in the middle of a frame")
        part = frame.decompress(piece)
        position += len(piece) - len(frame.unused_data)
        size_bytes += len(part)
        if size_bytes > size_bytes_max:
            raise _too_large(Codec.ZSTD, size_bytes_max, data)
        if part:
            parts.append(part)
    if position < len(data):
        rest = data[position:]
        room_bytes = _zstd_room_bytes(rest)
        parts.append(
            _decompress_into(Codec.ZSTD, rest, size_bytes_max, room_bytes, filled_bytes=size_bytes)
        )
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_room_bytes(data: Data) -> int:
    return max(BUFFER_SIZE_BYTES_MIN, len(data) * BUFFER_GROWTH)


_COMPRESS: Final[dict[Codec, Callable[[Data, int | None], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: Final[dict[Codec, Callable[[Data, int], Data]]] = {
    Codec.NONE: _as_is,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
