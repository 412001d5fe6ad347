"""Exponential back-off with jitter: how long to wait before the next attempt.

Pure: it counts nothing and reads no clock. Its random source is given, so a test can fix it.

Source: KIP-580 (exponential back-off), KIP-144 (reconnecting).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

__all__ = ["Backoff"]

EXPONENT_MAX = 62
"""Doubling further only makes numbers that `max_ms` cuts anyway."""


@dataclass(slots=True, frozen=True)
class Backoff:
    """Delays that grow from `initial_ms` to `max_ms`, each spread by `jitter` to either side."""

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
