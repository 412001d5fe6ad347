"""A single-threaded network between real clients and fake brokers, in simulated time.

Each direction of a connection keeps its order; delays are drawn from the seed. A connection can be
cut at any time, also in the middle of a request or response.

Owner: the simulation.
"""

from __future__ import annotations

import heapq
from collections import deque
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING

from pykclient.errors import ConnectionFailedError, DisconnectedError
from pykclient.testing.fake.connection import FakeConnection
from tests.network.scripted_port import ScriptedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from pykclient.network.io.port import Stream
    from pykclient.testing.clock import ManualClock
    from pykclient.testing.fake.cluster import FakeCluster

DELAYS_MS = (0, 0, 0, 1, 1, 2, 5, 20)
TURN_COUNT_MAX = 1_000
"""Maximum number of a client's turns without the clock moving."""


class SimulatedNetwork:
    """Bytes and events in flight, ordered by time of arrival."""

    def __init__(self, cluster: FakeCluster, clock: ManualClock, random: Random) -> None:
        self.cluster = cluster
        self.clock = clock
        self.random = random
        self.links: list[Link] = []
        self.delivers_late = False
        """True while a broker receives bytes whose client has closed the connection."""
        self.refused: set[int] = set()
        """Running brokers that no connection reaches."""
        self.other: FakeCluster | None = None
        """Another cluster, to which the addresses of the brokers in `redirected` lead."""
        self.redirected: set[int] = set()
        self.before_write: Callable[[Link, bytes], None] | None = None
        """Called before a client's bytes are sent; it may delay the link."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._trace = blake2b()

    def after(self, at_ms: int, event: Callable[[], None]) -> None:
        """Schedule an event."""
        heapq.heappush(self._events, (at_ms, next(self._order), event))

    def next_ms(self) -> int | None:
        """Return when the next event happens, None without events."""
        return self._events[0][0] if self._events else None

    def deliver(self) -> None:
        """Run all events that are due."""
        while self._events and self._events[0][0] <= self.clock.now_ms:
            heapq.heappop(self._events)[2]()

    def note(self, direction: str, data: bytes) -> None:
        """Add bytes that left or reached a client to the trace."""
        self._trace.update(b"%d %s %d " % (self.clock.now_ms, direction.encode(), len(data)))
        self._trace.update(data)

    def trace(self) -> str:
        """Return a digest of all bytes and their times; equal digests mean equal runs."""
        return self._trace.hexdigest()

    def delay_ms(self) -> int:
        """Return the delay of the next bytes."""
        return self.random.choice(DELAYS_MS)


class Link:
    """A connection, with both ends."""

    def __init__(self, network: SimulatedNetwork, port: SimulatedPort, stream: Stream) -> None:
        self.is_closed = False
        self.broker_id: int | None = None
        """Id of the broker it connects to, or None."""
        self._network = network
        self._port = port
        self._stream = stream
        self._server: FakeConnection | None = None
        self._last_ms = {"up": 0, "down": 0}

    def connect(self, broker_id: int | None) -> None:
        """Connect to the broker, or fail if nothing listens there."""
        cluster = self._network.cluster
        if broker_id in self._network.redirected:
            assert self._network.other is not None
            cluster = self._network.other
        self.broker_id = broker_id
        is_refused = broker_id in self._network.refused
        if broker_id is None or is_refused or not cluster.brokers[broker_id].is_alive:
            self._later("down", lambda: self._end(ConnectionFailedError("refused")))
            return
        self._server = FakeConnection(cluster, broker_id, on_change=self._on_server_change)
        self._later("down", lambda: self._port.notify(self, self._stream.on_opened))

    def write(self, data: bytes) -> None:
        """Send bytes from the client, in one or two pieces."""
        self._network.note("up", data)
        if self._network.before_write is not None:
            self._network.before_write(self, data)
        split = self._network.random.randrange(len(data) + 1)
        for piece in (data[:split], data[split:]):
            if piece:
                self._later("up", lambda piece=piece: self._receive(piece))  # type: ignore[misc]

    def close(self) -> None:
        """Close the client's end."""
        self.is_closed = True
        if self._server is not None:
            self._later("up", self._server.close)

    def hold(self, direction: str, until_ms: int) -> None:
        """Delay bytes sent from now on, "up" or "down", at least until a time."""
        self._last_ms[direction] = max(until_ms, self._last_ms[direction])

    def cut(self) -> None:
        """Break the connection: both ends are notified, and bytes in flight are lost."""
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
        self._end(DisconnectedError("cut"))

    def _receive(self, data: bytes) -> None:
        server = self._server
        self._network.delivers_late = self.is_closed
        try:
            while data and server is not None and not server.is_closed:
                buffer = server.get_buffer()
                size = min(len(buffer), len(data))
                buffer[:size] = data[:size]
                data = data[size:]
                server.buffer_updated(size, self._network.clock.now_ms)
        finally:
            self._network.delivers_late = False

    def _on_server_change(self) -> None:
        server = self._server
        if server is None:
            return
        output = b"".join(server.take_output())
        if output:
            self._later("down", lambda: self._port.notify(self, lambda: self._feed(output)))
        if server.is_closed:
            self._later("down", lambda: self._end(DisconnectedError("closed by the broker")))

    def _feed(self, data: bytes) -> None:
        self._network.note("down", data)
        while data and not self.is_closed:
            buffer = self._stream.get_buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self._stream.buffer_updated(size)

    def _end(self, error: ConnectionFailedError) -> None:
        def end() -> None:
            self.is_closed = True
            self._stream.on_closed(error)

        self._port.notify(self, end)

    def _later(self, direction: str, event: Callable[[], None]) -> None:
        """Schedule an event after a delay, but not before earlier ones of the same direction."""
        at_ms = self._network.clock.now_ms + self._network.delay_ms()
        at_ms = self._last_ms[direction] = max(at_ms, self._last_ms[direction])
        self._network.after(at_ms, event)


class SimulatedPort:
    """The `Port` of a client; `wait` does not wait, but passes on what has arrived."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self.calls = ScriptedCalls()
        self.call = self.calls.call
        self.forget = self.calls.forget
        self._links: dict[Stream, Link] = {}
        self._arrived: deque[tuple[Link, Callable[[], None]]] = deque()

    def notify(self, link: Link, event: Callable[[], None]) -> None:
        """Keep an event for the client's next `wait`."""
        self._arrived.append((link, event))

    @property
    def has_news(self) -> bool:
        """True if `wait` has something to deliver."""
        return bool(self._arrived or self.calls.under_way)

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        """Connect to the broker with this port."""
        del host, attempt
        link = self._links[stream] = Link(self._network, self, stream)
        self._network.links.append(link)
        brokers = self._network.cluster.brokers.values()
        link.connect(next((broker.id for broker in brokers if broker.port == port), None))

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send bytes."""
        self._links[stream].write(b"".join(data))

    def unsent_bytes(self, stream: Stream) -> int:
        """Return 0: this network accepts everything."""
        del stream
        return 0

    def close(self, stream: Stream) -> None:
        """Close a stream."""
        self._links[stream].close()

    def wait(self, timeout_ms: int) -> None:
        """Deliver what has arrived."""
        del timeout_ms
        self.calls.deliver()
        for _ in range(len(self._arrived)):
            link, event = self._arrived.popleft()
            if not link.is_closed:
                event()

    def wakeup(self) -> None:
        """Do nothing: no thread sleeps here."""

    def restart(self) -> None:
        """Close every stream, without a callback."""
        self.shutdown()
        self._links.clear()
        self._arrived.clear()

    def shutdown(self) -> None:
        """Close every stream."""
        for link in self._links.values():
            if not link.is_closed:
                link.close()


class WaitingPort(SimulatedPort):
    """The `Port` of a client in a thread of its own, which `wait` pauses until there is news.

    `pause()` gives control to the simulation; `wakes_ms` and `ends_with_news` say when it ends.
    """

    def __init__(self, network: SimulatedNetwork, pause: Callable[[], None]) -> None:
        super().__init__(network)
        self.wakes_ms = 0
        self._pause = pause
        self._ends_with_news = True
        self._turn_count = self._turned_ms = 0

    @property
    def due_ms(self) -> int:
        """Time at which the thread should continue, possibly in the past."""
        return 0 if self._ends_with_news and self.has_news else self.wakes_ms

    def wait(self, timeout_ms: int) -> None:
        """Deliver what has arrived, or what arrives first within the timeout."""
        if timeout_ms > 0 and not self.has_news:
            self.sleep_until(self._network.clock.now_ms + timeout_ms, ends_with_news=True)
        if self._turned_ms != self._network.clock.now_ms:
            self._turned_ms, self._turn_count = self._network.clock.now_ms, 0
        self._turn_count += 1
        assert self._turn_count < TURN_COUNT_MAX, "a client is busy without an end"
        super().wait(0)

    def sleep_until(self, at_ms: int, *, ends_with_news: bool = False) -> None:
        """Sleep until a time, or with `ends_with_news` until something arrives."""
        self.wakes_ms, self._ends_with_news = at_ms, ends_with_news
        self._turn_count = 0
        self._pause()
