"""A TLS server in memory, and the port that connects a `TlsPort` to it.

Owner: the test that created it.
"""

from __future__ import annotations

import ssl
from collections import deque
from typing import TYPE_CHECKING

from pykclient.errors import DisconnectedError
from tests.network.scripted_port import ScriptedCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.errors import KafkaError
    from pykclient.network.io.port import Stream


class TlsPeer:
    """The server's end. It sends at most `piece_bytes` at once."""

    def __init__(self, context: ssl.SSLContext, piece_bytes: int = 1 << 20) -> None:
        self.received = bytearray()
        self.error: ssl.SSLError | None = None
        self.has_said_goodbye = False
        """True if the client has closed the TLS connection, not only the stream."""
        self._piece_bytes = piece_bytes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_secured = False
        self._to_send = deque[bytes]()

    @property
    def is_resumed(self) -> bool:
        return bool(self._engine.session_reused)

    def send(self, data: bytes) -> None:
        self._to_send.append(data)

    def take(self, data: bytes) -> None:
        """Read the bytes that the client has written."""
        self._incoming.write(data)
        try:
            if not self._is_secured:
                self._engine.do_handshake()
                self._is_secured = True
            while True:
                read = self._engine.read(1 << 16)
                if not read:
                    raise ssl.SSLZeroReturnError
                self.received += read
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_said_goodbye = True
        except ssl.SSLError as error:
            self.error = error

    def pieces(self) -> list[bytes]:
        """Return the bytes to send to the client now."""
        while self._is_secured and self._to_send:
            rest = memoryview(self._to_send.popleft())
            while rest:
                rest = rest[self._engine.write(rest) :]
        data = self._outgoing.read()
        size = self._piece_bytes
        return [data[start : start + size] for start in range(0, len(data), size)]


class PlainPeer:
    """A server without TLS: it answers the first bytes with `reply`, or disconnects if None."""

    def __init__(self, reply: bytes | None) -> None:
        self._reply = reply
        self.is_hanging_up = False
        self._pieces: list[bytes] = []

    def take(self, _data: bytes) -> None:
        if self._reply is None:
            self.is_hanging_up = True
        else:
            self._pieces = [self._reply]

    def pieces(self) -> list[bytes]:
        taken, self._pieces = self._pieces, []
        return taken


class JoinedPort:
    """A port with one peer for each stream; `wait` transfers bytes until none are left."""

    def __init__(self, peer_of: Callable[[], TlsPeer | PlainPeer]) -> None:
        self.calls = ScriptedCalls()
        self.call = self.calls.call
        self.forget = self.calls.forget
        self.peer_of = peer_of
        self.peers: list[TlsPeer | PlainPeer] = []
        self.closed: list[Stream] = []
        self.takes_bytes = True
        """True if written bytes are transferred, False if they wait."""
        self._ends: dict[Stream, TlsPeer | PlainPeer] = {}
        self._new: deque[Stream] = deque()
        self._written: dict[Stream, list[bytes]] = {}

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        peer = self.peer_of()
        self.peers.append(peer)
        self._ends[stream] = peer
        self._written[stream] = []
        self._new.append(stream)

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        if stream in self._ends:
            self._written[stream].extend(map(bytes, data))
            if stream in self.closed or not self._new:
                self._carry(stream)

    def unsent_bytes(self, stream: Stream) -> int:
        return sum(map(len, self._written.get(stream, ())))

    def close(self, stream: Stream) -> None:
        self.closed.append(stream)
        self._ends.pop(stream, None)

    def wait(self, _timeout_ms: int) -> None:
        self.calls.deliver()
        is_moving = True
        while is_moving or self._new:
            while self._new:  # what happens may open another stream
                self._new.popleft().on_opened()
            is_moving = False
            for stream, peer in list(self._ends.items()):
                self._carry(stream)
                for piece in peer.pieces():
                    is_moving = True
                    self.give(stream, piece)
                if isinstance(peer, PlainPeer) and peer.is_hanging_up:
                    self.hang_up(stream)

    def hang_up(self, stream: Stream) -> None:
        self._ends.pop(stream)
        stream.on_closed(DisconnectedError("the peer closed the connection"))

    def fail(self, stream: Stream, error: KafkaError) -> None:
        self._ends.pop(stream)
        stream.on_closed(error)

    def wakeup(self) -> None:
        """Do nothing: no call waits here."""

    def restart(self) -> None:
        self._ends.clear()

    def shutdown(self) -> None:
        self._ends.clear()

    @property
    def streams(self) -> list[Stream]:
        """The open streams below TLS."""
        return list(self._ends)

    def _carry(self, stream: Stream) -> None:
        if self.takes_bytes and (written := self._written[stream]):
            self._written[stream] = []
            self._ends[stream].take(b"".join(written))

    @staticmethod
    def give(stream: Stream, data: bytes) -> None:
        while data:
            buffer = stream.get_buffer()
            count = min(len(buffer), len(data))
            assert count > 0, "a stream must have room"
            buffer[:count] = data[:count]
            stream.buffer_updated(count)
            data = data[count:]


class Sink:
    """A stream in a connection's place, which stores its input, at most `room` bytes at once."""

    def __init__(self, room: int = 1 << 16) -> None:
        self.data = bytearray()
        self.opened_count = 0
        self.error: KafkaError | None = None
        self._buffer = memoryview(bytearray(room))

    @property
    def has_events(self) -> bool:
        return bool(self.data) or self.error is not None

    def on_opened(self) -> None:
        self.opened_count += 1

    def get_buffer(self) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        assert self.opened_count == 1
        self.data += self._buffer[:count]

    def on_closed(self, error: KafkaError) -> None:
        assert self.error is None
        self.error = error
