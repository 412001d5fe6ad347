"""Generated code branches by ranges of versions and shows no secret; other schemas are refused."""

from __future__ import annotations

import json
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
from tools.protogen.emit_messages import emit_module
from tools.protogen.error_texts import TEXTS
from tools.protogen.jar import ErrorFacts
from tools.protogen.spec import Message as Schema
from tools.protogen.spec import parse
from tools.protogen.versions import Versions, by_version

if TYPE_CHECKING:
    from pykclient.protocol.message import Message

SECRET = "the secret"
ID: dict[str, object] = {"name": "Id", "type": "int32", "versions": "0+"}
RACK: dict[str, object] = {"name": "Rack", "type": "string"}


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


def test_no_class_has_the_name_of_an_error_of_our_own() -> None:
    assert not {class_name(name) for name in TEXTS} & set(base.__all__)


def test_code_without_an_explanation_is_refused() -> None:
    fact = ErrorFacts(999, "BRAND_NEW", is_retriable=True, is_metadata_stale=False)
    with pytest.raises(KeyError, match="BRAND_NEW"):
        emit_errors([fact], "")


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
