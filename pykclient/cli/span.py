"""The span of records that a command reads: the first and the last offset of each partition.

``-o`` sets both ends: ``beginning``, ``end``, ``stored``, an offset, ``-N`` for the last N,
``s@TIME`` for the first record at or after a time, ``e@TIME`` to end before one. Without ``e@``, a
command that needs an end stops at the partitions' ends as of its start.

Owner: none; it holds no state.
Source: kcat's option ``-o``; the words ``earliest`` and ``latest`` of Kafka's console consumer.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.cli.complaint import absent_partition, absent_topic
from pykclient.cli.moment import moment_ms
from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pykclient import Consumer

    Offsets = dict[TopicPartition, int]

BEGINNING, END, STORED = "beginning", "end", "stored"
_WORDS: Final = {
    BEGINNING: BEGINNING,
    "earliest": BEGINNING,
    END: END,
    "latest": END,
    STORED: STORED,
}


class Place(NamedTuple):
    """One ``-o``: a word, an offset (negative from the end), or a time in ms, ``s@`` or ``e@``."""

    word: str | None = None
    offset: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None


class Span(NamedTuple):
    """The offsets to read of each partition: the first, and the one after the last."""

    starts: Offsets
    ends: Offsets

    @property
    def record_count(self) -> int:
        """Number of offsets in the span."""
        return sum(max(0, end - self.starts[each]) for each, end in self.ends.items())


def place(text: str) -> Place:
    """Parse one ``-o``. Raises `argparse.ArgumentTypeError`."""
    kind, sign, moment = text.partition("@")
    try:
        if text in _WORDS:
            return Place(word=_WORDS[text])
        if sign and kind == "s":
            return Place(from_ms=moment_ms(moment))
        if sign and kind == "e":
            return Place(until_ms=moment_ms(moment))
        return Place(offset=int(text))
    except ValueError as error:
        reason = str(error) if sign else f"{text!r} is not an offset"
        raise argparse.ArgumentTypeError(
            f"{reason}; give {', '.join(_WORDS)}, an offset, -N for the last N, s@TIME or e@TIME"
        ) from error


def add_span_options(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Add the options that name topics, partitions and offsets."""
    parser.add_argument(
        *("-t", "--topic"),
        action="append",
        required=True,
        dest="topics",
        metavar="TOPIC",
        help="a topic; may be repeated",
    )
    parser.add_argument(
        *("-p", "--partition"),
        action="append",
        type=int,
        dest="partitions",
        metavar="N",
        help="only this partition; may be repeated",
    )
    parser.add_argument(
        *("-o", "--offset"),
        action="append",
        default=[],
        type=place,
        dest="places",
        metavar="WHERE",
        help=f"{', '.join(_WORDS)}, an offset, -N for the last N, s@TIME to start at a time, "
        f"e@TIME to exit before one; times are ISO 8601 or ms since 1970 (default: {default})",
    )


def partitions_of(consumer: Consumer, options: argparse.Namespace) -> list[TopicPartition]:
    """Return the partitions that the options name.

    Raises:
        UsageError: a topic or a partition does not exist.
        KafkaTimeoutError: no broker responded in time.
    """
    found: list[TopicPartition] = []
    for topic in dict.fromkeys(options.topics):
        try:
            numbers = [p.partition for p in consumer.partitions_for(topic, options.timeout)]
        except UnknownTopicOrPartitionError as error:
            raise absent_topic(topic) from error
        wanted = numbers if options.partitions is None else options.partitions
        absent = sorted({*wanted} - {*numbers})
        if absent:
            raise absent_partition(topic, absent[0], len(numbers))
        found += [TopicPartition(topic, number) for number in dict.fromkeys(wanted)]
    return found


def span_of(
    consumer: Consumer, partitions: Sequence[TopicPartition], places: Iterable[Place]
) -> Span:
    """Find the offsets of both ends at present; ``stored`` is only for groups.

    Raises:
        KafkaTimeoutError: no broker responded in time.
    """
    first = consumer.beginning_offsets(partitions)
    last = consumer.end_offsets(partitions)
    starts, ends = dict(first), dict(last)
    for each in places:
        if each.until_ms is not None:
            ends = _at(consumer, each.until_ms, last)
        elif each.from_ms is not None:
            starts = _at(consumer, each.from_ms, last)
        else:
            starts = {p: _offset(p, each, first[p], last[p]) for p in partitions}
    return Span(starts, ends)


def offset_inside(partition: TopicPartition, wanted: int, first: int, last: int) -> int:
    """Move an offset to the nearer end of a partition's range, and print that."""
    taken = min(max(wanted, first), last)
    if taken != wanted:
        sys.stderr.write(
            f"pykclient: {partition} holds offsets {first} to {last}; {taken} is used instead of "
            f"{wanted}\n"
        )
    return taken


def _offset(partition: TopicPartition, wanted: Place, first: int, last: int) -> int:
    if wanted.offset is None:
        return first if wanted.word == BEGINNING else last
    if wanted.offset < 0:
        return max(first, last + wanted.offset)
    return offset_inside(partition, wanted.offset, first, last)


def _at(consumer: Consumer, time_ms: int, last: Offsets) -> Offsets:
    found = consumer.offsets_for_times(dict.fromkeys(last, time_ms))
    return {p: last[p] if at is None else min(at.offset, last[p]) for p, at in found.items()}
