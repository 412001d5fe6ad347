"""The system calls of the port that end at once, and so had better keep the GIL where they can.

Where they are compiled, a short send, a receive into a small buffer, and a look at what is ready do
not let another thread run in between: it would keep the GIL for a switch interval, five
milliseconds, before the engine could go on. A send of more gives the GIL up while it copies.

Owner: none.
Source: DESIGN.md, "The GIL between two threads".
"""

from __future__ import annotations

import selectors
from typing import TYPE_CHECKING, Final

from pykclient import accel

IS_COMPILED = accel.implementation == "compiled"
if IS_COMPILED:
    from pykclient.network import brief_calls

if TYPE_CHECKING:
    import socket

__all__ = ["PART_COUNT_MAX", "ready_now", "receive_into", "send_parts"]

PART_COUNT_MAX: Final = 64
"""Buffers given to one sendmsg call; Linux takes 1,024, the least that POSIX promises is 16."""

BRIEF_BYTES: Final = 256 * 1024
"""What is copied to or from the system while the GIL is kept: about a tenth of a millisecond."""


def send_parts(sock: socket.socket, parts: list[memoryview]) -> int:
    """Send what the system takes now; return how many bytes that was.

    Raises:
        OSError: as `socket.sendmsg` does.
    """
    if not IS_COMPILED or sum(part.nbytes for part in parts) > BRIEF_BYTES:
        return sock.sendmsg(parts)
    return brief_calls.send_parts(sock.fileno(), parts)


def receive_into(sock: socket.socket, buffer: memoryview) -> int:
    """Receive what has come; return how many bytes, 0 at the end of the stream.

    Raises:
        OSError: as `socket.recv_into` does.
    """
    if not IS_COMPILED or buffer.nbytes > BRIEF_BYTES:
        return sock.recv_into(buffer)
    return brief_calls.receive_into(sock.fileno(), buffer)


def ready_now(selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]] | None:
    """Return what is ready without waiting, as `select` does; None where only `select` can tell."""
    if not IS_COMPILED or not isinstance(selector, selectors.EpollSelector):
        return None
    ready = []
    keys = selector.get_map()
    for fd, events in brief_calls.ready_now(selector.fileno()):
        key = keys[fd]
        # Errors and hang-ups wake whoever is interested in anything.
        selected = selectors.EVENT_WRITE if events & ~_EPOLLIN else 0
        selected |= selectors.EVENT_READ if events & ~_EPOLLOUT else 0
        ready.append((key, selected & key.events))
    return ready


_EPOLLIN: Final = 0x001
_EPOLLOUT: Final = 0x004
