"""FakeKafka: a fake cluster behind loopback sockets, so that any client of any process can use it.

One thread serves all brokers. A broker that is stopped refuses connections and keeps its port. The
cluster is changed inside `control()` alone. There are at most `LINK_COUNT_MAX` connections, and per
connection only so much is read ahead and held back as `connection` and `UNSENT_BYTES_MAX` allow. If
the thread fails, all connections are closed, and `control` and `close` say why.

Owner: its own thread; the cluster belongs to whoever holds the lock, which `control` takes.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.connection import FakeConnection
from pykclient.testing.serving import Closing, ServingThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fake.groups.group import GroupSettings
    from pykclient.testing.fake.state import Broker

HOST = "127.0.0.1"
BACKLOG = 128
LINK_COUNT_MAX = 500
"""Further connections are closed at once: descriptors are those of the test's whole process."""
UNSENT_BYTES_MAX = 16 * 1024 * 1024
"""While so much waits for a client that does not read, nothing more is read from it."""

log = logging.getLogger("pykclient.testing")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class FakeKafka(Closing):
    """Serves a cluster until `close`; a context manager.

    The arguments are those of `FakeCluster`, whose time is the real one here.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        default_partition_count: int = 1,
        min_insync_replicas: int = 1,
        auto_create_topics: bool = True,
        replication_delay_ms: int = 0,
        racks: tuple[str, ...] = (),
        group_settings: GroupSettings | None = None,
    ) -> None:
        now_ms = _now_ms()
        self._cluster = FakeCluster(
            brokers,
            default_partition_count=default_partition_count,
            min_insync_replicas=min_insync_replicas,
            auto_create_topics=auto_create_topics,
            replication_delay_ms=replication_delay_ms,
            racks=racks,
            group_settings=group_settings,
            epoch_ms=time.time_ns() // 1_000_000 - now_ms,
            now_ms=now_ms,
        )
        self._lock = threading.RLock()
        self._serving = ServingThread(
            "FakeKafka",
            self._turn,
            self._end,
            hint="close it outside of control(), and let no function of a fault wait",
        )
        self._selector = self._serving.selector
        self._listeners = {
            broker.id: _Listener(broker) for broker in self._cluster.brokers.values()
        }
        self._changed: set[_Link] = set()
        self._links: set[_Link] = set()
        self._follow_brokers()  # so that every port listens before any client has it
        self._serving.start("fake-kafka")

    def __repr__(self) -> str:
        state = ": closed" if self._serving.is_closing else ""
        return f"<FakeKafka at {self.bootstrap_servers}{state}>"

    @property
    def bootstrap_servers(self) -> str:
        """What clients are to be given: all brokers, stopped ones too."""
        return ",".join(f"{b.host}:{b.port}" for b in self._cluster.brokers.values())

    @contextlib.contextmanager
    def control(self) -> Iterator[FakeCluster]:
        """Look at the cluster and change it, while nothing else happens in it.

        A broker that was started or stopped listens or refuses when the block is left.

        Raises:
            ClosedError: it was closed.
            KafkaError: its thread has failed, which is the cause.
        """
        self._serving.check_open()
        with self._lock:
            self._serving.check_open()  # it may have ended while the lock was waited for
            try:
                self._cluster.advance(_now_ms())
                yield self._cluster
            finally:
                self._follow_brokers()
                self._serving.wake()

    def close(self) -> None:
        """Close all connections and listeners, and end the thread. May be called again.

        Raises:
            KafkaTimeoutError: the thread is still in a function that a test gave to a fault.
            KafkaError: the thread has failed, which is the cause.
        """
        self._serving.close()

    # The thread.

    def _turn(self) -> None:
        with self._lock:
            timeout_s = self._prepare()
        events = self._serving.select(timeout_s)
        with self._lock:
            for key, mask in events:
                if isinstance(key.data, _Listener):
                    self._accept(key.data)
                else:
                    self._on_link(key.data, mask)

    def _end(self) -> None:
        with self._lock:
            for link in list(self._links):
                link.connection.close()
                self._drop(link)
            for listener in self._listeners.values():
                listener.close(self._selector)

    def _prepare(self) -> float | None:
        """Do what is due, send what there is; how long to wait then, None without limit."""
        now_ms = _now_ms()
        self._cluster.advance(now_ms)
        self._follow_brokers()
        while self._changed:
            self._flush(self._changed.pop())
        deadline_ms = self._cluster.next_deadline_ms()
        return None if deadline_ms is None else max(0, deadline_ms - now_ms) / 1000

    def _follow_brokers(self) -> None:
        """Have the ports of brokers that run listen, and the others refuse. Requires the lock."""
        for broker in self._cluster.brokers.values():
            self._listeners[broker.id].follow(broker, self._selector)

    def _accept(self, listener: _Listener) -> None:
        accepted = listener.accept()
        if accepted is None:
            return
        is_stopped = not self._cluster.brokers[listener.broker_id].is_alive
        if is_stopped or len(self._links) >= LINK_COUNT_MAX:
            accepted.close()  # it was stopped after this connection had come, or is full
            return
        link = _Link(accepted)
        link.connection = FakeConnection(
            self._cluster,
            listener.broker_id,
            client_host=HOST,
            on_change=lambda: self._changed.add(link),
        )
        self._links.add(link)
        self._selector.register(link.socket, selectors.EVENT_READ, link)

    def _on_link(self, link: _Link, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ and not link.connection.is_closed:
                count = link.socket.recv_into(link.connection.get_buffer())
                if count:
                    link.connection.buffer_updated(count, _now_ms())
                else:
                    link.connection.close()
        except BlockingIOError:
            pass
        except OSError:
            link.connection.close()
        except Exception:
            # A real broker would log it too, and go on with its other clients.
            log.exception("the fake broker could not serve a request")
            link.connection.close()
        self._changed.add(link)

    def _flush(self, link: _Link) -> None:
        if link not in self._links:
            return
        try:
            link.send()
            if link.unsent_bytes < UNSENT_BYTES_MAX:
                link.queue(link.connection.take_output())
                link.send()
        except OSError:
            link.connection.close()
            link.connection.take_output()
            link.give_up()
        if link.connection.is_closed and not link.unsent and not link.connection.has_output:
            self._drop(link)
            return
        events = selectors.EVENT_WRITE if link.unsent else 0
        if link.connection.wants_input and link.unsent_bytes < UNSENT_BYTES_MAX:
            events |= selectors.EVENT_READ
        link.watch(self._selector, events)

    def _drop(self, link: _Link) -> None:
        self._links.discard(link)
        link.watch(self._selector, 0)
        link.socket.close()


class _Listener:
    """A broker's port: listening while the broker runs, and kept while it does not."""

    def __init__(self, broker: Broker) -> None:
        self.broker_id = broker.id
        self._is_listening = False
        self._socket = _bound(0)
        broker.host = HOST
        broker.port = self._port = self._socket.getsockname()[1]

    def follow(self, broker: Broker, selector: selectors.BaseSelector) -> None:
        """Listen if the broker runs, refuse if it does not."""
        if broker.is_alive and not self._is_listening:
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
            selector.register(self._socket, selectors.EVENT_READ, self)
            self._is_listening = True
        elif not broker.is_alive and self._is_listening:
            self.close(selector)
            self._socket = _bound(self._port)

    def accept(self) -> socket.socket | None:
        """A new connection, None if it has gone already."""
        try:
            accepted, _ = self._socket.accept()
        except OSError:
            return None
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return accepted

    def close(self, selector: selectors.BaseSelector) -> None:
        if self._is_listening:
            selector.unregister(self._socket)
            self._is_listening = False
        self._socket.close()


class _Link:
    """A socket and the connection behind it."""

    connection: FakeConnection

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.unsent: deque[memoryview] = deque()
        self.unsent_bytes = 0
        self._events = selectors.EVENT_READ

    def queue(self, output: list[bytes | bytearray]) -> None:
        self.unsent.extend(map(memoryview, output))
        self.unsent_bytes += sum(map(len, output))

    def send(self) -> None:
        """Send what the operating system takes. Raises OSError."""
        while self.unsent:
            try:
                count = self.socket.send(self.unsent[0])
            except BlockingIOError:
                return
            self.unsent_bytes -= count
            rest = self.unsent.popleft()[count:]
            if rest:
                self.unsent.appendleft(rest)

    def give_up(self) -> None:
        """Forget what was to be sent."""
        self.unsent.clear()
        self.unsent_bytes = 0

    def watch(self, selector: selectors.BaseSelector, events: int) -> None:
        """Wait for these events from now on; 0 for none."""
        if events == self._events:
            return
        if not self._events:
            selector.register(self.socket, events, self)
        elif not events:
            selector.unregister(self.socket)
        else:
            selector.modify(self.socket, events, self)
        self._events = events


def _bound(port: int) -> socket.socket:
    """A socket that has the port and does not listen: connections to it are refused."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((HOST, port))
    return bound
