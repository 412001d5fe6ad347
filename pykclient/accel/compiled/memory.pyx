"""Memory for open batches. A few large pieces are kept for the next ones.

The operating system clears each page for a process, and takes large pieces back as soon as
they are freed. For a producer of large batches that is a quarter of its work. Pieces that batches
and frames return are therefore kept, up to `SPARE_BYTES_MAX` in all. No caller gets one far larger
than requested, or small batches would hold the memory of large frames.

Owner: the GIL, or a lock of its own in free-threaded builds.
Source: Java class ``BufferPool``, which keeps its buffers for the same reason.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.string cimport memcpy

from pykclient.accel.compiled.lock cimport core_lock, give_core_lock, take_core_lock

cdef enum:
    LARGE_BYTES = 64 * 1024
    SPARE_COUNT_MAX = 64
    SPARE_BYTES_MAX = 16 * 1024 * 1024
    SPARE_EXCESS_MAX = 2  # times the requested size that a spare piece may have

cdef Memory[SPARE_COUNT_MAX] spare
cdef Py_ssize_t spare_count = 0
cdef Py_ssize_t spare_bytes = 0
cdef core_lock lock


cdef int grow_memory(Memory* memory, Py_ssize_t used, Py_ssize_t size) except -1:
    """Make `memory` at least `size` bytes large, and keep its first `used` bytes."""
    cdef Memory larger
    if size >= LARGE_BYTES and take_spare(&larger, size):
        if used:  # memcpy must not get NULL, even for zero bytes
            memcpy(larger.start, memory.start, used)
        give_memory(memory)
    else:
        larger.start = <unsigned char*>PyMem_RawRealloc(memory.start, size)
        if larger.start is NULL:
            raise MemoryError
        larger.size = size
    memory[0] = larger
    return 0


cdef bint take_spare(Memory* memory, Py_ssize_t size) noexcept:
    """Find the smallest spare piece of at least `size` bytes; False if there is none."""
    global spare_count, spare_bytes
    cdef Py_ssize_t place, best = -1
    if size < LARGE_BYTES:
        return False
    take_core_lock(&lock)
    for place in range(spare_count):
        if (
            size <= spare[place].size <= SPARE_EXCESS_MAX * size
            and (best < 0 or spare[place].size < spare[best].size)
        ):
            best = place
    if best >= 0:
        memory[0] = spare[best]
        spare_count -= 1
        spare_bytes -= memory.size
        spare[best] = spare[spare_count]
    give_core_lock(&lock)
    return best >= 0


cdef void give_memory(Memory* memory) noexcept:
    """Return memory to the pool; `memory` is empty afterwards."""
    global spare_count, spare_bytes
    cdef bint is_kept
    take_core_lock(&lock)
    is_kept = (
        memory.size >= LARGE_BYTES
        and spare_count < SPARE_COUNT_MAX
        and spare_bytes + memory.size <= SPARE_BYTES_MAX
    )
    if is_kept:
        spare[spare_count] = memory[0]
        spare_count += 1
        spare_bytes += memory.size
    give_core_lock(&lock)
    if not is_kept:
        PyMem_RawFree(memory.start)
    memory.start = NULL
    memory.size = 0
