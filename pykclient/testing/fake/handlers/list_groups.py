"""ListGroups: the groups that a broker coordinates.

Owner: none; it holds no state.
Source: KIP-518 (states), KIP-848 (types); Java class ``GroupMetadataManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState


def handle(cluster: ClusterState, call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups with the requested states and types; all if none is requested."""
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.name,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.kind.value,
            )
            for group in cluster.groups.coordinated_by(call.broker_id)
            if _is_wanted(group.state_name, request.states_filter)
            and _is_wanted(group.kind.value, request.types_filter)
        ]
    )


def refuse(_: ClusterState, __: ListGroupsRequest, error_code: int) -> ListGroupsResponse:
    """Refuse the request."""
    return ListGroupsResponse(error_code=error_code)


def _is_wanted(name: str, wanted: Iterable[str]) -> bool:
    names = {each.strip().lower() for each in wanted}
    return not names or name.lower() in names


HANDLER = Handler(ListGroupsRequest, handle, refuse)
