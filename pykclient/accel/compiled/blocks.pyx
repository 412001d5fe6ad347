"""Loops over the blocks of snappy and LZ4, whose size and number the writer decides.

Small snappy blocks and small LZ4 frames are decompressed here, since a library call costs as
much as a thousand of their bytes. Anything unusual is left to the pure twin, which raises, or to
the library.

Owner: no state.
Source: as the pure twin; the format descriptions of snappy and LZ4; xxHash's specification.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pykclient.accel.pure import blocks as pure

__all__ = ["lz4_room_bytes", "unlz4_small", "unsnappy_blocks"]

cdef enum:
    LIBRARY_SIZE_BYTES_MIN = 1024  # blocks that decompress to this size go to the library
    LENGTH_SIZE_BYTES = 4
    VARINT_SIZE_BYTES_MAX = 5
    LZ4_HEADER_SIZE_BYTES = 7
    LZ4_MATCH_SIZE_BYTES = 5
    LZ4_GROWTH_MAX = 255
    LZ4_VERSION = 0x40
    LZ4_INDEPENDENT_BLOCKS = 0x20
    LZ4_BLOCK_CHECKSUM = 0x10
    LZ4_CONTENT_SIZE = 0x08
    LZ4_CONTENT_CHECKSUM = 0x04
    LZ4_MATCH_LENGTH_MIN = 4
    LZ4_LAST_SIZE_BYTES = 8  # an offset, a token and five literals end a block
    SMALL_SIZE_BYTES_MAX = 512
    SMALL_CONTENT_SIZE_BYTES_MAX = 4096

cdef uint32_t PRIME_1 = 0x9E3779B1
cdef uint32_t PRIME_2 = 0x85EBCA77
cdef uint32_t PRIME_3 = 0xC2B2AE3D
cdef uint32_t PRIME_4 = 0x27D4EB2F
cdef uint32_t PRIME_5 = 0x165667B1

cdef int64_t UINT32_MAX = 0xFFFFFFFF


cdef struct Block:
    Py_ssize_t start  # of the compressed bytes, after the varint of the size
    Py_ssize_t end
    Py_ssize_t size_bytes  # decompressed


def unsnappy_blocks(data, Py_ssize_t position, Py_ssize_t size_bytes_max, library):
    """Decompress the blocks of a snappy-java stream from `position` on; `library` is cramjam.

    Raises:
        ValueError: the stream is truncated, or has too many blocks.
        OverflowError: it decompresses to more than `size_bytes_max`.
        cramjam.DecompressionError: a block is malformed.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        found = decompressed(
            data, <const unsigned char*>view.buf, view.len, position, size_bytes_max, library
        )
    finally:
        PyBuffer_Release(&view)
    if found is None:
        return pure.unsnappy_blocks(data, position, size_bytes_max, library)
    return found


cdef object decompressed(
    data, const unsigned char* start, Py_ssize_t size, Py_ssize_t position,
    Py_ssize_t size_bytes_max, library,
):
    """Return all blocks decompressed and joined; None if one is invalid."""
    cdef Py_ssize_t total, filled = 0
    cdef Block block
    cdef char* output
    cdef bint is_good
    if position < 0:
        return None
    with nogil:
        total = total_size_bytes(start, size, position, size_bytes_max)
    if total < 0:
        return None
    result = PyByteArray_FromStringAndSize(NULL, total)
    output = PyByteArray_AS_STRING(result)
    whole = room = None
    while position < size:
        with nogil:
            is_good = small_blocks(
                start, size, &position, <unsigned char*>output, total, &filled, &block
            )
        if not is_good:
            return None
        if position >= size:
            break
        # `block` is a large one, for the library.
        if whole is None:
            whole, room = memoryview(data).cast("B"), memoryview(result)
        try:
            count = library.snappy.decompress_raw_into(
                whole[position + LENGTH_SIZE_BYTES : block.end],
                room[filled : filled + block.size_bytes],
            )
        except library.DecompressionError:
            return None
        if count != block.size_bytes:
            return None
        filled += block.size_bytes
        position = block.end
    if filled != total:
        return None
    if room is not None:
        room.release()
    return result


cdef Py_ssize_t total_size_bytes(
    const unsigned char* start, Py_ssize_t size, Py_ssize_t position, Py_ssize_t size_bytes_max
) noexcept nogil:
    """Return the total size that all blocks state; -1 if it is too large or one is truncated."""
    cdef Block block
    cdef Py_ssize_t total = 0
    while position < size:
        if not read_block(start, size, position, &block):
            return -1
        if block.size_bytes > size_bytes_max - total:
            return -1
        total += block.size_bytes
        position = block.end
    return total


cdef bint small_blocks(
    const unsigned char* start, Py_ssize_t size, Py_ssize_t* position,
    unsigned char* output, Py_ssize_t room, Py_ssize_t* filled, Block* block,
) noexcept nogil:
    """Decompress blocks up to a large one, which is then `block`; False if one is malformed."""
    while position[0] < size:
        if not read_block(start, size, position[0], block):
            return False
        # This reads the bytes a second time; another thread may have changed them meanwhile.
        if block.size_bytes > room - filled[0]:
            return False
        if block.size_bytes >= LIBRARY_SIZE_BYTES_MIN:
            return True
        if not unsnappy(
            start + block.start, start + block.end, output + filled[0], block.size_bytes
        ):
            return False
        filled[0] += block.size_bytes
        position[0] = block.end
    return True


cdef bint read_block(
    const unsigned char* start, Py_ssize_t size, Py_ssize_t position, Block* block
) noexcept nogil:
    """Read the lengths of the block at `position`; False if it is truncated or invalid."""
    cdef uint64_t length = 0
    cdef int shift
    cdef Py_ssize_t at = position + LENGTH_SIZE_BYTES
    if at > size:
        return False
    block.end = at + <Py_ssize_t>(
        <uint32_t>start[position] << 24 | <uint32_t>start[position + 1] << 16
        | <uint32_t>start[position + 2] << 8 | <uint32_t>start[position + 3]
    )
    if block.end > size:
        return False
    for shift in range(VARINT_SIZE_BYTES_MAX):
        if at >= block.end:
            return False
        length |= <uint64_t>(start[at] & 0x7F) << (7 * shift)
        at += 1
        if start[at - 1] < 0x80:
            block.start = at
            block.size_bytes = <Py_ssize_t>length
            return length <= <uint64_t>UINT32_MAX
    return False


cdef bint unsnappy(
    const unsigned char* at, const unsigned char* end, unsigned char* output, Py_ssize_t room
) noexcept nogil:
    """Decompress the elements of one block, which must fill `room` bytes; False if they do not."""
    cdef Py_ssize_t filled = 0, length, offset
    cdef int tag, extra, index
    while at < end:
        tag = at[0]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = <int>length - 60
                if end - at < extra:
                    return False
                length = 0
                for index in range(extra):
                    length |= <Py_ssize_t>at[index] << (8 * index)
                length += 1
                at += extra
            if length > end - at or length > room - filled:
                return False
            memcpy(output + filled, at, length)
            at += length
            filled += length
            continue
        if tag & 3 == 1:
            length = 4 + (tag >> 2 & 7)
            extra = 1
        else:
            length = 1 + (tag >> 2)
            extra = 2 if tag & 3 == 2 else 4
        if end - at < extra:
            return False
        offset = 0
        for index in range(extra):
            offset |= <Py_ssize_t>at[index] << (8 * index)
        if extra == 1:
            offset |= (tag >> 5) << 8
        at += extra
        if offset == 0 or offset > filled or length > room - filled:
            return False
        for index in range(length):  # it may overlap itself
            output[filled] = output[filled - offset]
            filled += 1
    return filled == room


def lz4_room_bytes(data, int64_t size_bytes_max):
    """Return the buffer size for all blocks of `data`, or more than `size_bytes_max` if too large.

    Java's frames have no content size, but all blocks except the last are full: their number gives
    a buffer size that is sufficient and hardly too large. Malformed data ends the count; the
    library reports it. None: there are too many blocks to count.
    """
    cdef Py_buffer view
    cdef int64_t size_bytes
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        size_bytes = room_bytes(<const unsigned char*>view.buf, view.len, size_bytes_max)
    PyBuffer_Release(&view)
    return size_bytes


cdef int64_t room_bytes(
    const unsigned char* start, Py_ssize_t size, int64_t size_bytes_max
) noexcept nogil:
    cdef int64_t size_bytes = 0, block_size_bytes, block_size_bytes_max
    cdef Py_ssize_t position = 0
    cdef uint32_t header
    cdef int flags, growth
    cdef bint is_plain
    while (
        position <= size - LZ4_HEADER_SIZE_BYTES
        and memcmp(start + position, b"\x04\x22\x4d\x18", 4) == 0
    ):
        flags = start[position + 4]
        block_size_bytes_max = <int64_t>1 << (8 + 2 * (start[position + 5] >> 4 & 7))
        position += LZ4_HEADER_SIZE_BYTES + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
        while True:
            header = little_endian(start, size, position)
            if header == 0:
                break
            block_size_bytes = header & 0x7FFFFFFF
            is_plain = header > 0x7FFFFFFF or block_size_bytes < LZ4_MATCH_SIZE_BYTES
            growth = 1 if is_plain else LZ4_GROWTH_MAX
            size_bytes += min(block_size_bytes_max, growth * block_size_bytes)
            if size_bytes > size_bytes_max:
                return size_bytes
            position += 4 + block_size_bytes + 4 * (flags >> 4 & 1)
        position += 4 + 4 * (flags >> 2 & 1)
    return size_bytes


cdef uint32_t little_endian(
    const unsigned char* start, Py_ssize_t size, Py_ssize_t position
) noexcept nogil:
    """Return the number of up to four bytes at `position`; bytes after the end count as zeros."""
    cdef uint32_t number = 0
    cdef int index
    for index in range(4):
        if position + index < size:
            number |= <uint32_t>start[position + index] << (8 * index)
    return number


def unlz4_small(data, Py_ssize_t size_bytes_max):
    """Decompress small LZ4 frames; None if they are not small, or the library must judge them."""
    cdef Py_buffer view
    cdef Py_ssize_t filled = -1
    cdef unsigned char[SMALL_CONTENT_SIZE_BYTES_MAX] output
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len <= SMALL_SIZE_BYTES_MAX:
        filled = small_frames(
            <const unsigned char*>view.buf, view.len, output,
            min(size_bytes_max, SMALL_CONTENT_SIZE_BYTES_MAX),
        )
    PyBuffer_Release(&view)
    return None if filled < 0 else PyBytes_FromStringAndSize(<const char*>output, filled)


cdef Py_ssize_t small_frames(
    const unsigned char* start, Py_ssize_t size, unsigned char* output, Py_ssize_t room
) noexcept nogil:
    """Decompress all frames; return the size of their contents, -1 if anything is invalid."""
    cdef Py_ssize_t position = 0, filled = 0, frame_start, block_start, end, descriptor_at
    cdef int flags, descriptor
    cdef uint32_t header
    while position < size:
        if size - position < LZ4_HEADER_SIZE_BYTES:
            return -1
        if memcmp(start + position, b"\x04\x22\x4d\x18", 4) != 0:
            return -1
        descriptor_at = position + 4
        flags = start[descriptor_at]
        descriptor = start[descriptor_at + 1]
        # Another version, a reserved bit, or a dictionary.
        if flags & 0xC3 != LZ4_VERSION or descriptor & 0x8F != 0 or descriptor < 0x40:
            return -1
        position += 6
        if flags & LZ4_CONTENT_SIZE:
            position += 8
        if (
            position >= size
            or start[position]
            != (xxh32(start + descriptor_at, position - descriptor_at) >> 8 & 0xFF)
        ):
            return -1
        position += 1
        frame_start = filled
        while True:
            if size - position < 4:
                return -1
            header = little_endian(start, size, position)
            position += 4
            if header == 0:
                break
            end = position + <Py_ssize_t>(header & 0x7FFFFFFF)
            if end > size:
                return -1
            block_start = filled
            if header > 0x7FFFFFFF:
                if end - position > room - filled:
                    return -1
                memcpy(output + filled, start + position, end - position)
                filled += end - position
            else:
                filled = unlz4(
                    start + position, start + end, output, filled, room,
                    block_start if flags & LZ4_INDEPENDENT_BLOCKS else frame_start,
                )
                if filled < 0:
                    return -1
            if flags & LZ4_BLOCK_CHECKSUM:
                if (
                    size - end < 4
                    or little_endian(start, size, end) != xxh32(start + position, end - position)
                ):
                    return -1
                end += 4
            position = end
        if flags & LZ4_CONTENT_SIZE:
            if (
                <uint64_t>little_endian(start, size, descriptor_at + 2)
                | <uint64_t>little_endian(start, size, descriptor_at + 6) << 32
            ) != <uint64_t>(filled - frame_start):
                return -1
        if flags & LZ4_CONTENT_CHECKSUM:
            if (
                size - position < 4
                or little_endian(start, size, position)
                != xxh32(output + frame_start, filled - frame_start)
            ):
                return -1
            position += 4
    return filled if size else -1


cdef Py_ssize_t unlz4(
    const unsigned char* at, const unsigned char* end, unsigned char* output, Py_ssize_t filled,
    Py_ssize_t room, Py_ssize_t oldest,
) noexcept nogil:
    """Decompress the sequences of one block behind `filled` bytes; return how many there are then.

    Matches begin at `oldest` or behind it. -1: anything is odd.
    """
    cdef Py_ssize_t length, offset, index
    cdef int token
    while at < end:
        token = at[0]
        at += 1
        length = token >> 4
        if length == 15:
            at = add_bytes(at, end, &length)
            if at is NULL:
                return -1
        if length > end - at or length > room - filled:
            return -1
        memcpy(output + filled, at, length)
        at += length
        filled += length
        if at == end:
            return filled
        if end - at < LZ4_LAST_SIZE_BYTES:
            return -1
        offset = at[0] | at[1] << 8
        at += 2
        length = token & 15
        if length == 15:
            at = add_bytes(at, end, &length)
            if at is NULL:
                return -1
        length += LZ4_MATCH_LENGTH_MIN
        if offset == 0 or offset > filled - oldest or length > room - filled:
            return -1
        for index in range(length):  # it may overlap itself
            output[filled] = output[filled - offset]
            filled += 1
    return -1


cdef const unsigned char* add_bytes(
    const unsigned char* at, const unsigned char* end, Py_ssize_t* length
) noexcept nogil:
    """Add the bytes that continue a length; return their end, NULL if they are truncated."""
    cdef int more
    while at < end:
        more = at[0]
        at += 1
        length[0] += more
        if more != 255:
            return at
    return NULL


cdef uint32_t xxh32(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    """Return the xxHash32 of some bytes, with the seed 0."""
    cdef const unsigned char* end = at + size
    cdef uint32_t value, lane_1, lane_2, lane_3, lane_4
    if size >= 16:
        lane_1 = PRIME_1 + PRIME_2
        lane_2 = PRIME_2
        lane_3 = 0
        lane_4 = 0 - PRIME_1
        while end - at >= 16:
            lane_1 = rotated(lane_1 + little_endian(at, 4, 0) * PRIME_2, 13) * PRIME_1
            lane_2 = rotated(lane_2 + little_endian(at, 8, 4) * PRIME_2, 13) * PRIME_1
            lane_3 = rotated(lane_3 + little_endian(at, 12, 8) * PRIME_2, 13) * PRIME_1
            lane_4 = rotated(lane_4 + little_endian(at, 16, 12) * PRIME_2, 13) * PRIME_1
            at += 16
        value = (
            rotated(lane_1, 1) + rotated(lane_2, 7) + rotated(lane_3, 12) + rotated(lane_4, 18)
        )
    else:
        value = PRIME_5
    value += <uint32_t>size
    while end - at >= 4:
        value = rotated(value + little_endian(at, 4, 0) * PRIME_3, 17) * PRIME_4
        at += 4
    while at < end:
        value = rotated(value + at[0] * PRIME_5, 11) * PRIME_1
        at += 1
    value = (value ^ value >> 15) * PRIME_2
    value = (value ^ value >> 13) * PRIME_3
    return value ^ value >> 16


cdef inline uint32_t rotated(uint32_t value, int count) noexcept nogil:
    return value << count | value >> (32 - count)
