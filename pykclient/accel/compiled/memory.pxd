# What other compiled modules may use of memory.pyx.

cdef struct Memory:
    unsigned char* start
    Py_ssize_t size

cdef bint take_spare(Memory* memory, Py_ssize_t size) noexcept
cdef int grow_memory(Memory* memory, Py_ssize_t used, Py_ssize_t size) except -1
cdef void give_memory(Memory* memory) noexcept
