"""AirlineWeek: how many flights an airline had in one week, and how late they left together.

Computed here straight from the data set, to be compared with what Spark's stream has written. Weeks
begin where Spark's windows of seven days do: on Thursdays, as 1970 did.

Owner: none; it is immutable.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from flights.delays import AirlineDelay

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flights.data_set import Flight

WEEK = timedelta(days=7)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AirlineWeek(NamedTuple):
    """One airline's week. Cancelled flights count as flights; `delay_minutes` has them not."""

    begin: date
    carrier: str
    flight_count: int
    departed_count: int
    delay_minutes: int


def airline_weeks(flights: Iterable[Flight]) -> list[AirlineWeek]:
    """Return the weeks in which each airline has flights, in their order."""
    counts, departed, delays = (Counter[tuple[date, str]]() for _ in range(3))
    for flight in flights:
        moment = datetime.fromisoformat(str(flight["time_hour"]))
        key = (moment - (moment - EPOCH) % WEEK).date(), str(flight["carrier"])
        counts[key] += 1
        if isinstance(delay := flight["dep_delay"], int):
            departed[key] += 1
            delays[key] += delay
    return [
        AirlineWeek(*key, count, departed[key], delays[key])
        for key, count in sorted(counts.items())
    ]


def delays_of(weeks: Sequence[AirlineWeek], airlines: Mapping[str, str]) -> list[AirlineDelay]:
    """Sum up the year of each airline, ordered by carrier."""
    return [
        AirlineDelay(
            carrier,
            airlines[carrier],
            sum(week.flight_count for week in own),
            departed_count,
            sum(week.delay_minutes for week in own) / departed_count if departed_count else None,
        )
        for carrier in sorted({week.carrier for week in weeks})
        for own in [[week for week in weeks if week.carrier == carrier]]
        for departed_count in [sum(week.departed_count for week in own)]
    ]


def differing_weeks(
    place: str, expected: Sequence[AirlineWeek], found: Sequence[AirlineWeek]
) -> list[str]:
    """One line for the weeks of `place` that differ, with the first of them; nothing if none do."""
    missing, surplus = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if not missing and not surplus:
        return []
    return [
        f"{place} has {surplus.total()} weeks that the data set has not, such as "
        f"{next(iter(surplus), None)}, and lacks {missing.total()}, such as "
        f"{next(iter(missing), None)}"
    ]
