"""SelectorPort: I/O over non-blocking sockets, with one selector and a wake-up socket pair.

A channel, one per stream, is *resolving*, then *connecting* (to each of the host's addresses in
turn), then *open*, then closed. Operating-system errors are translated only here.

Owner: the driver of the engine; only `wakeup` may be called from any thread.
Source: Java class ``Selector``; the wake-up pair is the self-pipe trick.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import sys
import warnings
import weakref
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pykclient.accel import receive_into, select_ready, send_parts
from pykclient.accel.pure.sockets import PART_COUNT_MAX, WOULD_BLOCK
from pykclient.errors import (
    ConnectionFailedError,
    DisconnectedError,
    ForkedClientError,
    KafkaError,
)
from pykclient.network.interrupts import harmless, raise_of_signal_handler
from pykclient.network.io.background import BackgroundCalls
from pykclient.network.io.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from pykclient.config.client import ClientConfig
    from pykclient.network.io.port import Stream
    from pykclient.network.io.resolver import Address, Resolution

T = TypeVar("T")

READS_PER_TURN_MAX = 16
"""Maximum reads from one socket before the others get their turn."""

WAIT_MAX_MS = 3_600_000
"""Maximum time of a single wait; the system accepts no time-out above 24 days."""

USE_OS_DEFAULT = -1
"""A buffer size that leaves the choice to the operating system, which adapts it to the
connection."""

_SO_NOSIGPIPE_OF_MACOS: Final = 0x1022
"""Option of a socket whose sends raise no SIGPIPE; `socket` does not name it."""


@dataclass(slots=True, eq=False)
class _Channel:
    """One stream's socket, its unsent bytes, and the addresses left to try."""

    stream: Stream
    name: str
    attempt: int
    on_resolved: Callable[[Resolution], None] = field(init=False)
    sock: socket.socket | None = None
    addresses: deque[Address] = field(default_factory=deque)
    is_open: bool = False
    queue: deque[memoryview] = field(default_factory=deque)
    queued_bytes: int = 0


class SelectorPort:
    def __init__(
        self,
        send_buffer_bytes: int = USE_OS_DEFAULT,
        receive_buffer_bytes: int = USE_OS_DEFAULT,
        *,
        keeps_alive: bool = True,
    ) -> None:
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._keeps_alive = keeps_alive
        self._selector = selectors.DefaultSelector()
        self._channels: dict[Stream, _Channel] = {}
        self._unsent: set[_Channel] = set()
        """Channels whose socket is full."""
        self._sockets: set[socket.socket] = set()
        """The open sockets, kept separately for `warn_if_dropped`."""
        self._failed: deque[tuple[_Channel, KafkaError]] = deque()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._sockets.update((self._wake_receiver, self._wake_sender))
        _without_sigpipe(self._wake_sender)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._is_in_child = False
        self._on_dropped: weakref.finalize[..., object] | None = None
        _ports.add(self)
        self._resolver = Resolver(self.wakeup)
        self._calls = BackgroundCalls(self.wakeup)

    @classmethod
    def from_config(cls, config: ClientConfig) -> Self:
        return cls(
            config.send_buffer_bytes,
            config.receive_buffer_bytes,
            keeps_alive=config.socket_keepalive_enable,
        )

    # The client's side.

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        channel = _Channel(stream, f"{host}:{port}", attempt)
        self._channels[stream] = channel
        channel.on_resolved = partial(self._on_resolved, channel)
        self._resolver.resolve(host, port, channel.on_resolved)

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        channel = self._channels.get(stream)
        if channel is None:
            return  # ended in the last wait, and on_closed was called
        was_empty = not channel.queue
        for part in data:
            view = memoryview(part)
            if view.nbytes:
                channel.queue.append(view)
                channel.queued_bytes += view.nbytes
        if was_empty:
            self._send(channel)

    def unsent_bytes(self, stream: Stream) -> int:
        channel = self._channels.get(stream)
        return 0 if channel is None else channel.queued_bytes

    def close(self, stream: Stream) -> None:
        channel = self._channels.get(stream)
        if channel is not None:
            self._resolver.forget(channel.on_resolved)
            self._drop_socket(channel)
            self._channels.pop(stream, None)

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        self._calls.call(function, on_done, name=name)

    def forget(self, on_done: Callable[[Any], None]) -> None:
        self._calls.forget(on_done)

    def wait(self, timeout_ms: int) -> None:
        """Do I/O until an event or a wake-up comes, or the time is up.

        A partial response is not an event: a large response arrives in a hundred parts, and an
        engine step for each would cost more than decoding it.

        Raises:
            ForkedClientError: this is a child process.
        """
        if self._is_in_child:
            raise ForkedClientError(
                "the process was forked in the middle of this call, perhaps by a callback, and "
                "its connections are the parent's; make a new client after a fork"
            )
        timeout_s = 0.0 if self._failed else min(timeout_ms, WAIT_MAX_MS) / 1000
        deadline_s = monotonic() + timeout_s
        while self._receive_parts(timeout_s):
            timeout_s = deadline_s - monotonic()
            if timeout_s <= 0:
                break
        self._resolver.deliver()
        self._calls.deliver()
        while self._failed:
            channel, error = self._failed.popleft()
            self._end(channel, error)

    def wakeup(self) -> None:
        """Make the current or next `wait` return at once. Safe from any thread."""
        try:
            send_parts(self._wake_sender, (b"\0",))
        except (BlockingIOError, ConnectionError) as error:
            # The pair is full of unread wake-ups: one more adds nothing. Or its other end is closed
            # and this one is about to be: no wait is left.
            raise_of_signal_handler(error)
        except OSError as error:
            # A call may end after the port was shut down or its owner dropped; no wait is left
            # then.
            raise_of_signal_handler(error)
            if self._wake_sender.fileno() >= 0:
                raise

    def restart(self) -> None:
        """Close every stream without a callback, to start over after an interrupt.

        The selector is recreated, since an interrupt may have come between its own table and the
        system's. The wake-up pair stays, since other threads use it.
        """
        self._close_sockets()
        self._failed.clear()
        self._resolver.restart()
        self._calls.restart()
        self._selector.close()
        selector = selectors.DefaultSelector()
        selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._selector = selector

    def shutdown(self) -> None:
        self._close_sockets()
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        if self._on_dropped is not None:
            self._on_dropped.detach()

    def on_fork(self) -> None:
        """Close the child process's copies of all descriptors.

        This does not affect the parent's connections, nor its selector, since nothing is
        unregistered. With copies left, a connection that the parent closes would stay open.
        """
        self._is_in_child = True
        self.shutdown()

    def warn_if_dropped(
        self,
        owner: object,
        message: str,
        close_when_unused: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Close the sockets and warn with `message` if `owner` is collected before `shutdown`.

        The finalizer holds only the sockets, which keep nothing else alive and are out of the
        collector's reach: it would warn about each of them. If given, `close_when_unused` is called
        with the function that closes the sockets, and calls it when no other thread uses the port.
        """
        self._on_dropped = weakref.finalize(
            owner, _abandon, self._sockets, message, close_when_unused or _close_at_once
        )
        self._on_dropped.atexit = False

    def _close_sockets(self) -> None:
        for sock in self._sockets - {self._wake_receiver, self._wake_sender}:
            _close(sock)
            self._sockets.discard(sock)
        self._channels.clear()
        self._unsent.clear()

    # Connecting.

    def _on_resolved(self, channel: _Channel, result: Resolution) -> None:
        if self._channels.get(channel.stream) is not channel:
            return
        if isinstance(result, ConnectionFailedError):
            self._end(channel, result)
            return
        channel.addresses = deque(result)
        channel.addresses.rotate(-channel.attempt)
        self._connect_next(channel, None)

    def _connect_next(self, channel: _Channel, error: OSError | None) -> None:
        while channel.addresses:
            family, address = channel.addresses.popleft()
            try:
                self._begin_connect(channel, family, address)
            except OSError as failure:
                raise_of_signal_handler(failure)
                self._drop_socket(channel)
                error = failure
                continue
            return
        reason = "no address" if error is None else _reason(error)
        failed = ConnectionFailedError(f"cannot connect to {channel.name}: {reason}")
        failed.__cause__ = error
        self._end(channel, failed)

    def _begin_connect(
        self, channel: _Channel, family: socket.AddressFamily, address: tuple[object, ...]
    ) -> None:
        sock = channel.sock = socket.socket(family, socket.SOCK_STREAM)
        self._sockets.add(sock)
        sock.setblocking(False)
        _without_sigpipe(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, self._keeps_alive)
        if self._send_buffer_bytes != USE_OS_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes != USE_OS_DEFAULT:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        code = sock.connect_ex(address)
        if code not in {0, errno.EINPROGRESS, errno.EWOULDBLOCK}:
            raise OSError(code, os.strerror(code))
        self._selector.register(sock, selectors.EVENT_WRITE, channel)

    def _finish_connect(self, channel: _Channel) -> None:
        assert channel.sock is not None
        code = _pending_error(channel.sock)
        if code != 0:
            self._drop_socket(channel)
            self._connect_next(channel, OSError(code, os.strerror(code)))
            return
        if _is_own_peer(channel.sock):
            # A connect to an unused local port in the range of outgoing ports can connect to
            # itself.
            self._drop_socket(channel)
            self._connect_next(channel, ConnectionRefusedError(errno.ECONNREFUSED, "itself"))
            return
        channel.is_open = True
        self._selector.modify(channel.sock, selectors.EVENT_READ, channel)
        channel.stream.on_opened()

    # Moving bytes.

    def _receive_parts(self, timeout_s: float) -> bool:
        """Do the pending I/O; return whether only partial responses arrived."""
        # Whoever sends in bulk gains nothing from turns that follow one another more closely.
        ready = _select(self._selector, timeout_s, not self._unsent)
        are_parts = bool(ready)
        for key, events in ready:
            channel = key.data
            if channel is not None and channel.is_open and events == selectors.EVENT_READ:
                self._receive(channel)
                are_parts = are_parts and not channel.stream.has_events
                continue
            are_parts = False
            if channel is None:
                self._drain_wakeups()
            elif not channel.is_open:
                self._finish_connect(channel)
            else:
                self._send(channel)
                if events & selectors.EVENT_READ:
                    self._receive(channel)
        return are_parts

    def _send(self, channel: _Channel) -> None:
        sock, queue = channel.sock, channel.queue
        if sock is None:
            return
        try:
            while queue:
                batch = [queue[index] for index in range(min(len(queue), PART_COUNT_MAX))]
                sent_bytes = send_parts(sock, batch)
                if sent_bytes == WOULD_BLOCK:
                    break  # the rest goes when the socket is writable again
                channel.queued_bytes -= sent_bytes
                _consume(queue, sent_bytes)
        except BlockingIOError as error:
            raise_of_signal_handler(error)  # otherwise a library's socket would block: as above
        except OSError as error:
            raise_of_signal_handler(error)
            self._failed.append((channel, _lost(channel.name, error)))
            return
        self._watch(channel)

    def _watch(self, channel: _Channel) -> None:
        assert channel.sock is not None
        wanted = selectors.EVENT_READ
        if channel.queue:
            wanted |= selectors.EVENT_WRITE
            self._unsent.add(channel)
        else:
            self._unsent.discard(channel)
        if self._selector.get_key(channel.sock).events != wanted:
            self._selector.modify(channel.sock, wanted, channel)

    def _receive(self, channel: _Channel) -> None:
        stream, sock = channel.stream, channel.sock
        if sock is None:
            return
        try:
            for _ in range(READS_PER_TURN_MAX):
                buffer = stream.get_buffer()
                count = receive_into(sock, buffer)
                if count == WOULD_BLOCK:
                    return
                if count == 0:
                    self._end(channel, DisconnectedError(f"{channel.name} closed the connection"))
                    return
                stream.buffer_updated(count)
                if count < len(buffer):
                    return
        except BlockingIOError as error:
            raise_of_signal_handler(error)
        except OSError as error:
            raise_of_signal_handler(error)
            self._end(channel, _lost(channel.name, error))

    # Ending.

    def _end(self, channel: _Channel, error: KafkaError) -> None:
        if self._channels.get(channel.stream) is not channel:
            return
        self._drop_socket(channel)
        del self._channels[channel.stream]
        channel.stream.on_closed(error)

    def _drop_socket(self, channel: _Channel) -> None:
        sock = channel.sock
        if sock is None:
            return
        if sock in self._selector.get_map():
            self._selector.unregister(sock)
        _close(sock)
        self._sockets.discard(sock)
        self._unsent.discard(channel)
        channel.sock = None

    def _drain_wakeups(self) -> None:
        try:
            while self._wake_receiver.recv(4096):
                pass
        except BlockingIOError as error:
            raise_of_signal_handler(error)


def _abandon(
    sockets: set[socket.socket],
    message: str,
    close_when_unused: Callable[[Callable[[], None]], None],
) -> None:
    close_when_unused(partial(_close_all, sockets))
    warnings.warn(message, ResourceWarning, stacklevel=2)


def _close_all(sockets: set[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def _close_at_once(close: Callable[[], None]) -> None:
    close()


_ports: weakref.WeakSet[SelectorPort] = weakref.WeakSet()


def _on_fork() -> None:
    for port in list(_ports):
        port.on_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_on_fork)


@harmless
def _select(
    selector: selectors.BaseSelector,
    timeout_s: float,
    is_urgent: bool,  # as `select_ready`
) -> list[tuple[selectors.SelectorKey, int]]:
    return select_ready(selector, timeout_s, is_urgent)


def _pending_error(sock: socket.socket) -> int:
    """Return the error code of an attempt to connect; 0 if it succeeded."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except OSError as error:
        raise_of_signal_handler(error)
        return error.errno or errno.ENOTCONN


def _close(sock: socket.socket) -> None:
    """Close a socket and ignore errors: it is closed in any case."""
    try:
        sock.close()
    except OSError as error:
        raise_of_signal_handler(error)


def _without_sigpipe(sock: socket.socket) -> None:
    if sys.platform == "darwin":
        sock.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE_OF_MACOS, 1)


def _consume(queue: deque[memoryview], count: int) -> None:
    while count:
        head = queue[0]
        if head.nbytes > count:
            queue[0] = head[count:]
            return
        count -= head.nbytes
        queue.popleft()


def _is_own_peer(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError as error:
        raise_of_signal_handler(error)
        return False  # reset meanwhile; the first read fails


def _lost(name: str, error: OSError) -> DisconnectedError:
    lost = DisconnectedError(f"the connection to {name} broke: {_reason(error)}")
    lost.__cause__ = error
    return lost


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
