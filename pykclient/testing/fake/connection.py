"""A client's connection to a fake broker: bytes in, bytes out, no socket.

As in Kafka, requests are served one at a time and in order: while one waits, those behind it wait
too. The connection is *open*; *silent* after a lost response, because a later response would be
taken for the lost one; or *closed*.

Owner: the code that moves the bytes, on the cluster's thread.
Source: Java classes ``SocketServer.Processor`` and ``KafkaChannel`` (muting).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pykclient.errors.base import FrameTooLargeError, TlsError
from pykclient.protocol.framing import FrameBuffer
from pykclient.testing.fake.call import CallState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.cluster import FakeCluster

WAITING_FRAMES_MAX = 100
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Limits of requests, and their bytes, that wait behind the first; above, reading stops."""

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
"""Limit of response bytes that were not taken; above it, no request is served."""

RECEIVE_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's ``socket.request.max.bytes``."""


class FakeConnection:
    """A connection; it calls `on_change()` when it has output or has closed."""

    def __init__(
        self,
        cluster: FakeCluster,
        broker_id: int,
        *,
        client_host: str = "fake",
        listener: str | None = None,
        on_change: Callable[[], None],
    ) -> None:
        self.is_closed = False
        self._cluster = cluster
        self._broker_id = broker_id
        self._session = cluster.session(client_host, listener)
        self._on_change = on_change
        self._frames = FrameBuffer(RECEIVE_BYTES_MAX)
        self._waiting: deque[memoryview] = deque()
        self._call: Call | None = None
        self._is_silent = False
        self._output: list[bytes | bytearray] = []
        self._output_bytes = 0
        self._is_held_back = False
        cluster.brokers[broker_id].connections[self] = self.close

    @property
    def has_output(self) -> bool:
        """True if there are bytes to send."""
        return bool(self._output)

    @property
    def wants_input(self) -> bool:
        """True if the connection should read more bytes now."""
        if self.is_closed or len(self._waiting) >= WAITING_FRAMES_MAX:
            return False
        return sum(map(len, self._waiting)) < WAITING_BYTES_MAX

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next received bytes."""
        return self._frames.get_buffer()

    def buffer_updated(self, count: int, now_ms: int) -> None:
        """Serve the requests completed by the `count` bytes just put into the buffer."""
        try:
            frames = self._frames.buffer_updated(count)
        except (FrameTooLargeError, TlsError):
            self.close()
            return
        if not self._is_silent and not self.is_closed:
            self._waiting.extend(frames)
            self._serve(now_ms)

    def take_output(self) -> list[bytes | bytearray]:
        """Return the bytes to send, in order, and serve requests that waited for room."""
        output, self._output = self._output, []
        self._output_bytes = 0
        if self._is_held_back:
            self._is_held_back = False
            self._serve(self._cluster.now_ms)
        return output

    def close(self) -> None:
        """Close the connection from either side; drop requests, keep responses already made."""
        if self.is_closed:
            return
        self.is_closed = True
        self._cluster.brokers[self._broker_id].connections.pop(self, None)
        self._waiting.clear()
        if self._call is not None:
            call, self._call = self._call, None
            call.close(self._cluster.now_ms)
        self._on_change()

    def _serve(self, now_ms: int) -> None:
        while self._waiting and self._call is None and not self.is_closed:
            if self._output_bytes >= OUTPUT_BYTES_MAX:
                self._is_held_back = True
                return
            frame = self._waiting.popleft()
            call = self._cluster.handle(self._broker_id, frame, now_ms, session=self._session)
            if call.is_ended:
                self._finish(call)
            elif call.ending is CallState.SILENT:
                self._go_silent()
            else:
                self._call = call
                call.on_end(self._on_call_ended)

    def _on_call_ended(self, now_ms: int) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._finish(call)
            self._cluster.turns.take(self._serve, now_ms)

    def _finish(self, call: Call) -> None:
        if call.state is CallState.CLOSED:
            self.close()
        elif call.state is CallState.RESPONDED:
            self._output.append(call.frame)
            self._output_bytes += len(call.frame)
            self._on_change()
            if call.closes_connection:
                self.close()
        elif call.ending is CallState.SILENT:
            self._go_silent()

    def _go_silent(self) -> None:
        self._is_silent = True
        self._waiting.clear()
