"""The loops over blocks of snappy and LZ4, which writers may make as small and many as they like.

Small blocks of snappy are decompressed here, since a library call costs as much as a thousand of
their bytes. What is odd in any way goes to the pure twin, which raises.

Owner: no state.
Source: those of the pure twin; snappy's format description.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pykclient.accel.pure import blocks as pure

__all__ = ["lz4_room_bytes", "unsnappy_blocks"]

cdef enum:
    LIBRARY_SIZE_BYTES_MIN = 1024  # a block that decompresses to so much is for the library
    LENGTH_SIZE_BYTES = 4
    VARINT_SIZE_BYTES_MAX = 5
    LZ4_HEADER_SIZE_BYTES = 7
    LZ4_MATCH_SIZE_BYTES = 5
    LZ4_GROWTH_MAX = 255

cdef int64_t UINT32_MAX = 0xFFFFFFFF


cdef struct Block:
    Py_ssize_t start  # of what is compressed, behind the varint of its size
    Py_ssize_t end
    Py_ssize_t size_bytes  # when decompressed


def unsnappy_blocks(data, Py_ssize_t position, Py_ssize_t size_bytes_max, library):
    """Decompress the blocks of a snappy-java stream that begin at `position`; `library` is cramjam.

    Raises:
        ValueError: the stream is cut off, or has too many blocks.
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
    """Return all blocks as one; None where any is odd."""
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
        # `block` is large.
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
    """Return the size that all blocks state together; -1 if it is too large or one is cut off."""
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
    """Decompress blocks up to a large one, which `block` then is; False where one is malformed."""
    while position[0] < size:
        if not read_block(start, size, position[0], block):
            return False
        # Read a second time, from memory that another thread may have changed since.
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
    """Read the lengths of the block at `position`; False where it is cut off, or they are odd."""
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
    """Decompress the elements of one block, which fill `room` bytes exactly; False: they do not."""
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
    """Return room for all blocks of `data`, or more than `size_bytes_max` where they may need that.

    A frame of Java's has no content size, but each of its blocks but the last is full: by their
    number the buffer is right at once, and hardly larger than the records. What is malformed ends
    the count, and is for the library to report. None: the blocks are too many to count.
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
    """The number of up to four bytes at `position`; what is behind the end counts as zeros."""
    cdef uint32_t number = 0
    cdef int index
    for index in range(4):
        if position + index < size:
            number |= <uint32_t>start[position + index] << (8 * index)
    return number
