"""One request that a fake broker has got, and what becomes of it.

A call is *open*, then ended in one of three ways: *responded*; *silent*, when nothing is to be
sent; or *closed*, when its connection is to be closed. A handler may end it at once or much later;
what comes after the end is dropped, since the client has gone.

Owner: the cluster.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors.base import UsageError
from pykclient.protocol.message import encode_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.protocol.message import Message, RequestHeader
    from pykclient.testing.fake.authentication import Session
    from pykclient.testing.fake.timers import TimingWheel


class CallState(Enum):
    """What has become of a call."""

    OPEN = "open"
    RESPONDED = "responded"
    SILENT = "silent"
    CLOSED = "closed"


class Call:
    """A request's way through a broker.

    `response` and `frame` are set once there is a response. `session` is the client's connection.
    """

    def __init__(
        self, broker_id: int, header: RequestHeader, *, session: Session, timers: TimingWheel
    ) -> None:
        self.broker_id = broker_id
        self.header = header
        self.session = session
        self.closes_connection = False
        """Whether the connection is closed once the response is on its way."""
        self.state = CallState.OPEN
        self.response: Message | None = None
        self.frame: bytes | bytearray = b""
        self.response_version = header.api_version
        self.response_delay_ms = 0
        """How long a response is held back: a fault."""
        self.ending = CallState.RESPONDED
        """What a response makes of the call; a fault makes it silence or a closed connection."""
        self._timers = timers
        self._on_end: Callable[[int], None] | None = None

    @property
    def client_host(self) -> str:
        """Where the request came from."""
        return self.session.client_host

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def is_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state is not CallState.OPEN

    def on_end(self, callback: Callable[[int], None]) -> None:
        """Have `callback(now_ms)` called when it ends, which must not have happened yet."""
        assert not self.is_ended
        self._on_end = callback

    def require_response(self) -> Message:
        """The response. Raises `UsageError` if there is none, or none yet."""
        if self.response is None:
            raise UsageError(f"there is no response: the call is {self.state.value}")
        return self.response

    answered = require_response  # The name of before.

    def respond(self, response: Message, now_ms: int) -> None:
        """Send this response; what faults make of it is decided here."""
        if self.ending is not CallState.RESPONDED:
            self._end(self.ending, now_ms)
        elif self.response_delay_ms:
            late_ms = now_ms + self.response_delay_ms
            self.response_delay_ms = 0
            self._timers.add(late_ms, lambda then_ms: self.respond(response, then_ms))
        elif not self.is_ended:
            self.response = response
            self.frame = encode_response(
                response, self.response_version, self.header.correlation_id
            )
            self._end(CallState.RESPONDED, now_ms)

    def respond_with_token(self, token: bytes, now_ms: int) -> None:
        """Send a SASL token as it was sent before it had a header."""
        self.frame = len(token).to_bytes(4, "big") + token
        self._end(CallState.RESPONDED, now_ms)

    def silence(self, now_ms: int) -> None:
        """Send nothing."""
        self._end(CallState.SILENT, now_ms)

    def close(self, now_ms: int) -> None:
        """Have the connection closed."""
        self._end(CallState.CLOSED, now_ms)

    def _end(self, state: CallState, now_ms: int) -> None:
        if self.is_ended:
            return
        self.state = state
        if self._on_end is not None:
            self._on_end(now_ms)
