"""The system calls of the port, as Python's own modules make them.

A busy thread of the application delays each by the interpreter's switch interval, 5 ms; the
compiled twin delays them less.

Owner: the driver of the port; `send_parts` may be called from any thread.
Source: the modules ``selectors`` and ``socket``.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import selectors
    from collections.abc import Sequence

MSG_NOSIGNAL: Final[int] = getattr(socket, "MSG_NOSIGNAL", 0)
"""Flag for each send that turns a lost peer into an error instead of SIGPIPE. That signal ends a
program that has restored its default action, as command line tools do. 0 where the flag does not
exist."""

HAS_SENDMSG: Final = hasattr(socket.socket, "sendmsg")
"""False on Windows."""

WOULD_BLOCK: Final = -1
"""Count of bytes where a call would block."""

PART_COUNT_MAX: Final = 64
"""Maximum buffers of one call; Linux allows 1,024, and POSIX guarantees 16."""


def select_ready(
    selector: selectors.BaseSelector,
    timeout_s: float,
    is_urgent: bool = True,  # by position: it is called in each turn
) -> list[tuple[selectors.SelectorKey, int]]:
    """Wait at most `timeout_s` until registered sockets are ready; return them with their events.

    `is_urgent`: the compiled twin asks for the GIL then, which costs a busy thread its turn.

    Raises:
        OSError: as ``select`` of the selector does.
    """
    del is_urgent
    return selector.select(timeout_s)


def send_parts(sock: socket.socket, parts: Sequence[bytes | memoryview]) -> int:
    """Send the parts, or the first `PART_COUNT_MAX` of them; return how many bytes went.

    The socket does not block. `WOULD_BLOCK` means that it takes none now.

    Raises:
        OSError: the connection is lost.
    """
    try:
        if HAS_SENDMSG:
            return sock.sendmsg(parts[:PART_COUNT_MAX], (), MSG_NOSIGNAL)
        return sock.send(parts[0], MSG_NOSIGNAL)
    except BlockingIOError as error:
        return _would_block(error)


def receive_into(sock: socket.socket, buffer: memoryview) -> int:
    """Receive into the buffer; return the count of bytes, 0 at the end of the stream.

    The socket does not block. `WOULD_BLOCK` means that nothing has come.

    Raises:
        OSError: the connection is lost.
    """
    try:
        return sock.recv_into(buffer)
    except BlockingIOError as error:
        return _would_block(error)


def _would_block(error: BlockingIOError) -> int:
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is not None:
        raise error  # of a signal handler, or of a library's socket: the port tells them apart
    return WOULD_BLOCK
