"""FakeKafka: a fake cluster behind loopback sockets, usable from any client in any process.

One thread serves all brokers. A stopped broker refuses connections and keeps its port. The cluster
is only changed inside `control()`. At most `LINK_COUNT_MAX` connections are open at a time;
`connection` and `UNSENT_BYTES_MAX` limit the bytes buffered for each. If the thread fails, all
connections are closed, and `control` and `close` raise the reason.

Owner: its own thread; the cluster belongs to the holder of the lock that `control` takes.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.arguments import check_number, check_text, shown_argument
from pykclient.errors import UsageError
from pykclient.testing.cluster.security import ClientSettings
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.testing.fake.connection import FakeConnection
from pykclient.testing.fake.data_directory import DataDirectory
from pykclient.testing.fake.state import new_cluster_id
from pykclient.testing.fake.storage import StorageError
from pykclient.testing.fake.tls import ListenerCertificates
from pykclient.testing.port import LOOPBACK, Address
from pykclient.testing.serving import Closing, ServingThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel import ConsumerRecord
    from pykclient.testing.cluster.certificates import Certificate, CertificateAuthority
    from pykclient.testing.cluster.security import ClusterSecurity
    from pykclient.testing.fake.groups.group import GroupSettings
    from pykclient.testing.fake.state import Broker
    from pykclient.testing.fake.tls import TlsConnection
    from pykclient.testing.fake.transactions.settings import TransactionSettings
    from pykclient.types import OffsetAndMetadata, TopicPartition

BACKLOG = 128
PORT_MAX = 65_535
LINK_COUNT_MAX = 500
"""Maximum number of connections; more are closed at once, to save file descriptors."""
REST_MS = 100
"""Time for which a port stops accepting when the process has no file descriptors left."""
NO_ROOM_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
UNSENT_BYTES_MAX = 16 * 1024 * 1024
"""Limit of unsent bytes per client; above it, the broker stops reading that client's requests."""

log = logging.getLogger("pykclient.testing")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class FakeKafka(Closing):
    """A fake Kafka cluster that listens on local ports until `close`; a context manager.

    The arguments are those of `FakeCluster`, with real time. Brokers listen on `host`, from `port`
    upwards; port 0 picks free ports. Clients are directed to `advertised_host`; None means `host`.
    `data` is a folder that keeps everything across restarts (`DataDirectory`); with None, data is
    in memory and lost on close.

    With `security`, clients connect to listeners with TLS or SASL; `client_settings` returns the
    settings they need. Each listener has its own ports, in the order of the listeners.
    `certificates` signs the brokers' certificates; None creates a temporary authority.

    Raises:
        UsageError: an argument is invalid, such as an unknown host, or `security` uses a feature
            that fake brokers do not support.
        OSError: a port is in use.
        StorageError: the folder cannot be used.
        MissingPrerequisiteError: a listener uses TLS, and the package trustme is not installed.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        advertised_host: str | None = None,
        data: Path | None = None,
        default_partition_count: int = 1,
        min_insync_replicas: int = 1,
        auto_create_topics: bool = True,
        replication_delay_ms: int = 0,
        racks: tuple[str, ...] = (),
        group_settings: GroupSettings | None = None,
        transaction_settings: TransactionSettings | None = None,
        profile: str = "kafka",
        security: ClusterSecurity | None = None,
        certificates: CertificateAuthority | None = None,
        connections_max_reauth_ms: int = 0,
    ) -> None:
        _check_address(host, port, advertised_host, data)
        now_ms = _now_ms()
        with contextlib.ExitStack() as opened:
            if (directory := None if data is None else DataDirectory(data)) is not None:
                opened.callback(directory.close)
            self._cluster = FakeCluster(  # It checks its arguments.
                brokers,
                default_partition_count=default_partition_count,
                min_insync_replicas=min_insync_replicas,
                auto_create_topics=auto_create_topics,
                replication_delay_ms=replication_delay_ms,
                racks=racks,
                group_settings=group_settings,
                transaction_settings=transaction_settings,
                profile=profile,
                security=security,
                connections_max_reauth_ms=connections_max_reauth_ms,
                storage=directory,
                cluster_id=new_cluster_id(),
                epoch_ms=time.time_ns() // 1_000_000 - now_ms,
                now_ms=now_ms,
            )
            names = [each.name for each in security.client_listeners] if security else [None]
            sockets = [
                opened.enter_context(_bound(host, port + number if port else 0))
                for number in range(brokers * len(names))
            ]
            self._secure(opened, (host, advertised_host or host), certificates)
            if directory is not None:
                directory.restore(self._cluster)
            for each in sockets:
                _listen(each)  # every port listens before any client knows of it
            self._serving = ServingThread(
                "FakeKafka",
                self._turn,
                self._end,
                hint="close it outside of control(), and do not wait in a fault's function",
            )
            opened.pop_all()
        self._selector = self._serving.selector
        self._listeners = [
            _Listener(broker, name, listening, advertised_host or host, self._selector)
            for (name, broker), listening in zip(
                itertools.product(names, self._cluster.brokers.values()), sockets, strict=True
            )
        ]
        self._lock = threading.RLock()
        self._changed: set[_Link] = set()
        self._links: set[_Link] = set()
        self._serving.start("fake-kafka")

    def __repr__(self) -> str:
        state = ": closed" if self._serving.is_closing else ""
        return f"<FakeKafka at {self.bootstrap_servers}{state}>"

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, stopped ones included, on the first listener."""
        return ",".join(map(str, self._addresses(None)))

    @property
    def certificates(self) -> CertificateAuthority:
        """The authority that signed the brokers' certificates; tests can sign others with it.

        Raises:
            UsageError: no listener has TLS.
        """
        if self._tls is None:
            raise UsageError("no listener has TLS; give security with SSL, MTLS or SASL_SSL")
        return self._tls.authority

    def client_settings(
        self,
        listener: str | None = None,
        *,
        mechanism: str | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> dict[str, str]:
        """Return a client's settings for a listener, as `KafkaCluster.client_settings` does.

        Raises:
            UsageError: the cluster has no `security`; the listener, mechanism or user does not
                exist, or does not apply to this listener.
        """
        security = self._cluster.security
        if security is None or self._client_settings is None:
            raise UsageError(
                "this cluster is not secured; create it with FakeKafka(security=ClusterSecurity())"
            )
        found = security.listener(listener)
        return self._client_settings.of(
            found,
            self._addresses(found.name),
            mechanism=mechanism,
            user=user,
            password=password,
        )

    def replace_certificate(self, listener: str, certificate: Certificate) -> None:
        """Replace the certificate that all brokers present to new clients of a listener.

        Raises:
            UsageError: the listener does not exist, or has no TLS.
        """
        security = self._cluster.security
        if security is None or self._tls is None:
            raise UsageError("no listener has TLS; give security with SSL, MTLS or SASL_SSL")
        with self._lock:
            self._tls.replace(security.listener(listener), certificate)

    @contextlib.contextmanager
    def control(self) -> Iterator[FakeCluster]:
        """Give exclusive access to the cluster, to inspect and change it.

        Brokers that were started or stopped begin to listen or to refuse when the block ends.

        Raises:
            ClosedError: the cluster was closed.
            KafkaError: its thread has failed; the cause is attached.
        """
        self._serving.check_open()
        with self._lock:
            self._serving.check_open()  # it may have closed while we waited for the lock
            try:
                self._cluster.advance(_now_ms())
                yield self._cluster
            finally:
                self._follow_brokers()
                self._serving.wake()

    def records(
        self, topic: str, *, isolation_level: str = "read_uncommitted"
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records of a topic that a consumer can read, partition by partition.

        `isolation_level` is that of a consumer: "read_committed" leaves out open and aborted
        transactions. Records that a producer has not sent yet are missing: wait for its deliveries.

        Raises:
            UsageError: the topic or the level does not exist.
            ClosedError, KafkaError: as for `control`.
        """
        with self.control() as cluster:
            return cluster.records(topic, isolation_level=isolation_level)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed; empty if the group does not exist.

        Raises:
            ClosedError, KafkaError: as for `control`.
        """
        with self.control() as cluster:
            return cluster.committed(group)

    def close(self) -> None:
        """Close all connections and listeners, and stop the thread. Idempotent.

        Raises:
            KafkaTimeoutError: the thread is still inside the function of a fault.
            KafkaError: the thread has failed; the cause is attached.
        """
        try:
            self._serving.close()
        except BaseException:
            with contextlib.suppress(StorageError):  # keep the first error
                self._cluster.storage.close()
            raise
        finally:
            if self._tls is not None:
                self._tls.close()
        self._cluster.storage.close()

    def wait(self) -> None:
        """Wait until the cluster is closed. Raises `KafkaError` if its thread has failed."""
        self._serving.wait()

    def _secure(
        self,
        opened: contextlib.ExitStack,
        hosts: tuple[str, str],
        authority: CertificateAuthority | None,
    ) -> None:
        """Create certificates for the listeners with TLS, and the settings of their clients."""
        self._tls: ListenerCertificates | None = None
        self._client_settings: ClientSettings | None = None
        security = self._cluster.security
        if security is None:
            return
        with_tls = [listener for listener in security.client_listeners if listener.has_tls]
        if with_tls:
            self._tls = ListenerCertificates(with_tls, hosts, authority)
            opened.callback(self._tls.close)
            authority = self._tls.authority
        self._client_settings = ClientSettings(security, authority)

    def _addresses(self, listener: str | None) -> list[Address]:
        found = []
        for broker in self._cluster.brokers.values():
            host, port = broker.address(listener)
            # Brackets separate the colons of an IPv6 address from the port.
            found.append(Address(f"[{host}]" if ":" in host else host, port))
        return found

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
            for listener in self._listeners:
                listener.close(self._selector)

    def _prepare(self) -> float | None:
        """Run due timers, send output, and return the next timeout in s, None for no limit."""
        now_ms = _now_ms()
        self._cluster.advance(now_ms)
        self._follow_brokers()
        while self._changed:
            self._flush(self._changed.pop())
        dues_ms = [self._cluster.next_deadline_ms()]
        dues_ms += [listener.resting_until_ms for listener in self._listeners]
        deadline_ms = min((due for due in dues_ms if due is not None), default=None)
        return None if deadline_ms is None else max(0, deadline_ms - now_ms) / 1000

    def _follow_brokers(self) -> None:
        """Listen on the ports of running brokers and refuse on the others. Requires the lock."""
        for listener in self._listeners:
            listener.follow(self._selector, _now_ms())

    def _accept(self, listener: _Listener) -> None:
        found = listener.accept(self._selector, _now_ms())
        if found is None:
            return
        accepted, client_host = found
        is_stopped = not listener.broker.is_alive
        if is_stopped or len(self._links) >= LINK_COUNT_MAX:
            accepted.close()  # the broker stopped after the client connected, or is full
            return
        link = _Link(accepted)
        connection = FakeConnection(
            self._cluster,
            listener.broker.id,
            client_host=client_host,
            listener=listener.name,
            on_change=lambda: self._changed.add(link),
        )
        link.connection = connection
        if self._tls is not None and listener.name is not None:
            link.connection = self._tls.secured(listener.name, connection)
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
        except StorageError:
            raise  # ends the thread; `wait` and `close` raise it
        except Exception:
            # Log it and serve the other clients, as a real broker does.
            log.exception("the fake broker failed to serve a request")
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
    """A broker's port: it listens while the broker runs, and stays reserved while it does not.

    When the process has no descriptors left, the port *rests*: connections wait in its backlog.
    Otherwise the selector would report them again and again to a thread that cannot accept any.
    """

    def __init__(
        self,
        broker: Broker,
        name: str | None,
        listening: socket.socket,
        advertised_host: str,
        selector: selectors.BaseSelector,
    ) -> None:
        self.broker = broker
        self.name = name
        self.resting_until_ms: int | None = None
        """End of the rest; None if the port accepts connections or does not listen."""
        self._has_complained = False
        self._is_listening = True
        self._socket = listening
        self._address = Address(*listening.getsockname()[:2])
        selector.register(listening, selectors.EVENT_READ, self)
        advertised = Address(advertised_host, self._address.port)
        if not broker.listeners:
            broker.host, broker.port = advertised
        broker.listeners[name or ""] = advertised

    def follow(self, selector: selectors.BaseSelector, now_ms: int) -> None:
        """Listen if the broker runs, refuse if it does not, and end a rest that is over."""
        broker = self.broker
        if broker.is_alive and not self._is_listening:
            _listen(self._socket)
            selector.register(self._socket, selectors.EVENT_READ, self)
            self._is_listening = True
        elif not broker.is_alive and self._is_listening:
            self.close(selector)
            self._socket = _bound(*self._address)
        elif self.resting_until_ms is not None and self.resting_until_ms <= now_ms:
            selector.register(self._socket, selectors.EVENT_READ, self)
            self.resting_until_ms = None

    def accept(
        self, selector: selectors.BaseSelector, now_ms: int
    ) -> tuple[socket.socket, str] | None:
        """Accept a connection; None if the client has left already, or the port must rest.

        Returns the socket and the client's host.
        """
        try:
            accepted, address = self._socket.accept()
        except OSError as error:
            if error.errno in NO_ROOM_ERRNOS:
                self._rest(selector, now_ms + REST_MS, error)
            return None
        self._has_complained = False
        accepted.setblocking(False)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # macOS sets no option on a connection that was reset
            accepted.close()
            return None
        return accepted, address[0]

    def _rest(self, selector: selectors.BaseSelector, until_ms: int, error: OSError) -> None:
        selector.unregister(self._socket)
        self.resting_until_ms = until_ms
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "%s: new connections must wait: %s; close open files or connections, or raise "
                "the limit of open files (ulimit -n)",
                self._address,
                error.strerror,
            )

    def close(self, selector: selectors.BaseSelector) -> None:
        if self._is_listening:
            if self.resting_until_ms is None:
                selector.unregister(self._socket)
            self.resting_until_ms = None
            self._is_listening = False
        self._socket.close()


class _Link:
    """A socket and the connection behind it."""

    connection: FakeConnection | TlsConnection

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.unsent: deque[memoryview] = deque()
        self.unsent_bytes = 0
        self._events = selectors.EVENT_READ

    def queue(self, output: list[bytes | bytearray]) -> None:
        self.unsent.extend(map(memoryview, output))
        self.unsent_bytes += sum(map(len, output))

    def send(self) -> None:
        """Send as much as the operating system accepts. Raises OSError."""
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
        """Discard the unsent output."""
        self.unsent.clear()
        self.unsent_bytes = 0

    def watch(self, selector: selectors.BaseSelector, events: int) -> None:
        """Watch for these events from now on; 0 for none."""
        if events == self._events:
            return
        if not self._events:
            selector.register(self.socket, events, self)
        elif not events:
            selector.unregister(self.socket)
        else:
            selector.modify(self.socket, events, self)
        self._events = events


def _check_address(host: object, port: object, advertised_host: object, data: object) -> None:
    _check_host(host, "host")
    check_number(port, "FakeKafka: port", 0, PORT_MAX)
    if advertised_host is not None:
        _check_host(advertised_host, "advertised_host")
    if data is not None and not isinstance(data, Path):
        raise UsageError(f"FakeKafka: data is {shown_argument(data)}; give a pathlib.Path")


def _check_host(host: object, name: str) -> None:
    if not isinstance(host, str):
        raise UsageError(f"FakeKafka: {name} is {shown_argument(host)}; give a string")
    check_text(host, name, "FakeKafka")


def _bound(host: str, port: int) -> socket.socket:
    """Bind a socket to the port without listening, so that connections are refused.

    Raises:
        UsageError: the host is unknown.
        OSError: the port is in use or not permitted.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(f"unknown host {host}: {error.strerror}") from error
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        with _port_named(Address(host, port)):
            bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _listen(bound: socket.socket) -> None:
    """Start to listen. Raises OSError if another process with the same port listens already."""
    with _port_named(Address(*bound.getsockname()[:2])):
        bound.listen(BACKLOG)
    bound.setblocking(False)


@contextlib.contextmanager
def _port_named(address: Address) -> Iterator[None]:
    """Add the address to errors of the operating system."""
    try:
        yield
    except OSError as error:
        reason = f"cannot listen on {address}: {error.strerror}; choose another port"
        raise OSError(reason) from error
