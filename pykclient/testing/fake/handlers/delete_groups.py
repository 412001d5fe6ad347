"""DeleteGroups: empty groups are deleted, with their committed offsets.

Owner: none; it holds no state.
Source: KIP-229; Java class ``GroupCoordinatorShard``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import GroupIdNotFoundError
from pykclient.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(cluster: ClusterState, call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each empty group; a repeated name counts once."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=_deleted(cluster, call, name))
            for name in dict.fromkeys(request.groups_names)
        ]
    )


def refuse(_: ClusterState, request: DeleteGroupsRequest, error_code: int) -> DeleteGroupsResponse:
    """Refuse every group."""
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=name, error_code=error_code)
            for name in dict.fromkeys(request.groups_names)
        ]
    )


def _deleted(cluster: ClusterState, call: Call, name: str) -> int:
    """Delete a group and return the error code."""
    refusal = cluster.groups.check_coordinator(call.broker_id, name)
    group = cluster.groups.find(name)
    if refusal is None:
        refusal = GroupIdNotFoundError if group is None else group.check_delete()
    if refusal is None:
        cluster.groups.remove(name, cluster.now_ms)
    return 0 if refusal is None else refusal.code


HANDLER = Handler(DeleteGroupsRequest, handle, refuse)
