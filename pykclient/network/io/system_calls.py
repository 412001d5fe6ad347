"""The system calls of the port that end at once, and so had better keep the GIL where they can.

Where they are compiled, a short send, a receive into a small buffer, and a look at what is ready do
not let another thread run in between: it would keep the GIL for a switch interval, five
milliseconds, before the engine could go on. A send of more gives the GIL up while it copies.

Owner: none.
Source: `docs/decisions/0002-gil-between-two-threads.md`.
"""

from __future__ import annotations

import selectors
import socket
import sys
from typing import Final

from pykclient import accel

IS_COMPILED = accel.implementation == "compiled"
if IS_COMPILED:
    from pykclient.network.io import brief_calls

__all__ = [
    "MSG_NOSIGNAL",
    "PART_COUNT_MAX",
    "ready_now",
    "receive_into",
    "send_parts",
    "without_sigpipe",
]

MSG_NOSIGNAL: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)
"""With each send: a peer that has gone is an error, not a SIGPIPE, which ends a program that has
set that signal back to its default, as command line tools do. 0 where there is no such flag."""

_SO_NOSIGPIPE_OF_MACOS: Final = 0x1022
"""For all sends of a socket; `socket` does not name it."""

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
        return sock.sendmsg(parts, (), MSG_NOSIGNAL)
    return brief_calls.send_parts(sock.fileno(), parts)


def without_sigpipe(sock: socket.socket) -> None:
    """Have no send of a socket raise SIGPIPE, where the socket and not the send says so."""
    if sys.platform == "darwin":
        sock.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE_OF_MACOS, 1)


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
