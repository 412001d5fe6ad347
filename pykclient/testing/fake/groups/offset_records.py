"""The records of ``__consumer_offsets``: one for each offset that a group commits.

Owner: none; it holds no state.
Source: KIP-98, KIP-320; Java class ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.protocol.messages.offset_records import OffsetCommitKey, OffsetCommitValue
from pykclient.testing.fake.coordinator_log import CoordinatorRecord, encode

if TYPE_CHECKING:
    from pykclient.testing.fake.groups.offsets import CommittedOffset
    from pykclient.types import TopicPartition

_KEY_VERSION: Final = 1
"""The version of a key says of which type it is, by which these keys are 1."""
_VALUE_VERSION: Final = 3


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
