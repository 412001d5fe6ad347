# What other compiled modules may use of send.pyx.

from libc.stdint cimport int64_t

from pykclient.accel.compiled.batch_result cimport Callbacks
from pykclient.accel.compiled.lock cimport core_lock
from pykclient.accel.compiled.memory cimport Memory

cdef class Delivery:
    cdef readonly object batch
    cdef readonly Py_ssize_t index

    cdef bint is_well(self)


cdef class RecordAppender:
    cdef readonly Py_ssize_t capacity_bytes
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly Callbacks callbacks
    cdef readonly object first_indexes
    cdef readonly object timestamps_ms
    cdef object batch
    cdef unsigned char* buffer
    cdef Py_ssize_t size
    cdef Py_ssize_t allocated
    cdef Memory memory
    cdef bint is_framed
    cdef int64_t last_timestamp_ms
    cdef bint is_sealed
    cdef core_lock lock

    cdef Delivery put(
        self, int64_t timestamp_ms, bytes key, bytes value, bytes header_part, object on_delivery
    )
    cdef int make_room(self, Py_ssize_t size) except -1
    cdef int note_timestamp(self, int64_t timestamp_ms) except -1


cdef bytes header_part_of(object headers)
