"""Conversion of decoded records to buffers in Arrow's layout, directly from the received bytes.

Sizes are added up first, so that every buffer is allocated and filled once. It is filled without
the GIL, since no other thread has it yet.

Owner: no state.
Source: the Arrow columnar format, "Variable-size Binary Layout" and "Validity bitmaps".
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t
from libc.string cimport memcpy, memset

from pykclient.accel.compiled.decoder cimport FrameColumns, Place, pass_header

from pykclient.accel.arrow_buffers import ArrowBuffers, BinaryBuffers, HeaderBuffers
from pykclient.accel.pure import arrow as pure

__all__ = ["arrow_buffers", "repeated"]

cdef int64_t TIMESTAMP_MS_MAX = INT64_MAX // 1000


cdef struct Binary:
    # A binary array that is being filled: `row` and `size` are the place of the next item.
    int64_t null_count
    int64_t size
    int64_t row
    unsigned char* validity
    int32_t* offsets
    unsigned char* data


cdef struct Filling:
    # Everything that one pass fills.
    Binary keys
    Binary values
    int64_t row
    int64_t* offsets
    int64_t* timestamps_us
    int64_t timestamp_null_count
    unsigned char* timestamp_validity
    bint has_keys
    bint has_values
    bint has_headers
    bint has_wide_names
    int32_t* header_offsets
    Binary header_names
    Binary header_values


@cython.final
cdef class BinaryBuilder:
    """The buffers of one binary array, as Python objects."""

    cdef bytes validity
    cdef bytes offsets
    cdef bytes data

    cdef int make(self, Binary* binary, int64_t count) except -1:
        """Allocate memory for the sum of sizes, and start again at the first row."""
        self.validity = made_validity(count) if binary.null_count else None
        self.offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(int32_t))
        self.data = PyBytes_FromStringAndSize(NULL, binary.size)
        binary.validity = NULL
        if self.validity is not None:
            binary.validity = <unsigned char*>PyBytes_AS_STRING(self.validity)
        binary.offsets = <int32_t*>PyBytes_AS_STRING(self.offsets)
        binary.data = <unsigned char*>PyBytes_AS_STRING(self.data)
        binary.offsets[0] = 0
        binary.size = 0
        binary.row = 0
        return 0

    cdef object buffers(self, Binary* binary):
        return BinaryBuffers(binary.null_count, self.validity, self.offsets, self.data)


def arrow_buffers(columns, *, wanted):
    """Return the records of all `columns`, in that order, in Arrow's layout.

    ``key``, ``value`` and ``headers`` are copied if they are in `wanted`.

    Raises:
        OverflowError: keys, values or headers are too large for 32-bit offsets.
    """
    cdef Filling filling
    cdef list parts = list(columns)
    cdef FrameColumns part
    cdef int64_t count = 0
    cdef BinaryBuilder keys = BinaryBuilder(), values = BinaryBuilder()
    cdef BinaryBuilder names = BinaryBuilder(), header_values = BinaryBuilder()
    cdef bytes offsets, timestamps, validity = None, header_offsets = None
    if not all(type(each) is FrameColumns for each in parts):
        return pure.arrow_buffers(parts, wanted=wanted)
    memset(&filling, 0, sizeof(Filling))
    filling.has_keys = "key" in wanted
    filling.has_values = "value" in wanted
    filling.has_headers = "headers" in wanted
    for part in parts:
        count += part.count
        with nogil:
            add_up(part, &filling)
    if filling.has_wide_names and not all(are_names_text(part) for part in parts):
        return pure.arrow_buffers(parts, wanted=wanted)
    for size in (
        filling.keys.size,
        filling.values.size,
        filling.header_names.row,
        filling.header_names.size,
        filling.header_values.size,
    ):
        if size > INT32_MAX:
            raise OverflowError(f"{size} bytes do not fit a column with 32-bit offsets")
    if filling.has_keys:
        keys.make(&filling.keys, count)
    if filling.has_values:
        values.make(&filling.values, count)
    offsets = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    timestamps = PyBytes_FromStringAndSize(NULL, count * sizeof(int64_t))
    filling.offsets = <int64_t*>PyBytes_AS_STRING(offsets)
    filling.timestamps_us = <int64_t*>PyBytes_AS_STRING(timestamps)
    if filling.timestamp_null_count:
        validity = made_validity(count)
        filling.timestamp_validity = <unsigned char*>PyBytes_AS_STRING(validity)
    if filling.has_headers:
        names.make(&filling.header_names, filling.header_names.row)
        header_values.make(&filling.header_values, filling.header_values.row)
        header_offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(int32_t))
        filling.header_offsets = <int32_t*>PyBytes_AS_STRING(header_offsets)
        filling.header_offsets[0] = 0
    for part in parts:
        with nogil:
            fill(part, &filling)
    headers = None
    if filling.has_headers:
        headers = HeaderBuffers(
            filling.header_names.row,
            header_offsets,
            names.buffers(&filling.header_names),
            header_values.buffers(&filling.header_values),
        )
    return ArrowBuffers(
        count,
        keys.buffers(&filling.keys) if filling.has_keys else None,
        values.buffers(&filling.values) if filling.has_values else None,
        offsets,
        timestamps,
        filling.timestamp_null_count,
        validity,
        headers,
    )


def repeated(items):
    """Return each item repeated by the number beside it, in Arrow's layout.

    Raises:
        OverflowError: together they are too large for 32-bit offsets.
    """
    cdef bytes item, offsets
    cdef int64_t number, count = 0
    cdef int32_t size, end = 0
    cdef int32_t* at
    cdef int64_t size_bytes = 0
    for item, number in items:
        if number < 0:
            raise ValueError("nothing is repeated a negative number of times")
        count += number
        size_bytes += len(item) * number
    if size_bytes > INT32_MAX:
        raise OverflowError(f"{size_bytes} bytes do not fit a column with 32-bit offsets")
    data = b"".join([each * times for each, times in items])
    offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(int32_t))
    at = <int32_t*>PyBytes_AS_STRING(offsets)
    at[0] = 0
    for item, number in items:
        size = <int32_t>len(item)
        while number > 0:
            number -= 1
            end += size
            at += 1
            at[0] = end
    return BinaryBuffers(0, None, offsets, data)


cdef bytes made_validity(int64_t count):
    """Return a bitmap in which every item is null."""
    cdef bytes validity = PyBytes_FromStringAndSize(NULL, (count + 7) // 8)
    memset(PyBytes_AS_STRING(validity), 0, (count + 7) // 8)
    return validity


cdef void add_up(FrameColumns part, Filling* filling) noexcept nogil:
    """Add up the sizes of the records of `part`."""
    cdef Place* place
    cdef Py_ssize_t row
    for row in range(part.count):
        place = part.places + row
        if filling.has_keys:
            count_item(&filling.keys, place.key_size)
        if filling.has_values:
            count_item(&filling.values, place.value_size)
        if not is_held(place.timestamp_ms):
            filling.timestamp_null_count += 1
        if filling.has_headers and place.headers_size:
            add_up_headers(part.frame.start + place.headers_at, place.headers_size, filling)


cdef void add_up_headers(
    const unsigned char* at, int32_t size, Filling* filling
) noexcept nogil:
    cdef const unsigned char* end = at + size
    cdef const unsigned char* name = NULL
    cdef const unsigned char* value = NULL
    cdef int32_t name_size = 0, value_size = 0
    while at < end:
        at = pass_header(at, end, &name, &name_size, &value, &value_size)
        count_item(&filling.header_names, name_size)
        count_item(&filling.header_values, value_size)
        if not filling.has_wide_names and not is_ascii(name, name_size):
            filling.has_wide_names = True


cdef bint is_ascii(const unsigned char* text, int32_t size) noexcept nogil:
    cdef int32_t index
    for index in range(size):
        if text[index] >= 0x80:
            return False
    return True


cdef bint are_names_text(FrameColumns part) except -1:
    """Return whether all header names are UTF-8, as a text column requires."""
    cdef const unsigned char* at
    cdef const unsigned char* end
    cdef const unsigned char* name = NULL
    cdef const unsigned char* value = NULL
    cdef int32_t name_size = 0, value_size = 0
    cdef Py_ssize_t row
    try:
        for row in range(part.count):
            at = part.frame.start + part.places[row].headers_at
            end = at + part.places[row].headers_size
            while at < end:
                at = pass_header(at, end, &name, &name_size, &value, &value_size)
                if not is_ascii(name, name_size):
                    PyUnicode_DecodeUTF8(<const char*>name, name_size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef void fill(FrameColumns part, Filling* filling) noexcept nogil:
    """Write the records of `part` after the existing ones."""
    cdef const unsigned char* start = part.frame.start
    cdef Place* place
    cdef Py_ssize_t row
    cdef int64_t at = filling.row
    for row in range(part.count):
        place = part.places + row
        if filling.has_keys:
            put_item(&filling.keys, start + place.key_at, place.key_size)
        if filling.has_values:
            put_item(&filling.values, start + place.value_at, place.value_size)
        filling.offsets[at] = place.offset
        if is_held(place.timestamp_ms):
            filling.timestamps_us[at] = place.timestamp_ms * 1000
            if filling.timestamp_validity is not NULL:
                filling.timestamp_validity[at >> 3] |= 1 << (at & 7)
        else:
            filling.timestamps_us[at] = 0
        at += 1
        if filling.has_headers:
            if place.headers_size:
                fill_headers(start + place.headers_at, place.headers_size, filling)
            filling.header_offsets[at] = <int32_t>filling.header_names.row
    filling.row = at


cdef void fill_headers(
    const unsigned char* at, int32_t size, Filling* filling
) noexcept nogil:
    cdef const unsigned char* end = at + size
    cdef const unsigned char* name = NULL
    cdef const unsigned char* value = NULL
    cdef int32_t name_size = 0, value_size = 0
    while at < end:
        at = pass_header(at, end, &name, &name_size, &value, &value_size)
        put_item(&filling.header_names, name, name_size)
        put_item(&filling.header_values, value, value_size)


cdef inline bint is_held(int64_t timestamp_ms) noexcept nogil:
    """Return whether a time fits in 64-bit microseconds."""
    return -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX


cdef inline void count_item(Binary* binary, int32_t size) noexcept nogil:
    binary.row += 1
    if size < 0:
        binary.null_count += 1
    else:
        binary.size += size


cdef inline void put_item(Binary* binary, const unsigned char* item, int32_t size) noexcept nogil:
    cdef int64_t row = binary.row
    if size >= 0:
        memcpy(binary.data + binary.size, item, size)
        binary.size += size
        if binary.validity is not NULL:
            binary.validity[row >> 3] |= 1 << (row & 7)
    binary.row = row + 1
    binary.offsets[row + 1] = <int32_t>binary.size
