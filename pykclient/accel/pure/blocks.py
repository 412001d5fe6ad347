"""Loops over the blocks of snappy and LZ4, whose size and number the writer decides.

A library call per block is expensive for tiny blocks. This core therefore refuses snappy streams
with many small blocks; the compiled core reads all of them.

Owner: no state.
Source: snappy-java's stream format; LZ4 frame format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

    Data = bytes | bytearray | memoryview

BLOCK_COUNT_FREE: Final = 64
"""Number of blocks in a batch that may have any size."""

BLOCK_SIZE_BYTES_MIN: Final = 128
"""Minimum average of compressed bytes per further block. snappy-java's blocks hold 32 KiB, which
are 1.5 KiB if they are zeros."""

SNAPPY_LENGTH_SIZE_BYTES: Final = 4

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
LZ4_HEADER_SIZE_BYTES: Final = 7
"""Size of the header of a frame without content size and dictionary."""
LZ4_BLOCK_SIZE_MASK: Final = 0x7FFF_FFFF
"""Mask of the size; the other bit marks an uncompressed block."""
LZ4_MATCH_SIZE_BYTES: Final = 5
"""Size of the smallest block with a repetition; smaller ones only have literal bytes."""
LZ4_GROWTH_MAX: Final = 255
"""Maximum decompressed bytes per byte of a block."""


def unsnappy_blocks(data: Data, position: int, size_bytes_max: int, library: ModuleType) -> Data:
    """Decompress the blocks of a snappy-java stream from `position` on; `library` is cramjam.

    Raises:
        ValueError: the stream is truncated, or has too many blocks.
        OverflowError: it decompresses to more than `size_bytes_max`.
        cramjam.DecompressionError: a block is malformed.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    room_bytes = size_bytes_max
    block_count = 0
    block_count_max = BLOCK_COUNT_FREE + len(view) // BLOCK_SIZE_BYTES_MIN
    while position < len(view):
        block_count += 1
        if block_count > block_count_max:
            raise ValueError(
                f"they have more than {block_count_max} blocks in {len(view)} bytes; the compiled "
                f"core reads them"
            )
        start = position + SNAPPY_LENGTH_SIZE_BYTES
        position = start + int.from_bytes(view[position:start], "big")
        if position > len(view):
            raise ValueError("they end in the middle of a block")
        block = view[start:position]
        if library.snappy.decompress_raw_len(block) > room_bytes:
            raise OverflowError
        part = bytes(library.snappy.decompress_raw(block))
        if part:
            parts.append(part)
            room_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def lz4_room_bytes(data: Data, size_bytes_max: int) -> int | None:
    """Return the buffer size for all blocks of `data`, or more than `size_bytes_max` if too large.

    Java's frames have no content size, but all blocks except the last are full: their number gives
    a buffer size that is sufficient and hardly too large. Malformed data ends the count; the
    library reports it. None: there are too many blocks to count.
    """
    size_bytes = 0
    position = 0
    end = len(data) - LZ4_HEADER_SIZE_BYTES
    blocks_left = BLOCK_COUNT_FREE + len(data) // BLOCK_SIZE_BYTES_MIN
    while position <= end and data[position : position + 4] == LZ4_MAGIC:
        flags, descriptor = data[position + 4], data[position + 5]
        block_size_bytes_max = 1 << (8 + 2 * (descriptor >> 4 & 7))
        position += LZ4_HEADER_SIZE_BYTES + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
        blocks_left -= 1  # frames count too
        while header := int.from_bytes(data[position : position + 4], "little"):
            block_size_bytes = header & LZ4_BLOCK_SIZE_MASK
            is_plain = header > LZ4_BLOCK_SIZE_MASK or block_size_bytes < LZ4_MATCH_SIZE_BYTES
            growth = 1 if is_plain else LZ4_GROWTH_MAX
            size_bytes += min(block_size_bytes_max, growth * block_size_bytes)
            if size_bytes > size_bytes_max:
                return size_bytes
            position += 4 + block_size_bytes + 4 * (flags >> 4 & 1)
            blocks_left -= 1
            if blocks_left < 0:
                return None
        if blocks_left < 0:
            return None
        position += 4 + 4 * (flags >> 2 & 1)
    return size_bytes


def unlz4_small(data: Data, size_bytes_max: int) -> bytes | None:
    """Decompress small LZ4 frames; None means to use the library, as this core always does."""
    return None
