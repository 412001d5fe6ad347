"""The requests of a member of a classic group.

Owner: no state.
Source: APIs JoinGroup, SyncGroup, Heartbeat and LeaveGroup; KIP-345, KIP-559, KIP-800.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

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

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import KafkaError
    from pykclient.network.log import ClientLog
    from pykclient.network.manager import Operation
    from pykclient.protocol.message import Message

__all__ = [
    "heartbeat_request",
    "heartbeat_timeout_ms",
    "join_request",
    "join_timeout_ms",
    "leave",
    "sync_request",
]

REBALANCE_SLACK_MS: Final = 5_000
"""How long a JoinGroup may take beyond the rebalance timeout, for which the coordinator waits."""

REASON_LENGTH_MAX: Final = 255
"""What coordinators accept of a reason (KIP-800)."""

SEVERAL_MEMBERS_FROM_VERSION: Final = 3
"""LeaveGroup before it has one member, by its id alone."""


def join_timeout_ms(config: ConsumerConfig) -> int:
    """How long a response may take that is sent when the whole group has joined."""
    return max(config.max_poll_interval_ms + REBALANCE_SLACK_MS, config.request_timeout_ms)


def heartbeat_timeout_ms(config: ConsumerConfig) -> int:
    """How long the response to a heartbeat may take; after a session it is of no use."""
    return min(config.session_timeout_ms, config.request_timeout_ms)


def join_request(
    member: GroupMetadata,
    protocols: Sequence[tuple[str, bytes]],
    config: ConsumerConfig,
    reason: str,
) -> JoinGroupRequest:
    """Return the JoinGroup of a member, which has it join the next generation."""
    return JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ],
        reason=reason[:REASON_LENGTH_MAX],
    )


def sync_request(
    member: GroupMetadata, protocol: str, assignments: Sequence[tuple[str, bytes]]
) -> SyncGroupRequest:
    """Return the SyncGroup of a member; only the leader's has `assignments`."""
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments
        ],
    )


def heartbeat_request(member: GroupMetadata) -> HeartbeatRequest:
    """Return the Heartbeat of a member."""
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave_request(member: GroupMetadata, reason: str, version: int) -> LeaveGroupRequest:
    """Return the LeaveGroup of a member in a version."""
    if version < SEVERAL_MEMBERS_FROM_VERSION:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    identity = MemberIdentity(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        reason=reason[:REASON_LENGTH_MAX],
    )
    return LeaveGroupRequest(group_id=member.group_id, members=[identity])


def leave(
    member: GroupMetadata, reason: str, node_id: int, *, left: Operation[None], log: ClientLog
) -> Request:
    """Return the LeaveGroup of a member, which ends `left`, whatever becomes of it.

    Of a member that the coordinator does not know, or cannot be notified of, the session ends.
    """

    def on_response(response: Message | None, now_ms: int) -> None:
        del now_ms
        assert isinstance(response, LeaveGroupResponse)
        codes = [response.error_code, *(each.error_code for each in response.members)]
        error_code = next((code for code in codes if code != 0), 0)
        if error_code != 0:
            about = f"LeaveGroup of group {member.group_id!r}"
            log.info("%s", error_for_code(error_code, about))
        left.succeed(None)

    def on_failure(error: KafkaError, now_ms: int) -> None:
        del now_ms
        log.info(
            "group %r: LeaveGroup has failed, the session will end: %s", member.group_id, error
        )
        left.succeed(None)

    build = partial(leave_request, member, reason)
    log.info("group %r: leaving: %s", member.group_id, reason)
    message = build(LeaveGroupRequest.max_version)
    return Request(message, node_id, on_response, on_failure, build=build)
