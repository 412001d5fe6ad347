"""One client's connection to one fake broker: bytes in, bytes out, no socket.

Requests are served one at a time, in the order in which they came, as Kafka does: while one waits,
those behind it wait too. The connection is *open*; *silent*, once a response was lost, since a
response to a later request would stand in its place; or *closed*.

Owner: whoever moves the bytes; the same thread as the cluster.
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
"""So many requests, or bytes of them, wait behind the first; then nothing more is read."""

OUTPUT_BYTES_MAX = 16 * 1024 * 1024
"""While so many bytes of responses were not taken, nothing more is served."""

RECEIVE_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's ``socket.request.max.bytes``."""


class FakeConnection:
    """A connection; `on_change()` is called whenever there is output, or it has closed."""

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
        """Whether there is something to be sent."""
        return bool(self._output)

    @property
    def wants_input(self) -> bool:
        """Whether more bytes are to be read by now."""
        if self.is_closed or len(self._waiting) >= WAITING_FRAMES_MAX:
            return False
        return sum(map(len, self._waiting)) < WAITING_BYTES_MAX

    def get_buffer(self) -> memoryview:
        """Where the next received bytes go."""
        return self._frames.get_buffer()

    def buffer_updated(self, count: int, now_ms: int) -> None:
        """Serve what is complete with the `count` bytes that were put into the buffer."""
        try:
            frames = self._frames.buffer_updated(count)
        except (FrameTooLargeError, TlsError):
            self.close()
            return
        if not self._is_silent and not self.is_closed:
            self._waiting.extend(frames)
            self._serve(now_ms)

    def take_output(self) -> list[bytes | bytearray]:
        """What is to be sent, in order; what waited for its room is served then."""
        output, self._output = self._output, []
        self._output_bytes = 0
        if self._is_held_back:
            self._is_held_back = False
            self._serve(self._cluster.now_ms)
        return output

    def close(self) -> None:
        """Close it from either side; requests are given up, responses may still be sent."""
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
