"""One direction of a proxied connection: bytes in; bytes, pauses and an ending out.

Frames are not collected: after the first bytes of a frame have identified it, the rest passes as it
arrives, changed as its fault requires. Only a frame to be doubled is kept. A stream is at a frame's
*head*, in its *body*, *raw* (the bytes are no frame, and pass unchanged) or *over*.

It has no clock and no socket: the caller makes the pauses.

Owner: its connection.
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
"""Maximum size of a frame; brokers accept 100 MiB (``socket.request.max.bytes``). The first
bytes of TLS, 0x16 and a version, would be a size of 352 MiB."""

SIZE: Final = struct.Struct(">i")
_HEAD_BYTES: Final = {Direction.REQUEST: 12, Direction.RESPONSE: 8}
"""Size of the head: frame size and correlation id, in a request with API and version between."""


class Pause(NamedTuple):
    """A delay of everything after it."""

    delay_ms: int


class Ending(Enum):
    """The end of the stream."""

    CLOSE = "close"
    """Close the connection after everything before is sent."""
    BLACKHOLE = "blackhole"
    """Keep the connection open and pass nothing in either direction."""


Event = bytes | Pause | Ending

OnHead = Callable[[bytes], Strike | None]
"""Takes a frame's head and returns the fault that applies to it, or None."""


class FrameStream:
    """The frames of one direction; `on_head` decides the fault of each."""

    def __init__(self, direction: Direction, on_head: OnHead) -> None:
        self._on_head = on_head
        self._head_bytes = _HEAD_BYTES[direction]
        self._pending = b""
        """First bytes of a frame whose head is incomplete."""
        self._strike: Strike | None = None
        self._size_bytes = 0
        self._passed_bytes = 0
        """Size of the current frame, and how much of it has passed."""
        self._copy = bytearray()
        self._is_raw = False
        self._is_over = False

    def feed(self, data: bytes) -> list[Event]:
        """Return the events for these bytes."""
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
        """Return the remaining bytes at the end of the stream."""
        pending, self._pending = self._pending, b""
        return [pending] if pending and not self._is_over else []

    def _begin(self, data: bytes, events: list[Event]) -> bytes:
        """Read a frame's head; return the remaining bytes."""
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
        """Return whether a frame can have this size."""
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
        """Pass the frame's next bytes with its fault; return the remaining bytes."""
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
