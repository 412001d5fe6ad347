"""A buffer that does not copy what is large: record batches stay where they are until sent.

Written like any bytearray; `parts` gives everything in order for one ``sendmsg``.

Owner: whoever encodes the request.
Source: Java class ``SendBuilder``, which does the same for its zero-copy fields.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GATHER_MIN_BYTES", "GatherBuffer", "Records"]

Records = bytes | bytearray | memoryview
"""One or more record batches as they stand on the wire."""

GATHER_MIN_BYTES: Final = 8192
"""A value of at least this size is kept by reference; copying a smaller one costs less time."""


class GatherBuffer(bytearray):
    """A bytearray that notes where large `records` values belong instead of copying them."""

    __slots__ = ("references",)

    def __init__(self) -> None:
        super().__init__()
        self.references: list[tuple[int, Records]] = []

    def refer(self, value: Records) -> None:
        """Put `value` at the present end. It must not change until the parts were written."""
        self.references.append((len(self), value))

    @property
    def size(self) -> int:
        """The length in bytes, referenced values included."""
        return len(self) + sum(len(value) for _, value in self.references)

    def parts(self) -> list[bytes | bytearray | memoryview]:
        """All bytes in order. The buffer must not grow afterwards."""
        view = memoryview(self)
        parts: list[bytes | bytearray | memoryview] = []
        start = 0
        for position, value in self.references:
            parts += view[start:position], value
            start = position
        if start < len(view):
            parts.append(view[start:])
        return parts
