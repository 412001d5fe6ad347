"""Framing: cuts a stream of bytes into frames, each a four-byte size and that many bytes.

A `FrameBuffer` has two states. While *small*, bytes arrive in a scratch buffer that holds many
small frames at once. While *large*, the rest of one frame that does not fit there arrives in a
separate buffer. It reads nothing itself: the caller receives into `get_buffer()` and calls
`buffer_updated` with the number of bytes, as with ``asyncio.BufferedProtocol`` and
``socket.recv_into``.

A returned frame owns its bytes; no later read changes them. A size is checked before memory is
allocated, and memory grows with the bytes that have arrived: a peer that only announces a frame of
100 MB gets hardly any (`accel.FrameMemory`).

Owner: the connection that it belongs to.
Source: the Kafka protocol guide, section "Network"; Java class ``NetworkReceive``.
"""

from __future__ import annotations

import string
from struct import Struct

from pykclient.accel import FrameMemory
from pykclient.errors.base import FrameTooLargeError, TlsError

RECEIVE_BYTES_MAX = 100_000_000
"""Default limit of a frame's size."""

SCRATCH_BYTES = 64 * 1024
"""Size of the scratch buffer for small frames."""

_SIZE = Struct(">i")
_TEXT = frozenset(string.printable.encode())
_TLS_RECORDS = {0x15: "alert", 0x16: "handshake"}


class FrameBuffer:
    """Receives bytes and returns complete frames, without their sizes.

    `receive_max_bytes` is the maximum size of a frame. After a `FrameTooLargeError` the stream is
    unusable: the connection must be closed.
    """

    __slots__ = ("_filled", "_large", "_large_size", "_scratch", "receive_max_bytes")

    def __init__(self, receive_max_bytes: int = RECEIVE_BYTES_MAX) -> None:
        self.receive_max_bytes = receive_max_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._filled = 0  # bytes in the scratch buffer, or in the large one while there is one
        self._large: FrameMemory | None = None
        self._large_size = 0  # 0 while frames are small; without `_large`, its memory ran out

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Return a non-empty buffer for the next bytes, valid until `buffer_updated`.

        `size_hint` belongs to asyncio's interface and is ignored.
        """
        if self._large is None:
            return self._scratch[self._filled :]
        try:
            return self._large.space(self._filled)
        except MemoryError:
            # Ports cannot report it here: the next `buffer_updated` does.
            self._large = None
            self._filled = 0
            return self._scratch

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Record that `count` bytes were written to the buffer; return the complete frames.

        Raises:
            FrameTooLargeError: a size is negative or above the limit, or there is not enough
                memory. Frames completed by the same bytes are lost with the connection.
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
        """Return all complete frames in the scratch buffer; the rest moves to its start."""
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
        """Continue with a frame of `size` bytes, of which those from `start` have arrived."""
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
    """Return why a frame is refused; often the peer is not a Kafka broker."""
    if head == b"HTTP" or head[:1] == b"<":  # a page that some servers send without a header
        return (
            "the peer responded in HTTP: this looks like an HTTP server, not a Kafka broker; check"
            " the port in bootstrap_servers"
        )
    if all(sign in _TEXT for sign in head):
        return (
            f"the peer responded in text (it begins with {head.decode()!r}): this is not a Kafka"
            " broker; check the port in bootstrap_servers"
        )
    return (
        f"a frame of {size} bytes was announced (first bytes {head!r}), but the limit is {limit}"
        f" (receive_max_bytes, less in a handshake)"
    )
