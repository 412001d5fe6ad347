"""ApiVersions: which versions of which APIs a broker speaks.

A version of ApiVersions itself that is not spoken is answered in version 0 with the versions that
are, so that any client gets on (KIP-511).

Owner: none; it holds no state.
Source: KIP-511, KIP-584; Java class ``ApiVersionsRequest``.
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
)
from pykclient.testing.fake.handlers.handler import TypedHandler

if TYPE_CHECKING:
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.cluster import FakeCluster

__all__ = ["HANDLER", "answer_unsupported", "handle", "refuse"]

_NAME_FROM_VERSION = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(cluster: FakeCluster, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Name what the broker speaks, or pretends to."""
    names = (request.client_software_name, request.client_software_version)
    if call.version >= _NAME_FROM_VERSION and not all(map(_SOFTWARE.fullmatch, names)):
        return refuse(cluster, request, InvalidRequestError.code)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in cluster.versions(call.broker_id).items()
        ]
    )


def refuse(_: FakeCluster, __: ApiVersionsRequest, error_code: int) -> ApiVersionsResponse:
    """Refuse the request."""
    return ApiVersionsResponse(error_code=error_code)


def answer_unsupported(cluster: FakeCluster, call: Call) -> None:
    """Say in version 0 which versions of ApiVersions itself there are."""
    low, high = cluster.versions(call.broker_id).get(ApiKey.API_VERSIONS, (0, 0))
    call.answer_version = 0
    call.answer(
        ApiVersionsResponse(
            error_code=BrokerUnsupportedVersionError.code,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=low, max_version=high)],
        ),
        cluster.now_ms,
    )


HANDLER = TypedHandler(ApiVersionsRequest, handle, refuse)
