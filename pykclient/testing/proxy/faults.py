"""What a fault proxy can do to a frame, to a connection, and how often.

A fault strikes whole frames: of one direction, of one API or of any, each with a probability, at
most `count_max` times. `Refuse` strikes new connections. A frame is struck by at most one fault:
the first, in the order in which they were added, whose dice say so.

Owner: none; faults never change.
Source: KIP-98 and KIP-360, whose promises these faults put to the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from pykclient.protocol.api_keys import ApiKey


class Direction(Enum):
    """Which way a frame goes."""

    REQUEST = "request"
    RESPONSE = "response"
    ANSWER = RESPONSE
    """The name of before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Which frames are struck; `api` None means those of any, `count_max` None without end.

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
        """What its strikes are counted under."""
        return type(self).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Fault):
    """The frame, and what comes after it on its connection, waits `delay_ms` milliseconds."""

    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lose(Fault):
    """The frame is swallowed and the connection closed: of a response, after the broker acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Fault):
    """The connection is closed after some of the frame's bytes, at least one and not all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip(Fault):
    """One bit of the frame is flipped; its size, the first four bytes, stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeLength(Fault):
    """The frame's size says `length_bytes`, which may be negative; its bytes follow as they are."""

    length_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Double(Fault):
    """The frame comes twice; one too large to keep a copy of is not struck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackhole(Fault):
    """From this frame on nothing passes on its connection, either way, and it stays open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(Fault):
    """A new connection is reset at once; `api` and `direction` mean nothing here."""
