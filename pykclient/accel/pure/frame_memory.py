"""FrameMemory: memory for one large frame, which grows with the received bytes.

Owner: the frame buffer, until the frame is returned; then the owners of its views.
Source: Java class ``NetworkReceive``.
"""

from __future__ import annotations

from typing import Final

ALLOCATION_BYTES: Final = 1024 * 1024
"""Size of the memory allocated beyond the received bytes."""

_ZEROS = memoryview(bytes(ALLOCATION_BYTES))  # adding this is faster than making new zeros


class FrameMemory:
    """Space for `size_bytes`, of which only the received part is allocated.

    A peer that announces a large frame gets `ALLOCATION_BYTES`, and never more than that beyond the
    bytes it has sent (plus the eighth by which a bytearray overallocates). Allocating the announced
    size at once would commit all of it, since a bytearray is filled with zeros.
    """

    __slots__ = ("_data", "_size_bytes", "_view")

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._data = bytearray(min(size_bytes, ALLOCATION_BYTES))
        self._view: memoryview | None = None

    def space(self, filled_bytes: int) -> memoryview:
        """Return the space for the bytes after the first `filled_bytes`; more must be due.

        The view of the last call must not be used any longer.
        """
        if self._view is not None:
            self._view.release()
        if filled_bytes == len(self._data):
            self._data += _ZEROS[: self._size_bytes - filled_bytes]
        with memoryview(self._data) as whole:
            self._view = whole[filled_bytes:]
        return self._view

    def frame(self) -> memoryview:
        """Return all received bytes, when no more are due."""
        return memoryview(self._data).toreadonly()
