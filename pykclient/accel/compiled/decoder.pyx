"""Decoding of a batch's records: finds the place of each field in the bytes.

One pass checks every number and length before it is used and stores the place of each field, so
fields are read later without another check. Anything unusual is left to the pure decoder, which
returns the same records or raises the error. Header names that are not UTF-8 are accepted: the
code that converts them to text inserts replacement characters, as Java does.

Owner: see each class.
Source: Kafka protocol guide, "Record Batch"; KIP-82 (headers); Java class ``DefaultRecord``.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

from pykclient.accel.compiled.overflow cimport add_overflows
from pykclient.accel.compiled.varint cimport get_varint

from pykclient.accel.pure import appender
from pykclient.accel.pure import decoder as pure

__all__ = ["FrameColumns", "decode_records", "record_bytes"]

cdef enum:
    RECORD_SIZE_BYTES_MIN = 7

cdef int64_t HEADER_COUNT_MAX = appender.HEADER_COUNT_MAX


@cython.final
cdef class Frame:
    """The bytes that hold records, and the places of adjacent records.

    Owner: the columns made of it. It never changes, and is freed with the last of them.
    """

    def __dealloc__(self):
        if self.start is not NULL:
            PyBuffer_Release(&self.data)
        PyMem_RawFree(self.places)


@cython.final
cdef class FrameColumns:
    """Records of one batch: any field of all of them, read from the frame when it is used.

    It keeps the frame alive, or the decompressed batch.
    """

    def __len__(self):
        return self.count

    def __iter__(self):
        return zip(self.offsets, self.timestamps_ms, self.keys, self.values, self.headers)

    @property
    def offsets(self):
        """Offsets, in ascending order."""
        cdef Py_ssize_t row
        cdef object first
        if self.is_dense():
            first = self.places[0].offset  # a Python number: the end may need more than 64 bits
            return range(first, first + self.count)
        return [self.places[row].offset for row in range(self.count)]

    @property
    def timestamps_ms(self):
        """Timestamps."""
        cdef Py_ssize_t row
        return [self.places[row].timestamp_ms for row in range(self.count)]

    @property
    def keys(self):
        """Keys."""
        cdef Py_ssize_t row
        cdef const unsigned char* start = self.frame.start
        return [
            bytes_at(start, self.places[row].key_at, self.places[row].key_size)
            for row in range(self.count)
        ]

    @property
    def values(self):
        """Values."""
        cdef Py_ssize_t row
        cdef const unsigned char* start = self.frame.start
        return [
            bytes_at(start, self.places[row].value_at, self.places[row].value_size)
            for row in range(self.count)
        ]

    @property
    def headers(self):
        """Headers; an empty tuple for a record without any."""
        cdef Py_ssize_t row
        cdef const unsigned char* start = self.frame.start
        return [
            headers_at(start + self.places[row].headers_at, self.places[row].headers_size)
            for row in range(self.count)
        ]

    @property
    def size_bytes(self):
        """Upper bound of the size of keys, values and headers together."""
        cdef Place* last = self.places + self.count - 1
        if self.count == 0:
            return 0
        return last.headers_at + last.headers_size - self.places.key_at

    @property
    def first_offset(self):
        """Offset of the first record; there must be one."""
        if not self.count:
            raise IndexError("there is no record")
        return self.places[0].offset

    @property
    def last_offset(self):
        """Offset of the last record; there must be one."""
        if not self.count:
            raise IndexError("there is no record")
        return self.places[self.count - 1].offset

    def find(self, offset):
        """Return the index of the first record at or after `offset`, or the length if there is
        none.
        """
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.count
        cdef Py_ssize_t middle
        cdef int64_t wanted
        if offset > INT64_MAX:
            return self.count
        wanted = max(0, offset)  # no record has a negative offset
        while low < high:
            middle = (low + high) // 2
            if self.places[middle].offset < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def rows(self, Py_ssize_t start, stop=None):
        """Return the records from index `start` up to, but excluding, `stop`."""
        cdef Py_ssize_t end = self.count if stop is None else min(self.count, <Py_ssize_t>stop)
        if start < 0 or end < 0:
            raise IndexError("rows count from the first one, from 0")
        start = min(start, end)
        return columns_of(self.frame, self.places + start, end - start)

    cdef bint is_dense(self) noexcept:
        # Offsets ascend: if the two ends are as far apart as the count, there is no gap.
        return self.count > 0 and (
            self.places[self.count - 1].offset - self.places[0].offset == self.count - 1
        )


def record_bytes(data):
    """Return `data` in the form that `decode_records` reads, which is `data` itself."""
    return data


def decode_records(
    data,
    Py_ssize_t position,
    Py_ssize_t first,
    Py_ssize_t count,
    int64_t base_offset,
    int64_t base_timestamp_ms,
    append_timestamp_ms=None,
):
    """Decode up to `count` records from `position` on; return them and the position after them.

    They are fewer, but at least one, if all would have more than `HEADER_COUNT_MAX` headers.
    `first` is the index that the first of them has in its batch, and `count` is at least 1. With
    `append_timestamp_ms` that is the time of every record, whatever the records say. Many bytes are
    read without the GIL.

    Raises:
        DecodeError: there are no such records.
    """
    cdef Frame frame = Frame.__new__(Frame)
    cdef Py_ssize_t end = position
    cdef Py_ssize_t row, row_count = 0
    cdef int64_t append_ms, header_room
    PyObject_GetBuffer(data, &frame.data, PyBUF_SIMPLE)
    frame.start = <const unsigned char*>frame.data.buf
    if (
        0 <= position <= frame.data.len <= INT32_MAX
        and 0 < count <= (frame.data.len - position) // RECORD_SIZE_BYTES_MIN
        and 0 <= base_offset
        and first >= 0
    ):
        frame.places = <Place*>PyMem_RawMalloc(count * sizeof(Place))
        if frame.places is NULL:
            raise MemoryError
        header_room = HEADER_COUNT_MAX
        if frame.data.len - position >= NOGIL_SIZE_BYTES_MIN:
            with nogil:
                row_count = find_places(
                    frame.start, frame.start + frame.data.len, frame.places, &end, first, count,
                    base_offset, base_timestamp_ms, &header_room,
                )
        else:
            row_count = find_places(
                frame.start, frame.start + frame.data.len, frame.places, &end, first, count,
                base_offset, base_timestamp_ms, &header_room,
            )
    if row_count == 0:
        return pure.decode_records(
            bytes(data), position, first, count, base_offset, base_timestamp_ms, append_timestamp_ms
        )
    if append_timestamp_ms is not None:
        append_ms = append_timestamp_ms
        for row in range(row_count):
            frame.places[row].timestamp_ms = append_ms
    return columns_of(frame, frame.places, row_count), end


cdef FrameColumns columns_of(Frame frame, Place* places, Py_ssize_t count):
    cdef FrameColumns columns = FrameColumns.__new__(FrameColumns)
    columns.frame = frame
    columns.places = places
    columns.count = count
    return columns


cdef Py_ssize_t find_places(
    const unsigned char* start, const unsigned char* end, Place* places, Py_ssize_t* position,
    int64_t first, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp_ms,
    int64_t* header_room,
) noexcept nogil:
    """Store the places of the fields of up to `count` records; set `position` to their end.

    Return how many they are: 0 if anything is odd, fewer than `count` if the next one has more
    headers than there is room for. `header_room` is how many headers they may have, and then what
    is left of that.
    """
    cdef const unsigned char* at = start + position[0]
    cdef const unsigned char* stop
    cdef Place* place
    cdef Py_ssize_t row
    cdef int64_t number
    cdef int64_t last_delta = -1
    for row in range(count):
        place = places + row
        at = get_varint(at, end, &number)
        if at is NULL or number < RECORD_SIZE_BYTES_MIN - 1 or number > end - at:
            return 0
        stop = at + number
        # After the record's attributes, which are unused.
        at = get_varint(at + 1, stop, &number)
        if at is NULL or add_overflows(base_timestamp_ms, number, &place.timestamp_ms):
            return 0
        at = get_varint(at, stop, &number)
        if at is NULL or number < first + row or number <= last_delta:
            return 0
        last_delta = number
        if add_overflows(base_offset, number, &place.offset):
            return 0
        at = pass_bytes(at, stop, start, &place.key_at, &place.key_size)
        if at is NULL:
            return 0
        at = pass_bytes(at, stop, start, &place.value_at, &place.value_size)
        if at is NULL or at >= stop:
            return 0
        if at[0] == 0:
            at += 1
            place.headers_at = <int32_t>(at - start)
            place.headers_size = 0
        else:
            at = get_varint(at, stop, &number)
            # A header has at least two bytes.
            if at is NULL or number < 0 or number > (stop - at) // 2:
                return 0
            if number > header_room[0]:
                if row > 0:  # a record ends with its headers
                    position[0] = places[row - 1].headers_at + places[row - 1].headers_size
                return row
            header_room[0] -= number
            place.headers_at = <int32_t>(at - start)
            at = pass_headers(at, stop, number)
            if at is NULL:
                return 0
            place.headers_size = <int32_t>(at - start) - place.headers_at
        if at != stop:
            return 0
    position[0] = at - start
    return count


cdef const unsigned char* pass_headers(
    const unsigned char* at, const unsigned char* end, int64_t count
) noexcept nogil:
    """Check `count` headers; return their end, NULL if they are invalid."""
    cdef const unsigned char* name = NULL
    cdef const unsigned char* value = NULL
    cdef int32_t name_size = 0, value_size = 0
    while count > 0:
        count -= 1
        at = pass_header(at, end, &name, &name_size, &value, &value_size)
        if at is NULL or name_size < 0:
            return NULL
    return at


cdef tuple headers_at(const unsigned char* at, Py_ssize_t size):
    """Build the headers from `size` bytes, which were checked."""
    cdef const unsigned char* end = at + size
    cdef const unsigned char* name = NULL
    cdef const unsigned char* value = NULL
    cdef int32_t name_size = 0, value_size = 0
    cdef list headers
    if size == 0:
        return ()
    headers = []
    while at < end:
        at = pass_header(at, end, &name, &name_size, &value, &value_size)
        if at is NULL or name_size < 0:
            raise SystemError("headers that were found to be right are not")
        headers.append((
            PyUnicode_DecodeUTF8(<const char*>name, name_size, "replace"),
            bytes_at(value, 0, value_size),
        ))
    return tuple(headers)
