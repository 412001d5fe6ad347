"""The requests of a classic group's member.

Owner: no state.
Source: APIs JoinGroup, SyncGroup, Heartbeat and LeaveGroup; KIP-345, KIP-559, KIP-800.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.group.classic.protocol import PROTOCOL_TYPE
from pykclient.errors import error_for_code
from pykclient.network.manager import Request
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.log import ClientLog
    from pykclient.network.manager import Operation
    from pykclient.protocol.message import Message

__all__ = ["ClassicSettings", "Leaving", "heartbeat_request", "join_request", "sync_request"]

REBALANCE_SLACK_MS: Final = 5_000
"""What a JoinGroup may take beyond the rebalance time-out, up to which the coordinator waits."""

REASON_LENGTH_MAX: Final = 255
"""What coordinators take of a reason (KIP-800)."""

SEVERAL_MEMBERS_FROM_VERSION: Final = 3
"""LeaveGroup before it names one member, by its id alone."""


class ClassicSettings(NamedTuple):
    """What a member tells its coordinator about time, and how long it waits. Milliseconds."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    request_timeout_ms: int

    @property
    def join_timeout_ms(self) -> int:
        """How long an answer may take that comes when the whole group is there."""
        return max(self.rebalance_timeout_ms + REBALANCE_SLACK_MS, self.request_timeout_ms)

    @property
    def heartbeat_timeout_ms(self) -> int:
        """How long the answer to a heartbeat may take; after a session it is of no use."""
        return min(self.session_timeout_ms, self.request_timeout_ms)


def join_request(
    member: GroupMetadata,
    protocols: Sequence[tuple[str, bytes]],
    settings: ClassicSettings,
    reason: str,
) -> JoinGroupRequest:
    """Ask to be in the next generation."""
    return JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ],
        reason=reason[:REASON_LENGTH_MAX],
    )


def sync_request(
    member: GroupMetadata, protocol: str, shares: Sequence[tuple[str, bytes]]
) -> SyncGroupRequest:
    """Ask for this member's share; the leader gives `shares`, the others none."""
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in shares
        ],
    )


def heartbeat_request(member: GroupMetadata) -> HeartbeatRequest:
    """Tell that this member lives."""
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave_request(member: GroupMetadata, reason: str, version: int) -> LeaveGroupRequest:
    """Tell that this member goes, as a version has it."""
    if version < SEVERAL_MEMBERS_FROM_VERSION:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    identity = MemberIdentity(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        reason=reason[:REASON_LENGTH_MAX],
    )
    return LeaveGroupRequest(group_id=member.group_id, members=[identity])


class Leaving:
    """Tells the coordinator that `member` goes, and ends `left` then, whatever is answered.

    Of a member that the coordinator does not know, or cannot be told about, the session ends.
    """

    def __init__(
        self, member: GroupMetadata, reason: str, left: Operation[None], log: ClientLog
    ) -> None:
        self._member = member
        self._reason = reason
        self._left = left
        self._log = log

    def request(self, node_id: int) -> Request:
        """Return what is to be sent."""
        build = partial(leave_request, self._member, self._reason)
        self._log.info("group %r: leaving: %s", self._member.group_id, self._reason)
        return Request(
            build(LeaveGroupRequest.max_version),
            node_id,
            self._on_response,
            self._on_failure,
            build=build,
        )

    def _on_response(self, response: Message | None, now_ms: int) -> None:
        del now_ms
        assert isinstance(response, LeaveGroupResponse)
        codes = [response.error_code, *(member.error_code for member in response.members)]
        error_code = next((code for code in codes if code != 0), 0)
        if error_code != 0:
            about = f"LeaveGroup of group {self._member.group_id!r}"
            self._log.info("%s", error_for_code(error_code, about))
        self._left.succeed(None)

    def _on_failure(self, error: KafkaError, now_ms: int) -> None:
        del now_ms
        self._log.info(
            "group %r: the coordinator was not told of leaving, the session will end: %s",
            self._member.group_id,
            error,
        )
        self._left.succeed(None)
