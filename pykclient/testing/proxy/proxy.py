"""A TCP proxy between Kafka clients and a broker, which breaks connections on command.

It parses Kafka's frames, and can therefore do what no other network fault does: lose an
acknowledgement after the broker has written, cut a response in the middle, forge a size. Otherwise
it changes nothing: the broker must advertise the proxy's address, on a listener that only clients
use (``KafkaCluster(proxied=True)`` does that).

It listens when the constructor returns, on a thread of its own, until `close`. Memory is bounded: a
connection holds a few hundred KiB, and there are at most `LINK_COUNT_MAX`.

Owner: any thread may use it. Its own thread owns the sockets and takes orders from a deque.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from pykclient.errors.base import ConfigError
from pykclient.testing.port import LOOPBACK, Address, PortReservation
from pykclient.testing.proxy.link import ProxyLink, reset
from pykclient.testing.proxy.plan import FaultPlan
from pykclient.testing.serving import Closing, ServingThread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.testing.proxy.faults import Fault

LINK_COUNT_MAX: Final = 200
"""Maximum number of connections; further ones are reset and counted as ``Crowded``."""

BACKLOG: Final = 128


class FaultProxy(Closing):
    """A proxy that connects clients to the broker at `upstream`; a context manager.

    `seed` is that of its random choices. Its actions are counted by name: the faults' names,
    ``Lifetime`` (connections that reached their age limit) and ``Crowded``.
    """

    def __init__(self, upstream: tuple[str, int], *, seed: int = 0) -> None:
        self._upstream = self._own_upstream = upstream
        self._plan = FaultPlan(seed)
        self._reservation = PortReservation()
        self._orders: deque[Callable[[], None]] = deque()
        self._links: dict[socket.socket, ProxyLink] = {}
        """Links by each of their two sockets."""
        self._rate_bytes_per_s: int | None = None
        self._lifetimes_ms: tuple[int, int] | None = None
        self._connection_count = 0
        self._listener: socket.socket | None = None
        self._serving = ServingThread(
            f"the proxy at {self.address}", self._turn, self._end, hint="a bug in the proxy"
        )
        self._selector = self._serving.selector
        self._listen()
        self._serving.start(f"pykclient-proxy-{self.address.port}")

    @property
    def address(self) -> Address:
        """Address it listens on."""
        return Address(LOOPBACK, self._reservation.port)

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of actions by name; 0 for a name that never occurred."""
        return self._plan.counts

    @property
    def connection_count(self) -> int:
        """Number of connections accepted so far, including those reset at once."""
        return self._connection_count

    def inject(self, *faults: Fault) -> None:
        """Add faults, which apply to frames and connections that begin from now on.

        Raises:
            ClosedError: the proxy was closed.
        """
        self._serving.check_open()
        for fault in faults:
            self._plan.add(fault)

    def limit_rate(self, bytes_per_s: int | None) -> None:
        """Limit each direction of each connection to `bytes_per_s`; None means no limit.

        Raises:
            ConfigError: the rate is not positive.
            ClosedError: the proxy was closed.
        """
        if bytes_per_s is not None and bytes_per_s < 1:
            raise ConfigError(f"bytes_per_s is {bytes_per_s}; give a number from 1 on, or None")

        def limit() -> None:
            self._rate_bytes_per_s = bytes_per_s

        self._order(limit)

    def limit_lifetimes(self, lifetimes_ms: tuple[int, int] | None) -> None:
        """Reset each new connection at a random age between these two; None means never.

        Raises:
            ConfigError: one is negative, or the first is greater than the second.
            ClosedError: the proxy was closed.
        """
        if lifetimes_ms is not None and not 0 <= lifetimes_ms[0] <= lifetimes_ms[1]:
            raise ConfigError(f"lifetimes_ms is {lifetimes_ms}; give the least and the most")

        def limit() -> None:
            self._lifetimes_ms = lifetimes_ms

        self._order(limit)

    def refuse_connections(self) -> None:
        """Reset all connections and stop listening, as if the broker were killed.

        Raises:
            ClosedError: the proxy was closed.
        """

        def refuse() -> None:
            self._stop_listening()
            self._reset_links()

        self._order(refuse)

    def accept_connections(self) -> None:
        """Listen again after `refuse_connections`.

        Raises:
            ClosedError: the proxy was closed.
        """
        self._order(self._listen)

    def redirect(self, upstream: tuple[str, int]) -> None:
        """Reset all connections and connect new ones to another broker, like a wrong route.

        Raises:
            ClosedError: the proxy was closed.
        """

        def reroute() -> None:
            self._upstream = upstream
            self._reset_links()

        self._order(reroute)

    def disconnect_all(self) -> None:
        """Reset all connections; new ones are accepted.

        Raises:
            ClosedError: the proxy was closed.
        """
        self._order(self._reset_links)

    def heal(self) -> None:
        """Remove all faults, limits and redirections, listen, and reset all connections.

        Raises:
            ClosedError: the proxy was closed.
        """
        self._serving.check_open()
        self._plan.replace([])

        def restore() -> None:
            self._rate_bytes_per_s = self._lifetimes_ms = None
            self._upstream = self._own_upstream
            self._listen()
            self._reset_links()

        self._order(restore)

    def close(self) -> None:
        """Reset all connections and end the thread, within 10 s. Idempotent.

        Raises:
            KafkaError: its thread has failed, or does not end.
        """
        try:
            self._serving.close()
        finally:
            self._reservation.close()

    def _order(self, order: Callable[[], None]) -> None:
        """Run `order` on the proxy's thread, and wait until it is done."""
        self._serving.check_open()
        done = threading.Event()

        def do() -> None:
            order()
            done.set()

        self._orders.append(do)
        self._serving.wake()
        while not done.wait(0.1):
            if not self._serving.is_alive:
                self._serving.check_open()

    # On the proxy's thread ------------------------------------------------------------------------

    def _end(self) -> None:
        self._stop_listening()
        self._reset_links()

    def _turn(self) -> None:
        """Serve every link, then wait for a socket or a timeout."""
        while self._orders:
            self._orders.popleft()()
        now_ms = _now_ms()
        next_times_ms = [self._serve(link, now_ms) for link in set(self._links.values())]
        known = [at_ms for at_ms in next_times_ms if at_ms is not None]
        timeout_s = max(0.0, min(known) - now_ms) / 1000 if known else None
        for key, events in self._serving.select(timeout_s):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            if ready is self._listener:
                self._accept(self._listener)
            elif events & selectors.EVENT_READ and ready in self._links:
                self._read(ready)

    def _read(self, source: socket.socket) -> None:
        link = self._links[source]
        link.read(source)
        if link.is_closed:
            # At once, because the next connection may get a socket with the same number.
            self._forget(link)

    def _serve(self, link: ProxyLink, now_ms: float) -> float | None:
        """Send what can be sent; return when to serve the link again, None for never."""
        if link.dies_at_ms is not None and now_ms >= link.dies_at_ms and not link.is_closed:
            self._plan.count("Lifetime")
            link.reset()
        rate = self._rate_bytes_per_s
        if not link.is_closed:
            link.write(now_ms, rate)
        if link.is_closed:
            self._forget(link)
            return None
        for each, events in link.interests(now_ms, rate).items():
            self._watch(each, events)
        return link.next_ms(now_ms, rate)

    def _watch(self, each: socket.socket, events: int) -> None:
        is_watched = each in self._selector.get_map()
        if is_watched and not events:
            self._selector.unregister(each)
        elif is_watched and self._selector.get_key(each).events != events:
            self._selector.modify(each, events)
        elif events and not is_watched:
            self._selector.register(each, events)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except (BlockingIOError, ConnectionError):  # it has gone already
            return
        self._connection_count += 1
        if self._plan.strike_connection():
            reset(client)
            return
        if len(self._links) >= 2 * LINK_COUNT_MAX:
            self._plan.count("Crowded")
            reset(client)
            return
        broker = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for each in (client, broker):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # If nothing listens there, the first read fails and resets the client's connection.
        broker.connect_ex(self._upstream)
        lifetimes_ms = self._lifetimes_ms
        dies_at_ms = None
        if lifetimes_ms is not None:
            dies_at_ms = _now_ms() + self._plan.lifetime_ms(lifetimes_ms)
        link = ProxyLink(client, broker, self._plan, dies_at_ms)
        self._links.update(dict.fromkeys(link.sockets, link))

    def _forget(self, link: ProxyLink) -> None:
        """Drop a closed link; the selector must unregister its sockets by their old numbers."""
        for each in link.sockets:
            with contextlib.suppress(KeyError, ValueError):  # it was not registered
                self._selector.unregister(each)
            del self._links[each]

    def _reset_links(self) -> None:
        for link in set(self._links.values()):
            link.reset()
            self._forget(link)

    def _listen(self) -> None:
        if self._listener is not None:
            return
        self._reservation.make_way()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(self.address)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None


def _now_ms() -> float:
    return time.monotonic() * 1000
