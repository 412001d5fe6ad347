"""GroupMembership: what both group protocols implement; and errors of commits in a member's name.

A consumer that assigns its partitions by hand is no member: it names the group alone, and the
coordinator accepts its offsets as long as the group has no members.

Owner: the driver of the engine.
Source: Java classes ``ConsumerCoordinator``, ``CommitRequestManager.MemberInfo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

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
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.consumer.group.rebalance import Intent
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.manager import Operation, PollResult

__all__ = [
    "AT_ONCE_COUNT",
    "MEMBERSHIP_ERRORS",
    "GroupMembership",
    "commit_refused",
    "commit_without_membership_refused",
]

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


class GroupMembership(Protocol):
    """This consumer as a member of its group. It returns as `Intent` what is to be done."""

    member: GroupMetadata
    """Its state at the coordinator, member or not."""

    rejection: KafkaError | None
    """The last error by which the coordinator did not accept this member; None if it did."""

    @property
    def left(self) -> Operation[None]:
        """What ends when the coordinator has been notified of leaving, or cannot be."""
        ...

    @property
    def can_commit(self) -> bool:
        """Whether a commit in the name of `member` may be accepted."""
        ...

    @property
    def has_request_in_flight(self) -> bool:
        """Whether a response of the coordinator is due."""
        ...

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        ...

    def take_error(self) -> KafkaError | None:
        """Return the error that `poll` is to raise, and forget it; a fatal one stays."""
        ...

    def on_commit_refused(self, error_code: int, sent: GroupMetadata) -> None:
        """Follow what the coordinator says of the membership to a commit in the name of `sent`."""
        ...

    @property
    def must_poll(self) -> bool:
        """Whether it leaves if the application does not poll for `max_poll_interval_ms`."""
        ...

    def leave_late(self) -> None:
        """Leave because the application does not poll; when it does, everything is lost."""
        ...

    def wants_turn(self, now_ms: int) -> bool:
        """Whether `advance` would change something now."""
        ...

    def begin_leave(self, reason: str, *, sends: bool) -> Intent:
        """Leave when the returned intent has been carried out.

        `sends` False leaves it to the coordinator to notice when the session ends.
        """
        ...

    def restart(self, now_ms: int, *, is_wanted: bool) -> None:
        """Forget what is in flight or half done; be a member, or become one, if `is_wanted`."""
        ...

    def advance(self, now_ms: int) -> Intent | None:
        """Go on while the application polls; return a new intent, to be carried out first."""
        ...

    def poll(self, now_ms: int, *, may_rebalance: bool) -> PollResult:
        """Return what is to be sent."""
        ...


def commit_refused(member: GroupMetadata, error: BrokerError) -> CommitFailedError:
    """Return the error for a member whose partitions others may have by now."""
    failed = CommitFailedError(
        f"group {member.group_id!r} did not accept the offsets of member {member.member_id!r}, "
        f"generation {member.generation}: {error}. Its partitions may be read by others since; "
        f"poll joins again. If processing took longer than max_poll_interval_ms, raise that or "
        f"lower max_poll_records"
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
