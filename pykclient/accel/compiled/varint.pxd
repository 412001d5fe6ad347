# Zigzag varints, the numbers inside a record: written here, inlined where they are needed.
#
# Owner: no state.
# Source: Kafka protocol guide, "Protocol Primitive Types", VARINT and VARLONG.

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    VARINT_SIZE_MAX = 10


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ (<uint64_t>0 - (<uint64_t>number >> 63))


cdef inline Py_ssize_t varint_size(int64_t number) noexcept nogil:
    """How many bytes `put_varint` writes."""
    cdef uint64_t rest = zigzag(number) >> 7
    cdef Py_ssize_t size = 1
    while rest:
        rest >>= 7
        size += 1
    return size


cdef inline unsigned char* put_varint(unsigned char* out, int64_t number) noexcept nogil:
    """Write `number` at `out`, which has room for it, and return where it ends."""
    cdef uint64_t rest = zigzag(number)
    while rest > 0x7F:
        out[0] = <unsigned char>(rest & 0x7F | 0x80)
        rest >>= 7
        out += 1
    out[0] = <unsigned char>rest
    return out + 1
