"""DescribeConfigs: a topic's settings and defaults, without documentation.

For brokers the result is empty, because their settings cannot be read here.

Owner: none; it holds no state.
Source: KIP-133, KIP-226 (sources and synonyms), KIP-569 (types); Java class ``ConfigHelper``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.topic_settings import SETTINGS, shown_value
from pykclient.testing.fake.topics import is_valid_name

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState
    from pykclient.testing.fake.topics import Topic

TOPIC, BROKER = 2, 4
_OF_TOPIC, _OF_BROKER, _DEFAULT = 1, 4, 5
"""Sources of a value."""


def handle(
    cluster: ClusterState, _: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe each existing topic."""
    return DescribeConfigsResponse(
        results=[
            _described(cluster, resource, has_synonyms=request.include_synonyms)
            for resource in request.resources
        ]
    )


def refuse(
    _: ClusterState, request: DescribeConfigsRequest, error_code: int
) -> DescribeConfigsResponse:
    """Refuse every resource."""
    return DescribeConfigsResponse(
        results=[_result(resource, error_code=error_code) for resource in request.resources]
    )


def _described(
    cluster: ClusterState, resource: DescribeConfigsResource, *, has_synonyms: bool
) -> DescribeConfigsResult:
    if resource.resource_type == BROKER:
        return _result(resource)
    if resource.resource_type != TOPIC:
        return _refused(resource, InvalidRequestError, "only topics and brokers have settings here")
    if not is_valid_name(resource.resource_name):
        return _refused(resource, InvalidTopicError, "the name is invalid")
    topic = cluster.topics.get(resource.resource_name)
    if topic is None:
        return _refused(resource, UnknownTopicOrPartitionError, None)
    wanted = resource.configuration_keys
    result = _result(resource)
    result.configs = [
        _setting(cluster, topic, name, has_synonyms=has_synonyms)
        for name in SETTINGS
        if wanted is None or name in wanted
    ]
    return result


def _setting(
    cluster: ClusterState, topic: Topic, name: str, *, has_synonyms: bool
) -> DescribeConfigsResourceResult:
    """Describe a setting; its synonyms are the topic's own value and the broker's."""
    setting = SETTINGS[name]
    default = DescribeConfigsSynonym(setting.broker_name or name, setting.default, _DEFAULT)
    if name == "min.insync.replicas" and cluster.min_insync_replicas != int(setting.default):
        default.value, default.source = str(cluster.min_insync_replicas), _OF_BROKER
    synonyms = [default] if setting.broker_name else []
    value, source = default.value, default.source
    if name in topic.config:
        value, source = shown_value(name, topic.config[name]), _OF_TOPIC
        synonyms.insert(0, DescribeConfigsSynonym(name, value, source))
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        config_source=source,
        synonyms=synonyms if has_synonyms else [],
        config_type=setting.kind.value,
        documentation=None,
    )


def _result(resource: DescribeConfigsResource, error_code: int = 0) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _refused(
    resource: DescribeConfigsResource, error: type[BrokerError], reason: str | None
) -> DescribeConfigsResult:
    result = _result(resource, error.code)
    result.error_message = reason
    return result


HANDLER = Handler(DescribeConfigsRequest, handle, refuse)
