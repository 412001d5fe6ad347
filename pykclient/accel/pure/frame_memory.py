"""Memory that one large frame is received into; it grows with what arrives.

Owner: the frame buffer, until the frame is handed out; then whoever has views of it.
Source: Java class ``NetworkReceive``.
"""

from __future__ import annotations

from typing import Final

ALLOCATION_BYTES: Final = 1024 * 1024
"""How much there is ahead of what arrived."""

_ZEROS = memoryview(bytes(ALLOCATION_BYTES))  # adding this is faster than making new zeros


class FrameMemory:
    """Room for `size_bytes`, of which only the part that is received into is taken.

    A peer that announces a large frame gets `ALLOCATION_BYTES` for it, and never more than that
    beyond what it has sent (and the eighth that a bytearray keeps as room to grow). Allocating the
    announced size at once would commit all of it, since a bytearray is filled when it is made.
    """

    __slots__ = ("_data", "_size_bytes", "_view")

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._data = bytearray(min(size_bytes, ALLOCATION_BYTES))
        self._view: memoryview | None = None

    def space(self, filled_bytes: int) -> memoryview:
        """Return where the bytes after the first `filled_bytes` go; there must be more to come.

        The view of the last call must not be used any more.
        """
        if self._view is not None:
            self._view.release()
        if filled_bytes == len(self._data):
            self._data += _ZEROS[: self._size_bytes - filled_bytes]
        with memoryview(self._data) as whole:
            self._view = whole[filled_bytes:]
        return self._view

    def frame(self) -> memoryview:
        """Return all that was received. There is no more to come."""
        return memoryview(self._data).toreadonly()
