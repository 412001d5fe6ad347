"""Which query is under fire: with state or without, and what its sink promises.

Owner: none; it holds no state.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Delivery(Enum):
    """What a sink promises; the value is its name in tables."""

    AT_LEAST_ONCE = "at least once"
    PER_TASK = "exactly once"
    PER_BATCH = "exactly once, whole batches"

    @property
    def is_exact(self) -> bool:
        return self is not Delivery.AT_LEAST_ONCE

    def options(self, sink_id: str) -> dict[str, str]:
        """The options of the sink that promises it."""
        if not self.is_exact:
            return {}
        atomic = {"atomic": "batch"} if self is Delivery.PER_BATCH else {}
        return {"delivery": "exactly_once", "sinkId": sink_id, **atomic}


EXACT = tuple(delivery for delivery in Delivery if delivery.is_exact)


class Kind(NamedTuple):
    """A query with state, or one without, and the promise of its sink."""

    is_stateful: bool
    delivery: Delivery = Delivery.AT_LEAST_ONCE

    @property
    def query(self) -> str:
        return "stateful" if self.is_stateful else "stateless"
