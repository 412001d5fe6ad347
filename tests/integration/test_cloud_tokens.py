"""Tokens by the identity that a cloud gives a machine or a container, and by strimzi's options."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pykclient.admin.config import AdminConfig
from pykclient.errors import AuthenticationError, ConfigError, ConnectionFailedError
from pykclient.network.sasl.login import token_source
from pykclient.network.sasl.token import check_token, jwt_claims, wall_ms
from tests.integration.identity_server import IdentityServer, Reply, decoded
from tests.integration.test_oidc import assert_hidden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pykclient.network.sasl.login import TokenSource
    from pykclient.network.sasl.token import OAuthToken

CANARY = "canary-b0a1"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"
RESOURCE = "https://example.servicebus.windows.net"


@pytest.fixture
def identity(tmp_path: Path) -> Iterator[IdentityServer]:
    with IdentityServer(tmp_path) as found:
        found.clients = {"client": CANARY}
        yield found


def source_of(settings: Mapping[str, object]) -> TokenSource:
    return token_source(
        AdminConfig.from_settings(
            {
                "bootstrap.servers": "h:9092",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                **settings,
            }
        )
    )


# Azure.


def managed(identity: IdentityServer, query: str) -> dict[str, object]:
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
        "sasl.oauthbearer.token.endpoint.url": identity.imds_url,
        "sasl.oauthbearer.config": f"query={query}",
    }


def test_a_managed_identity_has_a_token_of_the_metadata_service(
    identity: IdentityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")  # never for link-local addresses
    source = source_of(managed(identity, f"api-version=2018-02-01&resource={RESOURCE}&client_id=x"))
    token = source.fetch()
    check_token(token, wall_ms())
    assert token.principal == "managed"
    (request,) = identity.requests
    assert request.form == {"api-version": "2018-02-01", "resource": RESOURCE, "client_id": "x"}
    assert request.headers["metadata"] == "true"
    assert source.name == identity.imds_url


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, AuthenticationError),
        (404, ConnectionFailedError),
        (410, ConnectionFailedError),
        (429, ConnectionFailedError),
        (500, ConnectionFailedError),
    ],
)
def test_a_metadata_service_that_is_not_ready_is_tried_again(
    identity: IdentityServer, status: int, error: type[Exception]
) -> None:
    """As Microsoft's guide for it says of these statuses."""
    identity.reply = Reply.of({"error": "invalid_request"}, status)
    with pytest.raises(error, match=f"status {status}: invalid_request") as caught:
        source_of(managed(identity, "a=1")).fetch()
    assert type(caught.value) is error


# Strimzi.


def strimzi(identity: IdentityServer | None, options: str) -> dict[str, object]:
    place = "" if identity is None else f'oauth.token.endpoint.uri="{identity.token_url}" '
    return {
        "sasl.login.callback.handler.class": STRIMZI,
        "sasl.jaas.config": f"{MODULE} required {place}{options};",
    }


def test_strimzis_client_credentials_are_sent_with_scope_and_audience(
    identity: IdentityServer,
) -> None:
    options = f'oauth.client.id="client" oauth.client.secret="{CANARY}" oauth.scope="a" '
    token = source_of(strimzi(identity, f'{options} oauth.audience="kafka"')).fetch()
    assert token.principal == "client"
    (request,) = identity.requests
    assert request.form == {
        "grant_type": "client_credentials",
        "scope": "a",
        "audience": "kafka",
    }
    assert request.credentials == ("client", CANARY)
    claims = jwt_claims(token.value.value)
    assert claims is not None
    assert claims["aud"] == "kafka"


@pytest.mark.parametrize("has_secret", [True, False])
def test_strimzis_refresh_token_is_exchanged(
    identity: IdentityServer, tmp_path: Path, has_secret: bool
) -> None:
    identity.refresh_tokens = {"refresh-canary": "alice"}
    secret = f'oauth.client.secret="{CANARY}"' if has_secret else ""
    file = tmp_path / "refresh"
    file.write_text("refresh-canary\n")
    for option in ('token="refresh-canary"', f'token.location="{file}"'):
        options = f'oauth.client.id="client" {secret} oauth.refresh.{option}'
        source = source_of(strimzi(identity, options))
        assert source.fetch().principal == "alice"
        request = identity.requests[-1]
        assert request.form == {
            "grant_type": "refresh_token",
            "refresh_token": "refresh-canary",
            **({} if has_secret else {"client_id": "client"}),
        }
        assert request.credentials == (("client", CANARY) if has_secret else None)
    identity.refresh_tokens = {}
    identity.reply = Reply.of(
        {"error": "invalid_grant", "error_description": "refresh-canary"}, 400
    )
    with pytest.raises(AuthenticationError, match="status 400: invalid_grant: <hidden>"):
        source.fetch()
    file.unlink()
    with pytest.raises(AuthenticationError, match=r"oauth\.refresh\.token\.location=.* no such"):
        source.fetch()


def test_strimzis_access_token_is_taken_as_it_is(tmp_path: Path, identity: IdentityServer) -> None:
    text = identity.signer.token("carol")
    token = source_of(strimzi(None, f'oauth.access.token="{text}"')).fetch()
    assert (token.principal, token.value.value) == ("carol", text)
    file = tmp_path / "token"
    file.write_text(text)
    assert source_of(strimzi(None, f'oauth.access.token.location="{file}"')).fetch() == token
    assert identity.requests == []


def test_strimzis_assertion_authenticates_the_client(identity: IdentityServer) -> None:
    identity.reply = Reply.of({"access_token": "t", "expires_in": 9})
    source_of(strimzi(identity, 'oauth.client.id="client" oauth.client.assertion="a.b.c"')).fetch()
    assert identity.requests[0].form["client_assertion"] == "a.b.c"
    assert identity.requests[0].form["client_id"] == "client"
    with pytest.raises(ConfigError, match=r"assertion\.file=.*/absent' cannot be read"):
        source_of(strimzi(identity, 'oauth.client.assertion.location="/absent"'))


# Google.

EMAIL = "kafka@example.iam.gserviceaccount.com"
GCP: dict[str, object] = {
    "sasl.login.callback.handler.class": (
        "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
    ),
    "sasl.jaas.config": f"{MODULE} required;",
}


def parts_of(token: OAuthToken) -> tuple[object, dict[str, object], str]:
    """Return header, claims and access token of what Google's brokers take."""
    head, claims, access_token = map(decoded, token.value.value.split("."))
    return json.loads(head), json.loads(claims), access_token.decode()


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_the_machines_account_has_a_token_of_the_metadata_service(
    identity: IdentityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity.managed_identity = EMAIL
    monkeypatch.setenv("GCE_METADATA_HOST", identity.origin.removeprefix("http://"))
    identity.is_opaque = True
    token = source_of(GCP).fetch()
    check_token(token, wall_ms())
    head, claims, access_token = parts_of(token)
    assert head == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert claims.keys() == {"exp", "iat", "iss", "scope", "sub"}
    assert (claims["sub"], claims["scope"], token.principal) == (EMAIL, "kafka", EMAIL)
    assert token.expires_ms is not None
    assert abs(token.expires_ms - wall_ms() - 3_600_000) < 60_000
    assert access_token == "opaque-1"
    (request,) = identity.requests
    assert request.form == {"scopes": "https://www.googleapis.com/auth/cloud-platform"}
    assert request.headers["metadata-flavor"] == "Google"


def test_a_key_of_an_account_signs_for_its_token(
    identity: IdentityServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    identity.assertion_keys[EMAIL] = key.public_key()
    content = {
        "type": "service_account",
        "client_email": EMAIL,
        "private_key": pem,
        "token_uri": identity.token_url,
    }
    file = tmp_path / "key.json"
    file.write_text(json.dumps(content))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    source = source_of(GCP)
    token = source.fetch()
    _, claims, access_token = parts_of(token)
    assert (claims["sub"], token.principal) == (EMAIL, EMAIL)
    assert (jwt_claims(access_token) or {})["sub"] == EMAIL
    sent = jwt_claims(identity.requests[0].form["assertion"]) or {}
    assert sent["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    identity.assertion_keys.clear()
    with pytest.raises(AuthenticationError, match="status 400: invalid_grant"):
        source.fetch()
    file.write_text(json.dumps({**content, "type": "authorized_user"}))
    with pytest.raises(
        ConfigError, match="of the type 'authorized_user'; for other types, set sasl_"
    ):
        source_of(GCP)
    file.write_text(json.dumps({**content, "token_uri": "h"}))
    with pytest.raises(ConfigError, match="has no valid token_uri") as caught:
        source_of(GCP)
    assert_hidden(caught.value, pem.splitlines()[2])


def test_a_machine_without_an_account_is_an_error_that_says_what_to_do(
    identity: IdentityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", identity.origin.removeprefix("http://"))
    identity.managed_identity = ""
    with pytest.raises(AuthenticationError, match="status 404; does the machine have a service"):
        source_of(GCP).fetch()
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    with pytest.raises(ConnectionFailedError, match="name a key file in GOOGLE_APPLICATION_CRED"):
        source_of(GCP).fetch()
    with pytest.raises(ConfigError, match="has clientId, but Google's Managed"):
        source_of({**GCP, "sasl.jaas.config": f'{MODULE} required clientId="a";'})
