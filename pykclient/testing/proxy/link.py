"""One proxied connection: the client's socket, the broker's, and a channel each way between them.

It is *open*, a *blackhole* (what is read is thrown away, and nothing is sent) or *closed*. When one
side ends, what it sent is still delivered, and then both sides are closed.

Owner: the proxy's thread.
"""

from __future__ import annotations

import socket
import struct
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.testing.proxy.channel import ProxyChannel
from pykclient.testing.proxy.exchange import ProxiedExchange
from pykclient.testing.proxy.frames import Ending

if TYPE_CHECKING:
    from pykclient.testing.proxy.plan import FaultPlan

__all__ = ["READ_BYTES", "ProxyLink", "reset"]

READ_BYTES: Final = 64 * 1024
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class _Way(NamedTuple):
    source: socket.socket
    sink: socket.socket
    channel: ProxyChannel


class ProxyLink:
    """A connection between `client` and `broker`, both non-blocking; it owns them from now on."""

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
            _Way(broker, client, ProxyChannel(exchange.answers)),
        )
        self._ended: set[socket.socket] = set()
        """Sockets from which nothing more will come."""

    def read(self, source: socket.socket) -> None:
        """Take in what came from one of the sockets."""
        way = self._ways[self.sockets.index(source)]
        try:
            data = source.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # It is gone, and with it what was under way to it; the other side sees the same.
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
        """Send what may be sent, both ways, until a socket is full or there is no more."""
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
        """Return for each socket what to wait for, as the events of `selectors`; 0 = nothing."""
        wanted = dict.fromkeys(self.sockets, 0)
        for way in self._ways:
            if way.source not in self._ended and (self._is_blackhole or way.channel.wants_data):
                wanted[way.source] |= EVENT_READ
            if not self._is_blackhole and way.channel.ready(now_ms, rate_bytes_per_s):
                wanted[way.sink] |= EVENT_WRITE
        return wanted

    def next_ms(self, now_ms: float, rate_bytes_per_s: int | None) -> float | None:
        """Return when to look at it again even if nothing comes, None = never."""
        times_ms = [way.channel.next_ms(now_ms, rate_bytes_per_s) for way in self._ways]
        if self._is_blackhole:
            times_ms = []
        known = [at_ms for at_ms in (*times_ms, self.dies_at_ms) if at_ms is not None]
        return min(known, default=None)

    def close(self) -> None:
        """Close both sockets; what was sent still arrives."""
        self.is_closed = True
        for each in self.sockets:
            each.close()

    def reset(self) -> None:
        """Close both sockets so that both sides are told of an error."""
        self.is_closed = True
        for each in self.sockets:
            reset(each)

    def _heed(self, ending: Ending | None) -> None:
        if ending is Ending.CLOSE:
            self.close()
        elif ending is Ending.BLACKHOLE:
            self._is_blackhole = True
            if self._ended:  # Nobody is left who would notice.
                self.close()


def reset(connection: socket.socket) -> None:
    """Close a connection with a reset instead of an orderly end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    connection.close()
