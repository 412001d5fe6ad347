"""The types of brief_calls.pyx."""

from collections.abc import Sequence

from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["PART_COUNT_MAX", "ready_now", "receive_into", "send_parts"]

PART_COUNT_MAX: int

def send_parts(fd: int, parts: Sequence[ReadableBuffer]) -> int: ...
def receive_into(fd: int, buffer: WriteableBuffer) -> int: ...
def ready_now(epoll_fd: int) -> list[tuple[int, int]]: ...
