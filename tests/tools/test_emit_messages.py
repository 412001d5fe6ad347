"""What the generated source looks like, and that schemas it cannot do are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

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
from tools.protogen.emit_messages import class_names, emit_module
from tools.protogen.spec import Message as Schema
from tools.protogen.spec import parse

if TYPE_CHECKING:
    from pykclient.protocol.message import Message

SECRET = "the secret"
ID: dict[str, object] = {"name": "Id", "type": "int32", "versions": "0+"}


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


def test_structures_of_one_name_are_told_apart_by_their_side() -> None:
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


def test_fields_of_fixed_size_are_packed_together() -> None:
    source = emitted(ID, {"name": "On", "type": "bool", "versions": "0+"})
    assert '_INT32_BOOL = Layout(">i?")' in source
    assert "out += _INT32_BOOL.pack(self.id, self.on)" in source
    assert "self.id, self.on = reader.unpack(_INT32_BOOL)" in source


def test_about_texts_are_not_taken_over() -> None:
    source = emitted(ID | {"about": "Kafka's own sentence."})
    assert "sentence" not in source


def test_python_keyword_gets_an_underscore() -> None:
    source = emitted({"name": "From", "type": "string", "versions": "0+"})
    assert "self.from_ = from_" in source
    compile(source, "module", "exec")


def test_secret_is_masked() -> None:
    source = emitted({"name": "Hmac", "type": "bytes", "versions": "0+"})
    assert 'masked = ("hmac", )' in source


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


def test_data_structures_of_one_name_are_told_apart_by_their_schema() -> None:
    def data(name: str) -> Schema:
        return replace(message(name, struct("Topic", ID)), kind="data", api_key=None)

    names = class_names([data("First"), data("Second")])
    assert names["First"]["Topic"] == "FirstTopic"
    assert names["Second"]["Topic"] == "SecondTopic"


def test_versions_and_tags_stand_beside_the_fields() -> None:
    source = emitted(
        ID,
        {"name": "Rack", "type": "string", "versions": "2+", "taggedVersions": "2+", "tag": 5},
    )
    assert "self.id = id  # 0+" in source
    assert "self.rack = rack  # 2+, tag 5" in source


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (struct("Later", ID | {"versions": "2+"}), "can be empty on the wire"),
        (
            {"name": "Rack", "type": "string", "versions": "2", "taggedVersions": "2", "tag": 0},
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
