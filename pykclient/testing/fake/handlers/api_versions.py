"""ApiVersions: the API versions that a broker supports.

An unsupported version of ApiVersions itself gets a response in version 0 with the supported range,
so that any client can continue (KIP-511). Two of Kafka's features are announced: ``group.version``
for groups of KIP-848, which can be switched at any time (`set_group_version`), and
``transaction.version`` for transactions with their own epochs (KIP-890).

Owner: none; it holds no state.
Source: KIP-511, KIP-584 (features), KIP-890, KAFKA-17011 (features from 0 on), KIP-1242 (the client
expects another broker); Java classes ``ApiVersionsRequest``, ``BrokerFeatures``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    BrokerUnsupportedVersionError,
    InvalidRequestError,
    RebootstrapRequiredError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pykclient.testing.fake.groups.group import GROUP_VERSION_MAX
from pykclient.testing.fake.handlers.handler import Handler
from pykclient.testing.fake.transactions.settings import TRANSACTION_VERSION_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

GROUP_FEATURE = "group.version"
TRANSACTION_FEATURE = "transaction.version"

_NAME_FROM_VERSION = 3
_FEATURES_FROM_ZERO_FROM_VERSION = 4
_IDENTITY_FROM_VERSION = 5
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(cluster: ClusterState, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the versions that the broker announces."""
    names = (request.client_software_name, request.client_software_version)
    if call.version >= _NAME_FROM_VERSION and not all(map(_SOFTWARE.fullmatch, names)):
        return refuse(cluster, request, InvalidRequestError.code)
    meant = request.cluster_id, request.node_id
    if (
        call.version >= _IDENTITY_FROM_VERSION
        and request.cluster_id is not None
        and meant != (cluster.cluster_id, call.broker_id)
    ):
        return refuse(cluster, request, RebootstrapRequiredError.code)
    spoken = cluster.versions(call.broker_id)
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in spoken.items()
        ]
    )
    if call.session.authentication is not None:
        call.session.authentication.on_versions()
    features: dict[str, tuple[int, int]] = {}
    if ApiKey.CONSUMER_GROUP_HEARTBEAT in spoken:
        features[GROUP_FEATURE] = GROUP_VERSION_MAX, cluster.group_version
    if ApiKey.END_TXN in spoken:
        level = cluster.transactions.settings.transaction_version
        features[TRANSACTION_FEATURE] = TRANSACTION_VERSION_MAX, level
    if features:
        _name_features(response, call.version, features)
        response.finalized_features_epoch = cluster.features_epoch
    return response


def refuse(_: ClusterState, __: ApiVersionsRequest, error_code: int) -> ApiVersionsResponse:
    """Refuse the request."""
    return ApiVersionsResponse(error_code=error_code)


def _name_features(
    response: ApiVersionsResponse, version: int, features: Mapping[str, tuple[int, int]]
) -> None:
    """Add the supported and finalized levels of features; level 0 is left out.

    Only written by versions from 3 on.
    """
    if version >= _FEATURES_FROM_ZERO_FROM_VERSION:  # older clients reject a range from 0
        response.supported_features = [
            SupportedFeatureKey(name, 0, highest) for name, (highest, _) in features.items()
        ]
    response.finalized_features = [
        FinalizedFeatureKey(name, level, level) for name, (_, level) in features.items() if level
    ]


def respond_with_versions(cluster: ClusterState, call: Call) -> None:
    """Respond in version 0 with the supported versions of ApiVersions itself."""
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
