"""What a storm noted of itself; and what must hold after it, whatever was interrupted.

- A record is where its delivery has it; no record stands in the log twice.
- A record whose `send` returned is in the log, unless its producer was closed before its time.
- What one thread sent to a partition one after the other stands there in that order.
- A consumer gets each partition's records one after the other: none skipped, none again, except
  where its partitions were assigned anew; then it begins no later than where reading had come.
- Nothing is committed that was not returned and processed.
- In the end everything was read.

Owner: a journal is written by one program, and read by one test when that has ended.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Log = dict[int, list[int]]
"""By partition the numbers of its records, in the order of their offsets, from 0 on."""

Event = list[object]
"""What happened to the consumers, in the order in which it did:

- ``["opened"]``: from here on it is a new consumer, with all partitions assigned anew;
- ``["moved", [partition ...]]``: a rebalance callback named these partitions;
- ``["returned", [[partition, [offset ...]] ...]]``: one poll's records. Who polls has
  processed what was returned before;
- ``["finished"]``: whatever was returned before is processed;
- ``["committed", [[partition, offset] ...]]``: what the coordinator had, while nothing else ran.
"""


class Sending(NamedTuple):
    """One call of `send`. Times are ticks of one counter."""

    number: int
    """The record's value, and the tick at which the call began."""
    producer: int
    returned: int | None = None
    """When the call returned; None if it raised, or an interrupt came right after it."""
    partition: int | None = None
    offset: int | None = None
    """Where the record is, by its delivery."""
    error: str = ""
    """Why the record failed, by its delivery."""


@dataclass(slots=True)
class Journal:
    """What one run of the storm noted."""

    sendings: list[Sending] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cut_producers: list[int] = field(default_factory=list)
    """Producers that were closed without the time to deliver what they had."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many interruptions there were, by kind; and how many calls in them were refused."""
    faults: list[str] = field(default_factory=list)
    """What the program saw itself and that must not be."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Journal:
        journal = cls(**json.loads(path.read_text()))
        journal.sendings = [Sending(*row) for row in journal.sendings]
        return journal


def violations(journal: Journal, log: Log) -> list[str]:
    """Return what must not be, each in a sentence; nothing if all is well."""
    return [
        *journal.faults,
        *_wrong_deliveries(journal, log),
        *_wrong_order(journal, log),
        *_Reading().wrong(journal.events, log),
    ]


def _wrong_deliveries(journal: Journal, log: Log) -> Iterator[str]:
    sent = {sending.number for sending in journal.sendings}
    written = Counter(number for numbers in log.values() for number in numbers)
    for number, count in written.items():
        if count > 1:
            yield f"record {number} is written {count} times"
        if number not in sent:
            yield f"record {number} is in the log and was never sent"
    cut = set(journal.cut_producers)
    for sending in journal.sendings:
        if sending.returned is not None:
            yield from _wrong_delivery(sending, log, is_cut=sending.producer in cut)


def _wrong_delivery(sending: Sending, log: Log, *, is_cut: bool) -> Iterator[str]:
    if sending.partition is not None and sending.offset is not None:
        numbers = log.get(sending.partition, [])
        if numbers[sending.offset : sending.offset + 1] != [sending.number]:
            yield f"{sending} is not where its delivery says"
    elif not is_cut or not sending.error:
        yield f"{sending} is lost"


def _wrong_order(journal: Journal, log: Log) -> Iterator[str]:
    by_number = {sending.number: sending for sending in journal.sendings}
    for partition, numbers in log.items():
        earliest: dict[int, Sending] = {}
        """By producer, of the records behind, the one whose `send` returned first."""
        for number in reversed(numbers):
            sending = by_number.get(number)
            if sending is None or sending.returned is None:
                continue
            behind = earliest.get(sending.producer)
            if behind is not None and cast("int", behind.returned) < sending.number:
                yield f"partition {partition}: {sending} stands before {behind}, sent earlier"
            if behind is None or sending.returned < cast("int", behind.returned):
                earliest[sending.producer] = sending


class _Reading:
    """Follows what consumers were given, partition by partition."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        """Where a partition goes on, since it was assigned."""
        self._ends: dict[int, int] = {}
        """How far each partition was ever read."""
        self._finished: dict[int, int] = {}

    def wrong(self, events: Sequence[Event], log: Mapping[int, Sequence[int]]) -> Iterator[str]:
        for event in events:
            yield from self._wrong_event(event)
        for partition, numbers in log.items():
            end = self._ends.get(partition, 0)
            if end != len(numbers):
                yield f"partition {partition} is read up to {end} of {len(numbers)}"

    def _wrong_event(self, event: Event) -> Iterator[str]:
        match event:
            case ["opened"]:
                self._positions.clear()
            case ["moved", list(partitions)]:
                for partition in partitions:
                    self._positions.pop(partition, None)
            case ["returned", list(parts)]:
                self._finished |= self._ends
                for partition, offsets in parts:
                    yield from self._read(partition, offsets)
            case ["finished"]:
                self._finished |= self._ends
            case ["committed", list(offsets)]:
                yield from self._wrong_commits(offsets)
            case _:
                yield f"unknown event {event}"

    def _read(self, partition: int, offsets: Sequence[int]) -> Iterator[str]:
        first, end = offsets[0], offsets[-1] + 1
        if list(offsets) != list(range(first, end)):
            yield f"partition {partition}: a poll returned {_shortened(offsets)}"
        reached = self._ends.get(partition, 0)
        position = self._positions.get(partition)
        if position is not None and first != position:
            yield f"partition {partition}: {first} came where {position} was next"
        elif first > reached:
            yield f"partition {partition}: begins at {first}, and was read up to {reached}"
        self._positions[partition] = end
        self._ends[partition] = max(reached, end)

    def _wrong_commits(self, offsets: Sequence[Sequence[int]]) -> Iterator[str]:
        for partition, offset in offsets:
            finished = self._finished.get(partition, 0)
            if offset > finished:
                yield f"partition {partition}: {offset} is committed, {finished} was processed"


def _shortened(offsets: Sequence[int]) -> str:
    return f"{list(offsets[:20])} ({len(offsets)} offsets)"
