"""Headers around messages, versions, and what a message shows of itself."""

from __future__ import annotations

import pytest

from pykclient.errors.base import DecodeError, EncodeError, UnsupportedVersionError
from pykclient.protocol.message import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_parts,
    encode_response,
    peek_correlation_id,
)
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest
from pykclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from pykclient.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pykclient.protocol.primitives import GATHER_MIN_BYTES


def produce_request(*batches: bytes) -> ProduceRequest:
    partitions = [PartitionProduceData(index, batch) for index, batch in enumerate(batches)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", partition_data=partitions)]
    )


def test_request_before_the_first_flexible_version_has_header_version_1() -> None:
    frame = encode_request(MetadataRequest(), 8, 7, "me")
    assert frame == (
        b"\x00\x00\x00\x13"  # 19 bytes
        b"\x00\x03"
        b"\x00\x08"
        b"\x00\x00\x00\x07"  # Metadata, version 8, correlation id 7
        b"\x00\x02me"
        b"\x00\x00\x00\x00"
        b"\x01\x00\x00"  # no topics, three booleans
    )


def test_flexible_request_has_header_version_2_whose_client_id_is_not_compact() -> None:
    frame = encode_request(MetadataRequest(), 12, 7, "me")
    assert frame == (
        b"\x00\x00\x00\x11"
        b"\x00\x03"
        b"\x00\x0c"
        b"\x00\x00\x00\x07"
        b"\x00\x02me"
        b"\x00"  # tags of the header
        b"\x01"
        b"\x01\x00"
        b"\x00"
    )


def test_api_versions_response_never_has_tags_in_its_header() -> None:
    frame = encode_response(ApiVersionsResponse(), 4, 7)
    assert frame[4:8] == b"\x00\x00\x00\x07"
    assert frame[8:10] == b"\x00\x00"  # the error code follows at once
    assert decode_response(ApiVersionsResponse, 4, frame[4:]) == ApiVersionsResponse()


def test_flexible_response_has_tags_in_its_header() -> None:
    frame = encode_response(MetadataResponse(), 9, 7)
    assert frame[8] == 0
    unknown_tag = frame[4:8] + b"\x01\x63\x02ab" + frame[9:]
    assert decode_response(MetadataResponse, 9, unknown_tag) == MetadataResponse()


def test_correlation_id_can_be_seen_before_the_response_is_read() -> None:
    frame = encode_response(MetadataResponse(), 9, -5)
    assert peek_correlation_id(memoryview(frame)[4:]) == -5
    with pytest.raises(DecodeError):
        peek_correlation_id(b"\x00\x00\x00")


def test_header_of_an_unknown_request_can_be_read() -> None:
    frame = b"\x7f\xff\x00\x63\x00\x00\x00\x01\xff\xff"
    assert decode_request_header(frame) == RequestHeader(32767, 99, 1, None)
    with pytest.raises(UnsupportedVersionError, match="API 32767"):
        decode_request(frame)


def test_request_of_an_unknown_version_is_unsupported() -> None:
    frame = b"\x00\x12\x00\x63\x00\x00\x00\x01\x00\x00"
    with pytest.raises(UnsupportedVersionError, match=r"ApiVersionsRequest version 99 .* 0 to 5"):
        decode_request(frame)


# Versions


@pytest.mark.parametrize("version", [2, 14, -1])
def test_version_that_is_not_spoken_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=r"ProduceRequest version .* 3 to 13"):
        encode_request(ProduceRequest(), version, 1, None)


def test_response_version_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match="MetadataResponse version 99"):
        decode_response(MetadataResponse, 99, b"")
    with pytest.raises(UnsupportedVersionError, match="MetadataResponse version 99"):
        encode_response(MetadataResponse(), 99, 1)


def test_field_that_the_version_lacks_must_have_its_default() -> None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(
        UnsupportedVersionError, match=r"MetadataRequest\.allow_auto_topic_creation"
    ):
        encode_request(request, 3, 1, None)


def test_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    response = MetadataResponse(cluster_id="id")
    frame = encode_response(response, 1, 1)
    assert decode_response(MetadataResponse, 1, frame[4:]).cluster_id is None


def test_tagged_field_that_the_version_lacks_must_have_its_default() -> None:
    partition = PartitionData()
    partition.diverging_epoch.epoch = 3
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])
    with pytest.raises(UnsupportedVersionError, match=r"PartitionData\.diverging_epoch"):
        encode_response(response, 11, 1)
    frame = encode_response(response, 12, 1)
    assert decode_response(FetchResponse, 12, frame[4:]) == response


def test_null_where_the_version_does_not_allow_it_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"MetadataRequest\.topics must not be None in version 0"):
        encode_request(MetadataRequest(topics=None), 0, 1, None)


def test_unknown_tag_in_a_message_is_passed_over() -> None:
    frame = encode_response(MetadataResponse(), 9, 7)
    assert frame[-1] == 0
    with_tag = frame[4:-1] + b"\x01\x63\x02ab"
    assert decode_response(MetadataResponse, 9, with_tag) == MetadataResponse()


# What cannot be written or read


def test_number_out_of_range_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="CreateTopicsRequest version 5 cannot be written"):
        encode_request(CreateTopicsRequest(timeout_ms=2**31), 5, 1, None)
    with pytest.raises(EncodeError, match="ApiVersionsResponse version 0 cannot be written"):
        encode_response(ApiVersionsResponse(error_code=2**15), 0, 1)


def test_string_that_has_no_utf8_is_an_encode_error() -> None:
    with pytest.raises(EncodeError, match="MetadataRequest version 1 cannot be written"):
        encode_request(MetadataRequest([MetadataRequestTopic(name="\ud800")]), 1, 1, None)


def test_trailing_bytes_are_a_decode_error_that_names_the_message() -> None:
    frame = encode_response(MetadataResponse(), 1, 7)
    with pytest.raises(DecodeError, match="MetadataResponse version 1: 1 bytes remain"):
        decode_response(MetadataResponse, 1, frame[4:] + b"\x00")
    request = encode_request(MetadataRequest(), 1, 7, None)
    with pytest.raises(DecodeError, match="MetadataRequest version 1: 1 bytes remain"):
        decode_request(request[4:] + b"\x00")


def test_a_broker_passes_over_what_follows_a_request_but_not_over_what_is_missing() -> None:
    request = bytes(encode_request(MetadataRequest(), 9, 7, None)[4:])
    plain = decode_request(request)
    assert decode_request(request + b"\x01\x00\x00", passes_surplus=True) == plain
    with pytest.raises(DecodeError, match="MetadataRequest version 9"):
        decode_request(request[:-1], passes_surplus=True)


def test_one_empty_section_of_tags_too_many_is_passed_over_and_nothing_else_is() -> None:
    frame = encode_response(MetadataResponse(), 9, 7)[4:]
    assert decode_response(MetadataResponse, 9, frame + b"\x00") == MetadataResponse()
    for surplus in (b"\x00\x00", b"\x01", b"\x80"):
        with pytest.raises(DecodeError, match="MetadataResponse version 9"):
            decode_response(MetadataResponse, 9, frame + surplus)


# Gathering


def test_parts_of_a_produce_request_hold_its_batches_themselves() -> None:
    batches = (b"x" * GATHER_MIN_BYTES, b"small", b"y" * (GATHER_MIN_BYTES + 1))
    request = produce_request(*batches)
    for version in (3, 9):
        parts = encode_request_parts(request, version, 1, "me")
        assert b"".join(parts) == encode_request(request, version, 1, "me")
        assert [part for part in parts if any(part is batch for batch in batches)] == [
            batches[0],
            batches[2],
        ]


# Values


def test_messages_compare_by_value_and_by_class() -> None:
    assert produce_request(b"x") == produce_request(b"x")
    assert produce_request(b"x") != produce_request(b"y")
    assert MetadataRequest() != ApiVersionsRequest()
    assert MetadataRequest() != "MetadataRequest()"


def test_lists_and_structures_are_fresh_in_every_message() -> None:
    MetadataResponse().brokers.append(object())  # type: ignore[arg-type]
    assert MetadataResponse().brokers == []
    PartitionData().current_leader.leader_id = 9
    assert PartitionData().current_leader.leader_id == -1


def test_representation_shows_fields_but_no_long_bytes() -> None:
    text = repr(produce_request(b"x" * 17, b"short"))
    assert "acks=-1" in text
    assert "records=<17 bytes>" in text
    assert "records=b'short'" in text
    assert "xx" not in text


def test_representation_of_received_records_is_that_of_bytes() -> None:
    assert "records=b'ab'" in repr(PartitionData(records=memoryview(b"ab")))


def test_representation_shows_no_secret() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\x00me\x00secret")
    assert repr(request) == "SaslAuthenticateRequest(auth_bytes=***)"
