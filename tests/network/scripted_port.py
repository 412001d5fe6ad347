"""ScriptedPort: a port without sockets; a test controls its peers.

A peer decodes what the client writes with the protocol layer. As with every port, streams are
called only inside `wait`, which never waits here.

Owner: the test that created it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pykclient.errors import ConnectionFailedError, DisconnectedError
from pykclient.protocol.api_keys import APIS
from pykclient.protocol.framing import FrameBuffer
from pykclient.protocol.message import RequestHeader, decode_request, encode_response
from pykclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.errors import KafkaError
    from pykclient.network.io.port import Stream
    from pykclient.protocol.message import Message, Request

T = TypeVar("T")

ALL_RANGES = {int(key): (api.min_version, api.max_version) for key, api in APIS.items()}
"""Versions of a broker that supports every API and version of this client."""


class Received(NamedTuple):
    """A request as a broker receives it."""

    header: RequestHeader
    message: Request


class ScriptedPeer:
    """The other end of one stream. `requests` are those without a response yet."""

    def __init__(self, stream: Stream, host: str, port: int, attempt: int) -> None:
        self.host = host
        self.port = port
        self.attempt = attempt
        self.requests: deque[Received] = deque()
        self.received_count = 0
        self.is_accepted = False
        self.closed_count = 0
        """Number of times the client closed the stream."""
        self.is_ended = False
        """True if the peer closed the stream and the client was notified."""
        self.takes_bytes = True
        """True if the operating system accepts written bytes at once, False if it delays them."""
        self.unsent_bytes = 0
        self._stream = stream
        self._frames = FrameBuffer()
        self._events: deque[Callable[[], None]] = deque()

    def is_closed(self) -> bool:
        return self.closed_count > 0

    # Called by the test.

    def accept(self) -> None:
        self.is_accepted = True
        self._events.append(self._stream.on_opened)

    def serve(self) -> None:
        """Act as a healthy broker: accept, and respond to every request."""
        if not self.is_accepted:
            self.accept()
        while self.requests:
            message = self.requests[0].message
            if isinstance(message, ApiVersionsRequest):
                self.respond_versions()
            else:
                self.respond(message.response_type())

    def refuse(self) -> None:
        self.end(ConnectionFailedError(f"cannot connect to {self.host}:{self.port}: refused"))

    def hang_up(self) -> None:
        self.end(DisconnectedError(f"{self.host}:{self.port} closed the connection"))

    def end(self, error: KafkaError) -> None:
        self._events.append(partial(self._end, error))

    def feed(self, data: bytes, *, piece_bytes: int | None = None) -> None:
        """Send bytes in pieces of at most `piece_bytes`; None for a single piece."""
        step = piece_bytes or max(1, len(data))
        for start in range(0, len(data), step):
            self._events.append(partial(self._feed, data[start : start + step]))

    def respond(self, message: Message, *, piece_bytes: int | None = None) -> None:
        header = self.requests.popleft().header
        frame = encode_response(message, header.api_version, header.correlation_id)
        self.feed(bytes(frame), piece_bytes=piece_bytes)

    def respond_versions(
        self,
        ranges: dict[int, tuple[int, int]] | None = None,
        *,
        error_code: int = 0,
        respond_version: int | None = None,
    ) -> None:
        """Respond to the oldest request, an ApiVersions request, by default in its own version."""
        received = self.requests.popleft()
        assert isinstance(received.message, ApiVersionsRequest)
        listed = ALL_RANGES if ranges is None else ranges
        message = ApiVersionsResponse(
            error_code=error_code,
            api_keys=[ApiVersion(key, low, high) for key, (low, high) in listed.items()],
        )
        version = received.header.api_version if respond_version is None else respond_version
        self.feed(bytes(encode_response(message, version, received.header.correlation_id)))

    # Called by the port.

    def write(self, data: bytes) -> None:
        self.unsent_bytes += 0 if self.takes_bytes else len(data)
        while data:
            buffer = self._frames.get_buffer()
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            for frame in self._frames.buffer_updated(count):
                self.requests.append(Received(*decode_request(frame)))
                self.received_count += 1

    def deliver(self) -> None:
        for _ in range(len(self._events)):
            if self.is_closed() or self.is_ended:
                self._events.clear()
                return
            self._events.popleft()()

    def _feed(self, data: bytes) -> None:
        while data:
            buffer = self._stream.get_buffer()
            count = min(len(buffer), len(data))
            assert count > 0, "a stream must have room"
            buffer[:count] = data[:count]
            self._stream.buffer_updated(count)
            data = data[count:]

    def _end(self, error: KafkaError) -> None:
        self.is_ended = True
        self._stream.on_closed(error)


class ScriptedCalls:
    """Blocking calls that do not block: `deliver` runs them one after another.

    With `are_held` they stay unfinished.
    """

    def __init__(self) -> None:
        self.under_way: list[tuple[Callable[[], object], Callable[[Any], None]]] = []
        self.are_held = False
        self.count = 0

    def call(
        self, function: Callable[[], T], on_done: Callable[[T | BaseException], None], *, name: str
    ) -> None:
        assert name
        self.under_way.append((function, on_done))
        self.count += 1

    def forget(self, on_done: Callable[[Any], None]) -> None:
        self.under_way = [call for call in self.under_way if call[1] != on_done]

    def deliver(self) -> None:
        calls, self.under_way = ([], self.under_way) if self.are_held else (self.under_way, [])
        for function, on_done in calls:
            result: object
            try:
                result = function()
            except Exception as error:  # noqa: BLE001
                result = error
            on_done(result)


class ScriptedPort:
    """A `Port` with scripted peers. `peers` are those of all connections, in order."""

    def __init__(self) -> None:
        self.calls = ScriptedCalls()
        self.call = self.calls.call
        self.forget = self.calls.forget
        self.peers: list[ScriptedPeer] = []
        self.waits_ms: list[int] = []
        self.wakeup_count = 0
        self.is_shut_down = False
        self._by_stream: dict[Stream, ScriptedPeer] = {}

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        """Create a peer that has not accepted yet."""
        peer = ScriptedPeer(stream, host, port, attempt)
        self.peers.append(peer)
        self._by_stream[stream] = peer

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        peer = self._by_stream[stream]
        assert not peer.is_closed(), "the client wrote to what it closed"
        peer.write(b"".join(data))

    def unsent_bytes(self, stream: Stream) -> int:
        return self._by_stream[stream].unsent_bytes

    def close(self, stream: Stream) -> None:
        self._by_stream[stream].closed_count += 1

    def wait(self, timeout_ms: int) -> None:
        self.waits_ms.append(timeout_ms)
        for peer in list(self.peers):
            peer.deliver()
        self.calls.deliver()

    def wakeup(self) -> None:
        self.wakeup_count += 1

    def restart(self) -> None:
        for peer in self.peers:
            peer.closed_count += 1
        self.peers.clear()
        self._by_stream.clear()

    def warn_if_dropped(self, owner: object, message: str) -> None:
        """Do nothing: there are no sockets."""

    def shutdown(self) -> None:
        self.is_shut_down = True
        for peer in self.peers:
            peer.closed_count += 1
