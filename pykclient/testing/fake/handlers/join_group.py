"""JoinGroup: a member joins the next generation of a classic group.

Owner: none; it holds no state.
Source: KIP-62, KIP-345, KIP-394; Java class ``GroupCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    UnknownMemberIdError,
)
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState


def handle(
    cluster: ClusterState, call: Call, request: JoinGroupRequest
) -> JoinGroupResponse | None:
    """Refuse what no group would accept, and pass the rest to the group."""
    refusal = _check(cluster, call, request)
    group = cluster.groups.find(request.group_id)
    if refusal is None and (group is None or group.is_empty):
        if isinstance(group, ClassicGroup):
            pass
        elif request.member_id:
            refusal = UnknownMemberIdError
        else:
            group = ClassicGroup(request.group_id, cluster.groups)
            cluster.groups.put(group)
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    if not isinstance(group, ClassicGroup):
        return refuse(cluster, request, InconsistentGroupProtocolError.code)
    group.join(call, request, cluster.now_ms)
    return None


def refuse(_: ClusterState, request: JoinGroupRequest, error_code: int) -> JoinGroupResponse:
    """Refuse the member."""
    return JoinGroupResponse(error_code=error_code, member_id=request.member_id)


def _check(cluster: ClusterState, call: Call, request: JoinGroupRequest) -> Refusal | None:
    settings = cluster.groups.settings
    if not request.group_id:
        return InvalidGroupIdError
    shortest_ms = settings.group_min_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms:
        return InvalidSessionTimeoutError
    return cluster.groups.check_coordinator(call.broker_id, request.group_id)


HANDLER = Handler(JoinGroupRequest, handle, refuse)
