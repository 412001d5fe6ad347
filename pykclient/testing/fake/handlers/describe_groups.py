"""DescribeGroups: classic groups, as administrators see them.

Owner: none; it holds no state.
Source: KIP-430 (authorized operations), KIP-1043 (missing groups); Java class
``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import GroupIdNotFoundError
from pykclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.testing.fake.groups.classic.group import ClassicGroup, ClassicState
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: the operations on a group without
access control."""
_TELLS_NO_GROUP_FROM_VERSION = 6


def handle(
    cluster: ClusterState, call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group."""
    groups = [_described(cluster, call, name) for name in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            group.authorized_operations = ALL_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def refuse(
    _: ClusterState, request: DescribeGroupsRequest, error_code: int
) -> DescribeGroupsResponse:
    """Refuse every group."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=name, error_code=error_code) for name in request.groups]
    )


def _described(cluster: ClusterState, call: Call, name: str) -> DescribedGroup:
    refusal = cluster.groups.check_coordinator(call.broker_id, name)
    if refusal is not None:
        return DescribedGroup(group_id=name, error_code=refusal.code)
    group = cluster.groups.find(name)
    if not isinstance(group, ClassicGroup):
        return _missing(name, call.version)
    is_stable = group.state_name == ClassicState.STABLE.value
    return DescribedGroup(
        group_id=name,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members()
        ],
    )


def _missing(name: str, version: int) -> DescribedGroup:
    """Describe a missing group, or one of another kind, as dead; newer clients get an error."""
    missing = DescribedGroup(group_id=name, group_state=ClassicState.DEAD.value)
    if version >= _TELLS_NO_GROUP_FROM_VERSION:
        missing.error_code = GroupIdNotFoundError.code
        missing.error_message = f"Group {name} is not a classic group."
    return missing


HANDLER = Handler(DescribeGroupsRequest, handle, refuse)
