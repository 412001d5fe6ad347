# Decoded records as the other modules of the core see them.
#
# Owner: see decoder.pyx.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t

from pykclient.accel.compiled.varint cimport get_varint


cdef enum:
    # Giving up the GIL costs a microsecond, and beside a busy thread as much as a switch interval.
    NOGIL_SIZE_BYTES_MIN = 65_536


cdef struct Place:
    # Where the fields of one record stand; sizes are -1 for null. The headers' count is left out.
    int64_t offset
    int64_t timestamp_ms
    int32_t key_at
    int32_t key_size
    int32_t value_at
    int32_t value_size
    int32_t headers_at
    int32_t headers_size


cdef class Frame:
    cdef Py_buffer data
    cdef const unsigned char* start
    cdef Place* places


cdef class FrameColumns:
    cdef Frame frame
    cdef Place* places
    cdef readonly Py_ssize_t count
    cdef bint is_dense(self) noexcept


cdef FrameColumns columns_of(Frame frame, Place* places, Py_ssize_t count)


cdef Py_ssize_t find_places(
    const unsigned char* start, const unsigned char* end, Place* places, Py_ssize_t* position,
    int64_t first, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp_ms,
    int64_t* header_room,
) noexcept nogil


cdef tuple headers_at(const unsigned char* at, Py_ssize_t size)


cdef inline const unsigned char* pass_bytes(
    const unsigned char* at, const unsigned char* end, const unsigned char* start,
    int32_t* field_at, int32_t* field_size,
) noexcept nogil:
    """Store the position of a nullable field; return its end, NULL if it is invalid."""
    cdef int64_t size
    at = get_varint(at, end, &size)
    if at is NULL or size < -1 or size > end - at:
        return NULL
    field_at[0] = <int32_t>(at - start)
    field_size[0] = <int32_t>size
    return at if size < 0 else at + size


cdef inline const unsigned char* pass_header(
    const unsigned char* at, const unsigned char* end,
    const unsigned char** name, int32_t* name_size,
    const unsigned char** value, int32_t* value_size,
) noexcept nogil:
    """Find name and value of the header at `at`; return its end, NULL if it is invalid."""
    cdef int32_t name_at = 0, value_at = 0
    cdef const unsigned char* start = at
    at = pass_bytes(at, end, start, &name_at, name_size)
    if at is NULL:
        return NULL
    name[0] = start + name_at
    at = pass_bytes(at, end, start, &value_at, value_size)
    value[0] = start + value_at
    return at


cdef inline object bytes_at(const unsigned char* start, int32_t at, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>start + at, size)
