"""Kinds of queries under fire: stateful or stateless, and the delivery of the sink.

Owner: none; it holds no state.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Delivery(Enum):
    """Delivery guarantee of a sink; the value is its name in tables."""

    AT_LEAST_ONCE = "at least once"
    PER_TASK = "exactly once"
    PER_BATCH = "exactly once, whole batches"

    @property
    def is_exact(self) -> bool:
        return self is not Delivery.AT_LEAST_ONCE

    def options(self, sink_id: str) -> dict[str, str]:
        """Return the options of a sink with this guarantee."""
        if not self.is_exact:
            return {}
        atomic = {"atomic": "batch"} if self is Delivery.PER_BATCH else {}
        return {"delivery": "exactly_once", "sinkId": sink_id, **atomic}


EXACT = tuple(delivery for delivery in Delivery if delivery.is_exact)


class Kind(NamedTuple):
    """A stateful or stateless query, and the delivery of its sink."""

    is_stateful: bool
    delivery: Delivery = Delivery.AT_LEAST_ONCE

    @property
    def query(self) -> str:
        return "stateful" if self.is_stateful else "stateless"
