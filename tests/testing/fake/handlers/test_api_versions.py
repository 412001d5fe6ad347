"""ApiVersions of a fake broker: the features it names, by version and by what it pretends to be."""

from __future__ import annotations

import pytest

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.testing import FakeCluster

SUPPORTED = ("group.version", 0, 1)
FINALIZED = ("group.version", 1, 1)


def ask(cluster: FakeCluster, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = cluster.ask(0, request, 0, version=version).answered()
    assert isinstance(response, ApiVersionsResponse)
    return response


@pytest.mark.promise("the fake cluster names the feature `group.version` as Kafka does")
@pytest.mark.parametrize("version", [3, 4])
def test_groups_of_kip_848_are_a_feature(version: int) -> None:
    """A range from 0 on is told from version 4 on, since older clients refuse the whole answer."""
    response = ask(FakeCluster(1), version)
    supported = [(f.name, f.min_version, f.max_version) for f in response.supported_features]
    finalized = [
        (f.name, f.min_version_level, f.max_version_level) for f in response.finalized_features
    ]
    assert supported == ([SUPPORTED] if version >= 4 else [])
    assert finalized == [FINALIZED]
    assert response.finalized_features_epoch >= 0


@pytest.mark.promise("the fake cluster names the feature `group.version` as Kafka does")
def test_who_has_no_such_groups_names_no_feature() -> None:
    cluster = FakeCluster(1)
    cluster.limit_versions({ApiKey.CONSUMER_GROUP_HEARTBEAT: None})
    response = ask(cluster, 4)
    assert (response.supported_features, response.finalized_features) == ([], [])
    assert response.finalized_features_epoch == -1
