"""PlainProbe: checks whether a peer that hung up on a TLS handshake speaks Kafka without TLS.

A broker's listener without TLS reads a handshake as a request that is too large, and hangs up
without an error; so do a broker that shuts down and a load balancer without brokers. To tell them
apart, one more connection sends an ApiVersions request in plain text, with no data of the client's.
Only a listener without TLS responds to it.

A probe is *connecting*, then *waiting* for the response, then *done*, once.

Owner: the driver of the engine.
Source: Java class ``NetworkReceive`` (a size above ``socket.request.max.bytes`` ends a connection).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from pykclient.protocol.message import encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.errors import KafkaError
    from pykclient.network.io.port import Port, Stream

CORRELATION_ID: Final = 0x6B61666B
"""Correlation id of the probe. Only a peer that speaks the protocol sends it back."""

RESPONSE_BYTES_MAX: Final = 512 * 1024

_HEAD: Final = Struct(">ii")


class PlainProbe:
    """A plain-text stream; `on_done(is_plain)` is called once, inside `Port.wait`.

    `stream` is the stream that waits for the outcome.
    """

    def __init__(self, port: Port, stream: Stream, on_done: Callable[[bool], None]) -> None:
        self._port = port
        self._stream = stream
        self._on_done = on_done
        self._is_done = False
        self._head = bytearray()
        self._buffer = memoryview(bytearray(_HEAD.size))

    @property
    def has_events(self) -> bool:
        return self._stream.has_events

    def on_opened(self) -> None:
        request = encode_request(ApiVersionsRequest(), 0, CORRELATION_ID, None)
        self._port.write(self, [request])

    def get_buffer(self) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """Check the start of the response; the rest is not read."""
        self._head += self._buffer[:count]
        if self._head[0]:
            self._end(False)  # not the size of a response, but a TLS alert, for example
        if len(self._head) < _HEAD.size:
            return
        size_bytes, correlation_id = _HEAD.unpack_from(self._head)
        self._end(correlation_id == CORRELATION_ID and 0 < size_bytes <= RESPONSE_BYTES_MAX)

    def on_closed(self, error: KafkaError) -> None:
        self._end(False)

    def _end(self, is_plain: bool) -> None:
        if not self._is_done:
            self._is_done = True
            self._on_done(is_plain)
