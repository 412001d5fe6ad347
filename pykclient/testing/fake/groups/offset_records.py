"""Records of ``__consumer_offsets``: one for each committed offset.

Owner: none; it holds no state.
Source: KIP-98, KIP-320; Java class ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.protocol.messages.offset_records import OffsetCommitKey, OffsetCommitValue
from pykclient.protocol.reader import Reader
from pykclient.records.control import ControlType, control_type
from pykclient.testing.fake.coordinator_log import VERSION_BYTES, CoordinatorRecord, encode
from pykclient.testing.fake.groups.offsets import NO_EPOCH, NOWHERE, CommittedOffset
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.records.batch import RecordBatch
    from pykclient.testing.fake.topics import Partition

_KEY_VERSION: Final = 1
"""Version of the keys; it identifies the key type, and 1 means an offset."""
_VALUE_VERSION: Final = 4
_EXPIRING_VALUE_VERSION: Final = 1


def offset_record(
    group: str,
    name: TopicPartition,
    committed: CommittedOffset | None,
    wall_ms: int,
    *,
    expires_wall_ms: int | None = None,
) -> CoordinatorRecord:
    """Encode a group's committed offset of a partition; None becomes a tombstone.

    Only value version 1 has an expiry time, and it has no leader epoch.
    """
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
    if expires_wall_ms is None:
        return CoordinatorRecord(bytes(key), encode(value, _VALUE_VERSION))
    value.expire_timestamp = expires_wall_ms
    value.leader_epoch = NO_EPOCH
    return CoordinatorRecord(bytes(key), encode(value, _EXPIRING_VALUE_VERSION))


class WrittenOffsets:
    """Offsets in the log of a partition, including those of unfinished transactions.

    Keys are a group and a partition.
    """

    def __init__(self, partition: Partition) -> None:
        self.log_offsets: dict[tuple[str, TopicPartition], int] = {}
        """Log offset of each committed offset's record."""
        self.held: dict[int, dict[tuple[str, TopicPartition], tuple[CommittedOffset, int]]] = {}
        """Offsets of transactions without a marker and their log offsets, by producer id."""
        for batch in partition.log.batches():
            if batch.is_control:
                self._end(batch)
            elif batch.record_count:
                self._add(batch)

    def _add(self, batch: RecordBatch) -> None:
        columns = batch.records()
        for at, key, value in zip(columns.offsets, columns.keys, columns.values, strict=True):
            if key is None or int.from_bytes(key[:VERSION_BYTES], "big") != _KEY_VERSION:
                continue  # a group's metadata, not an offset
            read = OffsetCommitKey.read(Reader(key[VERSION_BYTES:]), 0)
            name = read.group, TopicPartition(read.topic, read.partition)
            if value is None:
                self.log_offsets.pop(name, None)
                for held in self.held.values():
                    held.pop(name, None)
            elif batch.is_transactional:
                self.held.setdefault(batch.producer_id, {})[name] = _read_value(value), at
            else:
                self.log_offsets[name] = at

    def _end(self, marker: RecordBatch) -> None:
        held = self.held.pop(marker.producer_id, {})
        if control_type(marker) is ControlType.COMMIT:
            for name, (_, at) in held.items():
                self.log_offsets[name] = max(at, self.log_offsets.get(name, NOWHERE))


def _read_value(data: bytes) -> CommittedOffset:
    version = int.from_bytes(data[:VERSION_BYTES], "big")
    value = OffsetCommitValue.read(Reader(data[VERSION_BYTES:]), version)
    return CommittedOffset(value.offset, value.leader_epoch, value.metadata)
