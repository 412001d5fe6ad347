"""Memory that one large frame is received into, kept for the next one when nobody has views of it.

It is not cleared, and the operating system commits a page when it is first written to; so all that
a frame needs can be asked for at once.

Owner: as the pure twin.
Source: that of the pure twin.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo

from pykclient.accel.compiled.memory cimport Memory, give_memory, grow_memory

__all__ = ["FrameMemory"]


@cython.final
cdef class FrameMemory:
    """Room for `size_bytes`; no page of it is taken before something is received into it."""

    cdef Memory memory
    cdef Py_ssize_t size_bytes

    def __cinit__(self, Py_ssize_t size_bytes):
        if size_bytes <= 0:
            raise ValueError("a frame that needs memory has bytes")
        grow_memory(&self.memory, 0, size_bytes)
        self.size_bytes = size_bytes

    def __dealloc__(self):
        give_memory(&self.memory)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory.start, self.size_bytes, 0, flags)

    def space(self, Py_ssize_t filled_bytes):
        """Return where the bytes after the first `filled_bytes` go; there must be more to come."""
        return memoryview(self)[filled_bytes:]

    def frame(self):
        """Return all that was received. There is no more to come."""
        return memoryview(self).toreadonly()
