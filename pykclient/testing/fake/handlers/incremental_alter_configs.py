"""IncrementalAlterConfigs: change the settings of topics.

For each topic all changes of the request apply, or none. Broker settings cannot be changed.

Owner: none; it holds no state.
Source: KIP-339; Java classes ``ConfigAdminManager``, ``ConfigurationControlManager``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykclient.testing.fake.handlers.describe_configs import TOPIC
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.topic_settings import Operation, altered, check_config
from pykclient.testing.fake.topics import is_valid_name

if TYPE_CHECKING:
    from pykclient.errors.base import BrokerError
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

_OPERATIONS = frozenset(operation.value for operation in Operation)


def handle(
    cluster: ClusterState, _: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Apply the changes of each valid resource."""
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)

    def changed(resource: AlterConfigsResource) -> AlterConfigsResourceResponse:
        if counts[resource.resource_type, resource.resource_name] > 1:
            reason = "Each resource must appear at most once."
            return _refused(resource, InvalidRequestError, reason)
        return _changed(cluster, resource, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(responses=[changed(each) for each in request.resources])


def refuse(
    _: ClusterState, request: IncrementalAlterConfigsRequest, error_code: int
) -> IncrementalAlterConfigsResponse:
    """Refuse every resource."""
    return IncrementalAlterConfigsResponse(
        responses=[_response(resource, error_code) for resource in request.resources]
    )


def _changed(
    cluster: ClusterState, resource: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    malformed = _what_is_malformed(resource)
    if malformed is not None:
        return _refused(resource, InvalidRequestError, malformed)
    if not is_valid_name(resource.resource_name):
        return _refused(resource, InvalidTopicError, "the name is invalid")
    topic = cluster.topics.get(resource.resource_name)
    if topic is None:
        reason = f"The topic '{resource.resource_name}' does not exist."
        return _refused(resource, UnknownTopicOrPartitionError, reason)
    config = topic.config
    try:
        for each in resource.configs:
            operation = Operation(each.config_operation)
            config = altered(config, operation, each.name, each.value or "")
        check_config(config)
    except ValueError as error:
        return _refused(resource, InvalidConfigError, str(error))
    if not validate_only:
        topic.configure(config)
        cluster.watch_compaction()
    return _response(resource)


def _what_is_malformed(resource: AlterConfigsResource) -> str | None:
    if max(Counter(each.name for each in resource.configs).values(), default=1) > 1:
        return "Error due to duplicate config keys"
    nulls = [
        each.name
        for each in resource.configs
        if each.value is None and each.config_operation != Operation.DELETE.value
    ]
    if nulls:
        return f"Null value not supported for : {', '.join(nulls)}"
    if any(each.config_operation not in _OPERATIONS for each in resource.configs):
        return "Unknown operation type"
    if resource.resource_type != TOPIC:
        return "only the settings of topics can be changed here"
    return None


def _response(resource: AlterConfigsResource, error_code: int = 0) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code, None, resource.resource_type, resource.resource_name
    )


def _refused(
    resource: AlterConfigsResource, error: type[BrokerError], reason: str | None
) -> AlterConfigsResourceResponse:
    response = _response(resource, error.code)
    response.error_message = reason
    return response


HANDLER = Handler(IncrementalAlterConfigsRequest, handle, refuse)
