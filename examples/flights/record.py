"""FlightRecord: one flight as it travels through Kafka, JSON under the key of its carrier.

The value holds the data set's own columns and, as ``sequence``, the flight's place in time,
by which a reader sees that nothing is missing, doubled or out of order.

Owner: none; it is immutable.
"""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flights.data_set import Flight


class FlightRecord(NamedTuple):
    """The bytes of one record. Its place in the list that holds it is its ``sequence``."""

    key: bytes
    value: bytes


def flight_records(flights: Iterable[Flight]) -> list[FlightRecord]:
    """Return the records of `flights` in the order of their scheduled hours."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    encoded = [
        (str(flight["time_hour"]), str(flight["carrier"]), encode(flight)) for flight in flights
    ]
    encoded.sort(key=itemgetter(0))
    return [
        FlightRecord(carrier.encode(), f'{{"sequence":{sequence},{text[1:]}'.encode())
        for sequence, (_, carrier, text) in enumerate(encoded)
    ]
