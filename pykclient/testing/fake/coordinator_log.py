"""Records that coordinators write to internal topics: keys and values are Kafka messages.

Owner: none; the partitions are the cluster's.
Source: Java classes ``CoordinatorRecordSerde``, ``TransactionLog``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.records.builder import RecordBatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pykclient.protocol.message import DataMessage
    from pykclient.testing.fake.topics import Partition

    OnAppend = Callable[[Partition, int], None]
    """Callback with a partition that was written to, and the time."""

VERSION_BYTES = 2
RECORD_BYTES_MAX = 16 * 1024 * 1024
"""Size limit that no batch of a coordinator reaches."""


class CoordinatorRecord(NamedTuple):
    """A record; a value of None deletes the key."""

    key: bytes
    value: bytes | None


def encode(message: DataMessage, version: int) -> bytes:
    """Encode a message with its version in front, as stored in a record."""
    out = bytearray(version.to_bytes(VERSION_BYTES, "big"))
    message.write(out, version)
    return bytes(out)


def append_records(
    partition: Partition,
    records: Iterable[CoordinatorRecord],
    wall_ms: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> int:
    """Append a batch to a partition, in a transaction if a producer is given.

    Returns the offset of its first record.
    """
    builder: RecordBatchBuilder[None] = RecordBatchBuilder(batch_size_bytes=RECORD_BYTES_MAX)
    for key, value in records:
        builder.try_append(wall_ms, key, value)
    data = builder.close(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=producer_id >= 0,
    )
    appended = partition.log.append_unnumbered(
        bytes(data), leader_epoch=partition.leader_epoch, now_ms=wall_ms
    )
    return appended.base_offset


def records_of(partition: Partition) -> Iterator[CoordinatorRecord]:
    """Yield all records of a partition in order, without transaction markers."""
    for batch in partition.log.batches():
        if batch.is_control or not batch.record_count:
            continue
        columns = batch.records()
        for key, value in zip(columns.keys, columns.values, strict=True):
            yield CoordinatorRecord(key or b"", value)
