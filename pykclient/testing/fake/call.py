"""A request that a fake broker received, and its outcome.

A call is *open*, then ends as *responded*, as *silent* (send nothing), or as *closed* (close the
connection). A handler may end it at once or later. A response after the end is dropped, because
the client has gone.

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
    """Outcome of a call."""

    OPEN = "open"
    RESPONDED = "responded"
    SILENT = "silent"
    CLOSED = "closed"


class Call:
    """A request on its way through a broker.

    `response` and `frame` are set once there is a response. `session` is the client's session.
    """

    def __init__(
        self, broker_id: int, header: RequestHeader, *, session: Session, timers: TimingWheel
    ) -> None:
        self.broker_id = broker_id
        self.header = header
        self.session = session
        self.closes_connection = False
        """True to close the connection after the response is sent."""
        self.state = CallState.OPEN
        self.response: Message | None = None
        self.frame: bytes | bytearray = b""
        self.response_version = header.api_version
        self.response_delay_ms = 0
        """Delay of the response, set by a fault."""
        self.ending = CallState.RESPONDED
        """State after the response; a fault changes it to silent or closed."""
        self._timers = timers
        self._on_end: Callable[[int], None] | None = None

    @property
    def client_host(self) -> str:
        """Host of the client."""
        return self.session.client_host

    @property
    def version(self) -> int:
        """API version of the request."""
        return self.header.api_version

    @property
    def is_ended(self) -> bool:
        """True once the outcome is final."""
        return self.state is not CallState.OPEN

    def on_end(self, callback: Callable[[int], None]) -> None:
        """Call `callback(now_ms)` when the call ends; it must still be open."""
        assert not self.is_ended
        self._on_end = callback

    def require_response(self) -> Message:
        """Return the response. Raises `UsageError` if there is none (yet)."""
        if self.response is None:
            raise UsageError(f"there is no response: the call is {self.state.value}")
        return self.response

    answered = require_response  # former name

    def respond(self, response: Message, now_ms: int) -> None:
        """Send a response, subject to the call's faults."""
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
        """Send a SASL token without a header, as clients before KIP-152 expect."""
        self.frame = len(token).to_bytes(4, "big") + token
        self._end(CallState.RESPONDED, now_ms)

    def silence(self, now_ms: int) -> None:
        """End the call without a response."""
        self._end(CallState.SILENT, now_ms)

    def close(self, now_ms: int) -> None:
        """End the call and close its connection."""
        self._end(CallState.CLOSED, now_ms)

    def _end(self, state: CallState, now_ms: int) -> None:
        if self.is_ended:
            return
        self.state = state
        if self._on_end is not None:
            self._on_end(now_ms)
