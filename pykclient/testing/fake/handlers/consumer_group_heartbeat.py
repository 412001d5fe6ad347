"""ConsumerGroupHeartbeat: members of a KIP-848 group join, continue and leave.

Owner: none; it holds no state.
Source: KIP-848, KIP-1082 (member ids of clients); Java class ``GroupCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.base import BrokerError
from pykclient.errors.broker import (
    BrokerUnsupportedVersionError,
    GroupIdNotFoundError,
    InvalidRequestError,
    UnsupportedAssignorError,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.testing.fake.groups.group import GroupKind
from pykclient.testing.fake.groups.kip848.assignors import SERVER_ASSIGNORS
from pykclient.testing.fake.groups.kip848.group import ConsumerGroup
from pykclient.testing.fake.groups.kip848.members import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

MEMBER_ID_FROM_VERSION = 1
"""First version in which clients generate their member ids (KIP-1082)."""

_NOT_SAID = -1


def handle(
    cluster: ClusterState, call: Call, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Pass the heartbeat to its group, or refuse it."""
    try:
        if not cluster.group_version:
            raise BrokerUnsupportedVersionError
        _check(request, call.version)
        refusal = cluster.groups.check_coordinator(call.broker_id, request.group_id)
        if refusal is not None:
            raise refusal
        group = _group(cluster, request)
        if not request.member_id:
            request.member_id = cluster.groups.new_member_id("consumer")
        response = group.heartbeat(
            request,
            client_id=call.header.client_id or "",
            client_host=f"/{call.client_host}",
            now_ms=cluster.now_ms,
        )
    except BrokerError as error:
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, error_message=str(error) or None
        )
    cluster.groups.put(group)
    return response


def refuse(
    _: ClusterState, __: ConsumerGroupHeartbeatRequest, error_code: int
) -> ConsumerGroupHeartbeatResponse:
    """Refuse the request."""
    return ConsumerGroupHeartbeatResponse(error_code=error_code)


def _group(cluster: ClusterState, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    """Return the group, or a new one for a joining member, which is kept if it succeeds."""
    group = cluster.groups.find(request.group_id)
    is_join = request.member_epoch == JOIN_EPOCH
    if isinstance(group, ConsumerGroup):
        return group
    if is_join and (group is None or (group.kind is GroupKind.CLASSIC and group.is_empty)):
        settings = cluster.groups.settings
        return ConsumerGroup(request.group_id, settings, cluster.timers, cluster.topics)
    reason = "there is no group" if group is None else "it is no consumer group:"
    raise GroupIdNotFoundError(f"{reason} {request.group_id}")


def _check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Refuse a request that is invalid for any group."""
    needs_id = version >= MEMBER_ID_FROM_VERSION or request.member_epoch not in (
        JOIN_EPOCH,
        STATIC_LEAVE_EPOCH,
    )
    if needs_id and _is_blank(request.member_id):
        raise InvalidRequestError("MemberId can't be empty.")
    for name, value in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and _is_blank(value):
            raise InvalidRequestError(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in SERVER_ASSIGNORS:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(SERVER_ASSIGNORS)}."
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == _NOT_SAID:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise InvalidRequestError(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _is_blank(text: str) -> bool:
    """Return whether Java's ``String.trim`` leaves nothing."""
    return not text.strip("".join(map(chr, range(33))))


HANDLER = Handler(ConsumerGroupHeartbeatRequest, handle, refuse)
