"""Audit: compares the records that a consumer reads with those that were sent, one by one.

It counts five kinds of fault: a record *missing*, *doubled*, *out of order* within its key,
*altered* (its bytes differ from those sent under its sequence number) and *astray* (one key on more
than one partition). It stops at nothing: all faults are counted, and the first of each kind is
kept to be shown.

Owner: the thread that reads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flights.record import FlightRecord
    from pykclient import ConsumerRecord


class Audit:
    """Knows what was sent; `add` takes what is read, `faults` returns what differs."""

    def __init__(self, sent: Sequence[FlightRecord]) -> None:
        self._sent = sent
        self._is_read = bytearray(len(sent))
        self._newest_by_key: dict[bytes, int] = {}
        self._partition_by_key: dict[bytes, int] = {}
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}

    def add(self, record: ConsumerRecord) -> None:
        """Take one record, in the order in which it was read."""
        where = f"{record.topic}-{record.partition} offset {record.offset}"
        sequence = self._sequence_of(record.value)
        if sequence is None or self._sent[sequence] != (record.key, record.value):
            self._count("altered", f"{where} holds {record.value!r:.80} under key {record.key!r}")
            return
        key = self._sent[sequence].key
        if self._is_read[sequence]:
            self._count("doubled", f"{where} holds flight {sequence} again")
        self._is_read[sequence] = True
        newest = self._newest_by_key.get(key, -1)
        if sequence < newest:
            self._count("out of order", f"{where} holds flight {sequence} after {newest}")
        self._newest_by_key[key] = max(sequence, newest)
        home = self._partition_by_key.setdefault(key, record.partition)
        if record.partition != home:
            self._count("astray", f"{where} holds key {key!r}, as partition {home} did")

    def faults(self) -> list[str]:
        """One line per kind of fault, with its number and an example; empty when all is well."""
        counts, examples = dict(self._counts), dict(self._examples)
        missing_count = self._is_read.count(0)
        if missing_count:
            counts["missing"] = missing_count
            examples["missing"] = f"flight {self._is_read.index(0)} was read nowhere"
        return [f"{count:,} {kind}: {examples[kind]}" for kind, count in counts.items()]

    def _count(self, kind: str, example: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._examples.setdefault(kind, example)

    def _sequence_of(self, value: object) -> int | None:
        """Return the place in the data set that a value names, or None."""
        try:
            flight = json.loads(value) if isinstance(value, bytes) else None
        except ValueError:
            return None
        sequence = flight.get("sequence") if isinstance(flight, dict) else None
        is_known = isinstance(sequence, int) and 0 <= sequence < len(self._sent)
        return sequence if is_known else None
