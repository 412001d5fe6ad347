"""Membership: as whom a consumer commits and reads offsets of its group.

A consumer that assigns its partitions by hand is no member: it names the group alone, and the
coordinator takes its offsets as long as the group has no members.

Owner: the driver of the engine.
Source: Java classes ``ConsumerCoordinator``, ``CommitRequestManager.MemberInfo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.consumer.group.metadata import GroupMetadata
from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)

if TYPE_CHECKING:
    from pykclient.errors import BrokerError, KafkaError

__all__ = ["MEMBERSHIP_ERRORS", "Membership", "NoMembership", "commit_refused"]

MEMBERSHIP_ERRORS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    GroupIdNotFoundError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    FencedInstanceIdError,
)
"""What a coordinator says to one whom it does not take for a member any more."""


class Membership(Protocol):
    """What commits ask of whatever looks after the membership."""

    def member(self) -> GroupMetadata:
        """Return as whom to commit now.

        Raises:
            RebalanceInProgressError: the group is distributing its partitions; poll first.
            CommitFailedError: this consumer is no member any more.
        """
        ...

    def reader(self) -> GroupMetadata:
        """Return as whom to read offsets: the group alone, which anybody may.

        Java's members of groups of KIP-848 tell their epoch when they read, which fences them.
        """
        ...

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Hear that the coordinator does not take this member's commit; return what to raise.

        `error` is one of `MEMBERSHIP_ERRORS`, or `RebalanceInProgressError`.
        """
        ...


class NoMembership:
    """A consumer whose partitions are assigned by hand."""

    def __init__(self, group_id: str) -> None:
        self._identity = GroupMetadata(group_id)

    def member(self) -> GroupMetadata:
        """Return the group alone."""
        return self._identity

    def reader(self) -> GroupMetadata:
        """Return the group alone."""
        return self._identity

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Return an error that says why a group with members takes no such offsets."""
        failed = CommitFailedError(
            f"group {member.group_id!r} did not take the offsets: {error}. It has members that "
            f"subscribed; a consumer that uses assign() needs a group_id of its own"
        )
        failed.__cause__ = error
        return failed


def commit_refused(member: GroupMetadata, error: BrokerError) -> CommitFailedError:
    """Return what a member is told whose partitions others have by now."""
    failed = CommitFailedError(
        f"group {member.group_id!r} did not take the offsets of member {member.member_id!r}, "
        f"generation {member.generation}: {error}. Its partitions may be read by others since; "
        f"poll joins again. If processing took longer than max_poll_interval_ms, raise that or "
        f"lower max_poll_records"
    )
    failed.__cause__ = error
    return failed
