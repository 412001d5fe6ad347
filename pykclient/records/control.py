"""Markers of ended transactions, and what a reader of committed records leaves out.

A control batch holds one record that ends a producer's transaction; applications never see it. The
aborted transactions that come with a fetch answer tell which batches to leave out.

Owner: an `AbortedTransactionFilter` belongs to the fetch answer that it was made for.
Source: KIP-98, "Control Messages" and "READ_COMMITTED"; Java classes ``ControlRecordType``,
``EndTransactionMarker``.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.records.batch import RecordBatch

__all__ = ["AbortedTransaction", "AbortedTransactionFilter", "ControlType", "control_type"]

KEY: Final = struct.Struct(">hh")
"""A control record's key: version of the key, type. Later versions may append fields."""


class ControlType(IntEnum):
    """What a control batch says; types that are not here belong to brokers among themselves."""

    ABORT = 0
    COMMIT = 1
    OTHER = -1


class AbortedTransaction(NamedTuple):
    """One aborted transaction of a fetch answer: the producer, and its first record's offset."""

    producer_id: int
    first_offset: int


def control_type(batch: RecordBatch) -> ControlType:
    """Return what the marker in a control batch says.

    Raises:
        CorruptRecordError: it holds no marker that can be read.
    """
    assert batch.is_control
    keys = batch.records().keys
    # Compaction may leave a control batch without its marker.
    if not keys:
        return ControlType.OTHER
    key = keys[0]
    if len(keys) != 1 or key is None or len(key) < KEY.size:
        raise batch.corrupt(
            f"it should hold one control record, and holds {len(keys)}: {key!r:.50}"
        )
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise batch.corrupt(f"the key of its control record has version {version}")
    return ControlType(number) if number in (0, 1) else ControlType.OTHER


class AbortedTransactionFilter:
    """Tells, batch after batch in offset order, what a reader of committed records leaves out."""

    __slots__ = ("_aborted_producer_ids", "_upcoming")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        # Brokers need not send them in order; the next one is at the end.
        self._upcoming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted_producer_ids: set[int] = set()

    def excludes(self, batch: RecordBatch) -> bool:
        """Whether the batch is a marker or part of an aborted transaction.

        Must see every batch of the fetch answer once, in order.

        Raises:
            CorruptRecordError: a control batch holds no marker that can be read.
        """
        while self._upcoming and self._upcoming[-1].first_offset <= batch.last_offset:
            self._aborted_producer_ids.add(self._upcoming.pop().producer_id)
        if batch.is_control:
            if control_type(batch) is ControlType.ABORT:
                self._aborted_producer_ids.discard(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._aborted_producer_ids
