# What other compiled modules may use of batch_result.pyx.

from cpython.array cimport array
from libc.stdint cimport int64_t

cdef class Callbacks:
    cdef list functions
    cdef array indexes

    cdef int add(self, Py_ssize_t index, object function) except -1


cdef class BatchResult:
    cdef public bint is_well
    cdef public object base_offset
    cdef public object log_append_time_ms
    cdef object kind
    cdef str topic
    cdef object partition
    cdef array first_indexes
    cdef array timestamps_ms

    cdef tuple at(self, Py_ssize_t index, Py_ssize_t run)
    cdef Py_ssize_t run_of(self, Py_ssize_t index)
    cpdef where(self, Py_ssize_t index)
