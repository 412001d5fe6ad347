"""The records of ``__consumer_offsets``: one for each offset that a group commits.

Owner: none; it holds no state.
Source: KIP-98, KIP-320; Java class ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.protocol.messages.offset_records import OffsetCommitKey, OffsetCommitValue
from pykclient.protocol.reader import Reader
from pykclient.testing.fake.coordinator_log import VERSION_BYTES, CoordinatorRecord, encode
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fake.topics import Partition

_KEY_VERSION: Final = 1
"""The version of a key says of which type it is, by which these keys are 1."""
_VALUE_VERSION: Final = 4


def offset_record(
    group: str, name: TopicPartition, committed: CommittedOffset | None, wall_ms: int
) -> CoordinatorRecord:
    """What the log has of a group's offset of one partition; None for one that is gone."""
    key = bytearray(_KEY_VERSION.to_bytes(2, "big"))
    OffsetCommitKey(group, *name).write(key, 0)
    if committed is None:
        return CoordinatorRecord(bytes(key), None)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=wall_ms,
    )
    return CoordinatorRecord(bytes(key), encode(value, _VALUE_VERSION))


def held_offsets(
    partition: Partition,
) -> Iterator[tuple[str, int, dict[TopicPartition, CommittedOffset]]]:
    """The offsets of transactions that have no marker yet: group, producer id, offsets."""
    held: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}
    for batch in partition.log.batches():
        if batch.is_control:
            held.pop(batch.producer_id, None)
        elif batch.is_transactional and batch.record_count:
            columns = batch.records()
            for key, value in zip(columns.keys, columns.values, strict=True):
                read = OffsetCommitKey.read(Reader((key or b"")[VERSION_BYTES:]), 0)
                name = TopicPartition(read.topic, read.partition)
                groups = held.setdefault(batch.producer_id, {})
                groups.setdefault(read.group, {})[name] = _read_value(value or b"")
    for producer_id, groups in held.items():
        for group, offsets in groups.items():
            yield group, producer_id, offsets


def _read_value(data: bytes) -> CommittedOffset:
    version = int.from_bytes(data[:VERSION_BYTES], "big")
    value = OffsetCommitValue.read(Reader(data[VERSION_BYTES:]), version)
    return CommittedOffset(value.offset, value.leader_epoch, value.metadata)
