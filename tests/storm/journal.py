"""What a storm did and what came of it, as its judge reads it.

Owner: none; a journal is written by one program, and read by one test when that has ended.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Event", "Journal", "Sending"]

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
    """Where the record is, as its delivery says."""
    error: str = ""
    """Why the record failed, as its delivery says."""


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
        """Write the journal for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Return what `write` wrote."""
        journal = cls(**json.loads(path.read_text()))
        journal.sendings = [Sending(*row) for row in journal.sendings]
        return journal
