"""TlsPort: encrypts the bytes that pass another port.

Connections use it like a port; to the port below, each connection is a `TlsStream`.

A stream is *connecting*, then *securing* (the TLS handshake), then *open*, then *closed*. It is
*probing* after a peer hung up on the handshake without an error, until it is known whether that
peer speaks TLS at all (`PlainProbe`). The connection sees the stream as open only after the peer's
certificate is verified, so the time-out of the set-up covers that.

Received bytes are decrypted at once: none stay inside OpenSSL, where no socket event would announce
them. Written bytes are encrypted at once, so the unsent bytes are those that the other port has not
sent.

Owner: the driver of the engine.
Source: ``ssl.MemoryBIO``, ``ssl.SSLObject``; Java class ``SslTransportLayer``.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pykclient.errors import DisconnectedError, KafkaError
from pykclient.network.io import tls_errors
from pykclient.network.io.plain_probe import PlainProbe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pykclient.network.io.port import Port, Stream
    from pykclient.network.io.ssl_factory import SslFactory

T = TypeVar("T")

RECEIVE_BYTES: Final = 128 * 1024
"""Size of one receive: several TLS records, of at most 16 KiB each."""

JOINED_BYTES_MAX: Final = 16 * 1024
"""Smaller parts are joined up to this size before encryption, since each part becomes a TLS
record."""

UNREAD_REPLIES_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of TLS replies that a peer may cause without reading them."""

SESSIONS_MAX: Final = 1_000
"""Maximum number of addresses whose sessions are kept for resumption."""


class TlsState(Enum):
    CONNECTING = "connecting"
    SECURING = "securing"
    PROBING = "probing"
    OPEN = "open"
    CLOSED = "closed"


NEXT: dict[TlsState, frozenset[TlsState]] = {
    TlsState.CONNECTING: frozenset({TlsState.SECURING, TlsState.CLOSED}),
    TlsState.SECURING: frozenset({TlsState.OPEN, TlsState.PROBING, TlsState.CLOSED}),
    TlsState.PROBING: frozenset({TlsState.CLOSED}),
    TlsState.OPEN: frozenset({TlsState.CLOSED}),
    TlsState.CLOSED: frozenset(),
}


class TlsPort:
    def __init__(self, port: Port, factory: SslFactory) -> None:
        self._port = port
        self._factory = factory
        self._streams: dict[Stream, TlsStream] = {}
        self._sessions: dict[tuple[str, int], ssl.SSLSession] = {}
        self._secured: set[tuple[str, int]] = set()
        """Addresses that have spoken TLS: one that hangs up there is a broker that shuts down."""

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        if self._factory.reload():
            self._sessions.clear()
        tls = TlsStream(stream, self._port, self, (host, port), attempt)
        self._streams[stream] = tls
        self._port.open(tls, host, port, attempt=attempt)

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        tls = self._streams.get(stream)
        if tls is not None:
            tls.write(data)

    def unsent_bytes(self, stream: Stream) -> int:
        tls = self._streams.get(stream)
        return 0 if tls is None else self._port.unsent_bytes(tls)

    def close(self, stream: Stream) -> None:
        tls = self._streams.pop(stream, None)
        if tls is not None:
            tls.close()

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        self._port.call(function, on_done, name=name)

    def forget(self, on_done: Callable[[Any], None]) -> None:
        self._port.forget(on_done)

    def wait(self, timeout_ms: int) -> None:
        self._port.wait(timeout_ms)

    def wakeup(self) -> None:
        self._port.wakeup()

    def restart(self) -> None:
        self._port.restart()
        self._streams.clear()

    def shutdown(self) -> None:
        self._port.shutdown()
        self._streams.clear()

    # For the streams.

    def engine(
        self, address: tuple[str, int], incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> ssl.SSLObject:
        session = self._sessions.get(address)
        return self._factory.engine(address[0], incoming, outgoing, session)

    @property
    def has_identity(self) -> bool:
        return self._factory.has_identity

    def speaks_tls(self, address: tuple[str, int]) -> bool:
        """Return whether a TLS handshake with this address has succeeded before."""
        return address in self._secured

    def on_secured(self, address: tuple[str, int]) -> None:
        if len(self._secured) >= SESSIONS_MAX:
            self._secured.clear()
        self._secured.add(address)

    def keep_session(self, address: tuple[str, int], engine: ssl.SSLObject) -> None:
        """Keep a session, so that the next connection to the address opens faster.

        A session from a former state of the files is useless: OpenSSL refuses it.
        """
        session = engine.session
        if session is None or not session.has_ticket or not self._factory.has_made(engine):
            return
        self._sessions.pop(address, None)
        self._sessions[address] = session
        if len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]


class TlsStream:
    """One connection's stream as the port below sees it; received bytes are passed on decrypted."""

    def __init__(
        self,
        stream: Stream,
        port: Port,
        owner: TlsPort,
        address: tuple[str, int],
        attempt: int,
    ) -> None:
        self.state = TlsState.CONNECTING
        self._stream = stream
        self._port = port
        self._owner = owner
        self._address = address
        self._attempt = attempt
        self._probe: PlainProbe | None = None
        self._has_received = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._engine: ssl.SSLObject | None = None
        self._buffer = memoryview(b"")
        self._unread_bytes = 0

    @property
    def name(self) -> str:
        host, port = self._address
        return f"{host}:{port}"

    # A port's stream.

    @property
    def has_events(self) -> bool:
        return self._stream.has_events

    def on_opened(self) -> None:
        self._to(TlsState.SECURING)
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        try:
            engine = self._owner.engine(self._address, self._incoming, self._outgoing)
        except ValueError as error:
            self._fail(tls_errors.unusable_name(self.name, error))
            return
        self._engine = engine
        self._secure(engine)

    def get_buffer(self) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Decrypt received bytes; after a failure, drop them."""
        engine = self._engine
        if engine is None or self.state is TlsState.CLOSED:
            return
        self._has_received = True
        self._incoming.write(self._buffer[:count])
        if self.state is TlsState.SECURING:
            self._secure(engine)
        if self.state is TlsState.OPEN:
            self._decrypt(engine)

    def on_closed(self, error: KafkaError) -> None:
        if self.state is TlsState.CLOSED:
            return
        if self.state is not TlsState.SECURING:
            self._fail(error)
        elif self._has_received or self._owner.speaks_tls(self._address):
            self._fail(tls_errors.hung_up(self.name, error))
        else:
            self._to(TlsState.PROBING)
            self._probe = PlainProbe(
                self._port, self._stream, lambda is_plain: self._on_probed(is_plain, error)
            )
            self._port.open(self._probe, *self._address, attempt=self._attempt)

    # The connection's side.

    def write(self, data: Sequence[bytes | bytearray | memoryview]) -> None:
        engine = self._engine
        if engine is None or self.state is not TlsState.OPEN:
            return  # ended in the last wait, and on_closed was called
        for part in _joined(data):
            rest = part
            while rest:
                rest = rest[engine.write(rest) :]
        self._flush()

    def close(self) -> None:
        """Send the closing alert without waiting for the peer's, and close the stream below."""
        engine = self._engine
        if engine is not None and self.state is TlsState.OPEN:
            self._owner.keep_session(self._address, engine)
            with suppress(ssl.SSLError):  # the peer's closing alert has not come
                engine.unwrap()
            self._flush()
        if self.state is not TlsState.CLOSED:
            self._to(TlsState.CLOSED)
        if self._probe is not None:
            self._port.close(self._probe)
        self._port.close(self)

    # TLS.

    def _secure(self, engine: ssl.SSLObject) -> None:
        try:
            engine.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._flush()  # send the alert with the reason, for the peer's log
            self._fail(
                tls_errors.handshake_error(self.name, error, has_identity=self._owner.has_identity)
            )
            return
        self._flush()
        self._to(TlsState.OPEN)
        self._owner.on_secured(self._address)
        self._stream.on_opened()

    def _on_probed(self, is_plain: bool, error: KafkaError) -> None:
        if self.state is not TlsState.PROBING:
            return  # closed meanwhile
        if is_plain:
            self._fail(tls_errors.without_tls(self.name, error))
        else:
            self._fail(tls_errors.hung_up(self.name, error))

    def _decrypt(self, engine: ssl.SSLObject) -> None:
        stream, incoming = self._stream, self._incoming
        try:
            # Do not read until it wants more: that exception costs as much as decrypting a small
            # response.
            while incoming.pending or engine.pending():
                buffer = stream.get_buffer()
                count = engine.read(len(buffer), buffer)
                if not count:
                    raise ssl.SSLZeroReturnError
                stream.buffer_updated(int(count))
        except ssl.SSLWantReadError:
            pass  # the rest of a record has not arrived
        except ssl.SSLZeroReturnError:
            self._fail(DisconnectedError(f"{self.name} closed the connection"))
            return
        except ssl.SSLError as error:
            self._fail(
                tls_errors.stream_error(self.name, error, has_identity=self._owner.has_identity)
            )
            return
        if self._outgoing.pending:
            self._reply()

    def _reply(self) -> None:
        """Write the replies of TLS itself, limited in size since a peer may not read them."""
        if not self._port.unsent_bytes(self):
            self._unread_bytes = 0
        self._unread_bytes += self._outgoing.pending
        if self._unread_bytes > UNREAD_REPLIES_BYTES_MAX:
            self._fail(
                DisconnectedError(f"{self.name} requests new keys without reading the replies")
            )
            return
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._port.write(self, [self._outgoing.read()])

    def _fail(self, error: KafkaError) -> None:
        self._to(TlsState.CLOSED)
        self._stream.on_closed(error)

    def _to(self, state: TlsState) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state


def _joined(data: Sequence[bytes | bytearray | memoryview]) -> Iterator[memoryview]:
    """Yield the parts, with small neighbours joined."""
    small: list[bytes | bytearray | memoryview] = []
    size_bytes = 0
    for part in data:
        view = memoryview(part).cast("B")
        if size_bytes + view.nbytes > JOINED_BYTES_MAX:
            if small:
                yield memoryview(b"".join(small))
            small, size_bytes = [], 0
        if view.nbytes > JOINED_BYTES_MAX:
            yield view
        else:
            small.append(view)
            size_bytes += view.nbytes
    if small:
        yield memoryview(b"".join(small))
