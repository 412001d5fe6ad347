"""Heartbeat: when the next heartbeat is due, and when the session ends.

Pure timing: two deadlines, and whether a heartbeat is in flight. It sends nothing and reads no
clock. While it is *stopped* (not a member) nothing is due; *started*, it counts from that moment.

Owner: the core lock.
Source: Java class ``Heartbeat``; KIP-62 (heartbeats apart from polls).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from pykclient.consumer.config import ConsumerConfig
    from pykclient.network.retry import Backoff

__all__ = ["Heartbeat"]


class Heartbeat:
    """The deadlines of one member. Times are absolute, in milliseconds."""

    def __init__(self, config: ConsumerConfig, retry_backoff: Backoff) -> None:
        self.is_in_flight = False
        self._config = config
        self._retry_backoff = retry_backoff
        self._due_ms = NEVER_MS
        self._session_ends_ms = NEVER_MS
        self._failure_count = 0

    @property
    def is_started(self) -> bool:
        """Whether this is a member, which has to send heartbeats."""
        return self._due_ms != NEVER_MS

    def start(self, now_ms: int) -> None:
        """Count from now on: the coordinator has just responded to this member."""
        self._due_ms = now_ms + self._config.heartbeat_interval_ms
        self._session_ends_ms = now_ms + self._config.session_timeout_ms
        self._failure_count = 0

    def begin_session(self, now_ms: int) -> None:
        """Give a coordinator that was just found a session to respond, if this is a member."""
        if self.is_started:
            self._session_ends_ms = now_ms + self._config.session_timeout_ms

    def extend(self, now_ms: int) -> None:
        """Wait for another session, and send a heartbeat at once."""
        self.is_in_flight = False
        self._due_ms = now_ms
        self.begin_session(now_ms)

    def restart(self, now_ms: int) -> None:
        """Send a heartbeat at once, if this is a member: the response to the last one is lost."""
        self.is_in_flight = False
        if self.is_started:
            self._due_ms = now_ms

    def stop(self) -> None:
        """Stop counting. A response to what is in flight does not count any more."""
        self._due_ms = self._session_ends_ms = NEVER_MS
        self.is_in_flight = False

    def on_sent(self, now_ms: int) -> None:
        """Note that a heartbeat is in flight."""
        self.is_in_flight = True
        self._due_ms = now_ms + self._config.heartbeat_interval_ms

    def on_received(self, now_ms: int) -> None:
        """Note that the coordinator has responded: the session begins anew."""
        self.is_in_flight = False
        self._failure_count = 0
        self.begin_session(now_ms)

    def on_failed(self, now_ms: int) -> None:
        """Note that a heartbeat has failed; the next one follows sooner than the interval."""
        self.is_in_flight = False
        if self.is_started:
            self._due_ms = now_ms + self._retry_backoff.delay_ms(self._failure_count)
            self._failure_count += 1

    def is_due(self, now_ms: int) -> bool:
        """Whether a heartbeat is to be sent."""
        return not self.is_in_flight and now_ms >= self._due_ms

    def has_session_ended(self, now_ms: int) -> bool:
        """Whether the coordinator has not responded for a session."""
        return now_ms >= self._session_ends_ms

    @property
    def next_ms(self) -> int:
        """The next time at which `is_due` or `has_session_ended` may change."""
        due_ms = NEVER_MS if self.is_in_flight else self._due_ms
        return min(due_ms, self._session_ends_ms)
