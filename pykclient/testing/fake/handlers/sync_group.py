"""SyncGroup: the leader sends the assignments, and every member receives its own.

Owner: none; it holds no state.
Source: KIP-559 (protocol type and name); Java class ``GroupCoordinatorService``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import InconsistentGroupProtocolError, UnknownMemberIdError
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_NAMES_PROTOCOL_FROM_VERSION = 5


def handle(
    cluster: ClusterState, call: Call, request: SyncGroupRequest
) -> SyncGroupResponse | None:
    """Refuse what no group would accept, and pass the rest to the group."""
    is_named = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= _NAMES_PROTOCOL_FROM_VERSION and not is_named:
        return refuse(cluster, request, InconsistentGroupProtocolError.code)
    refusal = cluster.groups.check_named(call.broker_id, request.group_id)
    if refusal is not None:
        return refuse(cluster, request, refusal.code)
    group = cluster.groups.find(request.group_id)
    if not isinstance(group, ClassicGroup):
        return refuse(cluster, request, UnknownMemberIdError.code)
    group.sync(call, request, cluster.now_ms)
    return None


def refuse(_: ClusterState, __: SyncGroupRequest, error_code: int) -> SyncGroupResponse:
    """Refuse the member."""
    return SyncGroupResponse(error_code=error_code)


HANDLER = Handler(SyncGroupRequest, handle, refuse)
