"""The types of frame_memory.pyx, which are those of the pure twin."""

from typing import final

__all__ = ["FrameMemory"]

@final
class FrameMemory:
    def __init__(self, size_bytes: int) -> None: ...
    def space(self, filled_bytes: int) -> memoryview: ...
    def frame(self) -> memoryview: ...
