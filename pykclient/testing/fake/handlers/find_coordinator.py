"""FindCoordinator: the coordinator of a group, a transactional id or a share group.

Owner: none; it holds no state.
Source: KIP-699 (several keys); KIP-932 (share groups).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
)
from pykclient.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_KEY_TYPES = range(3)
_MANY_FROM_VERSION = 4
_NO_NODE = -1


def handle(
    cluster: ClusterState, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Return the coordinators."""
    if call.version >= _MANY_FROM_VERSION:
        found = [_found(cluster, call, request, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _found(cluster, call, request, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port
    )


def refuse(
    _: ClusterState, request: FindCoordinatorRequest, error_code: int
) -> FindCoordinatorResponse:
    """Refuse every key."""
    if not request.coordinator_keys:
        return FindCoordinatorResponse(error_code=error_code, node_id=_NO_NODE, port=_NO_NODE)
    return FindCoordinatorResponse(
        coordinators=[_none(key, error_code) for key in request.coordinator_keys]
    )


def _found(
    cluster: ClusterState, call: Call, request: FindCoordinatorRequest, key: str
) -> Coordinator:
    if request.key_type not in _KEY_TYPES:
        return _none(key, InvalidRequestError.code)
    broker = cluster.coordinator(request.key_type, key)
    if broker is None:
        return _none(key, CoordinatorNotAvailableError.code)
    return Coordinator(key, broker.id, *broker.address(call.session.listener))


def _none(key: str, error_code: int) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, port=_NO_NODE, error_code=error_code)


HANDLER = Handler(FindCoordinatorRequest, handle, refuse)
