"""Settings of tokens of an identity server: Java's, librdkafka's, and what contradicts itself."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.config.oidc import (
    AZURE_IMDS,
    AZURE_IMDS_URL,
    CLIENT_CREDENTIALS,
    FILE,
    JWT_BEARER,
    REFRESH_TOKEN,
    TOKEN,
)
from pykclient.config.setting import Password
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CANARY = "canary-91bc"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
URL = "https://identity.example.com/token"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
BASE = {"sasl.oauthbearer.token.endpoint.url": URL}
OWN = {
    **BASE,
    "sasl.oauthbearer.client.credentials.client.id": "client",
    "sasl.oauthbearer.client.credentials.client.secret": CANARY,
}
BY_KEY = {
    **BASE,
    "sasl.oauthbearer.grant.type": JWT_BEARER,
    "sasl.oauthbearer.assertion.private.key.file": "key.pem",
}


def config(settings: Mapping[str, object]) -> AdminConfig:
    return AdminConfig.from_settings({"bootstrap.servers": "h:9092", **SASL, **settings})


def jaas(options: str) -> str:
    return f"{MODULE} required {options};"


@pytest.mark.promise(
    "OAUTHBEARER gets tokens from an identity server, by client credentials or a signed assertion"
)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(OWN | {"sasl.oauthbearer.scope": "read"}, id="Kafka 4.1"),
        pytest.param(
            {
                **BASE,
                "sasl.login.callback.handler.class": HANDLER,
                "sasl.jaas.config": jaas(
                    f'clientId="client" clientSecret="{CANARY}" scope="read" '
                    f'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1"'
                ),
            },
            id="Kafka 3.1",
        ),
        pytest.param(
            {
                **BASE,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "client",
                "sasl.oauthbearer.client.secret": CANARY,
                "sasl.oauthbearer.scope": "read",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
            },
            id="librdkafka",
        ),
    ],
)
def test_client_credentials_are_read_as_java_and_librdkafka_have_them(
    settings: dict[str, object],
) -> None:
    made = config(settings)
    found = made.oidc
    assert found is not None
    assert (found.grant, found.url, found.client_id) == (CLIENT_CREDENTIALS, URL, "client")
    assert (found.client_secret, found.scope) == (Password(CANARY), "read")
    has_extensions = "sasl.oauthbearer.client.credentials.client.id" not in settings
    expected = {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"} if has_extensions else {}
    assert found.extensions == expected
    assert CANARY not in repr(made)
    assert CANARY not in repr(found)
    assert pickle.loads(pickle.dumps(made)) == made


def test_an_assertion_is_read_with_its_claims() -> None:
    found = config(
        {
            **BY_KEY,
            "sasl.oauthbearer.assertion.private.key.passphrase": CANARY,
            "sasl.oauthbearer.assertion.algorithm": "es256",
            "sasl.oauthbearer.assertion.claim.aud": "server",
            "sasl.oauthbearer.assertion.claim.jti.include": "true",
            "sasl.oauthbearer.assertion.jwt.template.file": "template.json",
        }
    ).oidc
    assert found is not None
    assert found.grant == JWT_BEARER
    assert found.assertion is not None
    assert (found.assertion.key_file, found.assertion.passphrase) == ("key.pem", Password(CANARY))
    assert (found.assertion.algorithm, found.assertion.claims) == ("ES256", {"aud": "server"})
    assert (found.assertion.lifetime_s, found.assertion.not_before_s) == (300, 60)
    assert found.assertion.has_id
    assert found.assertion.template_file == "template.json"


ASSERTED = {
    **BASE,
    "sasl.oauthbearer.assertion.private.key.file": "key.pem",
    "sasl.oauthbearer.assertion.claim.iss": "client",
}
SECRET = {"sasl.oauthbearer.client.credentials.client.secret": CANARY}


@pytest.mark.promise(
    "OAUTHBEARER gets tokens from an identity server, by client credentials or a signed assertion"
)
@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({**BASE, "sasl.oauthbearer.assertion.file": "a"}, "a"),
        (ASSERTED, "key.pem"),
        ({**ASSERTED, "sasl.oauthbearer.assertion.file": "a"}, "a"),
        ({**ASSERTED, **SECRET}, "key.pem"),
        ({**OWN, "sasl.oauthbearer.assertion.file": "a"}, "a"),
        ({**ASSERTED, "sasl.jaas.config": jaas(f'clientSecret="{CANARY}"')}, "key.pem"),
    ],
)
def test_an_assertion_goes_before_a_secret_and_a_file_before_a_key(
    settings: dict[str, object], source: str
) -> None:
    """As Java's ``ClientCredentialsRequestFormatterFactory`` has it (KIP-1258)."""
    made = config(settings)
    found = made.oidc
    assert found is not None
    assert found.grant == CLIENT_CREDENTIALS
    assert found.assertion is not None
    assert source in (found.assertion.file, found.assertion.key_file)
    assert (found.assertion.file is None) != (found.assertion.key_file is None)
    assert found.client_secret is None, "it is never sent"
    has_secret = CANARY in str(settings)
    unused = [text for text in made.security_warnings if "client_secret is not used" in text]
    assert len(unused) == has_secret
    has_both = "sasl.oauthbearer.assertion.file" in settings and settings.keys() > ASSERTED.keys()
    unused = [text for text in made.security_warnings if "private_key_file is not used" in text]
    assert len(unused) == has_both


@pytest.mark.parametrize("retriever", [None, "FileJwtRetriever", f"{PACKAGE}.FileJwtRetriever"])
def test_a_token_may_be_in_a_file(retriever: str | None) -> None:
    settings: dict[str, object] = {"sasl.oauthbearer.token.endpoint.url": "file:///run/token"}
    if retriever is not None:
        settings["sasl.oauthbearer.jwt.retriever.class"] = retriever
    found = config(settings).oidc
    assert found is not None
    assert (found.grant, found.url) == (FILE, "file:///run/token")


def test_authorities_are_those_of_librdkafka_or_of_javas_login_configuration() -> None:
    own = config(OWN | {"https.ca.location": "a.pem"}).oidc
    of_java = config(
        {**OWN, "sasl.jaas.config": jaas('ssl.truststore.location="a.pem" ssl.truststore.type=PEM')}
    ).oidc
    assert own is not None
    assert of_java is not None
    assert own.files.ca_location == of_java.files.ca_location == "a.pem"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sasl.oauthbearer.method": "oidc"}, "needs sasl.oauthbearer.token.endpoint.url"),
        (
            {"sasl.login.callback.handler.class": HANDLER},
            "needs sasl.oauthbearer.token.endpoint.url",
        ),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "sasl_oauth_token_provider"),
        (BASE, "needs sasl.oauthbearer.client.credentials.client.id"),
        (
            {**BASE, "sasl.oauthbearer.client.id": "client"},
            "needs sasl.oauthbearer.client.credentials.client.secret",
        ),
        (
            {**OWN, "sasl.oauthbearer.client.credentials.client.id": "a:b"},
            "set sasl.oauthbearer.header.urlencode=true",
        ),
        (
            {**OWN, "sasl.jaas.config": jaas('clientId="other"')},
            "client.credentials.client.id and clientId in sasl.jaas.config disagree",
        ),
        (
            {**OWN, "sasl.jaas.config": jaas('clientSecret="other"')},
            "client.secret and clientSecret in sasl.jaas.config disagree",
        ),
        (
            {**OWN, "sasl.jaas.config": jaas('clientID="x"')},
            "has the option clientID, which is not supported",
        ),
        (
            {**OWN, "sasl.jaas.config": jaas('ssl.truststore.type="BKS"')},
            "ssl.truststore.type in sasl.jaas.config is one of PEM, PKCS12, JKS",
        ),
        (
            {**OWN, "sasl.jaas.config": jaas('unsecuredLoginStringClaim_sub="alice"')},
            "token.endpoint.url and sasl.jaas.config are sources of the same token",
        ),
        (
            {**OWN, "oauth_cb": print},
            "oauth_cb and sasl.oauthbearer.token.endpoint.url are sources",
        ),
        (
            {
                **OWN,
                "sasl.oauthbearer.extensions": "a=1",
                "sasl.jaas.config": jaas('extension_a="2"'),
            },
            "sasl.oauthbearer.extensions and sasl.jaas.config disagree",
        ),
        ({**OWN, "sasl.oauthbearer.extensions": "a"}, "NAME=VALUE pairs separated by commas"),
        ({**OWN, "https.ca.location": "a", "https.ca.pem": "b"}, "are two sources; give one"),
        (
            {**BASE, "sasl.oauthbearer.grant.type": JWT_BEARER},
            "private.key.pem; none is set",
        ),
        (
            {**BY_KEY, "sasl.oauthbearer.assertion.private.key.pem": "a"},
            "private.key.file and sasl.oauthbearer.assertion.private.key.pem are two sources",
        ),
        (
            {**BASE, "sasl.oauthbearer.assertion.claim.iss": "client"},
            "private.key.pem; none is set",
        ),
        (
            {**OWN, "sasl.oauthbearer.assertion.private.key.file": "key.pem"},
            "set sasl.oauthbearer.assertion.claim.iss, or leave out the secret",
        ),
        (
            {**BY_KEY, "sasl.oauthbearer.jwt.retriever.class": "ClientCredentialsJwtRetriever"},
            "retriever.class and sasl.oauthbearer.grant.type disagree",
        ),
        (
            {**OWN, "sasl.oauthbearer.jwt.retriever.class": "FileJwtRetriever"},
            "is for a file, but sasl.oauthbearer.token.endpoint.url is not",
        ),
        ({"sasl.oauthbearer.jwt.retriever.class": "Mine"}, "It is a Java class"),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_refused(
    settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(settings)
    assert reason in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("identity.example.com/token", "It must begin with https://"),
        ("ftp://identity.example.com", "It must begin with https://"),
        (f"https://client:{CANARY}@identity.example.com", "It contains a user"),
        ("https:///token", "It has no host"),
        ("https://h:0/token", "It has no host"),
        ("https://h:port/token", "must be a URL"),
        ("https://h/a b", "must be a URL"),
        ("https://h/a\r\nX-Name: b", "must be a URL"),
        ("file://host/token", "Write file:///path"),
        (5, "must be a URL"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config({**OWN, "sasl.oauthbearer.token.endpoint.url": url})
    assert reason in str(caught.value)
    assert CANARY not in str(caught.value)


# Metadata services.

IMDS = {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
QUERY = "api-version=2018-02-01&resource=https%3A%2F%2Fns.servicebus.windows.net"


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"sasl.oauthbearer.config": f"query={QUERY}"}, f"{AZURE_IMDS_URL}?{QUERY}"),
        (
            {"sasl.oauthbearer.config": "a=b, query=x=1", "sasl.oauthbearer.method": "oidc"},
            f"{AZURE_IMDS_URL}?x=1",
        ),
        ({**BASE}, URL),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": f"{URL}?a=1",
                "sasl.oauthbearer.config": "query=b=2",
            },
            f"{URL}?a=1&b=2",
        ),
    ],
)
def test_a_metadata_service_has_librdkafkas_settings(settings: dict[str, object], url: str) -> None:
    made = config({**IMDS, **settings})
    found = made.oidc
    assert found is not None
    assert (found.grant, found.url) == (AZURE_IMDS, url)
    assert made.security_warnings == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "needs the parameters in sasl.oauthbearer.config: query=api-version"),
        ({"sasl.oauthbearer.config": "query=a b"}, "has characters that a URL must not have"),
        ({"sasl.oauthbearer.token.endpoint.url": "file:///run/token"}, "url is a file, but the"),
        (
            {"sasl.oauthbearer.metadata.authentication.type": "aws_iam"},
            "for Amazon MSK, set sasl.mechanism=AWS_MSK_IAM",
        ),
    ],
)
def test_a_metadata_service_without_its_parameters_is_refused(
    settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config({**IMDS, **settings})
    assert reason in str(caught.value)


# The options of strimzi-kafka-oauth.

STRIMZI = "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"


def strimzi(options: str) -> dict[str, object]:
    return {"sasl.login.callback.handler.class": STRIMZI, "sasl.jaas.config": jaas(options)}


ENDPOINT = f'oauth.token.endpoint.uri="{URL}" oauth.client.id="client"'


@pytest.mark.parametrize("has_handler", [True, False])
def test_strimzis_options_are_taken(has_handler: bool) -> None:
    settings = strimzi(
        f'{ENDPOINT} oauth.client.secret="{CANARY}" oauth.scope="a" oauth.audience="b" '
        f'oauth.ssl.truststore.location="ca.p12" oauth.ssl.truststore.password="{CANARY}" '
        f'oauth.ssl.truststore.type="pkcs12" oauth.sasl.extension.logicalCluster="lkc-1" '
        f'oauth.http.retries="3" oauth.username.claim="preferred_username"'
    )
    if not has_handler:
        del settings["sasl.login.callback.handler.class"]
    made = config(settings)
    found = made.oidc
    assert found is not None
    assert (found.grant, found.url, found.client_id) == (CLIENT_CREDENTIALS, URL, "client")
    assert (found.client_secret, found.scope) == (Password(CANARY), "a")
    assert (found.audience, found.extensions) == ("b", {"logicalCluster": "lkc-1"})
    assert (found.files.ca_location, found.files.ca_type) == ("ca.p12", "PKCS12")
    assert found.files.ca_password == Password(CANARY)
    assert CANARY not in repr(made)


def test_strimzis_tokens_and_assertions_are_taken() -> None:
    given = config(strimzi(f'oauth.access.token="{CANARY}"')).oidc
    assert given is not None
    assert (given.grant, given.token) == (TOKEN, Password(CANARY))
    in_file = config(strimzi('oauth.access.token.location="/run/a token"')).oidc
    assert in_file is not None
    assert (in_file.grant, in_file.url) == (FILE, "file:///run/a%20token")
    # Where ".." behind a link leads the system decides, here and where the policy looks.
    linked = config(strimzi('oauth.access.token.location="/run/link/../token"')).oidc
    assert linked is not None
    assert linked.url == "file:///run/link/../token"
    refreshed = config(
        strimzi(f'{ENDPOINT} oauth.refresh.token="{CANARY}" oauth.client.secret="s"')
    ).oidc
    assert refreshed is not None
    assert (refreshed.grant, refreshed.token) == (REFRESH_TOKEN, Password(CANARY))
    asserted = config(strimzi(f'{ENDPOINT} oauth.client.assertion="{CANARY}"')).oidc
    assert asserted is not None
    assert asserted.assertion is not None
    assert (asserted.assertion.text, asserted.client_secret) == (Password(CANARY), None)
    by_file = config(strimzi(f'{ENDPOINT} oauth.client.assertion.location="/run/a"')).oidc
    assert by_file is not None
    assert by_file.assertion is not None
    assert by_file.assertion.file == "/run/a"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ('oauth.client.id="a" oauth.client.secret="b"', "url or oauth.token.endpoint.uri"),
        (f'{ENDPOINT} oauth.password.grant.username="a"', "password.grant.username, which is not"),
        (
            f'{ENDPOINT} oauth.max.token.expiry.seconds="9"',
            "expiry.seconds, which is not supported",
        ),
        (f'{ENDPOINT} oauth.client.secrets="b"', "oauth.client.secrets, which is not supported"),
        (
            f'{ENDPOINT} oauth.ssl.endpoint.identification.algorithm=""',
            "algorithm in sasl.jaas.config may only be https",
        ),
        (
            f'{ENDPOINT} oauth.client.credentials.grant.type="kubernetes"',
            "may only be client_credentials",
        ),
        (
            f'{ENDPOINT} oauth.client.assertion.type="urn:saml"',
            "may only be urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        (
            f'oauth.access.token="{CANARY}" oauth.refresh.token="{CANARY}"',
            "oauth.access.token and oauth.refresh.token in sasl.jaas.config are two tokens",
        ),
        (
            'oauth.token.endpoint.uri="file:///a" oauth.refresh.token="b"',
            "url is a file, but the other settings",
        ),
        (
            f'{ENDPOINT} oauth.client.secret="{CANARY}" oauth.client.assertion="{CANARY}"',
            "authenticate the client; give one",
        ),
        (
            'oauth.token.endpoint.uri="ftp://h"',
            "oauth.token.endpoint.uri in sasl.jaas.config is no",
        ),
    ],
)
def test_what_is_not_built_of_strimzis_options_is_refused_by_its_name(
    options: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(strimzi(options))
    assert reason in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_setting_and_strimzis_option_that_disagree_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"token\.endpoint\.url and Strimzi's option"):
        config({**strimzi(ENDPOINT), "sasl.oauthbearer.token.endpoint.url": f"{URL}2"})
    with pytest.raises(ConfigError, match="audience and Strimzi's option"):
        config(
            {
                **strimzi(f'{ENDPOINT} oauth.client.secret="s" oauth.audience="a"'),
                "sasl.oauthbearer.audience": "b",
            }
        )
