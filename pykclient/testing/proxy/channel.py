"""What waits in one direction of a proxied connection: for a pause, for the rate, for the receiver.

It holds little: while much waits, no more is to be read, so that the sender meets a full network.
Its source may have ended, and it may have reached an `Ending`; what was fed before still comes out.

Owner: the proxy's thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from pykclient.testing.proxy.frames import Ending, Pause

if TYPE_CHECKING:
    from pykclient.testing.proxy.frames import Event, FrameStream

__all__ = ["WAITING_BYTES_MAX", "ProxyChannel"]

WAITING_BYTES_MAX: Final = 256 * 1024
"""While more waits than this nothing is read; one read and one doubled frame may come on top."""

BURST_MS: Final = 20
"""How long a rate that was not used may be saved up."""


class ProxyChannel:
    """The bytes of one direction, from `feed` to `ready`; what becomes of them, `stream` says."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._events: deque[Event] = deque()
        self._waiting_bytes = 0
        self._resume_at_ms = 0.0
        self._allowed_bytes = 0.0
        self._counted_at_ms: float | None = None
        self.ending: Ending | None = None
        """How it ended, once everything before that was sent."""

    @property
    def wants_data(self) -> bool:
        """Whether to read more from the sender."""
        return self._waiting_bytes < WAITING_BYTES_MAX

    def feed(self, data: bytes) -> None:
        """Take in what the sender sent."""
        self._push(self._stream.feed(data))

    def end(self) -> None:
        """Take note that the sender will send no more."""
        self._push([*self._stream.end(), Ending.CLOSE])

    def ready(self, now_ms: float, rate_bytes_per_s: int | None) -> bytes:
        """Return what may be sent now, as far as time and the rate allow; not all must be."""
        while self._events and self.ending is None and now_ms >= self._resume_at_ms:
            match self._events[0]:
                case Pause(delay_ms=delay_ms):
                    self._resume_at_ms = now_ms + delay_ms
                    self._events.popleft()
                case Ending() as ending:
                    self.ending = ending
                    self._events.clear()
                    self._waiting_bytes = 0
                case bytes() as data:
                    return data[: self._allowance(now_ms, rate_bytes_per_s, len(data))]
        return b""

    def sent(self, count: int) -> None:
        """Take note that the first `count` bytes of what was ready have been sent."""
        data = self._events.popleft()
        assert isinstance(data, bytes)
        if count < len(data):
            self._events.appendleft(data[count:])
        self._waiting_bytes -= count
        self._allowed_bytes -= count

    def next_ms(self, now_ms: float, rate_bytes_per_s: int | None) -> float | None:
        """Return when time alone makes more bytes ready, None when it does not."""
        if not self._events or self.ending is not None:
            return None
        if now_ms < self._resume_at_ms:
            return self._resume_at_ms
        if rate_bytes_per_s is not None and self._allowed_bytes < 1:
            return now_ms + (1 - self._allowed_bytes) * 1000 / rate_bytes_per_s
        return None

    def _push(self, events: list[Event]) -> None:
        if self.ending is not None:
            return
        self._events.extend(events)
        self._waiting_bytes += sum(len(event) for event in events if isinstance(event, bytes))

    def _allowance(self, now_ms: float, rate_bytes_per_s: int | None, wanted_bytes: int) -> int:
        """How many of the wanted bytes the rate allows."""
        if rate_bytes_per_s is None:
            self._counted_at_ms = None
            self._allowed_bytes = float(wanted_bytes)
            return wanted_bytes
        if self._counted_at_ms is None:
            self._counted_at_ms, self._allowed_bytes = now_ms, 0.0
        burst_bytes = max(1.0, rate_bytes_per_s * BURST_MS / 1000)
        earned_bytes = (now_ms - self._counted_at_ms) * rate_bytes_per_s / 1000
        self._allowed_bytes = min(burst_bytes, self._allowed_bytes + earned_bytes)
        self._counted_at_ms = now_ms
        return min(wanted_bytes, int(self._allowed_bytes))
