"""A proxied connection: the client's socket, the broker's, and a channel in each direction.

It is *open*, a *blackhole* (received bytes are discarded and nothing is sent) or *closed*. When one
side ends, what it sent is still delivered; then both sides are closed.

A channel buffers little: above its limit it stops reading, so that the sender sees a full network.
Its source may have ended, and it may have reached an `Ending`; earlier bytes are still delivered.

A broker responds to the requests of a connection in order; a produce request with acks=0 has no
response. A response therefore belongs to the oldest request with its correlation id, and older
requests never get one.

Owner: the proxy's thread.
Source: the Kafka protocol guide, section "Request and Response Headers".
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.testing.proxy.faults import Direction
from pykclient.testing.proxy.frames import SIZE, Ending, FrameStream, Pause
from pykclient.testing.proxy.plan import FrameHead

if TYPE_CHECKING:
    from pykclient.testing.proxy.frames import Event
    from pykclient.testing.proxy.plan import FaultPlan, Strike

READ_BYTES: Final = 64 * 1024
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


WAITING_BYTES_MAX: Final = 256 * 1024
"""Limit of buffered bytes, above which reading stops; a read and a doubled frame may exceed it."""

BURST_MS: Final = 20
"""Maximum time for which unused rate accumulates."""
IN_FLIGHT_COUNT_MAX: Final = 10_000
"""Limit of requests without a response; above it, the oldest are forgotten."""

REQUEST_HEAD: Final = struct.Struct(">ihhi")
RESPONSE_HEAD: Final = struct.Struct(">ii")


class _Way(NamedTuple):
    source: socket.socket
    sink: socket.socket
    channel: ProxyChannel


class ProxyLink:
    """A connection between two non-blocking sockets, which it owns from now on."""

    def __init__(
        self,
        client: socket.socket,
        broker: socket.socket,
        plan: FaultPlan,
        dies_at_ms: float | None,
    ) -> None:
        exchange = ProxiedExchange(plan)
        self.sockets: Final = (client, broker)
        self.dies_at_ms: Final = dies_at_ms
        self.is_closed = False
        self._is_blackhole = False
        self._ways = (
            _Way(client, broker, ProxyChannel(exchange.requests)),
            _Way(broker, client, ProxyChannel(exchange.responses)),
        )
        self._ended: set[socket.socket] = set()
        """Sockets that have reached their end."""

    def read(self, source: socket.socket) -> None:
        """Read from one of the sockets."""
        way = self._ways[self.sockets.index(source)]
        try:
            data = source.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # It is gone with all undelivered bytes; the other side must see an error, too.
            self.reset()
            return
        if data and not self._is_blackhole:
            way.channel.feed(data)
        elif not data and self._is_blackhole:
            self.close()
        elif not data:
            self._ended.add(source)
            way.channel.end()

    def write(self, now_ms: float, rate_bytes_per_s: int | None) -> None:
        """Send in both directions until a socket is full or nothing is left."""
        for way in self._ways:
            while not (self.is_closed or self._is_blackhole):
                data = way.channel.ready(now_ms, rate_bytes_per_s)
                self._heed(way.channel.ending)
                if not data:
                    break
                try:
                    count = way.sink.send(data)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError:
                    self.reset()
                    break
                way.channel.sent(count)

    def interests(self, now_ms: float, rate_bytes_per_s: int | None) -> dict[socket.socket, int]:
        """Return the events to wait for on each socket, as in `selectors`; 0 for none."""
        wanted = dict.fromkeys(self.sockets, 0)
        for way in self._ways:
            if way.source not in self._ended and (self._is_blackhole or way.channel.wants_data):
                wanted[way.source] |= EVENT_READ
            if not self._is_blackhole and way.channel.ready(now_ms, rate_bytes_per_s):
                wanted[way.sink] |= EVENT_WRITE
        return wanted

    def next_ms(self, now_ms: float, rate_bytes_per_s: int | None) -> float | None:
        """Return when to serve it again even without events, None for never."""
        times_ms = [way.channel.next_ms(now_ms, rate_bytes_per_s) for way in self._ways]
        if self._is_blackhole:
            times_ms = []
        known = [at_ms for at_ms in (*times_ms, self.dies_at_ms) if at_ms is not None]
        return min(known, default=None)

    def close(self) -> None:
        """Close both sockets; sent bytes still arrive."""
        self.is_closed = True
        for each in self.sockets:
            each.close()

    def reset(self) -> None:
        """Close both sockets with an error for both sides."""
        self.is_closed = True
        for each in self.sockets:
            reset(each)

    def _heed(self, ending: Ending | None) -> None:
        if ending is Ending.CLOSE:
            self.close()
        elif ending is Ending.BLACKHOLE:
            self._is_blackhole = True
            if self._ended:  # no side is left that would notice
                self.close()


def reset(connection: socket.socket) -> None:
    """Close a connection with a TCP reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    connection.close()


class ProxyChannel:
    """The bytes of one direction, from `feed` to `ready`; `stream` applies the faults."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._events: deque[Event] = deque()
        self._waiting_bytes = 0
        self._resume_at_ms = 0.0
        self._allowed_bytes = 0.0
        self._counted_at_ms: float | None = None
        self.ending: Ending | None = None
        """The channel's ending, set when everything before it is sent."""

    @property
    def wants_data(self) -> bool:
        """True if it should read more from the sender."""
        return self._waiting_bytes < WAITING_BYTES_MAX

    def feed(self, data: bytes) -> None:
        """Add bytes from the sender."""
        self._push(self._stream.feed(data))

    def end(self) -> None:
        """Record that the sender has ended."""
        self._push([*self._stream.end(), Ending.CLOSE])

    def ready(self, now_ms: float, rate_bytes_per_s: int | None) -> bytes:
        """Return bytes that may be sent now, as far as pauses and the rate allow."""
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
        """Remove the first `count` ready bytes, which were sent."""
        data = self._events.popleft()
        assert isinstance(data, bytes)
        if count < len(data):
            self._events.appendleft(data[count:])
        self._waiting_bytes -= count
        self._allowed_bytes -= count

    def next_ms(self, now_ms: float, rate_bytes_per_s: int | None) -> float | None:
        """Return when time alone makes more bytes ready, None for never."""
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
        """Return how many of the wanted bytes the rate allows."""
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


class ProxiedExchange:
    """The frame streams of a connection: `requests` of the client, `responses` of the broker."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._in_flight: deque[tuple[int, int]] = deque(maxlen=IN_FLIGHT_COUNT_MAX)
        """Correlation ids and APIs of requests without a response."""
        self.requests: Final = FrameStream(Direction.REQUEST, self._on_request)
        self.responses: Final = FrameStream(Direction.RESPONSE, self._on_response)

    def _on_request(self, head: bytes) -> Strike | None:
        size_bytes, api, _, correlation_id = REQUEST_HEAD.unpack(head)
        self._in_flight.append((correlation_id, api))
        return self._plan.strike_frame(FrameHead(Direction.REQUEST, api, SIZE.size + size_bytes))

    def _on_response(self, head: bytes) -> Strike | None:
        size_bytes, correlation_id = RESPONSE_HEAD.unpack(head)
        api = self._take_api(correlation_id)
        return self._plan.strike_frame(FrameHead(Direction.RESPONSE, api, SIZE.size + size_bytes))

    def _take_api(self, correlation_id: int) -> int | None:
        """Return the API of the request with this id, and forget older ones; None if unknown."""
        for index, (known_id, api) in enumerate(self._in_flight):
            if known_id == correlation_id:
                for _ in range(index + 1):
                    self._in_flight.popleft()
                return api
        return None
