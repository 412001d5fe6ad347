"""GroupMetadata: a member of a group; and what a commit in its name is refused with.

Owner: none, it is immutable.
Source: Java classes ``ConsumerGroupMetadata`` (KIP-447), ``CommitRequestManager.MemberInfo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)

if TYPE_CHECKING:
    from pykclient.errors import BrokerError

NO_GENERATION: Final = -1
"""The generation in a request that does not come from a member."""

NO_MEMBER_ID: Final = ""

AT_ONCE_COUNT: Final = 3
"""After how many refusals in a row a member tries again without a pause. One that is removed joins
at once, since others wait for it; one that is removed again and again does not, or it would send
requests as fast as its coordinator responds."""

MEMBERSHIP_ERRORS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    GroupIdNotFoundError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    FencedInstanceIdError,
)
"""Errors by which a coordinator says that this is no member any more."""

NO_MEMBER_CURES: Final = (
    "If processing took longer than max_poll_interval_ms, raise that or lower max_poll_records. If "
    "the coordinator has started again without the members, as `pykclient broker` does, nothing "
    "has to be changed"
)
"""What to do about a membership that has ended, at the end of an error."""


class GroupMetadata(NamedTuple):
    """A member as its coordinator knows it.

    `generation` is that of the last rebalance, -1 while this is no member; `member_id` is empty
    before the member has one. `group_instance_id` is set for static members (KIP-345).
    """

    group_id: str
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether it has joined, as far as this consumer knows."""
        return self.generation != NO_GENERATION and self.member_id != NO_MEMBER_ID

    def without_generation(self) -> GroupMetadata:
        """The same member, which has to join again under its id."""
        return self._replace(generation=NO_GENERATION)

    def without_member_id(self) -> GroupMetadata:
        """One that the coordinator does not know."""
        return self._replace(generation=NO_GENERATION, member_id=NO_MEMBER_ID)


def commit_refused(member: GroupMetadata, error: BrokerError) -> CommitFailedError:
    """Return the error for a member whose partitions others may have by now."""
    failed = CommitFailedError(
        f"group {member.group_id!r} did not accept the offsets of member {member.member_id!r}, "
        f"generation {member.generation}: {error}. Its partitions may be read by others since; "
        f"poll joins again. {NO_MEMBER_CURES}"
    )
    failed.__cause__ = error
    return failed


def commit_without_membership_refused(group_id: str, error: BrokerError) -> CommitFailedError:
    """Return the error that says why a group with members accepts no offsets of a non-member."""
    failed = CommitFailedError(
        f"group {group_id!r} did not accept the offsets: {error}. It has members that "
        f"subscribed; a consumer that uses assign() needs a group_id of its own"
    )
    failed.__cause__ = error
    return failed


def commit_in_rebalance(group_id: str) -> RebalanceInProgressError:
    """Return the error for a member that has to wait until it has its partitions."""
    return RebalanceInProgressError(
        f"group {group_id!r} is distributing its partitions: poll until that is done, then commit "
        f"again what is still assigned"
    )
