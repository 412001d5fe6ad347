# Which partition a key belongs to, inlined where it is needed.
#
# Owner: no state.
# Source: Java classes ``BuiltInPartitioner``; ``Utils``, method ``murmur2``; librdkafka's setting
# ``partitioner`` (CRC32, FNV-1a). The rules are those of key_rule.py.

from libc.stdint cimport uint32_t


cdef enum:
    MURMUR2 = 1
    CRC32 = 2
    HASHES = 3
    NULL_IS_HASHED = 4
    EMPTY_IS_SPREAD = 8
    ROUND_ROBIN = 16
    EACH_RECORD = 48
    NULL_IS_PLACED = 52


cdef inline bint is_hashed(int rule, Py_ssize_t size) noexcept nogil:
    """Return whether a record's partition follows from its key of a size, -1 for null."""
    if not rule & HASHES:
        return False
    if size > 0:
        return True
    return rule & NULL_IS_HASHED if size < 0 else not rule & EMPTY_IS_SPREAD


cdef inline uint32_t partition_of(
    int rule, const unsigned char* key, Py_ssize_t size, uint32_t partition_count
) noexcept nogil:
    """The data of a null key, of size 0."""
    cdef uint32_t hashed
    if rule & HASHES == MURMUR2:
        return (murmur2(key, size) & 0x7FFFFFFF) % partition_count
    if rule & HASHES == CRC32:
        return crc32(key, size) % partition_count
    hashed = fnv1a(key, size)
    return (hashed if hashed < 0x80000000u else 0u - hashed) % partition_count


cdef extern from *:
    """
    /* Four bits at a time: keys are short, and a table of 256 would push other data out. */
    static const uint32_t pyk_crc32_table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu,
        0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
    """
    const uint32_t* pyk_crc32_table


cdef inline uint32_t crc32(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t result = 0xFFFFFFFFu
    cdef Py_ssize_t place
    for place in range(size):
        result ^= at[place]
        result = result >> 4 ^ pyk_crc32_table[result & 15]
        result = result >> 4 ^ pyk_crc32_table[result & 15]
    return ~result


cdef inline uint32_t fnv1a(const unsigned char* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t result = 0x811C9DC5u
    cdef Py_ssize_t place
    for place in range(size):
        result = (result ^ at[place]) * <uint32_t>0x01000193
    return result


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
