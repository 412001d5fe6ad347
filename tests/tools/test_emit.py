"""What the generated source looks like, and that schemas it cannot do are refused.

Code branches by ranges of versions; Java's error codes become classes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import base
from pykclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pykclient.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from pykclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykclient.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from pykclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tools.protogen.emit_errors import class_name, emit_errors
from tools.protogen.emit_messages import class_names, emit_module
from tools.protogen.error_texts import FATAL, KIND, RENAMED, TEXTS
from tools.protogen.jar import ErrorFacts
from tools.protogen.spec import Message as Schema
from tools.protogen.spec import parse
from tools.protogen.versions import NONE, Versions, by_version

if TYPE_CHECKING:
    from pykclient.protocol.message import Message

SECRET = "the secret"
ID: dict[str, object] = {"name": "Id", "type": "int32", "versions": "0+"}
RACK: dict[str, object] = {"name": "Rack", "type": "string"}
TAGGED = RACK | {"versions": "2+", "taggedVersions": "2+", "tag": 5}


def message(name: str, *fields: dict[str, object]) -> Schema:
    kind = "request" if name.endswith("Request") else "response"
    schema = {
        "apiKey": 3,
        "type": kind,
        "name": name,
        "validVersions": "0-3",
        "flexibleVersions": "2+",
        "fields": list(fields),
    }
    return parse(json.dumps(schema))


def struct(name: str, *fields: dict[str, object]) -> dict[str, object]:
    return {"name": name, "type": f"[]{name}", "versions": "0+", "fields": list(fields)}


def emitted(*fields: dict[str, object]) -> str:
    return emit_module([message("MetadataResponse", *fields)], '"""For a test."""')


def test_structures_of_one_name_are_distinguished_by_their_side() -> None:
    pair = [
        message("MetadataResponse", struct("Topic", ID), struct("Broker", ID)),
        message("MetadataRequest", struct("Topic", ID)),
    ]
    assert class_names(pair) == {
        "MetadataResponse": {
            "MetadataResponse": "MetadataResponse",
            "Topic": "ResponseTopic",
            "Broker": "Broker",
        },
        "MetadataRequest": {"MetadataRequest": "MetadataRequest", "Topic": "RequestTopic"},
    }


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            [ID, {"name": "On", "type": "bool", "versions": "0+"}],
            [
                '_INT32_BOOL = Layout(">i?")',
                "out += _INT32_BOOL.pack(self.id, self.on)",
                "self.id, self.on = reader.unpack(_INT32_BOOL)",
            ],
        ),
        ([{"name": "From", "type": "string", "versions": "0+"}], ["self.from_ = from_"]),
        ([{"name": "Hmac", "type": "bytes", "versions": "0+"}], ['masked = ("hmac", )']),
        ([ID, TAGGED], ["self.id = id  # 0+", "self.rack = rack  # 2+, tag 5"]),
    ],
    ids=["fixed sizes are packed together", "a keyword", "a secret", "versions and tags"],
)
def test_what_is_generated_of_fields(fields: list[dict[str, object]], lines: list[str]) -> None:
    source = emitted(*fields)
    assert [line for line in lines if line not in source] == []
    compile(source, "module", "exec")


def test_about_texts_are_not_taken_over() -> None:
    assert "sentence" not in emitted(ID | {"about": "Kafka's own sentence."})


def test_secret_of_one_structure_is_masked_only_there() -> None:
    value: dict[str, object] = {"name": "Value", "type": "string", "versions": "0+"}
    source = emitted(struct("AlterableConfig", value), struct("Plain", value))
    assert source.count('masked = ("value", )') == 1


@pytest.mark.parametrize(
    "message",
    [
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(configs=[AlterableConfig(name="key", value=SECRET)])]
        ),
        SaslAuthenticateRequest(auth_bytes=SECRET.encode()),
        AlterUserScramCredentialsRequest(
            upsertions=[
                ScramCredentialUpsertion(salt=SECRET.encode(), salted_password=SECRET.encode())
            ]
        ),
        CreateDelegationTokenResponse(hmac=SECRET.encode()),
        RenewDelegationTokenRequest(hmac=SECRET.encode()),
    ],
)
def test_no_secret_shows_in_what_is_generated(message: Message) -> None:
    assert SECRET not in repr(message)


def test_data_structures_of_one_name_are_distinguished_by_their_schema() -> None:
    def data(name: str) -> Schema:
        return replace(message(name, struct("Topic", ID)), kind="data", api_key=None)

    names = class_names([data("First"), data("Second")])
    assert names["First"]["Topic"] == "FirstTopic"
    assert names["Second"]["Topic"] == "SecondTopic"


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (struct("Later", ID | {"versions": "2+"}), "can be empty on the wire"),
        (
            RACK | {"versions": "2", "taggedVersions": "2", "tag": 0},
            "a tag that ends is not supported",
        ),
        (struct("Out", ID), "out is the name of another local"),
    ],
)
def test_what_would_be_generated_wrongly_is_refused(
    field: dict[str, object], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint):
        emitted(field)


@pytest.mark.parametrize(
    ("code_name", "expected"),
    [
        ("NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerError"),
        ("UNKNOWN_SERVER_ERROR", "UnknownServerError"),
        ("INVALID_TOPIC_EXCEPTION", "InvalidTopicError"),
        ("UNSUPPORTED_VERSION", "BrokerUnsupportedVersionError"),
    ],
)
def test_class_is_named_after_its_code(code_name: str, expected: str) -> None:
    assert class_name(code_name) == expected


def test_no_class_has_the_name_of_an_error_of_our_own() -> None:
    assert not {class_name(name) for name in TEXTS} & set(base.__all__)


def test_fatal_and_renamed_codes_exist() -> None:
    assert set(TEXTS) >= FATAL | RENAMED.keys() | KIND.keys()


def test_code_without_an_explanation_is_refused() -> None:
    fact = ErrorFacts(999, "BRAND_NEW", is_retriable=True, is_metadata_stale=False)
    with pytest.raises(KeyError, match="BRAND_NEW"):
        emit_errors([fact], "")


@pytest.mark.parametrize(
    ("text", "low", "high"), [("3", 3, 3), ("3-5", 3, 5), ("3+", 3, 0x7FFF), ("0", 0, 0)]
)
def test_range_is_read_and_written_as_the_schemas_do(text: str, low: int, high: int) -> None:
    versions = Versions.parse(text)
    assert (versions.low, versions.high) == (low, high)
    assert str(versions) == text
    assert versions


def test_none_is_empty() -> None:
    assert Versions.parse("none") is NONE
    assert not NONE
    assert str(NONE) == "none"
    assert 0 not in NONE


def test_malformed_range_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Versions.parse("new")


def test_both_and_either() -> None:
    assert Versions(1, 5) & Versions(3, 9) == Versions(3, 5)
    assert Versions(1, 2) & Versions(3, 4) is NONE
    assert Versions(1, 2) | Versions(5, 6) == Versions(1, 6)


@pytest.mark.parametrize(
    "codes",
    [
        "aaaa",
        "aabb",
        "aabbcc",
        "abab",
        ".aaa",
        "aaa.",
        "a..a",
        ".aa.",
        "a.b",
        ".a.b.",
        "....",
        "ab",
        "a",
    ],
)
def test_every_version_runs_its_own_code(codes: str) -> None:
    """Goal: branches cover each version once. Method: run what comes out, for every version."""
    versions = Versions(3, 3 + len(codes) - 1)

    def code(version: int) -> list[str]:
        letter = codes[version - versions.low]
        return [] if letter == "." else [f"ran.append({letter!r})"]

    lines = by_version(versions, code)
    for version in versions.each():
        ran: list[str] = []
        exec("\n".join(lines), {"version": version, "ran": ran})
        assert "".join(ran) == codes[version - versions.low].strip(".")


def test_equal_neighbours_share_a_branch_and_the_newest_comes_first() -> None:
    lines = by_version(Versions(0, 5), lambda version: ["new" if version >= 4 else "old"])
    assert lines == ["if version >= 4:", "    new", "else:", "    old"]
