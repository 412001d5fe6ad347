"""AWS_MSK_IAM: signatures compared with botocore's, sources of credentials, brokers."""

from __future__ import annotations

import base64
import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from pykclient import Admin, Producer
from pykclient.admin.config import AdminConfig
from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError, ConfigError
from pykclient.network.sasl.login import token_source
from pykclient.network.sasl.msk_iam import (
    AwsCredentials,
    AwsSigner,
    MskIam,
    payload,
    region_of,
    token,
)
from pykclient.network.sasl.token import check_token, wall_ms
from pykclient.testing import ClusterSecurity, FakeKafka
from tests.integration.fake_sts import FakeSts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY_ID, SECRET = "AKIDEXAMPLE", "canary/wJalrXUtnFEMI+key"
HOST = "b-1.example.abcde.c2.kafka.eu-west-1.amazonaws.com"
NOW = datetime(2026, 11, 24, 10, 20, 30, tzinfo=UTC)
SETTINGS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"}
SIGNS = pytest.mark.promise(
    "AWS_MSK_IAM signs as AWS does, with the credentials that botocore finds"
)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Provide an environment with credentials, and without AWS configuration files."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def signer(**changes: object) -> AwsSigner:
    return AwsSigner(
        AdminConfig.from_settings({"bootstrap_servers": "h:9092", **SETTINGS, **changes})
    )


def profile(name: str) -> str:
    return f'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="{name}";'


@SIGNS
@pytest.mark.parametrize("session", [None, "canary+session/token=="])
def test_what_is_signed_is_what_botocore_signs(
    monkeypatch: pytest.MonkeyPatch, session: str | None
) -> None:
    hidden = None if session is None else Password(session)
    credentials = AwsCredentials(KEY_ID, Password(SECRET), hidden, "eu-west-1")
    sent = json.loads(payload(credentials, HOST, NOW))
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)
    request = AWSRequest("GET", f"https://{HOST}/?Action=kafka-cluster%3AConnect")
    botocore.auth.SigV4QueryAuth(
        Credentials(KEY_ID, SECRET, session), "kafka-cluster", "eu-west-1", expires=900
    ).add_auth(request)
    signed = {name.lower(): value for name, value in parse_qsl(urlsplit(request.url).query)}
    assert sent.pop("user-agent").startswith("pykclient/")
    assert sent == {"version": "2020_10_22", "host": HOST, **signed}
    assert "canary" not in repr(credentials)


@SIGNS
def test_a_token_is_the_address_that_botocore_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: NOW)
    credentials = AwsCredentials(KEY_ID, Password(SECRET), Password("t+/="), "eu-west-1")
    found = token(credentials, NOW)
    address = base64.urlsafe_b64decode(found.value.value + "==").decode()
    request = AWSRequest(
        "GET", "https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect"
    )
    botocore.auth.SigV4QueryAuth(
        Credentials(KEY_ID, SECRET, "t+/="), "kafka-cluster", "eu-west-1", expires=900
    ).add_auth(request)
    theirs, ours = urlsplit(request.url), urlsplit(address)
    assert (ours.scheme, ours.netloc, ours.path) == (theirs.scheme, theirs.netloc, theirs.path)
    parameters = dict(parse_qsl(ours.query))
    assert parameters.pop("User-Agent").startswith("pykclient/")
    assert parameters == dict(parse_qsl(theirs.query))
    assert found.expires_ms == (NOW.timestamp() + 900) * 1000
    assert found.principal == KEY_ID


@SIGNS
def test_tokens_of_aws_are_those_of_javas_class_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    settings = {
        "bootstrap.servers": f"{HOST.replace('eu-west-1', 'us-east-2')}:9098",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{module} required awsStsRegion="us-west-1";',
        "sasl.login.callback.handler.class": handler,
        "sasl.client.callback.handler.class": handler,
    }
    source = token_source(AdminConfig.from_settings(settings))
    made = source.fetch()
    check_token(made, wall_ms())
    assert b"/us-east-2/" in base64.urlsafe_b64decode(made.value.value + "==").replace(b"%2F", b"/")
    for number in range(5):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKIDNEW{number}")
        assert source.fetch().principal == f"AKIDNEW{number}"
    with pytest.raises(ConfigError, match="are sources of the same token"):
        AdminConfig.from_settings({**settings, "oauth_cb": print})


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-east-2.amazonaws.com", "us-east-2"),
        ("b-1.example.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("kafka.example.com", ""),
        ("127.0.0.1", ""),
    ],
)
def test_the_region_is_in_the_brokers_name(host: str, region: str) -> None:
    assert region_of(host) == region


@SIGNS
def test_credentials_come_from_environment_and_profiles(
    aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = signer().credentials("kafka.example.com")
    assert (found.key_id, found.secret_key) == (KEY_ID, Password(SECRET))
    assert (found.session_token, found.region) == (None, "eu-west-1")
    assert signer().credentials(HOST.replace("eu-west-1", "us-east-2")).region == "us-east-2"
    (aws / "credentials").write_text(
        "[other]\naws_access_key_id = AKIDOTHER\naws_secret_access_key = s\naws_session_token = t\n"
    )
    other = signer(sasl_jaas_config=profile("other")).credentials(HOST)
    assert (other.key_id, other.session_token) == ("AKIDOTHER", Password("t"))
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert signer().credentials("h").region == "sa-east-1"
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(AuthenticationError, match=r"neither in the broker's name 'h'.*AWS_DEFAULT"):
        signer().credentials("h")


def test_credentials_are_kept_until_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = signer()
    assert kept.credentials(HOST).key_id == KEY_ID
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
    assert kept.credentials(HOST).key_id == KEY_ID
    kept.forget()
    assert kept.credentials(HOST).key_id == "AKIDNEW"


def test_credentials_are_looked_for_ever_more_rarely_while_they_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = signer()
    kept.credentials(HOST)
    found = []
    for number in range(1, 65):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"AKID{number}")
        kept.forget()
        found.append(kept.credentials(HOST).key_id)
    assert [*dict.fromkeys(found)] == [f"AKID{number}" for number in (1, 2, 4, 8, 16, 32, 48, 64)]
    kept.accept()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEW")
    kept.forget()
    assert kept.credentials(HOST).key_id == "AKIDNEW"


def test_missing_credentials_are_an_error_that_says_where_botocore_looked(
    aws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = signer(sasl_jaas_config=profile("absent"))
    with pytest.raises(AuthenticationError, match=r"ProfileNotFound: .*absent"):
        missing.credentials(HOST)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(AuthenticationError, match="PartialCredentialsError"):
        signer().credentials(HOST)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(AuthenticationError) as caught:
        signer().credentials(HOST)
    assert (
        "it looked in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in the profile 'default' of"
        in str(caught.value)
    )
    assert str(aws / "credentials") in str(caught.value)


def test_without_the_package_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match=r"pip install 'pykclient\[msk-iam\]'"):
        Producer({"bootstrap_servers": "h:9092", **SETTINGS})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ('awsRoleArn="r" awsProfileName="p"', "are two sources; give one"),
        ('awsMskRegionProvider="x.Y"', "has awsMskRegionProvider, which is not supported"),
        ("awsDebugCreds=true", "has awsDebugCreds"),
    ],
)
def test_options_that_are_not_built_are_refused(options: str, reason: str) -> None:
    module = "software.amazon.msk.auth.iam.IAMLoginModule"
    with pytest.raises(ConfigError, match=reason):
        signer(sasl_jaas_config=f"{module} required {options};")


# Roles.

ROLE = "arn:aws:iam::123456789012:role/msk"


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSts]:
    with FakeSts(ROLE, "the-web-identity") as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", found.url)
        yield found


def test_a_web_identity_assumes_its_role(
    aws: Path, sts: FakeSts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for service accounts of Kubernetes: a file with a token, and the role in variables."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    (aws / "token").write_text("the-web-identity")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(aws / "token"))
    found = signer().credentials(HOST)
    assert (found.key_id, found.secret_key) == ("ASIAROLE000000000001", Password("secret-1"))
    assert found.session_token == Password("session-1")
    assert sts.requests[0]["Action"] == "AssumeRoleWithWebIdentity"
    (aws / "token").write_text("another")
    with pytest.raises(AuthenticationError, match="AccessDenied"):
        signer().credentials(HOST)


def test_a_profile_assumes_its_role(aws: Path, sts: FakeSts) -> None:
    (aws / "config").write_text(
        f"[profile role]\nrole_arn = {ROLE}\ncredential_source = Environment\n"
    )
    found = signer(sasl_jaas_config=profile("role")).credentials(HOST)
    assert found.key_id == "ASIAROLE000000000001"
    assert sts.requests[0]["Action"] == "AssumeRole"


def test_a_role_of_the_settings_is_assumed(sts: FakeSts) -> None:
    module = "software.amazon.msk.auth.iam.IAMLoginModule"
    options = (
        f'awsRoleArn="{ROLE}" awsRoleSessionName="producer" awsRoleExternalId="outside" '
        f'awsStsRegion="us-west-2" awsAddDefaultProviders="false"'
    )
    kept = signer(sasl_jaas_config=f"{module} required {options};")
    for _ in range(3):
        assert kept.credentials(HOST).key_id == "ASIAROLE000000000001"
    assert kept.credentials(HOST).region == "eu-west-1", "of the broker"
    (request,) = sts.requests
    assert request["RoleArn"] == ROLE
    assert request["RoleSessionName"] == "producer"
    assert request["ExternalId"] == "outside"
    kept.forget()
    assert kept.credentials(HOST).key_id == "ASIAROLE000000000002"
    other = signer(sasl_jaas_config=f'{module} required awsRoleArn="{ROLE}-2";')
    with pytest.raises(AuthenticationError, match="AccessDenied"):
        other.credentials(HOST)


@pytest.mark.parametrize(
    "challenge", [b"", b"{}", b"[]", b"\xff", b'{"version":"2019"}', b"[" * 100_000]
)
def test_a_response_that_is_not_of_the_mechanism_is_refused(challenge: bytes) -> None:
    mechanism = MskIam(signer(), HOST)
    mechanism.begin()
    with pytest.raises(AuthenticationError, match="is not version 2020_10_22"):
        mechanism.respond(challenge)


# Brokers that verify the signature by code of their own.


@pytest.fixture
def msk() -> Iterator[FakeKafka]:
    security = ClusterSecurity(
        listeners=("SASL_PLAINTEXT",), mechanisms=("AWS_MSK_IAM",), users={KEY_ID: SECRET}
    )
    with FakeKafka(security=security) as fake:
        yield fake


@SIGNS
def test_a_client_writes_by_signature_and_a_wrong_key_is_refused(
    msk: FakeKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings: dict[str, Any] = {
        **msk.client_settings(),
        "sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
    }
    with Producer(settings) as producer:
        assert producer.send("t", b"").result(timeout=10).offset == 0
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-other")
    with Admin(settings) as admin:
        with pytest.raises(
            AuthenticationError, match=f"refused the user '{KEY_ID}': Access denied"
        ):
            admin.list_topics()
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        admin.list_topics()
    assert "canary" not in caplog.text


@SIGNS
def test_a_client_writes_by_a_token_and_a_wrong_key_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    security = ClusterSecurity(
        listeners=("SASL_PLAINTEXT",), mechanisms=("OAUTHBEARER",), users={KEY_ID: SECRET}
    )
    with FakeKafka(security=security) as fake:
        settings: dict[str, Any] = {
            "bootstrap_servers": fake.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_login_callback_handler_class": "IAMOAuthBearerLoginCallbackHandler",
        }
        with Admin(settings) as admin:
            admin.list_topics()
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-other")
        with Admin(settings) as admin:
            with pytest.raises(AuthenticationError, match="Access denied"):
                admin.list_topics()
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
            admin.list_topics()


def test_a_signature_that_has_expired_is_refused(
    msk: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) - timedelta(hours=1)

    monkeypatch.setattr("pykclient.network.sasl.msk_iam.datetime", Late)
    settings: dict[str, Any] = dict(msk.client_settings())
    with Admin(settings) as admin, pytest.raises(AuthenticationError, match="Signature expired"):
        admin.list_topics()
