"""ApiVersions: which versions of which APIs a broker speaks.

A version of ApiVersions itself that is not spoken gets a response in version 0 with the versions
that are, so that any client gets on (KIP-511). Of Kafka's features only ``group.version`` is named,
by which a client knows whether there are groups of KIP-848: no other one is here to be switched.

Owner: none; it holds no state.
Source: KIP-511, KIP-584 (features), KAFKA-17011 (features from 0 on); Java classes
``ApiVersionsRequest``, ``BrokerFeatures``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pykclient.errors.broker import BrokerUnsupportedVersionError, InvalidRequestError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pykclient.testing.fake.handlers.handler import Handler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

GROUP_FEATURE = "group.version"
CLASSIC_ONLY, CLASSIC_AND_CONSUMER = 0, 1
"""The levels of that feature: the second has groups of KIP-848."""

_NAME_FROM_VERSION = 3
_FEATURES_FROM_ZERO_FROM_VERSION = 4
_FEATURES_EPOCH = 0
"""The features never change."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(cluster: ClusterState, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Name what the broker speaks, or pretends to."""
    names = (request.client_software_name, request.client_software_version)
    if call.version >= _NAME_FROM_VERSION and not all(map(_SOFTWARE.fullmatch, names)):
        return refuse(cluster, request, InvalidRequestError.code)
    spoken = cluster.versions(call.broker_id)
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in spoken.items()
        ]
    )
    if call.session.authentication is not None:
        call.session.authentication.on_versions()
    if ApiKey.CONSUMER_GROUP_HEARTBEAT in spoken:
        _name_features(response, call.version)
    return response


def refuse(_: ClusterState, __: ApiVersionsRequest, error_code: int) -> ApiVersionsResponse:
    """Refuse the request."""
    return ApiVersionsResponse(error_code=error_code)


def _name_features(response: ApiVersionsResponse, version: int) -> None:
    """Say that there are groups of KIP-848; versions before 3 have no place for it."""
    level = CLASSIC_AND_CONSUMER
    if version >= _FEATURES_FROM_ZERO_FROM_VERSION:  # older clients take no range from 0 on
        response.supported_features = [SupportedFeatureKey(GROUP_FEATURE, CLASSIC_ONLY, level)]
    response.finalized_features = [FinalizedFeatureKey(GROUP_FEATURE, level, level)]
    response.finalized_features_epoch = _FEATURES_EPOCH


def respond_with_versions(cluster: ClusterState, call: Call) -> None:
    """Say in version 0 which versions of ApiVersions itself there are."""
    low, high = cluster.versions(call.broker_id).get(ApiKey.API_VERSIONS, (0, 0))
    call.response_version = 0
    call.respond(
        ApiVersionsResponse(
            error_code=BrokerUnsupportedVersionError.code,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
        ),
        cluster.now_ms,
    )


HANDLER = Handler(ApiVersionsRequest, handle, refuse)
