"""Which frames a fault proxy strikes, by dice with a seed, and the count of what it did.

The same seed throws the same dice; which frame meets which throw is for the clients' timing to say.

Owner: any thread; all state is under the lock.
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
"""A larger frame is not doubled: a connection keeps no more than this of a frame."""

SIZE_BYTES: Final = 4


class FrameHead(NamedTuple):
    """What is known when a frame begins; `api` None when the response is to no request seen."""

    direction: Direction
    api: int | None
    size_bytes: int
    """The whole frame's, its size field included."""


class Strike(NamedTuple):
    """A fault that a frame meets; `byte` and `bit` say where, for those that strike somewhere."""

    fault: Fault
    byte: int
    bit: int


class FaultPlan:
    """The faults of one proxy; they may be changed at any time and hold for frames from then on."""

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)  # noqa: S311 (faults must come again, not surprise)
        self._faults: list[Fault] = []
        self._struck: Counter[int] = Counter()
        """Strikes by the fault's place in the list."""
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind of fault struck, by its name, since the plan was made; a copy."""
        with self._lock:
            return Counter(self._counts)

    def replace(self, faults: Iterable[Fault]) -> None:
        """Strike with these faults from now on, and no others; the counts go on."""
        with self._lock:
            self._faults = list(faults)
            self._struck.clear()

    def add(self, fault: Fault) -> None:
        """Strike with this fault too."""
        with self._lock:
            self._faults.append(fault)

    def count(self, name: str) -> None:
        """Count something that is no fault of the plan."""
        with self._lock:
            self._counts[name] += 1

    def strike_frame(self, head: FrameHead) -> Strike | None:
        """Throw the dice for a frame; a strike is counted."""
        with self._lock:
            for place, fault in enumerate(self._faults):
                if _may_strike(fault, head) and self._throw(place, fault):
                    last = head.size_bytes - 1
                    at = self._random.randint(min(SIZE_BYTES, last), last)
                    return Strike(fault, at, self._random.randrange(8))
        return None

    def strike_connection(self) -> bool:
        """Throw the dice for a new connection: whether it is refused, which is counted."""
        with self._lock:
            return any(
                isinstance(fault, Refuse) and self._throw(place, fault)
                for place, fault in enumerate(self._faults)
            )

    def lifetime_ms(self, lifetimes_ms: tuple[int, int]) -> int:
        """Throw the dice for how long a connection lives."""
        with self._lock:
            return self._random.randint(*lifetimes_ms)

    def _throw(self, place: int, fault: Fault) -> bool:
        """Requires the lock."""
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
