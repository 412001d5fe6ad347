"""Arguments of public calls: an invalid one raises a `UsageError` with its name and the cure.

Messages show numbers and short texts, and only the type of everything else: bytes may belong to a
record, and messages end up in logs.

Owner: none; it holds no state.
Source: ours. Java's compiler rejects most of these mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.config.setting import INT_MAX, LONG_MAX, sendable_text, shown
from pykclient.errors.base import UsageError
from pykclient.types import TOPIC_LENGTH_MAX, OffsetAndMetadata, TopicPartition, is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

T = TypeVar("T")


FOREVER_MS: Final = 2**53
"""Value of an infinite timeout; added to a clock it stays below `NEVER_MS`."""

TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Kafka's rule for topic names (``Topic.validate``), except that it allows "." and ".."."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_PARTITION: Final = "TopicPartition(topic, number)"


def shown_argument(value: object) -> str:
    """Return the form of an invalid argument for messages: numbers and texts, else its type."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return shown("", value)
    if isinstance(value, TopicPartition):
        return f"TopicPartition({', '.join(map(shown_argument, value))})"
    return f"of type {type(value).__name__}"


def is_number(value: object, maximum: int) -> bool:
    """Return whether a value is an integer from 0 to `maximum`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= maximum


# Partitions.


def check_partition(partition: object, call: str) -> None:
    if not (
        isinstance(partition, TopicPartition)
        and is_topic_name(partition.topic)
        and is_number(partition.partition, INT_MAX)
    ):
        raise UsageError(
            f"{call}: {shown_argument(partition)} is not a partition; give {_PARTITION}, numbers "
            f"from 0 to {INT_MAX}"
        )


def partition_list(
    partitions: Iterable[TopicPartition] | TopicPartition, call: str
) -> list[TopicPartition]:
    if isinstance(partitions, TopicPartition):
        given = shown_argument(partitions)
        raise UsageError(f"{call}({given}): give a list of partitions, as in {call}([{given}])")
    found = value_list(partitions, f"{call}: partitions", _PARTITION)
    for partition in found:
        check_partition(partition, call)
    return found


def offsets_by_partition(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int], call: str
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets in the form in which they are committed."""
    each = "the offset of the next record to read, such as next_offsets of the result of poll"
    found = {}
    for partition, given in _items(offsets, f"{call}: offsets", each):
        where = f"{call}: offset of {partition}"
        offset = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        check_offset(offset.offset, where)
        if not isinstance(offset.metadata, str):
            raise UsageError(
                f"{where}: metadata is {shown_argument(offset.metadata)}; give a string"
            )
        check_text(offset.metadata, "metadata", where)
        if offset.leader_epoch is not None and not is_number(offset.leader_epoch, INT_MAX):
            raise UsageError(
                f"{where}: leader_epoch is {shown_argument(offset.leader_epoch)}; give a number "
                f"from 0, or None"
            )
        found[partition] = offset
    return found


def times_by_partition(
    times: Mapping[TopicPartition, int | datetime], call: str
) -> dict[TopicPartition, int]:
    """Return times in milliseconds since 1970, with fractions rounded up."""
    each = "milliseconds since 1970 or to a datetime"
    return {
        partition: checked_time_ms(time, f"{call}: the time for {partition}")
        for partition, time in _items(times, f"{call}: timestamps_ms", each)
    }


def _items(
    values: Mapping[TopicPartition, T], where: str, each: str
) -> Iterator[tuple[TopicPartition, T]]:
    """Yield the value of each partition in a mapping; `each` describes a value."""
    if not isinstance(values, Mapping):
        raise UsageError(
            f"{where} is {shown_argument(values)}; give a mapping of each {_PARTITION} to {each}"
        )
    for partition, value in values.items():
        check_partition(partition, where)
        yield partition, value


def checked_time_ms(time: object, where: str) -> int:
    """Return a time in milliseconds since 1970, with fractions rounded up."""
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise UsageError(
                f"{where} is a datetime without a time zone; give one with a time zone, such as "
                f"datetime.now(UTC), or milliseconds since 1970"
            )
        time = -((_EPOCH - time) // _MILLISECOND)
    if is_number(time, LONG_MAX):
        assert isinstance(time, int)
        return time
    seconds = " (seconds? time.time() returns those)" if isinstance(time, float) else ""
    raise UsageError(
        f"{where} is {shown_argument(time)}{seconds}; give an integer, milliseconds since 1970, or "
        f"a datetime with its time zone. For the ends use beginning_offsets and end_offsets"
    )


def limits_by_partition(limits: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    each = "the offset where it ends, as end_offsets returns it"
    for partition, offset in _items(limits, "poll_arrow: until", each):
        check_offset(offset, f"poll_arrow: until of {partition}")
    return limits


def check_offset(offset: object, where: str) -> None:
    if not is_number(offset, LONG_MAX):
        raise UsageError(
            f"{where} is {shown_argument(offset)}; give an integer from 0 to {LONG_MAX}"
        )


# Lists, names and others.


def value_list(values: Iterable[T], where: str, each: str) -> list[T]:
    """Return values as a list; `each` describes one of them."""
    # A partition is a tuple, too: a list of names must not take its topic for a name.
    no_lists = (str, bytes, bytearray, memoryview, TopicPartition, OffsetAndMetadata)
    if isinstance(values, no_lists) or not isinstance(values, Iterable):
        raise UsageError(f"{where} is {shown_argument(values)}; give a list, each {each}")
    return list(values)


def name_list(names: Iterable[str], what: str, call: str) -> list[str]:
    """Return each name once; `what` describes a name for the error."""
    if isinstance(names, str):  # a string is an iterable of strings as well
        given = shown_argument(names)
        raise UsageError(f"{call}({given}): give a list of {what} names, as in {call}([{given}])")
    found = value_list(names, f"{call}: {what}s", f"the name of a {what}")
    for name in found:
        if not isinstance(name, str):
            raise UsageError(f"{call}: {shown_argument(name)} is not a {what} name; give strings")
        check_text(name, what, call)
    return list(dict.fromkeys(found))


def subscribed_topics(topics: Collection[str]) -> list[str]:
    """Return the topics of `subscribe`, in order."""
    if isinstance(topics, str):
        shown = shown_argument(topics)
        raise UsageError(f"subscribe({shown}): give a list, as in subscribe([{shown}])")
    listed = value_list(topics, "subscribe: topics", "the name of a topic")
    for topic in listed:
        if not isinstance(topic, str) or not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise UsageError(
                f"subscribe: {shown_argument(topic)} is not a topic name: give up to 249 letters, "
                f"digits, dots, underscores and hyphens; for a regular expression use "
                f"subscribe(pattern=...)"
            )
    return listed


def compiled_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """Return the pattern of `subscribe`, compiled."""
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(
            f"subscribe: pattern {shown_argument(pattern)} is not a regular expression: {error}"
        ) from error
    if not isinstance(compiled.pattern, str):
        raise UsageError("subscribe: pattern is a bytes pattern; topics are text")
    return compiled


def check_topic(topic: object, call: str) -> str:
    """Check that a request can carry a topic's name, and return it.

    Brokers decide whether it is legal.
    """
    if isinstance(topic, str) and is_topic_name(topic):
        return topic
    raise UsageError(
        f"{call}: a topic's name is a string of 1 to {TOPIC_LENGTH_MAX} characters, not "
        f"{shown_argument(topic)}"
    )


def check_text(text: str, what: str, call: str) -> None:
    """Reject a string that no request can carry."""
    try:
        sendable_text(text)
    except ValueError as error:
        raise UsageError(
            f"{call}: the {what} {shown_argument(text)} cannot be sent. {error}"
        ) from error


def check_number(number: object, where: str, smallest: int, largest: int) -> None:
    if not is_number(number, largest) or (isinstance(number, int) and number < smallest):
        raise UsageError(
            f"{where} is {shown_argument(number)}; give a number from {smallest} to {largest}"
        )


def check_count(count: object, where: str) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise UsageError(f"{where}={shown_argument(count)}: give a number from 1")


def check_callable(function: Callable[..., object] | None, where: str, takes: str) -> None:
    """Reject a value that is neither callable nor None. `takes` names its arguments."""
    if function is not None and not callable(function):
        raise UsageError(
            f"{where} is of type {type(function).__name__}, which is not callable; give a "
            f"function of {takes}, or None"
        )


def timeout_ms(timeout: float | None, default_ms: int) -> int:
    """Return a timeout in milliseconds; None stands for the default."""
    if timeout is None:
        return default_ms
    try:
        if timeout >= 0:  # false for NaN
            return round(min(timeout * 1000, FOREVER_MS))
    except (TypeError, ValueError, ArithmeticError):  # text, a timedelta, an array ...
        pass  # refused below, with the others
    raise UsageError(
        f"timeout={shown_argument(timeout)}: give seconds, from 0, or None for the default"
    )
