"""What coordinators write into Kafka's own topics: records whose keys and values are messages.

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
    """What is called with a partition that was written to, and the time."""

VERSION_BYTES = 2
RECORD_BYTES_MAX = 16 * 1024 * 1024
"""More than any batch that a coordinator writes."""


class CoordinatorRecord(NamedTuple):
    """A record: the value None says that the key is gone."""

    key: bytes
    value: bytes | None


def encode(message: DataMessage, version: int) -> bytes:
    """A message behind its version, as it stands in a record's value."""
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
    """Write a batch to a partition; with a producer it is a part of that one's transaction.

    Returned is the offset of its first record.
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
    """All records that were written to a partition, in order; markers are left out."""
    for batch in partition.log.batches():
        if batch.is_control or not batch.record_count:
            continue
        columns = batch.records()
        for key, value in zip(columns.keys, columns.values, strict=True):
            yield CoordinatorRecord(key or b"", value)
