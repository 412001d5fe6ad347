"""FlightRecord: one flight as it travels through Kafka, JSON under the key of its carrier.

The value holds the data set's own columns and, as ``sequence``, the flight's place in the data
set, by which a reader can tell that nothing is missing, doubled or out of order.

Owner: none; it is immutable.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flights.data_set import Flight


class FlightRecord(NamedTuple):
    """The bytes of one record. Its place in the list that holds it is its ``sequence``."""

    key: bytes
    value: bytes


def flight_records(flights: Iterable[Flight]) -> list[FlightRecord]:
    """The records of `flights`, in order."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return [
        FlightRecord(
            str(flight["carrier"]).encode(), encode({"sequence": sequence, **flight}).encode()
        )
        for sequence, flight in enumerate(flights)
    ]
