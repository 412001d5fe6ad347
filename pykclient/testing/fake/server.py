"""FakeKafka: a fake cluster behind loopback sockets, so that any client of any process can use it.

One thread serves all brokers. A broker that is stopped refuses connections and keeps its port. The
cluster is changed inside `control()` alone. There are at most `LINK_COUNT_MAX` connections, and per
connection only so much is read ahead and held back as `connection` and `UNSENT_BYTES_MAX` allow. If
the thread fails, all connections are closed, and `control` and `close` say why.

Owner: its own thread; the cluster belongs to whoever holds the lock, which `control` takes.
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
"""Further connections are closed at once: descriptors are those of the test's whole process."""
REST_MS = 100
"""How long a port takes no connections where the process has no descriptors left for them."""
NO_ROOM_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
UNSENT_BYTES_MAX = 16 * 1024 * 1024
"""While so much waits for a client that does not read, nothing more is read from it."""

log = logging.getLogger("pykclient.testing")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class FakeKafka(Closing):
    """Serves a cluster until `close`; a context manager.

    The arguments are those of `FakeCluster`, whose time is the real one here. The brokers listen at
    `host`, from `port` on, 0 for any that are free; clients are sent to `advertised_host`, None for
    `host`. `data` is a folder in which everything is kept (`DataDirectory`); with None it is in
    memory, and gone with this.

    With `security` clients connect to listeners with TLS or SASL, and `client_settings` is what
    they set; each listener has ports of its own, in the order of the listeners. The certificates
    are those of `certificates`, None for an authority that is made here and gone with this.

    Raises:
        UsageError: an argument has a value that it cannot have, such as a host that is not known;
            the `security` has what fake brokers have not.
        OSError: a port is in use.
        StorageError: the folder cannot be used.
        MissingPrerequisiteError: a listener has TLS, and there is no package trustme.
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
                _listen(each)  # every port listens before any client has it
            self._serving = ServingThread(
                "FakeKafka",
                self._turn,
                self._end,
                hint="close it outside of control(), and let no function of a fault wait",
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
        """What clients are to be given: all brokers, stopped ones too; of the first listener."""
        return ",".join(map(str, self._addresses(None)))

    @property
    def certificates(self) -> CertificateAuthority:
        """The authority that signed the brokers' certificates; it signs others for tests.

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
        """What a client sets to connect to a listener: as `KafkaCluster.client_settings`.

        Raises:
            UsageError: there is no `security`; no such listener, mechanism or user, or the listener
                does without.
        """
        security = self._cluster.security
        if security is None or self._client_settings is None:
            raise UsageError(
                "these brokers are not secured; make them with FakeKafka(security="
                "ClusterSecurity())"
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
        """Have all brokers present another certificate on a listener, to further clients.

        Raises:
            UsageError: there is no such listener, or it has no TLS.
        """
        security = self._cluster.security
        if security is None or self._tls is None:
            raise UsageError("no listener has TLS; give security with SSL, MTLS or SASL_SSL")
        with self._lock:
            self._tls.replace(security.listener(listener), certificate)

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

    def records(
        self, topic: str, *, isolation_level: str = "read_uncommitted"
    ) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records of a topic that a consumer can read, partition by partition.

        `isolation_level` is a consumer's: "read_committed" leaves out transactions that are open or
        were aborted. Records that a producer has not sent yet are missing: wait for its deliveries.

        Raises:
            UsageError: there is no such topic, or no such level.
            ClosedError, KafkaError: as `control` does.
        """
        with self.control() as cluster:
            return cluster.records(topic, isolation_level=isolation_level)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has committed; none for a group that is not there.

        Raises:
            ClosedError, KafkaError: as `control` does.
        """
        with self.control() as cluster:
            return cluster.committed(group)

    def close(self) -> None:
        """Close all connections and listeners, and end the thread. May be called again.

        Raises:
            KafkaTimeoutError: the thread is still in a function that a test gave to a fault.
            KafkaError: the thread has failed, which is the cause.
        """
        try:
            self._serving.close()
        except BaseException:
            with contextlib.suppress(StorageError):  # the first error is the one to be raised
                self._cluster.storage.close()
            raise
        finally:
            if self._tls is not None:
                self._tls.close()
        self._cluster.storage.close()

    def wait(self) -> None:
        """Wait until it was closed. Raises `KafkaError` when its thread has failed."""
        self._serving.wait()

    def _secure(
        self,
        opened: contextlib.ExitStack,
        hosts: tuple[str, str],
        authority: CertificateAuthority | None,
    ) -> None:
        """Make what the listeners with TLS present, and what their clients set."""
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
            # Brackets keep the colons of an IPv6 address from the one before the port.
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
        """Do what is due, send what there is; how long to wait then, None without limit."""
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
        """Have the ports of brokers that run listen, and the others refuse. Requires the lock."""
        for listener in self._listeners:
            listener.follow(self._selector, _now_ms())

    def _accept(self, listener: _Listener) -> None:
        found = listener.accept(self._selector, _now_ms())
        if found is None:
            return
        accepted, client_host = found
        is_stopped = not listener.broker.is_alive
        if is_stopped or len(self._links) >= LINK_COUNT_MAX:
            accepted.close()  # it was stopped after this connection had come, or is full
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
            raise  # the thread ends, and `wait` and `close` raise it
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
    """A broker's port: listening while the broker runs, and kept while it does not.

    Where the process has no descriptors left, the port *rests*: connections wait in its backlog,
    instead of being reported again and again to a thread that can take none.
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
        """None: it takes connections, or does not listen."""
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
        """Listen if the broker runs, refuse if it does not; end a rest that is over."""
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
        """A new connection and its client's host, None if it has gone already, or has to wait."""
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
        except OSError:  # macOS takes no option for a connection that was reset
            accepted.close()
            return None
        return accepted, address[0]

    def _rest(self, selector: selectors.BaseSelector, until_ms: int, error: OSError) -> None:
        selector.unregister(self._socket)
        self.resting_until_ms = until_ms
        if not self._has_complained:
            self._has_complained = True
            log.warning(
                "%s: connections have to wait: %s; close what is open, or raise the limit of open "
                "files (ulimit -n)",
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
    """A socket that has the port and does not listen: connections to it are refused.

    Raises:
        UsageError: there is no such host.
        OSError: the port is in use, or may not be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(f"the host {host} is not known: {error.strerror}") from error
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
    """Take connections. Raises OSError: another process, which had bound it too, listens."""
    with _port_named(Address(*bound.getsockname()[:2])):
        bound.listen(BACKLOG)
    bound.setblocking(False)


@contextlib.contextmanager
def _port_named(address: Address) -> Iterator[None]:
    """Have errors of the operating system say which port it was about."""
    try:
        yield
    except OSError as error:
        reason = f"{address} cannot be listened at: {error.strerror}; choose another port"
        raise OSError(reason) from error
