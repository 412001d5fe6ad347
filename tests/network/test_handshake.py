"""The handshake chooses a version of ApiVersions, or rejects the broker with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    DecodeError,
    KafkaError,
    UnsupportedVersionError,
)
from pykclient.network.broker.handshake import ApiVersions, Handshake, HandshakeState
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import encode_response
from pykclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from pykclient.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.protocol.messages.offset_delete import OffsetDeleteRequest
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pykclient.types import Node
from pykclient.version import __version__
from tests.network.scripted_port import ALL_RANGES

if TYPE_CHECKING:
    from pykclient.protocol.message import Request

NODE = Node(1, "broker", 9092)
HIGHEST = ApiVersionsRequest.max_version
OLDEST, NEWEST = MetadataRequest.min_version, MetadataRequest.max_version
UNSUPPORTED_VERSION = 35
CLUSTER_AUTHORIZATION_FAILED = 31
SIZE_BYTES = 4


def response(
    version: int, ranges: dict[int, tuple[int, int]] | None = None, error_code: int = 0
) -> memoryview:
    listed = ALL_RANGES if ranges is None else ranges
    keys = [ApiVersion(key, low, high) for key, (low, high) in listed.items()]
    frame = encode_response(ApiVersionsResponse(error_code=error_code, api_keys=keys), version, 7)
    return memoryview(frame)[SIZE_BYTES:]


def refusal(ranges: dict[int, tuple[int, int]]) -> memoryview:
    """Return the response of a broker that lacks our version; it always has version 0."""
    return response(0, ranges, UNSUPPORTED_VERSION)


def own_range(lowest: int, highest: int) -> dict[int, tuple[int, int]]:
    return {int(ApiKey.API_VERSIONS): (lowest, highest)}


def test_a_response_to_our_highest_version_ends_it_with_the_brokers_ranges() -> None:
    handshake = Handshake(NODE)
    assert isinstance(handshake.message, ApiVersionsRequest)
    assert handshake.message.client_software_name == "pykclient"
    assert handshake.message.client_software_version == __version__
    assert handshake.on_frame(response(HIGHEST)) is False
    assert handshake.state is HandshakeState.DONE
    assert handshake.versions is not None
    assert handshake.versions.ranges == ALL_RANGES


@pytest.mark.parametrize(
    ("listed", "next_version"),
    [
        ({}, 0),
        (own_range(0, 0), 0),
        (own_range(0, 2), 2),
        (own_range(0, 3), 3),
        # A list that contradicts the error does not make us send the same version again.
        (own_range(0, HIGHEST), HIGHEST - 1),
        (own_range(0, 30_000), HIGHEST - 1),
    ],
)
def test_a_refused_version_makes_it_try_again_in_one_that_the_broker_lists_or_in_0(
    listed: dict[int, tuple[int, int]], next_version: int
) -> None:
    handshake = Handshake(NODE)
    assert handshake.on_frame(refusal(listed)) is True
    assert handshake.version == next_version
    assert handshake.on_frame(response(next_version)) is False
    assert handshake.versions is not None


@pytest.mark.parametrize(
    "behind_the_error",
    [b"", b"\x01\x00\x12\x00\x00\x00\x02\x00\x00\x00\x00", b"\xff\xff"],
    ids=["nothing", "as librdkafka's mock cluster", "cut"],
)
def test_a_refusal_counts_also_where_what_it_lists_cannot_be_read(behind_the_error: bytes) -> None:
    handshake = Handshake(NODE)
    correlation_id, error_code = bytes(4), b"\x00\x23"
    assert handshake.on_frame(memoryview(correlation_id + error_code + behind_the_error)) is True
    assert handshake.version == 0
    assert handshake.on_frame(response(0)) is False
    assert handshake.versions is not None


@pytest.mark.parametrize("listed", [own_range(9, 12), own_range(0, -1)])
def test_no_common_version_of_api_versions_is_reported(listed: dict[int, tuple[int, int]]) -> None:
    handshake = Handshake(NODE)
    with pytest.raises(UnsupportedVersionError) as raised:
        handshake.on_frame(refusal(listed))
    assert "broker:9092 (id 1)" in str(raised.value)
    assert f"0 to {HIGHEST}" in str(raised.value)
    assert handshake.state is HandshakeState.FAILED


def test_unknown_keys_without_end_end() -> None:
    handshake = Handshake(NODE)
    requested = []
    while handshake.version > 0:
        requested.append(handshake.version)
        handshake.on_frame(refusal(own_range(0, 30_000)))
    assert requested == list(range(HIGHEST, 0, -1))
    with pytest.raises(UnsupportedVersionError):
        handshake.on_frame(refusal(own_range(0, 30_000)))


@pytest.mark.parametrize(
    ("ranges", "error_code", "error", "text"),
    [
        (
            {int(ApiKey.METADATA): (0, 3)},
            0,
            UnsupportedVersionError,
            "is older than Kafka 2.1: it speaks Metadata up to version 3, this client needs 4",
        ),
        (own_range(0, 4), 0, UnsupportedVersionError, "if this is a controller's address"),
        ({}, CLUSTER_AUTHORIZATION_FAILED, ClusterAuthorizationFailedError, " refused "),
    ],
    ids=["old", "no broker", "refused"],
)
def test_a_broker_that_cannot_serve_us_is_refused_with_the_reason(
    ranges: dict[int, tuple[int, int]], error_code: int, error: type[KafkaError], text: str
) -> None:
    handshake = Handshake(NODE)
    with pytest.raises(error) as raised:
        handshake.on_frame(response(HIGHEST, ranges, error_code))
    assert "broker:9092 (id 1) " in str(raised.value)
    assert text in str(raised.value)
    assert handshake.versions is None


@pytest.mark.parametrize("metadata_max", [7, 4], ids=["Kafka 2.1", "Azure Event Hubs"])
def test_a_broker_with_metadata_from_version_4_on_is_taken(metadata_max: int) -> None:
    ranges = {int(ApiKey.METADATA): (0, metadata_max)}
    assert Handshake(NODE).on_frame(response(HIGHEST, ranges)) is False


def test_a_response_cut_anywhere_is_a_decode_error() -> None:
    whole = response(HIGHEST)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            Handshake(NODE).on_frame(whole[:size])


@given(st.binary(max_size=200))
def test_whatever_a_peer_sends_only_our_errors_come_of_it(data: bytes) -> None:
    handshake = Handshake(NODE)
    try:
        handshake.on_frame(memoryview(data))
    except KafkaError:
        assert handshake.versions is None


# Versions of the other APIs.


def of_metadata(lowest: int, highest: int) -> ApiVersions:
    return ApiVersions(NODE, {int(ApiKey.METADATA): (lowest, highest)})


@pytest.mark.parametrize(
    ("broker_max", "cap", "version"),
    [(9, None, 9), (NEWEST + 7, None, NEWEST), (12, 10, 10), (8, 10, 8)],
)
def test_the_highest_common_version_up_to_a_cap_is_chosen(
    broker_max: int, cap: int | None, version: int
) -> None:
    assert of_metadata(0, broker_max).choose(MetadataRequest(), cap) == version


@pytest.mark.parametrize(
    ("broker_max", "cap", "version"),
    [(6, None, 5), (6, 6, 6), (5, 6, 5), (7, 7, 5), (6, 4, 4)],
)
def test_an_unstable_version_is_chosen_only_by_its_number(
    broker_max: int, cap: int | None, version: int
) -> None:
    versions = ApiVersions(NODE, {int(ApiKey.INIT_PRODUCER_ID): (0, broker_max)})
    assert InitProducerIdRequest.unstable_version == 6
    assert versions.choose(InitProducerIdRequest(), cap) == version


def test_the_common_range_is_where_both_overlap() -> None:
    assert of_metadata(3, NEWEST + 1).common_range(MetadataRequest) == (
        3,
        NEWEST,
    )
    assert of_metadata(NEWEST + 1, NEWEST + 2).common_range(MetadataRequest) is None
    assert ApiVersions(NODE, {}).common_range(MetadataRequest) is None
    assert of_metadata(9, 3).common_range(MetadataRequest) is None, "upside down"


@pytest.mark.parametrize(
    ("versions", "cap", "theirs", "ours"),
    [
        (
            ApiVersions(NODE, {}),
            None,
            "does not have it",
            f"{OLDEST} to {NEWEST}",
        ),
        (
            of_metadata(NEWEST + 1, NEWEST + 2),
            None,
            f"speaks versions {NEWEST + 1} to {NEWEST + 2}",
            f"{OLDEST} to {NEWEST}",
        ),
        (of_metadata(9, 9), 8, "speaks versions 9,", f"{OLDEST} to 8"),
    ],
)
def test_no_common_version_is_reported_with_the_ranges_and_the_cure(
    versions: ApiVersions, cap: int | None, theirs: str, ours: str
) -> None:
    with pytest.raises(UnsupportedVersionError) as raised:
        versions.choose(MetadataRequest(), cap)
    text = str(raised.value)
    assert "broker:9092 (id 1) cannot serve METADATA" in text
    assert theirs in text
    assert f"needs one of {ours}" in text
    assert "use Kafka 2.1 or newer" in text


@pytest.mark.parametrize(
    ("request_type", "release"),
    [(IncrementalAlterConfigsRequest, "2.3"), (OffsetDeleteRequest, "2.4")],
)
def test_an_api_that_came_later_is_reported_with_the_release_that_has_it(
    request_type: type[Request], release: str
) -> None:
    versions = of_metadata(OLDEST, NEWEST)
    with pytest.raises(UnsupportedVersionError, match=rf"use Kafka {release} or newer"):
        versions.choose(request_type(), None)


# Listeners that may require SASL.


def checking() -> Handshake:
    """Return a handshake that has the broker's versions, and must check for SASL."""
    handshake = Handshake(NODE, "SSL")
    handshake.checks_sasl = True
    assert handshake.on_frame(response(HIGHEST)), "there is more to send"
    assert isinstance(handshake.message, SaslHandshakeRequest)
    assert handshake.version == SaslHandshakeRequest.max_version
    return handshake


def mechanisms(error_code: int, *names: str) -> memoryview:
    message = SaslHandshakeResponse(error_code=error_code, mechanisms=list(names))
    frame = encode_response(message, SaslHandshakeRequest.max_version, 7)
    return memoryview(frame)[SIZE_BYTES:]


@pytest.mark.parametrize("error_code", [0, 33])
def test_a_listener_that_requires_sasl_is_refused_with_what_it_offers(error_code: int) -> None:
    handshake = checking()
    reason = "set security_protocol=SASL_SSL, sasl_mechanism to one of 'PLAIN', 'GSSAPI', and"
    with pytest.raises(AuthenticationError, match=reason):
        handshake.on_frame(mechanisms(error_code, "PLAIN", "GSSAPI"))
    assert handshake.requires_sasl
    assert handshake.state is HandshakeState.FAILED


@pytest.mark.parametrize("error_code", [34, 35, -1])
def test_a_listener_that_has_no_sasl_is_gone_on_with(error_code: int) -> None:
    handshake = checking()
    assert not handshake.on_frame(mechanisms(error_code))
    assert handshake.state is HandshakeState.DONE
    assert not handshake.requires_sasl


def test_a_service_without_sasl_is_sent_no_request_of_it() -> None:
    handshake = Handshake(NODE)
    handshake.checks_sasl = True
    ranges = {key: found for key, found in ALL_RANGES.items() if key != ApiKey.SASL_HANDSHAKE}
    assert not handshake.on_frame(response(HIGHEST, ranges))
    assert handshake.state is HandshakeState.DONE


def test_mechanisms_cut_anywhere_are_a_decode_error() -> None:
    frame = mechanisms(33, "PLAIN", "GSSAPI")
    for size in range(len(frame)):
        with pytest.raises(DecodeError):
            checking().on_frame(frame[:size])
