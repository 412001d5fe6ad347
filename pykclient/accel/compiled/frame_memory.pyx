"""Memory for one large frame, kept for the next one when no view of it is left.

The memory is not cleared, and doubles as bytes arrive. A spare piece that is large enough is used
at once, since it is allocated already.

Owner: as the pure twin.
Source: as the pure twin.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo

from pykclient.accel.compiled.memory cimport Memory, give_memory, grow_memory, take_spare

from pykclient.accel.pure.frame_memory import ALLOCATION_BYTES

__all__ = ["FrameMemory"]

cdef Py_ssize_t FIRST_BYTES = ALLOCATION_BYTES


@cython.final
cdef class Room:
    """Memory of `size_bytes`, used through views, which never moves while there are any."""

    cdef Memory memory
    cdef Py_ssize_t size_bytes
    # Used by one thread while the frame is received; unused once it is complete.
    cdef Py_ssize_t view_count

    def __dealloc__(self):
        give_memory(&self.memory)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory.start, self.size_bytes, 0, flags)
        self.view_count += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.view_count -= 1

    cdef int grow(self, Py_ssize_t size_bytes) except -1:
        if self.view_count:
            raise BufferError("there is a view of the frame that is being received")
        grow_memory(&self.memory, self.size_bytes, size_bytes)
        self.size_bytes = size_bytes
        return 0


@cython.final
cdef class FrameMemory:
    """Memory for `size_bytes`, of which only the part in use is allocated.

    A peer that announces a large frame gets `ALLOCATION_BYTES` for it, or a spare piece, and never
    more than twice what it has sent.
    """

    cdef Room room
    cdef object view
    cdef Py_ssize_t size_bytes

    def __cinit__(self, Py_ssize_t size_bytes):
        cdef Room room = Room.__new__(Room)
        if size_bytes <= 0:
            raise ValueError("a frame that needs memory has bytes")
        if take_spare(&room.memory, size_bytes):
            room.size_bytes = size_bytes
        else:
            room.grow(min(size_bytes, FIRST_BYTES))
        self.room = room
        self.size_bytes = size_bytes

    def space(self, Py_ssize_t filled_bytes):
        """Return the space for the bytes after the first `filled_bytes`; more must be due.

        The view of the last call must not be used any longer.
        """
        if self.view is not None:
            self.view.release()
        if filled_bytes == self.room.size_bytes:
            self.room.grow(min(self.size_bytes, 2 * filled_bytes))
        with memoryview(self.room) as whole:
            self.view = whole[filled_bytes:]
        return self.view

    def frame(self):
        """Return the complete frame."""
        return memoryview(self.room).toreadonly()
