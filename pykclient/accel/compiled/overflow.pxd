# Sums of numbers that came from a broker, which may be beyond 64 bits.
#
# Owner: no state.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #define add_overflows(left, right, sum) __builtin_add_overflow(left, right, sum)
    """
    bint add_overflows(int64_t left, int64_t right, int64_t* sum) noexcept nogil
