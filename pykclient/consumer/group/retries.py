"""Retries: when a member that was refused may try again.

At once while that costs nothing, or after a back-off that grows with each failure. A member that is
thrown out joins at once, since others wait for it; one that is thrown out again and again does not,
or it would ask as fast as its coordinator can answer.

Owner: the core lock.
Source: ours; the back-offs of Java classes ``AbstractCoordinator``, ``HeartbeatRequestManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykclient.network.retry import Backoff

__all__ = ["AT_ONCE_COUNT", "Retries"]

AT_ONCE_COUNT: Final = 3
"""How many refusals in a row are followed by another attempt without a pause. A group in which many
members come and go refuses some."""


class Retries:
    """Counts failures until one attempt succeeds. `at_ms` is when the next one may be made."""

    def __init__(self, backoff: Backoff) -> None:
        self.at_ms = 0
        self._backoff = backoff
        self._failure_count = 0

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt failed."""
        return self._failure_count > 0

    def later(self, now_ms: int) -> None:
        """Note a failure that time cures."""
        self.at_ms = now_ms + self._backoff.delay_ms(self._failure_count)
        self._failure_count += 1

    def soon(self, now_ms: int) -> None:
        """Note a failure that another attempt cures."""
        surplus = self._failure_count - AT_ONCE_COUNT
        self.at_ms = now_ms + self._backoff.delay_ms(surplus) if surplus >= 0 else now_ms
        self._failure_count += 1

    def succeed(self) -> None:
        """Note a success."""
        self._failure_count = 0
