"""The faults of a proxy: a seeded random choice of frames, and counters.

Equal seeds give equal random numbers; which frame meets which number depends on the clients'
timing.

Owner: any thread; all state is protected by the lock.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.testing.proxy.faults import Direction, Double, Fault, Refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DOUBLE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum size of a doubled frame, because the connection must buffer it."""

SIZE_BYTES: Final = 4


class FrameHead(NamedTuple):
    """The head of a frame; `api` is None for a response without a known request."""

    direction: Direction
    api: int | None
    size_bytes: int
    """Size of the whole frame, including the size field."""


class Strike(NamedTuple):
    """A fault that applies to a frame; `byte` and `bit` are its position, if it needs one."""

    fault: Fault
    byte: int
    bit: int


class FaultPlan:
    """The faults of a proxy; changes apply to frames from then on."""

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)  # noqa: S311 (faults must be repeatable)
        self._faults: list[Fault] = []
        self._struck: Counter[int] = Counter()
        """Number of strikes by index of the fault."""
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of strikes by the fault's name, since the plan was created; a copy."""
        with self._lock:
            return Counter(self._counts)

    def replace(self, faults: Iterable[Fault]) -> None:
        """Replace all faults; the counts continue."""
        with self._lock:
            self._faults = list(faults)
            self._struck.clear()

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        with self._lock:
            self._faults.append(fault)

    def count(self, name: str) -> None:
        """Count an event that is not a fault of the plan."""
        with self._lock:
            self._counts[name] += 1

    def strike_frame(self, head: FrameHead) -> Strike | None:
        """Choose at random whether a fault applies to a frame, and count it."""
        with self._lock:
            for place, fault in enumerate(self._faults):
                if _may_strike(fault, head) and self._throw(place, fault):
                    last = head.size_bytes - 1
                    at = self._random.randint(min(SIZE_BYTES, last), last)
                    return Strike(fault, at, self._random.randrange(8))
        return None

    def strike_connection(self) -> bool:
        """Choose at random whether a new connection is refused, and count it."""
        with self._lock:
            return any(
                isinstance(fault, Refuse) and self._throw(place, fault)
                for place, fault in enumerate(self._faults)
            )

    def lifetime_ms(self, lifetimes_ms: tuple[int, int]) -> int:
        """Choose a connection's lifetime at random."""
        with self._lock:
            return self._random.randint(*lifetimes_ms)

    def _throw(self, place: int, fault: Fault) -> bool:
        """Choose at random whether a fault applies. Requires the lock."""
        assert self._lock.locked()
        if fault.count_max is not None and self._struck[place] >= fault.count_max:
            return False
        if self._random.random() >= fault.probability:
            return False
        self._struck[place] += 1
        self._counts[fault.name] += 1
        return True


def _may_strike(fault: Fault, head: FrameHead) -> bool:
    if isinstance(fault, Refuse) or fault.direction is not head.direction:
        return False
    if isinstance(fault, Double) and head.size_bytes > DOUBLE_BYTES_MAX:
        return False
    return fault.api is None or fault.api == head.api
