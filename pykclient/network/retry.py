"""Retries: `Backoff` computes the pauses, `Attempt` tracks when one request may be sent again.

Owner: an `Attempt` belongs to the manager that sends the request.
Source: KIP-580 (exponential back-off), KIP-144 (reconnecting); the rule on malformed responses is
ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from pykclient.errors import DecodeError, KafkaError
from pykclient.errors.tracebacks import without_frames
from pykclient.network.manager import NEVER_MS

EXPONENT_MAX = 62
"""Doubling beyond this only makes numbers that `max_ms` caps anyway."""


@dataclass(slots=True, frozen=True)
class Backoff:
    """Delays that grow from `initial_ms` to `max_ms`, each varied up or down by `jitter`."""

    initial_ms: int
    max_ms: int
    multiplier: int = 2
    jitter: float = 0.2
    random: Random = field(default_factory=Random)

    def delay_ms(self, attempt: int) -> int:
        """Return the delay before the attempt that follows `attempt` failures (0, 1, 2 ...)."""
        grown_ms: int = self.initial_ms * self.multiplier ** min(attempt, EXPONENT_MAX)
        factor = self.random.uniform(1 - self.jitter, 1 + self.jitter)
        return min(round(min(grown_ms, self.max_ms) * factor), self.max_ms)


class Attempt:
    """A request that is retried until it succeeds or fails with a final error."""

    __slots__ = ("_backoff", "due_ms", "failure_count", "is_in_flight", "last_error")

    def __init__(self, backoff: Backoff) -> None:
        self.due_ms = 0
        """Earliest time to send it; meaningless while it is in flight."""
        self.is_in_flight = False
        self.failure_count = 0
        """Failures since the last success."""
        self.last_error: KafkaError | None = None
        """The last failure. An owner that cannot even send the request may set it."""
        self._backoff = backoff

    @property
    def next_ms(self) -> int:
        return NEVER_MS if self.is_in_flight else self.due_ms

    def is_due(self, now_ms: int) -> bool:
        return not self.is_in_flight and self.due_ms <= now_ms

    def sent(self) -> None:
        self.is_in_flight = True

    def lost(self) -> None:
        """Record that no response will come, through no fault of the broker."""
        self.is_in_flight = False

    def succeeded(self) -> None:
        """Record a success and reset the count of failures."""
        self.is_in_flight = False
        self.due_ms = self.failure_count = 0
        self.last_error = None

    def failed(self, error: KafkaError, now_ms: int) -> KafkaError | None:
        """Back off; return the error if it is final, else None.

        An error that is not retriable is final. A malformed response (`DisconnectedError` caused by
        a `DecodeError`) is final, as the `DecodeError`, when it happens twice in a row: a new
        connection cures a flipped bit, but not a broker that always sends such responses.
        """
        is_final = not error.retriable
        if isinstance(error.__cause__, DecodeError):
            is_final = isinstance(self.last_error, DecodeError)
            error = error.__cause__
        self.back_off(error, now_ms)
        return error if is_final else None

    def back_off(self, error: KafkaError, now_ms: int, *, at_once_count: int = 0) -> None:
        """Record a failure of any kind; the pause before the next attempt grows.

        The first `at_once_count` failures in a row cause no pause.
        """
        self.is_in_flight = False
        self.last_error = without_frames(error)
        surplus = self.failure_count - at_once_count
        self.due_ms = now_ms + self._backoff.delay_ms(surplus) if surplus >= 0 else now_ms
        self.failure_count += 1
