"""The types of arrow.pyx, which are those of the pure twin."""

from collections.abc import Sequence

from pykclient.accel.abc import RecordColumns
from pykclient.accel.arrow_buffers import ArrowBuffers, BinaryBuffers

__all__ = ["arrow_buffers", "repeated"]

def arrow_buffers(columns: Sequence[RecordColumns], *, include_headers: bool) -> ArrowBuffers: ...
def repeated(items: Sequence[tuple[bytes, int]]) -> BinaryBuffers: ...
