"""Checks of what a coordinator sends about a member, and errors of commits that it refuses.

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
"""Maximum number of consecutive refusals after which a member retries without a pause. A removed
member joins at once, since others wait for it. If it is removed again and again, it must pause, or
it would send requests as fast as its coordinator responds."""

MEMBERSHIP_ERRORS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    GroupIdNotFoundError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    FencedInstanceIdError,
)
"""Errors that mean this consumer is no longer a member."""

NO_MEMBER_CURES: Final = (
    "If processing took longer than max_poll_interval_ms, raise that or lower max_poll_records. If "
    "the coordinator has restarted without the members, as `pykclient broker` does, nothing needs "
    "to be changed"
)
"""Cures for a membership that has ended, appended to an error."""


def check_member(api: str, member_id: str, generation: int) -> None:
    """Check that a member's id and generation in a response can be sent in requests.

    Raises:
        DecodeError: they cannot.
    """
    check_sent_back(api, "a member id", member_id)
    if generation < 0:
        raise DecodeError(f"the response to {api} has the generation, or epoch, {generation}")


def commit_refused(member: GroupMetadata, error: BrokerError) -> CommitFailedError:
    """Return the error for a member that other members may have replaced as the owner."""
    failed = CommitFailedError(
        f"group {member.group_id!r} did not accept the offsets of member {member.member_id!r}, "
        f"generation {member.generation}: {error}. Other members may have read its partitions "
        f"since; poll joins again. {NO_MEMBER_CURES}"
    )
    failed.__cause__ = error
    return failed


def commit_without_membership_refused(group_id: str, error: BrokerError) -> CommitFailedError:
    """Return the error of a group with members that accepts no offsets of a non-member."""
    failed = CommitFailedError(
        f"group {group_id!r} did not accept the offsets: {error}. It has subscribed members; a "
        f"consumer that uses assign() needs a group_id of its own"
    )
    failed.__cause__ = error
    return failed


def commit_in_rebalance(group_id: str) -> RebalanceInProgressError:
    """Return the error for a member that must wait for its partitions."""
    return RebalanceInProgressError(
        f"group {group_id!r} is rebalancing: poll until that is done, then commit again for "
        f"partitions that are still assigned"
    )
