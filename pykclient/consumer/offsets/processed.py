"""HandedOut: which records the application got last, and may not have finished with.

A record counts as processed when the application asks for more. What a poll returned is handed out
until the next one; in an iteration it is one record at a time. Positions are not moved here.

Owner: the thread that polls.
Source: none in Java, which commits what the last poll returned whatever became of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from pykclient.consumer.subscription import AssignedPartition

__all__ = ["HandedOut", "position_of"]


class _Taken(NamedTuple):
    first_offset: int
    leader_epoch: int | None
    """Of the record before `first_offset`; None if the position has moved by now."""
    epoch: int
    is_by_record: bool


class HandedOut:
    """By partition, where the application may still be at work."""

    def __init__(self) -> None:
        self._taken: dict[AssignedPartition, _Taken] = {}

    def clear(self) -> None:
        """Note that the application has finished with everything."""
        self._taken.clear()

    def forget(self, assigned: AssignedPartition) -> None:
        """Note that a position was set by the user: what was handed out before does not matter."""
        self._taken.pop(assigned, None)

    def add(self, assigned: AssignedPartition, first_offset: int) -> None:
        """Note that records from an offset up to the position were handed out."""
        if assigned not in self._taken:
            self._taken[assigned] = _taken(assigned, first_offset, is_by_record=False)

    def add_by_record(self, assigned: AssignedPartition, first_offset: int) -> None:
        """Note that records from an offset on are handed out one by one; each moves the position.

        Costs nothing per record: the last one is the one before the position.
        """
        self._taken[assigned] = _taken(assigned, first_offset, is_by_record=True)

    def processed(self, assigned: AssignedPartition) -> OffsetAndMetadata:
        """Return up to where the application has finished. Requires a position."""
        taken = self._taken.get(assigned)
        if taken is None or taken.epoch != assigned.epoch:
            return position_of(assigned)
        offset = assigned.offset - 1
        if not taken.is_by_record or offset <= taken.first_offset:
            return OffsetAndMetadata(taken.first_offset, leader_epoch=taken.leader_epoch)
        return OffsetAndMetadata(offset, leader_epoch=assigned.leader_epoch)


def _taken(assigned: AssignedPartition, first_offset: int, *, is_by_record: bool) -> _Taken:
    is_at_first = assigned.offset <= first_offset
    leader_epoch = assigned.leader_epoch if is_at_first else None
    return _Taken(first_offset, leader_epoch, assigned.epoch, is_by_record)


def position_of(assigned: AssignedPartition) -> OffsetAndMetadata:
    """Return a partition's position as it is committed. Requires that it has one."""
    return OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)
