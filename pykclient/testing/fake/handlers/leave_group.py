"""LeaveGroup: members leave, or an administrator removes them.

Owner: none; it holds no state.
Source: KIP-345 (several members), KIP-800 (reasons); Java class ``GroupCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import UnknownMemberIdError
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.groups.group import Refusal
    from pykclient.testing.fake.state import ClusterState

_MANY_FROM_VERSION = 3

Identity = tuple[str, "str | None"]


def handle(cluster: ClusterState, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove each member that exists."""
    refusal = cluster.groups.check_named(call.broker_id, request.group_id)
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    if call.version < _MANY_FROM_VERSION:
        [left] = _left(cluster, request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=0 if left is None else left.code)
    identities = [(each.member_id, each.group_instance_id) for each in request.members]
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member_id,
                group_instance_id=instance_id,
                error_code=0 if refused is None else refused.code,
            )
            for (member_id, instance_id), refused in zip(
                identities, _left(cluster, request.group_id, identities), strict=True
            )
        ]
    )


def refuse(_: ClusterState, __: LeaveGroupRequest, error_code: int) -> LeaveGroupResponse:
    """Refuse all members."""
    return LeaveGroupResponse(error_code=error_code)


def _left(cluster: ClusterState, name: str, identities: list[Identity]) -> list[Refusal | None]:
    group = cluster.groups.find(name)
    if isinstance(group, ClassicGroup):
        return group.leave(identities, cluster.now_ms)
    return [UnknownMemberIdError for _ in identities]


HANDLER = Handler(LeaveGroupRequest, handle, refuse)
