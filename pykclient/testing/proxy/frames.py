"""One direction of a proxied connection: bytes in; out come bytes, pauses, and an end.

Frames are never gathered: once a frame's first bytes have said what it is, the rest passes as it
comes, changed where its fault says so. Only a frame that is to be doubled is kept. A stream is at a
frame's *head*, in its *body*, *raw* (what comes is no frame, and passes as it is) or *over*.

It knows no clock and no socket: a pause is for the caller to make.

Owner: the connection that it belongs to.
Source: the Kafka protocol guide, sections "Network" and "Request and Response Headers".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from pykclient.testing.proxy.faults import (
    Blackhole,
    Cut,
    Delay,
    Direction,
    Double,
    Flip,
    ForgeLength,
    Lose,
)
from pykclient.testing.proxy.plan import Strike

FRAME_BYTES_MAX: Final = 2**28
"""What announces more is no frame of Kafka's: brokers take 100 MiB (``socket.request.max.bytes``).
What TLS begins with, 0x16 and a version, would be 352 MiB."""

SIZE: Final = struct.Struct(">i")
_HEAD_BYTES: Final = {Direction.REQUEST: 12, Direction.RESPONSE: 8}
"""Size and correlation id, and of a request, between them, API and version."""


class Pause(NamedTuple):
    """What comes after this waits so long."""

    delay_ms: int


class Ending(Enum):
    """Nothing passes after this."""

    CLOSE = "close"
    """The connection is to be closed, once what came before has been sent."""
    BLACKHOLE = "blackhole"
    """The connection stays open, and nothing passes any more in either direction."""


Event = bytes | Pause | Ending

OnHead = Callable[[bytes], Strike | None]
"""Takes each frame's head, and returns what the frame meets."""


class FrameStream:
    """The frames of one direction; `on_head` decides about each of them."""

    def __init__(self, direction: Direction, on_head: OnHead) -> None:
        self._on_head = on_head
        self._head_bytes = _HEAD_BYTES[direction]
        self._pending = b""
        """The first bytes of a frame, too few yet to decide about it."""
        self._strike: Strike | None = None
        self._size_bytes = 0
        self._passed_bytes = 0
        """The size of the frame that is passing, and how much of it has passed."""
        self._copy = bytearray()
        self._is_raw = False
        self._is_over = False

    def feed(self, data: bytes) -> list[Event]:
        """Return what becomes of these bytes."""
        events: list[Event] = []
        rest = data
        while rest and not self._is_over:
            if self._is_raw:
                events.append(rest)
                break
            if self._passed_bytes == self._size_bytes:
                rest = self._begin(rest, events)
            else:
                rest = self._go_on(rest, events)
        return events

    def end(self) -> list[Event]:
        """Return what was still held back when the bytes ended."""
        pending, self._pending = self._pending, b""
        return [pending] if pending and not self._is_over else []

    def _begin(self, data: bytes, events: list[Event]) -> bytes:
        """Take in a frame's head; what is left over."""
        pending = self._pending + data
        self._pending = b""
        size_bytes = int.from_bytes(pending[: SIZE.size], "big", signed=True)
        if len(pending) >= SIZE.size and not self._is_size(size_bytes):
            self._is_raw = True
            return pending
        if len(pending) < self._head_bytes:
            self._pending = pending
            return b""
        self._size_bytes = SIZE.size + size_bytes
        self._passed_bytes = 0
        self._strike = self._on_head(pending[: self._head_bytes])
        if self._strike is not None:
            return self._struck_head(pending, self._strike, events)
        return self._go_on(pending, events)

    def _is_size(self, size_bytes: int) -> bool:
        """Whether a frame can have this size."""
        return self._head_bytes - SIZE.size <= size_bytes <= FRAME_BYTES_MAX

    def _struck_head(self, data: bytes, strike: Strike, events: list[Event]) -> bytes:
        match strike.fault:
            case Delay(delay_ms=delay_ms):
                events.append(Pause(delay_ms))
            case Blackhole():
                self._is_over = True
                events.append(Ending.BLACKHOLE)
                return b""
            case ForgeLength(length_bytes=length_bytes):
                events.append(SIZE.pack(length_bytes))
                self._passed_bytes = SIZE.size
                return data[SIZE.size :]
        return self._go_on(data, events)

    def _go_on(self, data: bytes, events: list[Event]) -> bytes:
        """Let the frame's next bytes pass, as its fault says; what is left over."""
        chunk = data[: self._size_bytes - self._passed_bytes]
        start = self._passed_bytes
        self._passed_bytes += len(chunk)
        is_end = self._passed_bytes == self._size_bytes
        match self._strike:
            case Strike(fault=Lose()):
                if is_end:
                    self._close(events)
            case Strike(fault=Cut(), byte=byte) if byte < self._passed_bytes:
                if byte > start:
                    events.append(chunk[: byte - start])
                self._close(events)
            case Strike(fault=Flip(), byte=byte, bit=bit) if start <= byte < self._passed_bytes:
                events.append(_flipped(chunk, byte - start, bit))
            case Strike(fault=Double()):
                events.append(chunk)
                self._copy += chunk
                if is_end:
                    events.append(bytes(self._copy))
                    self._copy = bytearray()
            case _:
                events.append(chunk)
        return data[len(chunk) :]

    def _close(self, events: list[Event]) -> None:
        self._is_over = True
        events.append(Ending.CLOSE)


def _flipped(data: bytes, index: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1 << bit
    return bytes(changed)
