cdef int ask_for_gil() noexcept nogil
cdef void after_wait(int has_asked) noexcept
