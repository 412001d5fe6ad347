"""The types of contiguous.pyx, which are those of the pure twin."""

from pykclient.accel.abc import RecordColumns
from pykclient.accel.pure.contiguous import ContiguousBatches

__all__ = ["decode_contiguous", "find_contiguous"]

def find_contiguous(
    data: bytes | bytearray | memoryview, position: int, special: int
) -> ContiguousBatches | None: ...
def decode_contiguous(
    data: bytes | bytearray | memoryview, position: int, end: int, check_crcs: bool
) -> tuple[RecordColumns | None, int]: ...
