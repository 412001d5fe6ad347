"""Markers of ended transactions, and the batches that read_committed readers skip.

A control batch holds one record that ends a producer's transaction; applications never see it. The
aborted transactions in a Fetch response tell which batches to skip.

Owner: `AbortedTransactions` belongs to the Fetch response that it was made for.
Source: KIP-98, "Control Messages" and "READ_COMMITTED"; Java classes ``ControlRecordType``,
``EndTransactionMarker``.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.records.batch import RecordBatch

KEY: Final = struct.Struct(">hh")
"""A control record's key: version of the key, type. Later versions may append fields."""

CONTROL_SIZE_BYTES_MAX: Final = 65_536
"""Maximum decompressed size of a control record; brokers neither compress nor fill them."""

END_MARKER: Final = struct.Struct(">hi")
"""Value of a marker that ends a transaction: version, coordinator epoch."""


class ControlType(IntEnum):
    """The types of control batches; others are for brokers only."""

    ABORT = 0
    COMMIT = 1
    OTHER = -1


def control_type(batch: RecordBatch) -> ControlType:
    """Return the type of the marker in a control batch.

    Raises:
        CorruptRecordError: it holds no valid marker.
    """
    assert batch.is_control
    if batch.record_count > 1:
        raise batch.corrupt(f"it should hold one control record, and holds {batch.record_count}")
    columns = next(batch.chunks(decompressed_size_bytes_max=CONTROL_SIZE_BYTES_MAX), None)
    # Compaction may leave a control batch without its marker.
    if columns is None:
        return ControlType.OTHER
    number = control_type_number(batch, columns.keys[0])
    return ControlType(number) if number in (0, 1) else ControlType.OTHER


def control_type_number(batch: RecordBatch, key: bytes | None) -> int:
    """Return the type in the `key` of a control record, even if it is unknown.

    Raises:
        CorruptRecordError: the key is malformed.
    """
    if key is None or len(key) < KEY.size:
        raise batch.corrupt(f"the key of its control record is {key!r:.50}")
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise batch.corrupt(f"the key of its control record has version {version}")
    return int(number)


def coordinator_epoch(batch: RecordBatch, value: bytes | None) -> int:
    """Return the epoch of the coordinator that wrote the commit or abort marker in `batch`.

    Raises:
        CorruptRecordError: the marker's `value` is too short.
    """
    if value is None or len(value) < END_MARKER.size:
        raise batch.corrupt(f"the value of its marker is {value!r:.50}")
    epoch: int = END_MARKER.unpack_from(value)[1]
    return epoch


class AbortedTransactions:
    """Tells, for batches in offset order, which ones a read_committed reader skips.

    `aborted` comes from the Fetch response: the producer id and first offset of each aborted
    transaction.
    """

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        # Brokers may send them unordered; the next one is at the end.
        self._upcoming = sorted(aborted, key=itemgetter(1), reverse=True)
        self._aborting: set[int] = set()
        """Producers whose aborted transaction has begun but not ended."""

    def hides(self, batch: RecordBatch) -> bool:
        """Return whether the batch, not a control batch, is part of an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        return batch.is_transactional and batch.producer_id in self._aborting

    def on_control(self, batch: RecordBatch) -> None:
        """Process a control batch, which no application gets.

        Raises:
            CorruptRecordError: it holds no valid marker.
        """
        self._begin_up_to(batch.last_offset)
        if control_type(batch) is ControlType.ABORT:
            self._aborting.discard(batch.producer_id)

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1][1] <= offset:
            self._aborting.add(self._upcoming.pop()[0])
