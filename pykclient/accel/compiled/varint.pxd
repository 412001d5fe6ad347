# Zigzag varints, the numbers inside a record: written and read here, inlined where they are needed.
#
# Owner: no state.
# Source: Kafka protocol guide, "Protocol Primitive Types", VARINT and VARLONG.

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    VARINT_SIZE_MAX = 10


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ (<uint64_t>0 - (<uint64_t>number >> 63))


cdef inline Py_ssize_t varint_size(int64_t number) noexcept nogil:
    """Return the number of bytes that `put_varint` writes."""
    cdef uint64_t rest = zigzag(number) >> 7
    cdef Py_ssize_t size = 1
    while rest:
        rest >>= 7
        size += 1
    return size


cdef inline unsigned char* put_varint(unsigned char* out, int64_t number) noexcept nogil:
    """Write `number` at `out`, which must have space for it, and return its end."""
    cdef uint64_t rest = zigzag(number)
    while rest > 0x7F:
        out[0] = <unsigned char>(rest & 0x7F | 0x80)
        rest >>= 7
        out += 1
    out[0] = <unsigned char>rest
    return out + 1


cdef inline const unsigned char* get_varint(
    const unsigned char* at, const unsigned char* end, int64_t* number
) noexcept nogil:
    """Read the number at `at`; return its end, NULL if it is truncated or beyond 64 bits."""
    cdef uint64_t rest
    cdef int shift = 0
    cdef unsigned char byte
    if at >= end:
        return NULL
    byte = at[0]
    at += 1
    rest = byte & 0x7F
    while byte & 0x80:
        shift += 7
        if at >= end or shift > 63:
            return NULL
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return NULL
        rest |= <uint64_t>(byte & 0x7F) << shift
    number[0] = <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
    return at
