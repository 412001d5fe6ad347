"""Cuts a stream of bytes into frames: four bytes of size, then that many bytes.

A `FrameBuffer` is in one of two states: *small*, in which bytes arrive in a scratch buffer that
holds many small frames at once; and *large*, in which the rest of one frame that does not fit there
lands in a buffer of its own. It reads nothing itself: the caller receives into `get_buffer()` and
calls `buffer_updated` with how much came, which is the shape of ``asyncio.BufferedProtocol`` and of
``socket.recv_into``.

A frame that was handed out owns its bytes; no later read changes them. A size is checked before
anything is allocated for it, and the memory that is used grows with what arrived: a peer that only
announces a frame of 100 MB gets hardly any (`accel.FrameMemory`).

Owner: the connection that it belongs to.
Source: the Kafka protocol guide, section "Network"; Java class ``NetworkReceive``.
"""

from __future__ import annotations

import string
from struct import Struct

from pykclient.accel import FrameMemory
from pykclient.errors.base import FrameTooLargeError, TlsError

RECEIVE_BYTES_MAX = 100_000_000
"""The default limit of a frame's size."""

SCRATCH_BYTES = 64 * 1024
"""The size of the buffer through which small frames come."""

_SIZE = Struct(">i")
_TEXT = frozenset(string.printable.encode())
_TLS_RECORDS = {0x15: "alert", 0x16: "handshake"}


class FrameBuffer:
    """Receives bytes and gives complete frames, without their sizes.

    `receive_max_bytes` is the largest size that is taken. After a `FrameTooLargeError` the stream
    has no frames any more: the connection must be closed.
    """

    __slots__ = ("_filled", "_large", "_large_size", "_scratch", "receive_max_bytes")

    def __init__(self, receive_max_bytes: int = RECEIVE_BYTES_MAX) -> None:
        self.receive_max_bytes = receive_max_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0  # bytes in the scratch buffer, or in the large one while there is one
        self._large: FrameMemory | None = None
        self._large_size = 0  # 0 while frames are small; without `_large`, its memory ran out

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes shall be put; never empty, valid until `buffer_updated`.

        `size_hint` is asyncio's, and ignored: the space never depends on it.
        """
        if self._large is None:
            return self._scratch[self._filled :]
        try:
            return self._large.space(self._filled)
        except MemoryError:
            # Ports have nowhere to report it: the next `buffer_updated` does.
            self._large = None
            self._filled = 0
            return self._scratch

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Note that `count` bytes were put where `get_buffer` was; the frames that are complete.

        Raises:
            FrameTooLargeError: a size is negative or above the limit, or there is no memory for so
                much. Frames that were completed by the same bytes are lost with the connection.
            TlsError: the peer speaks TLS.
        """
        self._filled += count
        if self._large is None:
            if self._large_size:
                raise self._no_memory()
            return self._take_small()
        if self._filled < self._large_size:
            return []
        frame = self._large.frame()
        self._large = None
        self._large_size = self._filled = 0
        return [frame]

    def _take_small(self) -> list[memoryview]:
        """All complete frames in the scratch buffer; what remains moves to its start."""
        frames: list[memoryview] = []
        start = 0
        while (rest := self._filled - start) >= _SIZE.size:
            size = self._checked_size(start)
            end = start + _SIZE.size + size
            if end > self._filled:
                if _SIZE.size + size > SCRATCH_BYTES:
                    self._start_large(size, start + _SIZE.size)
                    return frames
                break
            frames.append(memoryview(bytes(self._scratch[start + _SIZE.size : end])))
            start = end
        if start:
            self._scratch[:rest] = bytes(self._scratch[start : self._filled])
            self._filled = rest
        return frames

    def _start_large(self, size: int, start: int) -> None:
        """Go on with a frame of `size` bytes, of which those from `start` have arrived."""
        arrived = self._scratch[start : self._filled]
        self._large_size = size
        try:
            self._large = FrameMemory(size)
        except MemoryError as error:
            raise self._no_memory() from error
        self._large.space(0)[: len(arrived)] = arrived
        self._filled = len(arrived)

    def _no_memory(self) -> FrameTooLargeError:
        return FrameTooLargeError(
            f"there is no memory for a frame of {self._large_size} bytes; give the process more, or"
            f" set receive_max_bytes (for a consumer, fetch_max_bytes) lower"
        )

    def _checked_size(self, start: int) -> int:
        size: int = _SIZE.unpack_from(self._scratch, start)[0]
        if not 0 <= size <= self.receive_max_bytes:
            head = bytes(self._scratch[start : start + 4])
            if head[0] in _TLS_RECORDS and head[1] == 3:
                raise TlsError(
                    f"the peer responded with a TLS {_TLS_RECORDS[head[0]]}: its listener is SSL or"
                    f" SASL_SSL; set security_protocol, or use its plaintext port"
                )
            raise FrameTooLargeError(_refusal(size, head, self.receive_max_bytes))
        return size


def _refusal(size: int, head: bytes, limit: int) -> str:
    """Why a frame is refused; often the peer is no Kafka broker."""
    if head == b"HTTP" or head[:1] == b"<":  # a page, as some send without a head
        return (
            "the peer responded in HTTP: this looks like an HTTP server, not a Kafka broker; check"
            " the port in bootstrap_servers"
        )
    if all(sign in _TEXT for sign in head):
        return (
            f"the peer responded in text (it begins with {head.decode()!r}): this is no Kafka"
            " broker; check the port in bootstrap_servers"
        )
    return (
        f"a frame of {size} bytes was announced (first bytes {head!r}), and {limit} are the most"
        f" that is taken (receive_max_bytes, less in a handshake)"
    )
