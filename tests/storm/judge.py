"""The journal of a storm, and the invariants after it, whatever was interrupted.

- A record is where its delivery says; no record is in the log twice.
- A record whose `send` returned is in the log, unless its producer was closed without waiting.
- Records that a thread sent to a partition one after another are in that order.
- A consumer gets each partition's records in order, with none skipped and none repeated, except
  after a new assignment; it then begins no later than where reading had ended.
- Only returned and processed records are committed.
- In the end everything was read.

Owner: a journal is written by one program, and read by a test when the program has ended.
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
"""Numbers of the records by partition, in offset order from 0."""

Event = list[object]
"""An event of the consumers, in order:

- ``["opened"]``: a new consumer begins, with a new assignment of all partitions;
- ``["moved", [partition ...]]``: a rebalance callback named these partitions;
- ``["returned", [[partition, [offset ...]] ...]]``: the records of a poll; everything returned
  earlier is processed;
- ``["finished"]``: everything returned earlier is processed;
- ``["committed", [[partition, offset] ...]]``: the coordinator's offsets, while nothing else ran.
"""


class Sending(NamedTuple):
    """A call of `send`. Times are ticks of a counter."""

    number: int
    """Value of the record, and the tick at which the call began."""
    producer: int
    returned: int | None = None
    """Tick at which the call returned; None if it raised, or was interrupted right afterwards."""
    partition: int | None = None
    offset: int | None = None
    """Place of the record, according to its delivery."""
    error: str = ""
    """Error of the record, according to its delivery."""


@dataclass(slots=True)
class Journal:
    """Journal of a run of the storm."""

    sendings: list[Sending] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cut_producers: list[int] = field(default_factory=list)
    """Producers that were closed without time to deliver their records."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of interruptions by kind, and of refused calls in them."""
    faults: list[str] = field(default_factory=list)
    """Violations that the program saw itself."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Journal:
        journal = cls(**json.loads(path.read_text()))
        journal.sendings = [Sending(*row) for row in journal.sendings]
        return journal


def violations(journal: Journal, log: Log) -> list[str]:
    """Return all violations, each as a sentence."""
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
        """The later record whose `send` returned first, by producer."""
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
    """Follows the consumers' records, partition by partition."""

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        """Next offset of each partition since its assignment."""
        self._ends: dict[int, int] = {}
        """The end of the records ever read of each partition."""
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
