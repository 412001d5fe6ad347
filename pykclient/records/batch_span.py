"""BatchSpan: contiguous fetched batches that have nothing special, checked and decoded as one.

Nearly all that a consumer reads is plain: whole batches of version 2, not compressed, no markers,
no offset missing. What would be done in Python once a batch is then done once a span, and each
batch is checked right before its records are decoded, as its bytes are in the cache for both. A
batch that is odd after all is read by itself, which tells what is wrong with it.

Owner: whoever iterates.
Source: Kafka protocol guide, "Record Batch".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient import accel
from pykclient.records.batch import (
    RecordBatch,
    corrupt_batch,
    first_batch,
    in_order,
)
from pykclient.types import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.accel import ContiguousBatches
    from pykclient.accel.abc import RecordColumns
    from pykclient.errors.base import CorruptRecordError

__all__ = ["BatchSpan", "iterate_spans"]


class BatchSpan:
    """Several batches, to be read as if they were one.

    Headers alone were looked at: checksums are looked at when records are asked for.
    """

    is_control = False

    __slots__ = (
        "_check_crcs",
        "_data",
        "base_offset",
        "head_last_offset",
        "last_offset",
        "partition",
        "partition_leader_epoch",
        "size_bytes",
        "timestamp_type",
        "topic",
    )

    def __init__(
        self,
        data: memoryview,
        found: ContiguousBatches,
        *,
        topic: str,
        partition: int,
        check_crcs: bool,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.size_bytes = found.size_bytes
        self.base_offset = found.base_offset
        self.head_last_offset = found.head_last_offset
        self.last_offset = found.last_offset
        self.partition_leader_epoch = found.leader_epoch
        self.timestamp_type = (
            TimestampType.LOG_APPEND_TIME if found.has_append_time else TimestampType.CREATE_TIME
        )
        self._data = data[: found.size_bytes]
        self._check_crcs = check_crcs

    def corrupt(self, reason: str) -> CorruptRecordError:
        """Return the error that says that its first batch is malformed, and where it stands."""
        return corrupt_batch(self.topic, self.partition, self._data, reason)

    def chunks(self, start_offset: int = 0) -> Iterator[RecordColumns]:
        """Yield the records from `start_offset` on, a part after the other, none of them empty.

        Raises:
            CorruptRecordError: a batch is malformed, or its checksum is wrong.
        """
        position = 0
        while position < self.size_bytes:
            columns, position = accel.decode_contiguous(
                self._data, position, self.size_bytes, self._check_crcs
            )
            if columns is None:
                batch = self._batch_at(position)
                position += batch.size_bytes
                # No batch of a span is compressed.
                yield from batch.chunks(start_offset, decompressed_size_bytes_max=0)
                continue
            if start_offset > columns.first_offset:
                columns = columns.rows(columns.find(start_offset))
            if len(columns):
                yield columns

    def _batch_at(self, position: int) -> RecordBatch:
        batch = first_batch(
            self._data[position:],
            topic=self.topic,
            partition=self.partition,
            check_crcs=self._check_crcs,
        )
        assert batch is not None, "a span has whole batches"
        return batch


def iterate_spans(
    buffer: memoryview,
    *,
    topic: str,
    partition: int,
    start_offset: int = 0,
    check_crcs: bool = True,
    special: int = 0,
) -> Iterator[RecordBatch | BatchSpan]:
    """Yield all of a fetched buffer in order, in spans as long as can be, and batches between.

    `special` are attributes that keep a batch out of spans. What is yielded as a batch has been
    checked; in all else as `iterate_batches`.

    Raises:
        CorruptRecordError: as `iterate_batches`.
    """

    def take(position: int) -> RecordBatch | BatchSpan | None:
        found = accel.find_contiguous(buffer, position, special)
        rest = buffer[position:]
        if found is None:
            return first_batch(rest, topic=topic, partition=partition, check_crcs=check_crcs)
        return BatchSpan(rest, found, topic=topic, partition=partition, check_crcs=check_crcs)

    return in_order(take, topic=topic, partition=partition, start_offset=start_offset)
