"""DescribeConfigs: a topic's settings, those that were given and those that the log obeys.

Of brokers nothing is named: none of their settings can be looked up here.

Owner: none; it holds no state.
Source: KIP-133, KIP-226 (sources); Java class ``ConfigHelper``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.topics import default_config

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

TOPIC, BROKER = 2, 4
_OF_TOPIC, _DEFAULT = 1, 5
"""Where a value is from."""


def handle(
    cluster: ClusterState, _: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe each topic that is there."""
    return DescribeConfigsResponse(
        results=[_described(cluster, resource) for resource in request.resources]
    )


def refuse(
    _: ClusterState, request: DescribeConfigsRequest, error_code: int
) -> DescribeConfigsResponse:
    """Refuse every resource."""
    return DescribeConfigsResponse(
        results=[_result(resource, error_code=error_code) for resource in request.resources]
    )


def _described(cluster: ClusterState, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    if resource.resource_type == BROKER:
        return _result(resource)
    if resource.resource_type != TOPIC:
        return _refused(resource, InvalidRequestError, "only topics and brokers have settings here")
    topic = cluster.topics.get(resource.resource_name)
    if topic is None:
        return _refused(resource, UnknownTopicOrPartitionError, "there is no such topic")
    wanted = resource.configuration_keys
    result = _result(resource)
    result.configs = [
        DescribeConfigsResourceResult(
            name=name,
            value=value,
            config_source=_OF_TOPIC if name in topic.config else _DEFAULT,
            documentation=None,
        )
        for name, value in (default_config() | topic.config).items()
        if wanted is None or name in wanted
    ]
    return result


def _result(resource: DescribeConfigsResource, error_code: int = 0) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refused(
    resource: DescribeConfigsResource, error: type[BrokerError], reason: str
) -> DescribeConfigsResult:
    result = _result(resource, error.code)
    result.error_message = reason
    return result


HANDLER = Handler(DescribeConfigsRequest, handle, refuse)
