"""The types of stretch.pyx, which are those of the pure twin."""

from pykclient.accel.abc import RecordColumns
from pykclient.accel.pure.stretch import Stretch

__all__ = ["decode_stretch", "find_stretch"]

def find_stretch(
    data: bytes | bytearray | memoryview, position: int, special: int
) -> Stretch | None: ...
def decode_stretch(
    data: bytes | bytearray | memoryview, position: int, end: int, check_crcs: bool
) -> tuple[RecordColumns | None, int]: ...
