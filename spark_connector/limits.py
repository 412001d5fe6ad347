"""Start and end of a read, as the options give them: an edge, offsets, a time or a group.

Source: Spark's Structured Streaming + Kafka Integration Guide (options and JSON forms).
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pykclient import TopicPartition
from pykclient.errors import ConfigError
from spark_connector.offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from spark_connector.offsets import LogBounds

    OffsetsAt = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int | None]]
    Committed = Callable[[str, Collection[TopicPartition]], Mapping[TopicPartition, int]]

_LOG = logging.getLogger(__name__)

GROUP_PREFIX: Final = "group:"
NAMED_MAX: Final = 10
SHOWN_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class OffsetLimit:
    """One end of the read, as an option gave it.

    Exactly one is set: `everywhere` holds for all partitions, `by_partition` for each, and `group`
    is a consumer group whose committed offsets hold. Values are offsets (or `EARLIEST`, `LATEST`),
    or with `is_timestamp` milliseconds since 1970. `fallback` replaces a time after which a
    partition has no record; None makes that an error.
    """

    option: str
    everywhere: int | None = None
    by_partition: Mapping[TopicPartition, int] | None = None
    group: str = ""
    is_timestamp: bool = False
    fallback: int | None = LATEST

    @property
    def is_fixed(self) -> bool:
        """True if it always yields the same offsets: they are given, or the earliest."""
        values = {self.everywhere} if self.by_partition is None else {*self.by_partition.values()}
        return not (self.group or self.is_timestamp or LATEST in values)

    def offsets(
        self, partitions: Sequence[TopicPartition], offsets_at: OffsetsAt, committed: Committed
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition, or the edge that the user gave for it.

        `offsets_at` returns the first offset at or after a time, None if there is none; `committed`
        returns a group's committed offsets. A partition without a committed offset begins at the
        earliest one, so that nothing is left out.

        Raises: `ConfigError` if the limit does not name exactly these partitions, or if no record
        is as recent as a time and there is no fallback.
        """
        if self.group:
            found = committed(self.group, partitions)
            missing = [partition for partition in partitions if partition not in found]
            if missing:
                _LOG.warning(
                    "Group %r has committed nothing for %s: reading from the earliest offset.",
                    self.group,
                    named(missing),
                )
            return {partition: found.get(partition, EARLIEST) for partition in partitions}
        values = self._values(partitions)
        if not self.is_timestamp:
            return values
        at = offsets_at(values)
        return {
            partition: self._offset_or_fallback(partition, timestamp_ms, at.get(partition))
            for partition, timestamp_ms in values.items()
        }

    def clamped(
        self, offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, LogBounds]
    ) -> Mapping[TopicPartition, int]:
        """Keep offsets that were looked up by time within what partitions hold now.

        A time after the newest record stands for the present end, which then stays fixed.
        """
        if not self.is_timestamp:
            return offsets
        return {
            partition: held.end if offset == LATEST else min(max(offset, held.beginning), held.end)
            for partition, held in bounds.items()
            for offset in (offsets[partition],)
        }

    def _values(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.by_partition is None:
            assert self.everywhere is not None
            return dict.fromkeys(partitions, self.everywhere)
        missing = sorted(set(partitions) - set(self.by_partition))
        surplus = sorted(set(self.by_partition) - set(partitions))
        if missing or surplus:
            raise ConfigError(
                f"{self.option} must name every partition that is read, and no other "
                f"(-1 is latest, -2 earliest). Missing: {named(missing)}. "
                f"Not read: {named(surplus)}."
            )
        return {partition: self.by_partition[partition] for partition in partitions}

    def _offset_or_fallback(
        self, partition: TopicPartition, timestamp_ms: int, offset: int | None
    ) -> int:
        if offset is not None:
            return offset
        if self.fallback is None:
            raise ConfigError(
                f"{self.option}: {partition} has no record at or after {timestamp_ms} ms. Give an "
                f"earlier time, or startingOffsetsByTimestampStrategy=latest."
            )
        return self.fallback


def starting_limit(given: Mapping[str, str], *, is_stream: bool) -> OffsetLimit:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(
            f"Option 'startingOffsetsByTimestampStrategy' must be error or latest, "
            f"not {strategy!r}."
        )
    by_time = _by_time(given, "starting", LATEST if strategy == "latest" else None)
    if by_time is not None:
        return by_time
    text = given.get("startingoffsets", "").strip()
    if text.lower().startswith(GROUP_PREFIX):
        group = text[len(GROUP_PREFIX) :].strip()
        if not group:
            raise ConfigError("Option 'startingOffsets' names no group: give 'group:NAME'.")
        return OffsetLimit("startingOffsets", group=group)
    if is_stream:
        return _by_offset(given, "startingOffsets", default=LATEST, refused=None)
    return _by_offset(given, "startingOffsets", default=EARLIEST, refused=LATEST)


def ending_limit(given: Mapping[str, str]) -> OffsetLimit:
    return _by_time(given, "ending", LATEST) or _by_offset(
        given, "endingOffsets", default=LATEST, refused=EARLIEST
    )


def _by_time(given: Mapping[str, str], end: str, fallback: int | None) -> OffsetLimit | None:
    """Return a time for all partitions or one for each, or None if no time was given."""
    everywhere, each = f"{end}Timestamp", f"{end}OffsetsByTimestamp"
    if everywhere.lower() in given:
        value = _time_ms(everywhere, given[everywhere.lower()].strip())
        return OffsetLimit(everywhere, everywhere=value, is_timestamp=True, fallback=fallback)
    if each.lower() in given:
        values = _offsets_from_json(each, given[each.lower()], minimum=0)
        return OffsetLimit(each, by_partition=values, is_timestamp=True, fallback=fallback)
    return None


def _time_ms(option: str, text: str) -> int:
    """Milliseconds since 1970: a number of them, ISO 8601, or a duration back from now."""
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    back = _duration(text)
    moment = _moment(text) if back is None else datetime.now(UTC) - back
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f"Option '{option}' must be milliseconds since 1970, a time with its zone such as "
            f"2026-01-31T12:00:00Z, or a duration back from now such as -PT10M, "
            f"not {text[:100]!r}."
        )
    if moment.year < 1970:
        raise ConfigError(f"Option '{option}' is a time before 1970: {text[:100]!r}.")
    return int(moment.timestamp() * 1_000)


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _duration(text: str) -> timedelta | None:
    """``-PT10M`` or ``-P1DT2H`` without its sign; None when `text` is none."""
    found = re.fullmatch(
        r"-P(?:(\d{1,6})D)?(?:T(?:(\d{1,8})H)?(?:(\d{1,8})M)?(?:(\d{1,10}(?:\.\d{1,3})?)S)?)?",
        text,
        re.IGNORECASE | re.ASCII,
    )
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def _by_offset(
    given: Mapping[str, str], option: str, *, default: int, refused: int | None
) -> OffsetLimit:
    """Return an edge or offsets; one of the edges is invalid at this end of a batch."""
    names = {"earliest": EARLIEST, "latest": LATEST}
    complaint = (
        f"Option '{option}' of a batch read cannot be "
        f"{'latest (-1)' if refused == LATEST else 'earliest (-2)'}: "
        f"give {'earliest' if default == EARLIEST else 'latest'}, or offsets as JSON."
    )
    text = given.get(option.lower(), "").strip()
    if option.lower() not in given:
        return OffsetLimit(option, everywhere=default)
    if (edge := names.get(text.lower())) is not None:
        if edge == refused:
            raise ConfigError(complaint)
        return OffsetLimit(option, everywhere=edge)
    values = _offsets_from_json(option, text, minimum=EARLIEST)
    if refused in values.values():
        raise ConfigError(complaint)
    return OffsetLimit(option, by_partition=values)


def _offsets_from_json(option: str, text: str, *, minimum: int) -> dict[TopicPartition, int]:
    """``{"topic": {"0": 23}}`` as a number for each partition, none below `minimum`."""
    values: dict[TopicPartition, int] = {}
    for topic, numbers in json_object(option, text, '{"topicA":{"0":23,"1":45}}').items():
        if not topic or not isinstance(numbers, dict):
            raise ConfigError(
                f'{option}: {shown(topic)} needs an object such as {{"0":23}}, '
                f"not {shown(numbers)}."
            )
        for partition, value in numbers.items():
            # As brokers number them: digits without a leading zero, within 32 bits.
            if re.fullmatch(r"0|[1-9][0-9]{0,9}", partition) is None or int(partition) >= 2**31:
                raise ConfigError(
                    f"{option}: {shown(partition)} of {shown(topic)} is no partition number."
                )
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or not minimum <= value < 2**63:
                raise ConfigError(
                    f"{option}: partition {partition} of {shown(topic)} needs an integer of at "
                    f"least {minimum} and of 63 bits at most, not {shown(value)}."
                )
            values[TopicPartition(topic, int(partition))] = value
    return values


def json_object(option: str, text: str, example: str) -> dict[str, object]:
    """Parse `text` as a JSON object.

    Raises: `ConfigError` for anything else, and for a repeated name, of which JSON would keep the
    last value.
    """

    def without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twin = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"{option} names {shown(twin)} twice: {shown(text)}.")
        return found

    try:
        value: object = json.loads(text, object_pairs_hook=without_twins)
    except ConfigError:
        raise
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{option} must be JSON such as {example}, not {shown(text)}.")
    return value


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."


def named(partitions: Sequence[TopicPartition]) -> str:
    names = [str(partition) for partition in partitions[:NAMED_MAX]]
    more = len(partitions) - NAMED_MAX
    return ", ".join([*names, f"{more} more"] if more > 0 else names) or "none"
