"""One field of many records: bytes or null, record after record.

Objects are checked once and kept in a tuple; Arrow's buffers are read in place. Either way
the items can be read without the GIL afterwards, since they never change.

Owner: none.
Source: as the pure twin.
"""

cimport cython
from cpython.array cimport array, clone
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from pykclient.accel.compiled.send cimport header_part_of
from pykclient.accel.compiled.varint cimport put_varint, varint_size

from pykclient.accel.pure import appender
from pykclient.accel.pure.appender import too_many_headers
from pykclient.accel.pure.byte_column import (
    BAD_COUNTS, BAD_OFFSETS, NO_NAME, as_item, header_error,
)
from pykclient.errors.base import SerializationError

__all__ = ["ByteColumn"]

cdef int64_t HEADER_COUNT_MAX = appender.HEADER_COUNT_MAX
cdef array NUMBERS = array("q")

cdef enum:
    VIEW_SIZE_BYTES = 16
    INLINE_SIZE_BYTES_MAX = 12


cdef struct View:
    # An item of Arrow's view layout. Up to 12 bytes are stored inline, in the last three fields.
    int32_t size
    unsigned char prefix[4]
    int32_t buffer
    int32_t offset


cdef Field view_at(const Items* items, Py_ssize_t index) noexcept nogil:
    """Return the item at `index` of the whole array, which is not null."""
    cdef Field field
    cdef View view
    memcpy(&view, items.data + index * VIEW_SIZE_BYTES, VIEW_SIZE_BYTES)
    field.size = view.size
    if view.size <= INLINE_SIZE_BYTES_MAX:
        field.data = items.data + index * VIEW_SIZE_BYTES + 4
    else:
        field.data = items.buffers[view.buffer] + view.offset
    return field


@cython.final
cdef class Buffer:
    """The bytes of an object, which this object keeps alive."""

    cdef Py_buffer view
    cdef const unsigned char* data
    cdef Py_ssize_t size

    def __cinit__(self, source):
        if source is not None:
            PyObject_GetBuffer(source, &self.view, PyBUF_SIMPLE)
            self.data = <const unsigned char*>self.view.buf
            self.size = self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


@cython.final
cdef class ByteColumn:
    """The keys, values or encoded headers of many records."""

    def __len__(self):
        return self.count

    @staticmethod
    def from_objects(objects, str name):
        """Build a column from bytes, objects convertible to bytes, and None; `name` is for errors.

        Raises:
            SerializationError: an item is anything else.
        """
        return of_objects(objects if type(objects) is list else list(objects), name)

    @staticmethod
    def from_arrow(
        Py_ssize_t count, Py_ssize_t first, *, validity, offsets, data, Py_ssize_t offset_size
    ):
        """Build a column from `count` items, from index `first` on, of a variable-size binary
        array.

        The buffers are Arrow's: `validity` is None if nothing is null, `data` is None if all items
        are empty; `offset_size` is 4 or 8 bytes.

        Raises:
            SerializationError: the offsets do not fit the buffers.
        """
        cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
        cdef Py_ssize_t end_count
        cdef Buffer bits, ends, octets
        if not count:
            return column
        bits, ends, octets = Buffer(validity), Buffer(offsets), Buffer(data)
        if count < 0 or first < 0 or offset_size not in (4, 8):
            raise SerializationError(BAD_OFFSETS)
        # Compared in this order, the sum of the two cannot overflow.
        end_count = ends.size // offset_size
        if first >= end_count or count >= end_count - first:
            raise SerializationError(BAD_OFFSETS)
        if validity is not None and bits.size < (first + count + 7) // 8:
            raise SerializationError(BAD_OFFSETS)
        column.count = count
        column.owners = (bits, ends, octets)
        column.items.layout = OFFSETS_32 if offset_size == 4 else OFFSETS_64
        column.items.first = first
        column.items.validity = bits.data
        column.items.offsets_32 = <const int32_t*>ends.data
        column.items.offsets_64 = <const int64_t*>ends.data
        column.items.data = octets.data
        if not offsets_fit(&column.items, count, octets.size):
            raise SerializationError(BAD_OFFSETS)
        return column

    @staticmethod
    def from_views(Py_ssize_t count, Py_ssize_t first, *, validity, views, buffers):
        """Build a column from `count` items, from index `first` on, of an array in view layout.

        `buffers` are those that the views refer to; the others are as for `from_arrow`.

        Raises:
            SerializationError: the views do not fit the buffers.
        """
        cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
        cdef Buffer bits, places, octets
        cdef Py_ssize_t index, place_count
        cdef bytearray starts
        cdef array sizes
        if not count:
            return column
        bits, places = Buffer(validity), Buffer(views)
        held = [Buffer(buffer) for buffer in buffers]
        place_count = places.size // VIEW_SIZE_BYTES
        if count < 0 or first < 0 or first > place_count or count > place_count - first:
            raise SerializationError(BAD_OFFSETS)
        if validity is not None and bits.size < (first + count + 7) // 8:
            raise SerializationError(BAD_OFFSETS)
        starts = bytearray(max(1, len(held)) * sizeof(void*))
        sizes = clone(NUMBERS, max(1, len(held)), zero=True)
        column.items.buffers = <const unsigned char**>PyByteArray_AS_STRING(starts)
        for index, octets in enumerate(held):
            column.items.buffers[index] = octets.data
            sizes.data.as_longlongs[index] = octets.size
        column.count = count
        column.owners = (bits, places, held, starts)
        column.items.layout = VIEWS
        column.items.first = first
        column.items.validity = bits.data
        column.items.data = places.data
        if not views_fit(&column.items, count, <int64_t*>sizes.data.as_longlongs, len(held)):
            raise SerializationError(BAD_OFFSETS)
        return column

    @staticmethod
    def from_headers(headers, str name):
        """Encode the headers of each record; None for a record without headers.

        Raises:
            SerializationError: an item is not pairs of a str and bytes or None.
        """
        cdef list parts = []
        for index, entry in enumerate(headers):
            try:
                parts.append(header_part_of(entry) if entry else None)
            except SerializationError as error:
                raise header_error(error, index, name) from error
        return of_objects(parts, name)

    @staticmethod
    def from_header_columns(const int64_t[::1] counts, ByteColumn names, ByteColumn values):
        """Encode headers given as columns: the count per record, and all names and values in a row.

        Raises:
            SerializationError: the counts do not match the headers, a record has too many, or a
                header has no name.
        """
        cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
        cdef Py_ssize_t row, record_count = counts.shape[0], header = 0, end = 0, size = 0
        cdef array ends = clone(NUMBERS, record_count + 1, zero=False)
        cdef int64_t* offsets = <int64_t*>ends.data.as_longlongs
        cdef const int64_t* count_of = &counts[0] if record_count else NULL
        cdef unsigned char* out
        cdef bytes octets
        if names.count != values.count or not counts_fit(count_of, record_count, names.count):
            raise SerializationError(BAD_COUNTS)
        for row in range(record_count):
            if count_of[row] > HEADER_COUNT_MAX:
                raise SerializationError(too_many_headers(count_of[row]))
        with nogil:
            for row in range(record_count):
                offsets[row] = end
                size = headers_size(names, values, header, count_of[row])
                if size < 0:
                    break
                end += size
                header += count_of[row]
            offsets[record_count] = end
        if size < 0:
            raise SerializationError(NO_NAME)
        octets = PyBytes_FromStringAndSize(NULL, end)
        out = <unsigned char*>PyBytes_AS_STRING(octets)
        with nogil:
            header = 0
            for row in range(record_count):
                out = put_headers(out, names, values, header, count_of[row])
                header += count_of[row]
        column.count = record_count
        column.owners = (ends, octets)
        column.items.layout = OFFSETS_64
        column.items.offsets_64 = offsets
        column.items.data = <const unsigned char*>PyBytes_AS_STRING(octets)
        return column

    @staticmethod
    def repeated(bytes item, Py_ssize_t count):
        """Build a column of the same item `count` times."""
        cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
        column.count = max(0, count)  # as with a list
        column.owners = item
        column.items.layout = REPEATED
        column.items.first = -1 if item is None else len(item)
        if item is not None:
            column.items.data = <const unsigned char*>PyBytes_AS_STRING(item)
        return column


cdef ByteColumn of_objects(list objects, str name):
    """Copy and check in one pass: each object is far away in memory, and is fetched once."""
    cdef ByteColumn column = ByteColumn.__new__(ByteColumn)
    cdef Py_ssize_t index, count = len(objects)
    cdef tuple items = PyTuple_New(count)
    cdef object item
    for index in range(count):
        # Another thread may have shortened the list meanwhile.
        item = objects[index]
        if item is not None and not PyBytes_CheckExact(item):
            item = as_item(item, index, name)
        Py_INCREF(item)
        PyTuple_SET_ITEM(items, index, item)
    column.count = count
    column.owners = items
    column.items.layout = OBJECTS
    column.items.objects = <PyObject*>items
    return column


cdef bint offsets_fit(const Items* items, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index
    cdef int64_t start, end = 0
    cdef bint is_wide = items.layout == OFFSETS_64
    for index in range(items.first, items.first + count + 1):
        start = end
        end = items.offsets_64[index] if is_wide else items.offsets_32[index]
        if end < start:
            return False
    return end <= size


cdef bint views_fit(
    const Items* items, Py_ssize_t count, const int64_t* sizes, Py_ssize_t buffer_count
) noexcept nogil:
    """Return whether every view that is not null refers to one of the buffers."""
    cdef Py_ssize_t index
    cdef View view
    for index in range(items.first, items.first + count):
        if items.validity is not NULL and not items.validity[index >> 3] >> (index & 7) & 1:
            continue
        memcpy(&view, items.data + index * VIEW_SIZE_BYTES, VIEW_SIZE_BYTES)
        if view.size < 0:
            return False
        if view.size <= INLINE_SIZE_BYTES_MAX:
            continue
        if not 0 <= view.buffer < buffer_count or view.offset < 0:
            return False
        if view.size > sizes[view.buffer] - view.offset:
            return False
    return True


cdef bint counts_fit(
    const int64_t* counts, Py_ssize_t record_count, int64_t header_count
) noexcept nogil:
    """Return whether the counts of headers add up to `header_count`."""
    cdef Py_ssize_t row
    for row in range(record_count):
        if not 0 <= counts[row] <= header_count:
            return False
        header_count -= counts[row]
    return not header_count


cdef Py_ssize_t headers_size(
    ByteColumn names, ByteColumn values, Py_ssize_t first, Py_ssize_t count
) noexcept nogil:
    """Return the encoded size of `count` headers with their count, 0 for none, -1 if one has no
    name.
    """
    cdef Py_ssize_t index, size
    cdef Field name, value
    if count <= 0:
        return 0
    size = varint_size(count)
    for index in range(first, first + count):
        name = field_at(&names.items, index)
        value = field_at(&values.items, index)
        if name.size < 0:
            return -1
        size += varint_size(name.size) + varint_size(value.size) + name.size
        size += max(value.size, 0)
    return size


cdef unsigned char* put_headers(
    unsigned char* out, ByteColumn names, ByteColumn values, Py_ssize_t first, Py_ssize_t count
) noexcept nogil:
    cdef Py_ssize_t index
    if count <= 0:
        return out
    out = put_varint(out, count)
    for index in range(first, first + count):
        out = put(out, field_at(&names.items, index))
        out = put(out, field_at(&values.items, index))
    return out


cdef inline unsigned char* put(unsigned char* out, Field field) noexcept nogil:
    out = put_varint(out, field.size)
    if field.size <= 0:
        return out
    memcpy(out, field.data, field.size)
    return out + field.size
