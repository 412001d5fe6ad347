"""What a coordinator may say of a group's member, and what a commit in its name is refused with.

Owner: none, it holds no state.
Source: Java class ``CommitRequestManager.MemberInfo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.errors import (
    CommitFailedError,
    DecodeError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from pykclient.network.manager import check_sent_back

if TYPE_CHECKING:
    from pykclient.errors import BrokerError
    from pykclient.types import GroupMetadata

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


def check_member(api: str, member_id: str, generation: int) -> None:
    """Make sure that a coordinator has named a member as it can be named in requests.

    Raises:
        DecodeError: it has not.
    """
    check_sent_back(api, "a member id", member_id)
    if generation < 0:
        raise DecodeError(f"the response to {api} has the generation, or epoch, {generation}")


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
