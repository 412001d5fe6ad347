"""Tokens of an identity server: what is sent and what comes, whatever it does; and clients by them.

The identity server is of the tests, and demands what RFC 6749 and RFC 7523 have. Brokers are real
ones that verify each signature, and fake ones, for which the server issues tokens without any.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import time
import traceback
import uuid
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pykclient import Admin, Producer
from pykclient.admin.config import AdminConfig
from pykclient.config.oidc import JWT_BEARER
from pykclient.errors import (
    AuthenticationError,
    ConfigError,
    ConnectionFailedError,
    KafkaError,
    KafkaTimeoutError,
    TlsError,
)
from pykclient.network.sasl.login import token_source
from pykclient.network.sasl.token import OAuthToken, check_token, jwt_claims, wall_ms
from pykclient.testing import Acl, ClusterSecurity, FakeKafka
from pykclient.testing.cluster.certificates import CertificateAuthority
from tests.integration.identity_server import LIFETIME_S, Fault, IdentityServer, Reply, encoded
from tests.integration.java_tools import JavaError, java_list_topics
from tests.integration.test_security_matrix import administer, consume, produce
from tests.soak import NEWEST_FIRST, OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pykclient.network.sasl.login import TokenSource
    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

    Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

CANARY = "canary-77e1"
ISSUES = pytest.mark.promise(
    "OAUTHBEARER gets tokens from an identity server, by client credentials or a signed assertion"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, authority: CertificateAuthority
) -> Iterator[IdentityServer]:
    with IdentityServer(tmp_path_factory.mktemp("identity"), authority) as found:
        yield found


@pytest.fixture
def identity(server: IdentityServer) -> IdentityServer:
    """Provide the server of all tests, as new."""
    server.clients = {"client": CANARY}
    server.assertion_keys = {}
    server.requests = []
    server.reply = None
    server.lifetime_s = LIFETIME_S
    server.is_signing = True
    return server


def settings_of(
    identity: IdentityServer, authority: CertificateAuthority, **changes: object
) -> dict[str, object]:
    found = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": identity.token_url,
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_client_credentials_client_secret": CANARY,
        "https_ca_location": authority.path,
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def source_of(settings: Mapping[str, object]) -> TokenSource:
    return token_source(
        AdminConfig.from_settings({"bootstrap_servers": "localhost:9092", **settings})
    )


@pytest.fixture
def settings(identity: IdentityServer, authority: CertificateAuthority) -> dict[str, object]:
    return settings_of(identity, authority)


def by_assertion(settings: Mapping[str, object], **changes: object) -> dict[str, object]:
    without = {name: value for name, value in settings.items() if "credentials" not in name}
    return {**without, "sasl_oauthbearer_grant_type": JWT_BEARER, **changes}


def pem_of(key: Key, password: str = "") -> str:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password.encode())
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return data.decode()


# What is sent, and what comes.


@ISSUES
def test_a_token_is_fetched_by_client_credentials(
    identity: IdentityServer, settings: dict[str, object]
) -> None:
    source = source_of({**settings, "sasl_oauthbearer_scope": "a b&c"})
    assert source.name == identity.token_url
    now_ms = wall_ms()
    token = source.fetch()
    assert token.principal == "client"
    assert token.expires_ms is not None
    assert abs(token.expires_ms - now_ms - 3_600_000) < 60_000
    (request,) = identity.requests
    assert request.form == {"grant_type": "client_credentials", "scope": "a b&c"}
    assert request.credentials == ("client", CANARY)
    assert request.headers["accept"] == "application/json"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    claims = jwt_claims(token.value.value)
    assert claims is not None
    assert claims["scope"] == "a b&c"


def test_id_and_secret_are_encoded_where_the_setting_says_so(
    identity: IdentityServer, settings: dict[str, object]
) -> None:
    name, secret = "a:b ö", "c+d%/&="
    identity.clients = {name: secret}
    source = source_of(
        {
            **settings,
            "sasl_oauthbearer_client_credentials_client_id": name,
            "sasl_oauthbearer_client_credentials_client_secret": lambda: secret,
            "sasl_oauthbearer_header_urlencode": True,
        }
    )
    assert source.fetch().principal == name
    assert identity.requests[0].credentials == ("a%3Ab+%C3%B6", "c%2Bd%25%2F%26%3D")


def test_extensions_and_the_claim_of_the_user_are_those_of_the_settings(
    identity: IdentityServer, settings: dict[str, object]
) -> None:
    source = source_of(
        {
            **settings,
            "sasl_oauthbearer_extensions": "logicalCluster=lkc-1",
            "sasl_oauthbearer_sub_claim_name": "scope",
            "sasl_oauthbearer_scope": "read",
        }
    )
    token = source.fetch()
    assert (dict(token.extensions), token.principal) == ({"logicalCluster": "lkc-1"}, "read")


def test_a_token_that_is_no_jwt_lasts_as_long_as_the_server_says(
    identity: IdentityServer, settings: dict[str, object]
) -> None:
    identity.reply = Reply.of({"access_token": "opaque", "token_type": "BEARER", "expires_in": "9"})
    token = source_of(settings).fetch()
    assert token.value.value == "opaque"
    assert token.expires_ms is not None
    assert 0 < token.expires_ms - wall_ms() <= 9_000


KEYS: dict[str, Key] = {
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
}


@ISSUES
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("is_file", [True, False])
def test_a_token_is_fetched_by_an_assertion_that_is_signed_here(
    identity: IdentityServer,
    settings: dict[str, object],
    tmp_path: Path,
    algorithm: str,
    is_file: bool,
) -> None:
    key = KEYS[algorithm]
    identity.assertion_keys["issuer"] = key.public_key()
    pem = pem_of(key, CANARY)
    in_one_line = pem.replace("\n", "")  # as an environment variable has it
    (tmp_path / "key.pem").write_text(pem)
    (tmp_path / "template.json").write_text(
        json.dumps({"header": {"kid": "k1"}, "payload": {"iss": "overruled", "extra": 5}})
    )
    where = (
        {"private_key_file": tmp_path / "key.pem"} if is_file else {"private_key_pem": in_one_line}
    )
    given = {
        **where,
        "private_key_passphrase": CANARY,
        "algorithm": algorithm,
        "claim_aud": identity.token_url,
        "claim_iss": "issuer",
        "claim_sub": "carol",
        "claim_jti_include": True,
        "claim_exp_seconds": 120,
        "template_file": tmp_path / "template.json",
    }
    source = source_of(
        by_assertion(
            settings,
            **{f"sasl_oauthbearer_assertion_{name}": value for name, value in given.items()},
        )
    )
    assert source.fetch().principal == source.fetch().principal == "carol"
    one, other = identity.requests
    assert one.form["grant_type"] == JWT_BEARER
    assert one.credentials is None
    claims = [jwt_claims(request.form["assertion"]) for request in (one, other)]
    assert claims[0] is not None
    assert claims[1] is not None
    assert claims[0]["jti"] != claims[1]["jti"]
    assert claims[0]["extra"] == 5
    assert claims[0]["exp"] - claims[0]["nbf"] == 120 + 60  # type: ignore[operator]
    head = one.form["assertion"].split(".")[0]
    assert encoded(json.dumps({"a": 1}).encode()) != head
    assert jwt_claims(f".{head}.") == {"typ": "JWT", "kid": "k1", "alg": algorithm}


@ISSUES
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_an_assertion_authenticates_a_client_whose_secret_is_never_sent(
    identity: IdentityServer, settings: dict[str, object], tmp_path: Path, algorithm: str
) -> None:
    """KIP-1258: the grant of client credentials, with an assertion instead of a secret."""
    key = KEYS[algorithm]
    identity.assertion_keys["client"] = key.public_key()
    (tmp_path / "key.pem").write_text(pem_of(key))
    signing = {
        "sasl_oauthbearer_assertion_private_key_file": tmp_path / "key.pem",
        "sasl_oauthbearer_assertion_algorithm": algorithm,
        "sasl_oauthbearer_assertion_claim_aud": identity.token_url,
        "sasl_oauthbearer_assertion_claim_iss": "client",
        "sasl_oauthbearer_assertion_claim_sub": "client",
    }
    token = source_of({**settings, **signing, "sasl_oauthbearer_scope": "a b"}).fetch()
    assert token.principal == "client"
    without_id = {name: each for name, each in settings.items() if "credentials" not in name}
    assert source_of({**without_id, **signing}).fetch().principal == "client"
    one, other = identity.requests
    assert "client_id" not in other.form
    assertion = one.form["client_assertion"]
    assert one.form == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": assertion,
        "client_id": "client",
        "scope": "a b",
    }
    assert CANARY not in str(one)
    assert one.credentials is None
    file = tmp_path / "assertion"
    file.write_text(assertion)
    by_file = {**settings, "sasl_oauthbearer_assertion_file": file, **signing}
    assert source_of(by_file).fetch().principal == "client"
    assert identity.requests[-1].form["client_assertion"] == assertion
    identity.assertion_keys.clear()
    with pytest.raises(AuthenticationError, match="status 401: invalid_client") as caught:
        source_of(by_file).fetch()
    assert assertion not in str(caught.value)


def test_an_assertion_of_a_file_is_read_for_each_token(
    identity: IdentityServer, settings: dict[str, object], tmp_path: Path
) -> None:
    file = tmp_path / "assertion"
    file.write_text("a.b.one\n")
    source = source_of(by_assertion(settings, sasl_oauthbearer_assertion_file=file))
    identity.reply = Reply.of({"access_token": "t", "expires_in": 9})
    source.fetch()
    file.write_text("a.b.two\n")
    source.fetch()
    assert [request.form["assertion"] for request in identity.requests] == ["a.b.one", "a.b.two"]
    file.unlink()
    with pytest.raises(AuthenticationError, match=r"assertion\.file=.* cannot be read: no such"):
        source.fetch()


@pytest.mark.parametrize(
    ("content", "changes", "reason"),
    [
        (None, {}, "cannot be read: no such file"),
        ("no key", {}, "it is not a private key in PEM"),
        (pem_of(KEYS["RS256"], CANARY), {}, "passphrase is missing or does not open it"),
        (
            pem_of(KEYS["RS256"], "other"),
            {"sasl_oauthbearer_assertion_private_key_passphrase": CANARY},
            "passphrase does not open it",
        ),
        (pem_of(KEYS["ES256"]), {}, "algorithm=RS256: RS256 needs an RSA key"),
        (
            pem_of(ec.generate_private_key(ec.SECP384R1())),
            {"sasl_oauthbearer_assertion_algorithm": "ES256"},
            "ES256 a key of the curve P-256",
        ),
        (
            pem_of(KEYS["RS256"]),
            {"sasl_oauthbearer_assertion_template_file": __file__},
            "is not a JSON object with header and payload objects",
        ),
    ],
)
def test_keys_that_cannot_sign_are_refused_when_the_client_is_made(
    settings: dict[str, object],
    tmp_path: Path,
    content: str | None,
    changes: dict[str, object],
    reason: str,
) -> None:
    file = tmp_path / "key.pem"
    if content is not None:
        file.write_text(content)
    wanted = by_assertion(settings, sasl_oauthbearer_assertion_private_key_file=file, **changes)
    with pytest.raises(ConfigError) as caught:
        Admin({"bootstrap_servers": "localhost:9092", **wanted})
    assert reason in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_token_of_a_file_is_read_again(
    identity: IdentityServer, settings: dict[str, object], tmp_path: Path
) -> None:
    file = tmp_path / "a token"
    file.write_text(identity.signer.token("carol") + "\n")
    source = source_of({**settings, "sasl_oauthbearer_token_endpoint_url": file.as_uri()})
    assert source.fetch().principal == "carol"
    file.write_text(identity.signer.token("dave"))
    assert source.fetch().principal == "dave"
    file.write_text("<html>")
    with pytest.raises(AuthenticationError, match="holds no JWT"):
        source.fetch()
    assert identity.requests == []


# What goes wrong.


def fetched(settings: Mapping[str, object]) -> OAuthToken:
    token = source_of(settings).fetch()
    check_token(token, wall_ms())
    return token


def expired(identity: IdentityServer) -> Reply:
    return Reply.of({"access_token": identity.signer.token("carol", lifetime_s=-5)})


HANGING = (Fault.NO_RESPONSE, Fault.DRIP)
REPLIES: list[Any] = [
    (Fault.HANG_UP, ConnectionFailedError, "hung up without a response"),
    (Fault.NO_RESPONSE, ConnectionFailedError, "did not respond within 450 ms"),
    (Fault.DRIP, ConnectionFailedError, "did not respond within 450 ms"),
    (Reply.of({}, 503), ConnectionFailedError, "responded with status 503"),
    (Reply.of({"error": "slow_down"}, 429), ConnectionFailedError, "status 429: slow_down"),
    (Fault.GARBAGE, AuthenticationError, "is not HTTP"),
    (Fault.ENDLESS_BODY, AuthenticationError, "more than 524288 bytes"),
    (Fault.ENDLESS_HEADER, AuthenticationError, "is not HTTP"),
    (
        Reply.of({"error": "invalid_scope", "error_description": f"{CANARY}\x1b[1m!"}, 400),
        AuthenticationError,
        "status 400: invalid_scope: <hidden> [1m!",
    ),
    (
        Reply.of({"error": base64.urlsafe_b64encode(CANARY.encode()).decode()}, 400),
        AuthenticationError,
        "status 400: <hidden>",
    ),
    (
        Reply(401, b"<html>no</html>"),
        AuthenticationError,
        "responded with status 401; check the client's id, and its secret or assertion",
    ),
    (
        Reply(404, b""),
        AuthenticationError,
        "status 404; the server has no token endpoint there: check host and path of sasl_oauth",
    ),
    (Reply(302, b"", {"Location": "https://h"}), AuthenticationError, "redirects are not followed"),
    (
        Reply(200, b"<html>", {"Content-Type": "text/html"}),
        AuthenticationError,
        "and text/html, not",
    ),
    (Reply(200, b"[" * 100_000), AuthenticationError, "not a JSON object"),
    (Reply(200, b"[]"), AuthenticationError, "application/json, not a JSON object"),
    (Reply.of({"id_token": "x"}), AuthenticationError, "no access_token; it has id_token"),
    (Reply.of({"access_token": 5}), AuthenticationError, "no access_token"),
    (
        Reply.of({"access_token": "a", "token_type": "mac"}),
        AuthenticationError,
        "a token of type 'mac', not bearer",
    ),
    (
        Reply.of({"access_token": "a", "expires_in": "soon"}),
        AuthenticationError,
        "expires_in that is not a number",
    ),
    (Reply.of({"access_token": "a", "expires_in": 0}), AuthenticationError, "the token expired"),
    (Reply.of({"access_token": "a.b.c"}), AuthenticationError, "is not a JWT"),
    (Reply.of({"access_token": "a b"}), AuthenticationError, "a bearer token must not have"),
    (
        Reply.of({"access_token": "a" * 300_000}),
        AuthenticationError,
        "brokers accept at most 262144",
    ),
]


@pytest.mark.parametrize(("reply", "error", "reason"), REPLIES)
def test_what_is_no_token_is_an_error_that_says_so(
    identity: IdentityServer,
    settings: dict[str, object],
    reply: Reply | Fault,
    error: type[KafkaError],
    reason: str,
) -> None:
    identity.reply = reply
    with pytest.raises(error) as caught:
        fetched({**settings, "request_timeout_ms": 500 if reply in HANGING else 30_000})
    assert type(caught.value) is error
    assert reason in str(caught.value)
    assert_hidden(caught.value, CANARY)


def test_times_of_the_settings_are_kept(
    identity: IdentityServer, settings: dict[str, object]
) -> None:
    identity.reply = Fault.NO_RESPONSE
    limits = {"sasl_login_connect_timeout_ms": 200, "sasl_login_read_timeout_ms": 100}
    with pytest.raises(ConnectionFailedError, match="did not respond within 300 ms"):
        fetched({**settings, **limits})
    identity.reply = None
    fetched({**settings, **dict.fromkeys(limits, 0)})


def test_a_wrong_secret_is_the_servers_own_reason(settings: dict[str, object]) -> None:
    wrong = {**settings, "sasl_oauthbearer_client_credentials_client_secret": "other"}
    with pytest.raises(AuthenticationError, match="invalid_client: client or secret is wrong"):
        fetched(wrong)


def assert_hidden(error: BaseException | None, secret: str) -> None:
    """Assert that neither the texts of an error and its causes nor their variables have it.

    Frames of the tests have it in their settings.
    """
    in_header = base64.b64encode(f"client:{secret}".encode()).decode()
    while error is not None:
        assert secret not in repr(error)
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if f"{os.sep}tests{os.sep}" not in frame.f_code.co_filename:
                shown = {name: repr(value) for name, value in frame.f_locals.items()}
                assert not [name for name, text in shown.items() if secret in text]
                assert not [name for name, text in shown.items() if in_header in text]
        error = error.__cause__ or error.__context__


# Clients.


@pytest.fixture
def fake(identity: IdentityServer) -> Iterator[FakeKafka]:
    identity.is_signing = False
    security = ClusterSecurity(listeners=("SASL_PLAINTEXT",), mechanisms=("OAUTHBEARER",))
    with FakeKafka(security=security) as brokers:
        yield brokers


def test_a_client_has_one_token_for_all_of_its_connections(
    identity: IdentityServer, fake: FakeKafka, settings: dict[str, object]
) -> None:
    with Producer(settings, bootstrap_servers=fake.bootstrap_servers) as producer:
        deliveries = [producer.send(topic, b"") for topic in ("one", "two")]
        assert [delivery.result(timeout=10).offset for delivery in deliveries] == [0, 0]
    assert len(identity.requests) == 1


@ISSUES
def test_librdkafka_sends_the_same_request_by_the_same_settings(
    identity: IdentityServer, fake: FakeKafka, authority: CertificateAuthority
) -> None:
    settings = {
        "bootstrap.servers": fake.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "client",
        "sasl.oauthbearer.client.secret": CANARY,
        "sasl.oauthbearer.scope": "read",
        "sasl.oauthbearer.token.endpoint.url": identity.token_url,
        "https.ca.location": str(authority.path),
    }
    theirs = confluent_kafka.Producer(settings)
    theirs.produce("theirs", b"")
    assert theirs.flush(20) == 0
    with Producer(settings) as ours:
        ours.send("ours", b"").result(timeout=10)
    one, other = identity.requests
    assert one.form == other.form
    assert one.credentials == other.credentials == ("client", CANARY)


def test_a_call_ends_with_the_servers_refusal_and_later_ones_work(
    identity: IdentityServer,
    fake: FakeKafka,
    settings: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    identity.clients = {}
    with Admin(settings, bootstrap_servers=fake.bootstrap_servers) as admin:
        begun_s = time.monotonic()
        with pytest.raises(AuthenticationError) as caught:
            admin.list_topics()
        assert time.monotonic() - begun_s < 5
        assert f"no token of {identity.token_url}: the server responded with status 401: " in str(
            caught.value
        )
        assert_hidden(caught.value, CANARY)
        identity.clients = {"client": CANARY}
        admin.list_topics()
    assert CANARY not in caplog.text


def test_a_server_that_is_away_is_tried_again_until_the_calls_time_is_over(
    identity: IdentityServer, fake: FakeKafka, settings: dict[str, object]
) -> None:
    identity.reply = Reply.of({}, 503)
    with Admin(settings, bootstrap_servers=fake.bootstrap_servers) as admin:
        with pytest.raises(KafkaTimeoutError, match=r"responded with status 503"):
            admin.list_topics(timeout=2.8)
        # At most once a second, and more than once.
        assert 1 < len(identity.requests) <= 4
        identity.reply = None
        admin.list_topics()


def test_a_server_that_is_not_to_be_trusted_ends_the_call(
    fake: FakeKafka, settings: dict[str, object]
) -> None:
    settings.pop("https_ca_location")
    with (
        Admin(settings, bootstrap_servers=fake.bootstrap_servers) as admin,
        pytest.raises(TlsError, match="give its authority in https_ca_location"),
    ):
        admin.list_topics()


def test_a_token_is_renewed_ahead_of_its_expiry(
    identity: IdentityServer, fake: FakeKafka, settings: dict[str, object]
) -> None:
    """While the application does nothing else than to poll."""
    identity.lifetime_s = 2
    with Producer(settings, bootstrap_servers=fake.bootstrap_servers) as producer:
        producer.send("topic", b"").result(timeout=10)
        deadline_s = time.monotonic() + 10
        while len(identity.requests) < 2 and time.monotonic() < deadline_s:
            producer.send("topic", b"").result(timeout=10)
    assert len(identity.requests) >= 2


@pytest.fixture(scope="module", params=NEWEST_FIRST)
def real(
    request: pytest.FixtureRequest,
    kafka_cluster_factory: KafkaClusterFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[KafkaCluster, IdentityServer]]:
    """Provide a broker that verifies the signature of each token, and what issues them, by http."""
    folder = tmp_path_factory.mktemp("identity")
    with IdentityServer(folder) as server:
        server.clients = {"carol": CANARY, "dave": CANARY}
        security = ClusterSecurity(
            listeners=("SASL_SSL",),
            mechanisms=("OAUTHBEARER",),
            jwks_url=server.signer.url,
            acls=[Acl("User:carol", "ALL", topic="*"), Acl("User:carol", "ALL", group="*")],
            super_users=("User:carol",),
        )
        with kafka_cluster_factory(version=request.param, security=security) as cluster:
            yield cluster, server


@ISSUES
@pytest.mark.kafka
@OWN_BROKERS
def test_clients_work_by_tokens_that_real_brokers_verify(
    real: tuple[KafkaCluster, IdentityServer],
) -> None:
    cluster, identity = real
    found = cluster.client_settings()
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    of_java = {
        **found,
        "sasl_login_callback_handler_class": (
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
        ),
        "sasl_oauthbearer_token_endpoint_url": identity.token_url,
        "sasl_jaas_config": f'{module} required clientId="carol" clientSecret="{CANARY}";',
    }
    topic = f"t-{uuid.uuid4().hex}"
    for use in (administer, produce, consume):
        use(dict(of_java), topic)
    without = {name: value for name, value in found.items() if name != "sasl_jaas_config"}
    key = KEYS["ES256"]
    identity.assertion_keys["carol"] = key.public_key()
    by_key = {
        **without,
        "sasl_oauthbearer_method": "oidc",
        "sasl_oauthbearer_token_endpoint_url": identity.token_url,
        "sasl_oauthbearer_grant_type": JWT_BEARER,
        "sasl_oauthbearer_assertion_private_key_pem": pem_of(key),
        "sasl_oauthbearer_assertion_algorithm": "ES256",
        "sasl_oauthbearer_assertion_claim_aud": identity.token_url,
        "sasl_oauthbearer_assertion_claim_iss": "carol",
        "sasl_oauthbearer_assertion_claim_sub": "carol",
    }
    with Admin(by_key) as admin:
        assert admin.list_topics()
    identity.reply = Reply.of({"access_token": forged("carol")})
    with Admin(by_key) as admin, pytest.raises(AuthenticationError, match="invalid_token"):
        admin.list_topics()
    identity.reply = None


JAVA_VERSION = "4.3.1"
"""The first version whose client has KIP-1258."""

BESIDE = pytest.mark.promise(
    "delegation tokens and client assertions authenticate as in Java's client"
)


class Asserting:
    """Settings of Java's client and ours, which authenticate by the same key."""

    def __init__(self, cluster: KafkaCluster, identity: IdentityServer, folder: Path) -> None:
        key = KEYS["RS256"]
        identity.assertion_keys = {"carol": key.public_key()}
        identity.requests.clear()
        self.assertion = folder / "assertion"
        self.other_key = folder / "other.pem"
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.other_key.write_text(pem_of(other))
        file = folder / "key.pem"
        file.write_text(pem_of(key))
        package = "org.apache.kafka.sasl.oauthbearer.allowed"
        self.allowed = {
            f"{package}.urls": identity.token_url,
            f"{package}.files": f"{file},{self.other_key},{self.assertion}",
        }
        found = cluster.client_settings()
        oauth = "org.apache.kafka.common.security.oauthbearer"
        self.settings = {
            "bootstrap.servers": str(found["bootstrap_servers"]),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(found["ssl_truststore_location"]),
            "ssl.truststore.type": "PEM",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
            "sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
            "sasl.oauthbearer.token.endpoint.url": identity.token_url,
            "sasl.oauthbearer.client.credentials.client.id": "carol",
            # Not the secret: were it sent, the server would refuse the client.
            "sasl.oauthbearer.client.credentials.client.secret": "another secret",
            "sasl.oauthbearer.assertion.private.key.file": str(file),
            "sasl.oauthbearer.assertion.claim.aud": identity.token_url,
            "sasl.oauthbearer.assertion.claim.iss": "carol",
            "sasl.oauthbearer.assertion.claim.sub": "carol",
        }

    def by_java(self, **changes: str) -> set[str]:
        return java_list_topics(JAVA_VERSION, self._changed(changes), system=self.allowed)

    def by_us(self, **changes: str) -> set[str]:
        with Admin(self._changed(changes)) as admin:
            return set(admin.list_topics())

    def _changed(self, changes: Mapping[str, str]) -> dict[str, str]:
        named = {
            f"sasl.oauthbearer.{name.replace('_', '.')}": each for name, each in changes.items()
        }
        return {**self.settings, **named}


@BESIDE
@pytest.mark.kafka
@OWN_BROKERS
def test_javas_client_and_ours_authenticate_by_the_same_assertion(
    real: tuple[KafkaCluster, IdentityServer], tmp_path: Path
) -> None:
    cluster, identity = real
    asserting = Asserting(cluster, identity, tmp_path)
    topic = f"t-{uuid.uuid4().hex}"
    administer(dict(asserting.settings), topic)
    identity.requests.clear()
    assert topic in asserting.by_java()
    assert topic in asserting.by_us()
    forms = [request.form for request in identity.requests]
    theirs, ours = forms
    names = {"grant_type", "client_id", "client_assertion_type", "client_assertion"}
    assert ours.keys() == theirs.keys() == names
    claims = [jwt_claims(form["client_assertion"]) or {} for form in forms]
    times = {"iat", "exp", "nbf"}
    assert all(each.keys() == times | {"aud", "iss", "sub"} for each in claims)
    assert [{name: each[name] for name in each.keys() - times} for each in claims] == [
        {"aud": identity.token_url, "iss": "carol", "sub": "carol"}
    ] * 2
    asserting.assertion.write_text(theirs["client_assertion"])
    assert topic in asserting.by_java(assertion_file=str(asserting.assertion))
    assert topic in asserting.by_us(assertion_file=str(asserting.assertion))
    assert [request.form["client_assertion"] for request in identity.requests[2:]] == [
        theirs["client_assertion"]
    ] * 2
    assert all(request.credentials is None for request in identity.requests)


@BESIDE
@pytest.mark.kafka
@OWN_BROKERS
def test_javas_client_and_ours_are_refused_with_the_same_wrong_assertion(
    real: tuple[KafkaCluster, IdentityServer], tmp_path: Path
) -> None:
    cluster, identity = real
    asserting = Asserting(cluster, identity, tmp_path)
    wrong = (
        {"assertion_private_key_file": str(asserting.other_key)},
        {"assertion_claim_aud": "https://h/token"},
        {"client_credentials_client_id": "dave"},
    )
    for changes in wrong:
        with pytest.raises(AuthenticationError, match="status 401: invalid_client"):
            pytest.fail(f"{changes}: {asserting.by_us(**changes)}")
        with pytest.raises(JavaError, match="401"):
            pytest.fail(f"{changes}: {asserting.by_java(**changes)}")
    assert all(request.credentials is None for request in identity.requests)


def forged(subject: str) -> str:
    parts = ({"alg": "RS256", "kid": "one"}, {"sub": subject, "exp": time.time() + 60})
    return ".".join([*(encoded(json.dumps(part).encode()) for part in parts), encoded(bytes(256))])
