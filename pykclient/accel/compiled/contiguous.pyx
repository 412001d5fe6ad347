"""Contiguous plain batches, found and decoded together.

A batch's checksum is computed right before decoding, while its bytes are in the cache. Anything
unusual is left to `records.batch`, which checks one batch after the other and reports errors. A
message of magic 0 or 1 that is not compressed counts as a batch of one record.

Owner: no state.
Source: Kafka protocol guide, "Record Batch" and "Old Message Format".
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawMalloc
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memset

from pykclient.accel.compiled.decoder cimport (
    NOGIL_SIZE_BYTES_MIN,
    Frame,
    Place,
    columns_of,
    find_places,
)
from pykclient.accel.compiled.overflow cimport add_overflows

from pykclient.accel import batch_layout
from pykclient.accel.pure import appender
from pykclient.accel.pure import contiguous as pure
from pykclient.types import TimestampType

__all__ = ["decode_contiguous", "decode_messages", "find_contiguous", "message_offsets"]

cdef extern from *:
    """
    static uint64_t number_at(const unsigned char *at, int size)
    {
        uint64_t number = 0;
        while (size-- > 0)
            number = number << 8 | *at++;
        return number;
    }
    """
    unsigned long long number_at(const unsigned char* at, int size) noexcept nogil

cdef enum:
    HEADER_SIZE_BYTES = 61
    LENGTH_END = 12
    CRC_START = 21
    MAGIC = 2
    CODEC = 0x07
    LOG_APPEND_TIME = 0x08
    RECORD_SIZE_BYTES_MIN = 7
    MESSAGE_START_SIZE_BYTES = 18
    MESSAGE_CRC_START = 16
    MESSAGE_SIZE_BYTES_MIN = 26
    MESSAGE_TIMESTAMP_SIZE_BYTES = 8
    FIELD_LENGTH_SIZE_BYTES = 4
    TYPE_NONE = -1
    TYPE_CREATE = 0
    TYPE_APPEND = 1

cdef tuple TIMESTAMP_TYPES = (
    TimestampType.NO_TIMESTAMP_TYPE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
)
cdef int ATTRIBUTES_SPECIAL = pure.ATTRIBUTES_SPECIAL
cdef int32_t CHUNK_RECORD_COUNT_MAX = batch_layout.CHUNK_RECORD_COUNT_MAX
cdef int64_t HEADER_COUNT_MAX = appender.HEADER_COUNT_MAX


cdef object crc32c = None
cdef object crc32 = None


cdef int import_checksums() except -1:
    """Import the checksum packages; one of them takes as long as our whole package."""
    global crc32, crc32c
    from crc32c import crc32c as found_crc32c
    from zlib import crc32 as found_crc32
    crc32, crc32c = found_crc32, found_crc32c
    return 0


cdef struct Header:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    Py_ssize_t size_bytes
    int32_t leader_epoch
    int32_t record_count
    uint32_t crc
    int magic
    int timestamp_type


def find_contiguous(data, Py_ssize_t position, int special, int64_t readable_end):
    """Return the plain batches from `position` on; None if there is none.

    `special` are further attributes that exclude a batch. Except for the first, no batch follows a
    gap of offsets and reaches `readable_end`.
    """
    cdef Py_buffer view
    cdef Header header, first
    cdef Py_ssize_t at = position
    cdef int64_t last_offset = 0
    memset(&first, 0, sizeof(Header))
    special |= ATTRIBUTES_SPECIAL
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if 0 <= position <= view.len <= INT32_MAX:
        while read_header(<const unsigned char*>view.buf + at, view.len - at, special, &header):
            if at == position:
                first = header
            elif (
                header.base_offset <= last_offset
                or (header.base_offset - 1 > last_offset and header.last_offset >= readable_end)
                or header.magic != first.magic
                or header.leader_epoch != first.leader_epoch
                or header.timestamp_type != first.timestamp_type
            ):
                break
            last_offset = header.last_offset
            at += header.size_bytes
    PyBuffer_Release(&view)
    if at == position:
        return None
    return pure.ContiguousBatches(
        at - position,
        first.base_offset,
        first.last_offset,
        last_offset,
        first.leader_epoch,
        TIMESTAMP_TYPES[first.timestamp_type - TYPE_NONE],
    )


def decode_contiguous(data, Py_ssize_t position, Py_ssize_t end, bint check_crcs):
    """Decode contiguous batches that end at `end`, up to `CHUNK_RECORD_COUNT_MAX` records.

    Return their columns, and the position of the next batch. The columns are None if the first
    batch is invalid, and then nothing was decoded.
    """
    cdef Frame frame = Frame.__new__(Frame)
    cdef Header header
    cdef Py_ssize_t row_count = 0
    cdef int64_t header_room = HEADER_COUNT_MAX
    cdef bint is_good
    cdef Py_ssize_t at = position
    PyObject_GetBuffer(data, &frame.data, PyBUF_SIMPLE)
    frame.start = <const unsigned char*>frame.data.buf
    if not 0 <= position <= end <= frame.data.len <= INT32_MAX:
        raise IndexError("contiguous batches are inside their data")
    row_count = count_rows(frame.start, position, &end)
    if row_count == 0:
        return None, position
    frame.places = <Place*>PyMem_RawMalloc(row_count * sizeof(Place))
    if frame.places is NULL:
        raise MemoryError
    row_count = 0
    if check_crcs:
        if crc32c is None:
            import_checksums()
        whole = memoryview(data)
    while read_header(frame.start + at, end - at, ATTRIBUTES_SPECIAL, &header):
        # The packages release the GIL themselves for large inputs.
        if check_crcs:
            if header.magic == MAGIC:
                crc = crc32c(whole[at + CRC_START : at + header.size_bytes])
            else:
                crc = crc32(whole[at + MESSAGE_CRC_START : at + header.size_bytes])
            if crc != header.crc:
                break
        if header.size_bytes >= NOGIL_SIZE_BYTES_MIN:
            with nogil:
                is_good = decode(frame.start, at, &header, frame.places + row_count, &header_room)
        else:
            is_good = decode(frame.start, at, &header, frame.places + row_count, &header_room)
        if not is_good:
            break
        row_count += header.record_count
        at += header.size_bytes
    if row_count == 0:
        return None, position
    return columns_of(frame, frame.places, row_count), at


def decode_messages(
    data,
    Py_ssize_t position,
    Py_ssize_t end,
    Py_ssize_t count_max,
    int64_t shift,
    append_timestamp_ms,
    bint check_crcs,
):
    """Decode up to `count_max` messages of magic 0 and 1 from `position` on, not beyond `end`.

    Return their columns, and the position of the next message. The columns are None if the first
    one is compressed or invalid. `shift` is added to their offsets, which must fit;
    `append_timestamp_ms` is the time of all that have one.
    """
    cdef Frame frame = Frame.__new__(Frame)
    cdef Header header
    cdef Py_ssize_t row_count = 0
    cdef bint has_append_time = append_timestamp_ms is not None
    cdef int64_t append_ms = append_timestamp_ms if has_append_time else 0
    cdef Place* place
    PyObject_GetBuffer(data, &frame.data, PyBUF_SIMPLE)
    frame.start = <const unsigned char*>frame.data.buf
    if not 0 <= position <= end <= frame.data.len <= INT32_MAX:
        return pure.decode_messages(
            data, position, end, count_max, shift, append_timestamp_ms, check_crcs
        )
    count_max = min(count_max, (end - position) // MESSAGE_SIZE_BYTES_MIN)
    if count_max <= 0:
        return None, position
    frame.places = <Place*>PyMem_RawMalloc(count_max * sizeof(Place))
    if frame.places is NULL:
        raise MemoryError
    if check_crcs:
        if crc32 is None:
            import_checksums()
        whole = memoryview(data)
    while row_count < count_max:
        if end - position < MESSAGE_START_SIZE_BYTES:
            break
        header.size_bytes = (
            LENGTH_END + <Py_ssize_t>(<int32_t>number_at(frame.start + position + 8, 4))
        )
        header.magic = frame.start[position + 16]
        if not read_message_header(frame.start + position, end - position, &header):
            break
        if check_crcs and header.crc != crc32(
            whole[position + MESSAGE_CRC_START : position + header.size_bytes]
        ):
            break
        place = frame.places + row_count
        if not decode_message(frame.start, position, &header, place):
            break
        place.offset += shift
        if has_append_time and header.magic:
            place.timestamp_ms = append_ms
        row_count += 1
        position += header.size_bytes
    if row_count == 0:
        return None, position
    return columns_of(frame, frame.places, row_count), position


def message_offsets(data):
    """Return the first and the last offset of the messages in `data`; none of them is decoded.

    Raises:
        DecodeError: there is none, one is cut off, or their offsets do not ascend.
    """
    cdef Py_buffer view
    cdef Py_ssize_t position = 0
    cdef int64_t first = 0, last = 0
    cdef bint is_good
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    with nogil:
        is_good = pass_messages(
            <const unsigned char*>view.buf, view.len, &position, &first, &last
        )
    PyBuffer_Release(&view)
    if is_good:
        return first, last
    # The unusual batch is at `position`.
    return pure.message_offsets(data, position, (first, last) if position else None)


cdef bint pass_messages(
    const unsigned char* start, Py_ssize_t size, Py_ssize_t* position,
    int64_t* first, int64_t* last,
) noexcept nogil:
    """Skip all messages; False if `position` is at an invalid one, or there is none."""
    cdef int32_t size_bytes
    cdef int64_t offset
    while position[0] < size:
        if size - position[0] < MESSAGE_START_SIZE_BYTES:
            return False
        offset = <int64_t>number_at(start + position[0], 8)
        size_bytes = <int32_t>number_at(start + position[0] + 8, 4)
        if size_bytes < MESSAGE_START_SIZE_BYTES - LENGTH_END:
            return False
        if position[0] == 0:
            first[0] = offset
        elif offset <= last[0]:
            return False
        last[0] = offset
        position[0] += LENGTH_END + <Py_ssize_t>size_bytes
    return size > 0


cdef Py_ssize_t count_rows(
    const unsigned char* start, Py_ssize_t position, Py_ssize_t* end
) noexcept nogil:
    """Return the number of records in as many whole batches as may be decoded at once; set `end`.
    """
    cdef Header header
    cdef Py_ssize_t count = 0
    while read_header(start + position, end[0] - position, ATTRIBUTES_SPECIAL, &header):
        if count + header.record_count > CHUNK_RECORD_COUNT_MAX:
            break
        count += header.record_count
        position += header.size_bytes
    end[0] = position
    return count


cdef bint decode(
    const unsigned char* start, Py_ssize_t position, Header* header, Place* places,
    int64_t* header_room,
) noexcept nogil:
    """Store the positions of one batch's fields; False if they contradict its header."""
    cdef Py_ssize_t row, at = position + HEADER_SIZE_BYTES
    cdef Py_ssize_t end = position + header.size_bytes
    if header.magic != MAGIC:
        return decode_message(start, position, header, places)
    row = find_places(
        start, start + end, places, &at, 0, header.record_count,
        header.base_offset, header.base_timestamp_ms, header_room,
    )
    if row != header.record_count or at != end or places[row - 1].offset > header.last_offset:
        return False
    if header.timestamp_type == TYPE_APPEND:
        for row in range(header.record_count):
            places[row].timestamp_ms = header.max_timestamp_ms
    return True


cdef bint decode_message(
    const unsigned char* start, Py_ssize_t position, Header* header, Place* place
) noexcept nogil:
    """Find key and value of a message; return False if they do not fill it."""
    cdef const unsigned char* end = start + position + header.size_bytes
    cdef const unsigned char* at = start + position + MESSAGE_START_SIZE_BYTES
    if header.magic:
        at += MESSAGE_TIMESTAMP_SIZE_BYTES
    at = pass_field(at, end, start, &place.key_at, &place.key_size)
    if at is NULL:
        return False
    at = pass_field(at, end, start, &place.value_at, &place.value_size)
    if at != end:
        return False
    place.offset = header.base_offset
    place.timestamp_ms = header.base_timestamp_ms
    place.headers_at = <int32_t>(end - start)
    place.headers_size = 0
    return True


cdef const unsigned char* pass_field(
    const unsigned char* at, const unsigned char* end, const unsigned char* start,
    int32_t* field_at, int32_t* field_size,
) noexcept nogil:
    """Find a field of a message; return its end, NULL if its length is invalid."""
    cdef int32_t size
    if end - at < FIELD_LENGTH_SIZE_BYTES:
        return NULL
    size = <int32_t>number_at(at, FIELD_LENGTH_SIZE_BYTES)
    at += FIELD_LENGTH_SIZE_BYTES
    if size < -1 or size > end - at:
        return NULL
    field_at[0] = <int32_t>(at - start)
    field_size[0] = size
    return at if size < 0 else at + size


cdef bint read_header(
    const unsigned char* at, Py_ssize_t size, int special, Header* header
) noexcept nogil:
    """Read the header of the batch at `at`; return whether it is whole and plain."""
    cdef int32_t last_delta
    cdef int attributes
    if size < MESSAGE_START_SIZE_BYTES:
        return False
    header.size_bytes = LENGTH_END + <Py_ssize_t>(<int32_t>number_at(at + 8, 4))
    header.magic = at[16]
    if header.magic != MAGIC:
        return read_message_header(at, size, header)
    if size < HEADER_SIZE_BYTES or not HEADER_SIZE_BYTES <= header.size_bytes <= size:
        return False
    header.base_offset = <int64_t>number_at(at, 8)
    header.leader_epoch = <int32_t>number_at(at + 12, 4)
    header.crc = <uint32_t>number_at(at + 17, 4)
    attributes = <int>number_at(at + 21, 2)
    header.timestamp_type = TYPE_APPEND if attributes & LOG_APPEND_TIME else TYPE_CREATE
    last_delta = <int32_t>number_at(at + 23, 4)
    header.base_timestamp_ms = <int64_t>number_at(at + 27, 8)
    header.max_timestamp_ms = <int64_t>number_at(at + 35, 8)
    header.record_count = <int32_t>number_at(at + 57, 4)
    return (
        attributes & special == 0
        and 0 < header.record_count <= CHUNK_RECORD_COUNT_MAX
        and header.record_count * RECORD_SIZE_BYTES_MIN <= header.size_bytes - HEADER_SIZE_BYTES
        and header.record_count - 1 <= last_delta
        and header.base_offset >= 0
        and not add_overflows(header.base_offset, last_delta, &header.last_offset)
    )


cdef bint read_message_header(
    const unsigned char* at, Py_ssize_t size, Header* header
) noexcept nogil:
    """Do the same as `read_header` for a message of magic 0 or 1 whose start is present."""
    cdef int attributes = at[17]
    cdef Py_ssize_t size_min = MESSAGE_START_SIZE_BYTES + 2 * FIELD_LENGTH_SIZE_BYTES
    header.base_offset = header.last_offset = <int64_t>number_at(at, 8)
    header.crc = <uint32_t>number_at(at + 12, 4)
    header.leader_epoch = -1
    header.record_count = 1
    header.base_timestamp_ms = -1
    header.timestamp_type = TYPE_NONE
    if header.magic == 1:
        size_min += MESSAGE_TIMESTAMP_SIZE_BYTES
        header.timestamp_type = TYPE_APPEND if attributes & LOG_APPEND_TIME else TYPE_CREATE
    if (
        header.magic > 1
        or attributes & CODEC
        or header.base_offset < 0
        or not size_min <= header.size_bytes <= size
    ):
        return False
    if header.magic == 1:
        header.base_timestamp_ms = <int64_t>number_at(at + MESSAGE_START_SIZE_BYTES, 8)
    header.max_timestamp_ms = header.base_timestamp_ms
    return True
