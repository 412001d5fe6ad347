"""Unprocessed: which records the application got last, and may not have processed yet.

A record counts as processed when the application asks for more. What a poll returned is unprocessed
until the next one; in an iteration it is one record at a time. Positions are not moved here.

Owner: the thread that polls.
Source: none in Java, which commits what the last poll returned whatever became of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from pykclient.consumer.subscription import AssignedPartition

__all__ = ["Unprocessed", "position_of"]


class _Returned(NamedTuple):
    first_offset: int
    leader_epoch: int | None
    """Of the record before `first_offset`; None if the position has moved by now."""
    epoch: int
    is_by_record: bool


class Unprocessed:
    """By partition, the records that the application may still be processing."""

    def __init__(self) -> None:
        self._returned: dict[AssignedPartition, _Returned] = {}

    def clear(self) -> None:
        """Note that everything is processed."""
        self._returned.clear()

    def forget(self, assigned: AssignedPartition) -> None:
        """Note that the user set a position: what was returned before does not matter."""
        self._returned.pop(assigned, None)

    def add(self, assigned: AssignedPartition, first_offset: int) -> None:
        """Note that a poll returns the records from an offset up to the position."""
        if assigned not in self._returned:
            self._returned[assigned] = _returned(assigned, first_offset, is_by_record=False)

    def add_by_record(self, assigned: AssignedPartition, first_offset: int) -> None:
        """Note that an iteration yields the records from an offset on; each moves the position.

        Costs nothing per record: the last one is the one before the position.
        """
        self._returned[assigned] = _returned(assigned, first_offset, is_by_record=True)

    def processed(self, assigned: AssignedPartition) -> OffsetAndMetadata:
        """Return the offset up to which a partition is processed. Requires a position."""
        returned = self._returned.get(assigned)
        if returned is None or returned.epoch != assigned.epoch:
            return position_of(assigned)
        offset = assigned.offset - 1
        if not returned.is_by_record or offset <= returned.first_offset:
            return OffsetAndMetadata(returned.first_offset, leader_epoch=returned.leader_epoch)
        return OffsetAndMetadata(offset, leader_epoch=assigned.leader_epoch)


def _returned(assigned: AssignedPartition, first_offset: int, *, is_by_record: bool) -> _Returned:
    is_at_first = assigned.offset <= first_offset
    leader_epoch = assigned.leader_epoch if is_at_first else None
    return _Returned(first_offset, leader_epoch, assigned.epoch, is_by_record)


def position_of(assigned: AssignedPartition) -> OffsetAndMetadata:
    """Return a partition's position as it is committed. Requires that it has one."""
    return OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)
