"""Heartbeat: keeps a member of a classic group alive, and tells it when to rejoin.

Owner: none; it holds no state.
Source: KIP-62; Java class ``GroupCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import UnknownMemberIdError
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState


def handle(cluster: ClusterState, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep the member's session alive."""
    refusal = _kept(cluster, call, request)
    return HeartbeatResponse(error_code=0 if refusal is None else refusal.code)


def refuse(_: ClusterState, __: HeartbeatRequest, error_code: int) -> HeartbeatResponse:
    """Refuse the member."""
    return HeartbeatResponse(error_code=error_code)


def _kept(cluster: ClusterState, call: Call, request: HeartbeatRequest) -> Refusal | None:
    refusal = cluster.groups.check_named(call.broker_id, request.group_id)
    if refusal is not None:
        return refusal
    group = cluster.groups.find(request.group_id)
    if not isinstance(group, ClassicGroup):
        return UnknownMemberIdError
    return group.heartbeat(
        request.member_id, request.group_instance_id, request.generation_id, cluster.now_ms
    )


HANDLER = Handler(HeartbeatRequest, handle, refuse)
