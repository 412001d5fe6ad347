"""DescribeCluster: brokers, controller and cluster id.

Owner: none; it holds no state.
Source: KIP-700, KIP-919.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import MismatchedEndpointTypeError
from pykclient.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

BROKERS = 1


def handle(
    cluster: ClusterState, call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the running brokers."""
    if request.endpoint_type != BROKERS:
        return refuse(cluster, request, MismatchedEndpointTypeError.code)
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker.id, *broker.address(call.session.listener), broker.rack)
            for broker in cluster.brokers.values()
            if broker.is_alive
        ],
    )


def refuse(_: ClusterState, __: DescribeClusterRequest, error_code: int) -> DescribeClusterResponse:
    """Refuse the request."""
    return DescribeClusterResponse(error_code=error_code)


HANDLER = Handler(DescribeClusterRequest, handle, refuse)
