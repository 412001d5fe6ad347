"""Markers of ended transactions, and what a reader of committed records leaves out.

A control batch holds one record that ends a producer's transaction; applications never see it. The
aborted transactions in a Fetch response say which batches to leave out.

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
"""The most that a control record may decompress to; brokers neither compress nor fill them."""

END_MARKER: Final = struct.Struct(">hi")
"""The value of a marker that ends a transaction: version, epoch of its coordinator."""


class ControlType(IntEnum):
    """What a control batch says; types that are not here belong to brokers among themselves."""

    ABORT = 0
    COMMIT = 1
    OTHER = -1


def control_type(batch: RecordBatch) -> ControlType:
    """Return what the marker in a control batch says.

    Raises:
        CorruptRecordError: it holds no marker that can be read.
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
    """Return the type that the `key` of a record in a control batch says, also an unknown one.

    Raises:
        CorruptRecordError: the key cannot be read.
    """
    if key is None or len(key) < KEY.size:
        raise batch.corrupt(f"the key of its control record is {key!r:.50}")
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise batch.corrupt(f"the key of its control record has version {version}")
    return int(number)


def coordinator_epoch(batch: RecordBatch, value: bytes | None) -> int:
    """Return which epoch of the coordinator wrote the marker, a commit or an abort, in `batch`.

    Raises:
        CorruptRecordError: the marker's `value` is too short.
    """
    if value is None or len(value) < END_MARKER.size:
        raise batch.corrupt(f"the value of its marker is {value!r:.50}")
    epoch: int = END_MARKER.unpack_from(value)[1]
    return epoch


class AbortedTransactions:
    """Says, batch after batch in offset order, what a reader of committed records leaves out.

    `aborted` is from the Fetch response: of each aborted transaction the producer id and
    the offset of its first record.
    """

    __slots__ = ("_aborting", "_upcoming")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        # Brokers need not send them in order; the next one is at the end.
        self._upcoming = sorted(aborted, key=itemgetter(1), reverse=True)
        self._aborting: set[int] = set()
        """Producers whose aborted transaction has begun and not ended."""

    def hides(self, batch: RecordBatch) -> bool:
        """Whether the batch, which is no control batch, is part of an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        return batch.is_transactional and batch.producer_id in self._aborting

    def on_control(self, batch: RecordBatch) -> None:
        """Take note of a control batch; no application gets it.

        Raises:
            CorruptRecordError: it holds no marker that can be read.
        """
        self._begin_up_to(batch.last_offset)
        if control_type(batch) is ControlType.ABORT:
            self._aborting.discard(batch.producer_id)

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[-1][1] <= offset:
            self._aborting.add(self._upcoming.pop()[0])
