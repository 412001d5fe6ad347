"""The version chosen is the highest that both sides speak, or an error tells both sides' ranges."""

from __future__ import annotations

import pytest

from pykclient.errors import UnsupportedVersionError
from pykclient.network.broker.api_versions import ApiVersions
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.types import Node

NODE = Node(1, "broker", 9092)
LOWEST, HIGHEST = MetadataRequest.min_version, MetadataRequest.max_version


def of_metadata(lowest: int, highest: int) -> ApiVersions:
    return ApiVersions(NODE, {int(ApiKey.METADATA): (lowest, highest)})


def test_the_highest_common_version_is_chosen() -> None:
    assert of_metadata(0, 9).choose(MetadataRequest(), None) == 9
    assert of_metadata(0, HIGHEST + 7).choose(MetadataRequest(), None) == HIGHEST


def test_a_cap_lowers_the_version() -> None:
    assert of_metadata(0, 12).choose(MetadataRequest(), 10) == 10
    assert of_metadata(0, 8).choose(MetadataRequest(), 10) == 8


def test_the_common_range_is_where_both_overlap() -> None:
    assert of_metadata(3, HIGHEST + 1).common_range(MetadataRequest) == (3, HIGHEST)
    assert of_metadata(HIGHEST + 1, HIGHEST + 2).common_range(MetadataRequest) is None
    assert ApiVersions(NODE, {}).common_range(MetadataRequest) is None


def test_a_range_upside_down_is_no_range() -> None:
    assert of_metadata(9, 3).common_range(MetadataRequest) is None


@pytest.mark.parametrize(
    ("versions", "cap", "theirs", "ours"),
    [
        (ApiVersions(NODE, {}), None, "does not have it", f"{LOWEST} to {HIGHEST}"),
        (
            of_metadata(HIGHEST + 1, HIGHEST + 2),
            None,
            f"speaks versions {HIGHEST + 1} to {HIGHEST + 2}",
            f"{LOWEST} to {HIGHEST}",
        ),
        (of_metadata(9, 9), 8, "speaks versions 9,", f"{LOWEST} to 8"),
    ],
)
def test_no_common_version_tells_the_broker_the_ranges_and_the_cure(
    versions: ApiVersions, cap: int | None, theirs: str, ours: str
) -> None:
    with pytest.raises(UnsupportedVersionError) as raised:
        versions.choose(MetadataRequest(), cap)
    text = str(raised.value)
    assert "broker:9092 (id 1) cannot serve METADATA" in text
    assert theirs in text
    assert f"needs one of {ours}" in text
    assert "use Kafka 2.1 or newer" in text
