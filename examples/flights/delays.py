"""AirlineDelay: how many flights an airline had, and how late they left on average.

Computed here straight from the data set, to be compared with what Spark finds in Kafka. A delay
counts minutes, negative for early departures; cancelled flights have none, and count as flights
but not in the mean.

Owner: none; it is immutable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flights.data_set import Flight

ROUNDING = 1e-12
"""Relative: both sides divide the same two exact integers, so only the last bit may differ."""


@dataclass(frozen=True, slots=True)
class AirlineDelay:
    """One airline's delays. `mean_delay_minutes` is None when none of its flights departed."""

    carrier: str
    airline: str
    flight_count: int
    departed_count: int
    mean_delay_minutes: float | None


def airline_delays(flights: Iterable[Flight], airlines: Mapping[str, str]) -> list[AirlineDelay]:
    """Return the delays of each airline that has flights, ordered by carrier."""
    delays_by_carrier: dict[str, list[int]] = {}
    flight_counts: dict[str, int] = {}
    for flight in flights:
        carrier, delay_minutes = str(flight["carrier"]), flight["dep_delay"]
        flight_counts[carrier] = flight_counts.get(carrier, 0) + 1
        if isinstance(delay_minutes, int):
            delays_by_carrier.setdefault(carrier, []).append(delay_minutes)
    return [
        AirlineDelay(
            carrier,
            airlines[carrier],
            flight_count,
            len(delays),
            sum(delays) / len(delays) if delays else None,
        )
        for carrier, flight_count in sorted(flight_counts.items())
        for delays in [delays_by_carrier.get(carrier, [])]
    ]


def differences(expected: Sequence[AirlineDelay], found: Sequence[AirlineDelay]) -> list[str]:
    """One line per airline whose delays differ by more than float rounding."""
    found_by_carrier = {delay.carrier: delay for delay in found}
    lines = [
        f"{carrier}: Spark found {found_by_carrier[carrier]}, but the data set has no such airline"
        for carrier in found_by_carrier.keys() - {delay.carrier for delay in expected}
    ]
    for delay in expected:
        other = found_by_carrier.get(delay.carrier)
        if other is None or not _are_equal(delay, other):
            lines.append(f"{delay.carrier}: the data set gives {delay}, Spark {other}")
    if len(found_by_carrier) != len(found):
        lines.append(f"Spark returns {len(found)} rows for {len(found_by_carrier)} airlines")
    return lines


def _are_equal(one: AirlineDelay, other: AirlineDelay) -> bool:
    if one.mean_delay_minutes is None or other.mean_delay_minutes is None:
        return one == other
    return (
        one.carrier,
        one.airline,
        one.flight_count,
        one.departed_count,
    ) == (
        other.carrier,
        other.airline,
        other.flight_count,
        other.departed_count,
    ) and math.isclose(one.mean_delay_minutes, other.mean_delay_minutes, rel_tol=ROUNDING)
