"""One pass of compaction over a log, batch by batch.

The newest record of each key stays, and so do records after the cleaned range. Records of aborted
transactions are removed. Markers, and records without a value (tombstones), are removed in two
steps: once nothing needs them they get a delete horizon, and a pass after that time removes them. A
producer's last batch keeps its header, which holds the sequence.

Batches keep their first and last offsets.

Owner: the log.
Source: KIP-98, KIP-534 (delete horizons); Java classes ``Cleaner``, ``CleanedTransactionMetadata``,
``MemoryRecords`` (``filterTo``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.accel import crc32c
from pykclient.accel.batch_layout import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_DELETE_HORIZON,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_END,
)
from pykclient.records.compression import compress
from pykclient.records.control import ControlType, control_type
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.records.batch import RecordBatch
    from pykclient.testing.fake.producer_states import AbortedTransaction, LastRecord

    Row = tuple[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
    """Offset, timestamp, key, value and headers of a record."""

NO_TIME = -1


class TransactionFilter:
    """Finds batches and markers that are no longer needed; it must see all batches in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._upcoming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTransaction] = {}
        self._committing: set[int] = set()
        self._seen: set[AbortedTransaction] = set()
        self.needed: set[AbortedTransaction] = set()
        """Aborted transactions that still have records in the range."""

    def may_go(self, batch: RecordBatch) -> bool:
        """Return whether the batch was aborted, or is the marker of a removed transaction."""
        while self._upcoming and self._upcoming[-1].first_offset <= batch.last_offset:
            begun = self._upcoming.pop()
            self._aborting.setdefault(begun.producer_id, begun)
        return self._marker_may_go(batch) if batch.is_control else self._data_may_go(batch)

    def _marker_may_go(self, batch: RecordBatch) -> bool:
        if not batch.record_count:
            return True
        kind = control_type(batch)
        if kind is ControlType.COMMIT:
            is_needed = batch.producer_id in self._committing
            self._committing.discard(batch.producer_id)
            return not is_needed
        if kind is not ControlType.ABORT:
            return False
        ended = self._aborting.pop(batch.producer_id, None)
        if ended is None or ended not in self._seen:
            return True
        self.needed.add(ended)
        return False

    def _data_may_go(self, batch: RecordBatch) -> bool:
        if not batch.is_transactional:
            return False
        aborting = self._aborting.get(batch.producer_id)
        if aborting is None:
            self._committing.add(batch.producer_id)
            return False
        self._seen.add(aborting)
        return True


def newest_offsets(
    batches: Iterable[RecordBatch], aborted: Iterable[AbortedTransaction], start_offset: int
) -> dict[bytes, int]:
    """Return where each key's newest record is, from `start_offset` on, ignoring aborted ones."""
    transactions = TransactionFilter(aborted)
    newest: dict[bytes, int] = {}
    for batch in batches:
        if transactions.may_go(batch) or batch.is_control or not batch.record_count:
            continue
        rows = zip(batch.records().offsets, batch.records().keys, strict=True)
        newest |= {key: at for at, key in rows if key is not None and at >= start_offset}
    return newest


class Cleaning:
    """A pass up to `end_offset`; `newest` has the keys added since the last pass.

    `now_ms` is the wall clock; delete horizons are `delete_retention_ms` later.
    """

    def __init__(
        self,
        newest: Mapping[bytes, int],
        transactions: TransactionFilter,
        last_records: Mapping[int, LastRecord],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._newest = newest
        self._transactions = transactions
        self._last_records = last_records
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def kept(self, batch: RecordBatch, data: bytes) -> bytes | None:
        """Return the remains of a batch, None for nothing. Batches must come in order."""
        may_go = self._transactions.may_go(batch)
        is_due = self._is_due(batch)
        is_dropped = may_go and (is_due or not batch.is_control)
        rows: list[Row] = list(batch.records()) if batch.record_count and not is_dropped else []
        left = [row for row in rows if batch.is_control or self._stays(row, is_due=is_due)]
        if not left:
            return emptied(batch) if self._is_last(batch) else None
        is_to_go = (may_go and batch.is_control) or any(row[3] is None for row in left)
        if len(left) == batch.record_count and (batch.has_delete_horizon or not is_to_go):
            return data
        horizon_ms = None
        if batch.has_delete_horizon:
            horizon_ms = batch.base_timestamp_ms
        elif is_to_go:
            horizon_ms = self._now_ms + self._delete_retention_ms
        return rebuilt(batch, left, horizon_ms)

    def _is_due(self, batch: RecordBatch) -> bool:
        return batch.has_delete_horizon and batch.base_timestamp_ms <= self._now_ms

    def _stays(self, row: Row, *, is_due: bool) -> bool:
        offset, _, key, value, _ = row
        if key is None or offset < self._newest.get(key, -1):
            return False
        return value is not None or not is_due

    def _is_last(self, batch: RecordBatch) -> bool:
        """Return whether the header holds information that no other batch has."""
        if batch.last_offset + 1 == self._end_offset:
            return True
        last = self._last_records.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset is not None:
            return batch.last_offset == last.offset
        return batch.is_control and batch.producer_epoch == last.epoch


def rebuilt(batch: RecordBatch, rows: Sequence[Row], horizon_ms: int | None) -> bytes:
    """Rebuild the batch with only these records; `horizon_ms` is its delete horizon."""
    base_ms = rows[0][1] if horizon_ms is None else horizon_ms
    max_ms = max(row[1] for row in rows)
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        max_ms = batch.max_timestamp_ms
    payload = bytearray()
    for offset, timestamp_ms, key, value, headers in rows:
        record = bytearray(b"\0")
        _put_varint(record, timestamp_ms - base_ms)
        _put_varint(record, offset - batch.base_offset)
        _put_bytes(record, key)
        _put_bytes(record, value)
        _put_varint(record, len(headers))
        for name, header in headers:
            _put_bytes(record, name.encode())
            _put_bytes(record, header)
        _put_varint(payload, len(record))
        payload += record
    attributes = batch.attributes | (0 if horizon_ms is None else ATTRIBUTE_DELETE_HORIZON)
    return _framed(
        batch,
        compress(batch.codec, bytes(payload)),
        attributes=attributes,
        times_ms=(base_ms, max_ms),
        count=len(rows),
    )


def emptied(batch: RecordBatch) -> bytes:
    """Return the batch's header without records."""
    attributes = batch.attributes & ~(ATTRIBUTE_CODEC | ATTRIBUTE_DELETE_HORIZON)
    times_ms = NO_TIME, batch.max_timestamp_ms
    return _framed(batch, b"", attributes=attributes, times_ms=times_ms, count=0)


def _framed(
    batch: RecordBatch, payload: bytes, *, attributes: int, times_ms: tuple[int, int], count: int
) -> bytes:
    data = bytearray(HEADER_SIZE_BYTES)
    HEADER.pack_into(
        data,
        0,
        batch.base_offset,
        HEADER_SIZE_BYTES + len(payload) - LENGTH_END,
        batch.partition_leader_epoch,
        batch.magic,
        0,
        attributes,
        batch.last_offset_delta,
        *times_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        count,
    )
    data += payload
    with memoryview(data) as view, view[CRC_START:] as covered:
        crc = crc32c(covered)
    data[CRC_AT:CRC_START] = crc.to_bytes(CRC_START - CRC_AT, "big")
    return bytes(data)


def _put_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        _put_varint(out, -1)
    else:
        _put_varint(out, len(value))
        out += value
