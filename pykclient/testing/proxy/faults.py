"""Faults of a proxy: what they do to frames and connections, and how often.

A fault applies to whole frames of one direction, of one API or any, each with a probability, at
most `count_max` times. `Refuse` applies to new connections. At most one fault applies to a frame:
the first, in order of addition, that is chosen at random.

Owner: none; faults are immutable.
Source: KIP-98 and KIP-360, whose guarantees these faults test.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from pykclient.protocol.api_keys import ApiKey


class Direction(Enum):
    """Direction of a frame."""

    REQUEST = "request"
    RESPONSE = "response"
    ANSWER = RESPONSE
    """Former name of RESPONSE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The frames that a fault applies to; `api` None means any, `count_max` None no limit.

    Raises:
        ConfigError: the probability is not between 0 and 1, or the count is negative.
    """

    api: ApiKey | None = None
    direction: Direction = Direction.RESPONSE
    probability: float = 1.0
    count_max: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.probability <= 1.0:
            raise ConfigError(f"probability is {self.probability}; give a number from 0 to 1")
        if self.count_max is not None and self.count_max < 0:
            raise ConfigError(f"count_max is {self.count_max}; give a number from 0 on, or None")

    @property
    def name(self) -> str:
        """Name under which the fault is counted."""
        return type(self).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Fault):
    """Delays the frame, and everything after it on its connection, by `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose(Fault):
    """Swallows the frame and closes the connection; for a response, after the broker acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Fault):
    """Closes the connection after some of the frame's bytes, at least one and not all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip(Fault):
    """Flips a bit of the frame, but not in its size, the first four bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeLength(Fault):
    """Replaces the frame's size by `length_bytes`, which may be negative; the bytes stay."""

    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Double(Fault):
    """Sends the frame twice, unless it is too large to buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackhole(Fault):
    """Stops all traffic of the connection from this frame on, and keeps it open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(Fault):
    """Resets a new connection at once; `api` and `direction` have no effect."""
