# Which partition a key belongs to, inlined where it is needed.
#
# Owner: no state.
# Source: Java classes ``BuiltInPartitioner``; ``Utils``, method ``murmur2``.

from libc.stdint cimport uint32_t


cdef inline uint32_t partition_of(
    const unsigned char* key, Py_ssize_t size, uint32_t partition_count
) noexcept nogil:
    return (murmur2(key, size) & 0x7FFFFFFF) % partition_count


cdef inline uint32_t murmur2(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t factor = 0x5BD1E995, word
    cdef uint32_t result = <uint32_t>0x9747B28C ^ <uint32_t>size
    while size >= 4:
        word = little_endian(at) * factor
        word = (word ^ word >> 24) * factor
        result = result * factor ^ word
        at += 4
        size -= 4
    if size:
        if size == 3:
            result ^= <uint32_t>at[2] << 16
        if size >= 2:
            result ^= <uint32_t>at[1] << 8
        result = (result ^ at[0]) * factor
    result = (result ^ result >> 13) * factor
    return result ^ result >> 15


cdef inline uint32_t little_endian(const unsigned char* at) noexcept nogil:
    return at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
