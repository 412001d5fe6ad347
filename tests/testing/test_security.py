"""Errors of a secured cluster's settings, and the settings of its servers and clients."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from pykclient.errors.base import ConfigError, UsageError
from pykclient.testing import Acl, ClusterSecurity
from pykclient.testing.cluster.security import Listener

KEYSTORE, TRUSTSTORE = Path("broker.pem"), Path("authority.pem")
CANARY = "canary-word"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"listeners": ()}, "give at least one"),
        ({"listeners": ("SSL", "SSL")}, "none twice"),
        ({"listeners": ("SASL_SLS",)}, "Did you mean 'SASL_SSL'"),
        ({"listeners": ("OTHER:TLS",)}, "'TLS' is not a protocol of a listener"),
        ({"mechanisms": ()}, "mechanisms is empty"),
        ({"mechanisms": ("SCRAM-SHA-265",)}, "Did you mean 'SCRAM-SHA-256'"),
        ({"users": {}}, "give at least one user"),
        ({"users": {"alice": ""}}, "give at least one user"),
        ({"users": {"a,b": CANARY}}, "'a,b' cannot be a SCRAM user"),
        ({"users": {"zoë": CANARY}}, "'zoë' cannot be a SCRAM user"),
    ],
)
def test_what_there_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterSecurity(**arguments)
    assert message in str(caught.value)
    assert CANARY not in str(caught.value)


def test_users_of_plain_alone_may_have_any_name() -> None:
    security = ClusterSecurity(mechanisms=("PLAIN",), users={"zoë, a": "x"})
    settings = security.server_settings(KEYSTORE, TRUSTSTORE)
    jaas = str(settings["listener.name.sasl_ssl.plain.sasl.jaas.config"])
    assert jaas.endswith('PlainLoginModule required "user_zoë, a"="x";')


def test_no_password_is_shown() -> None:
    security = ClusterSecurity(users={"alice": CANARY})
    assert CANARY not in repr(security)
    assert not [option for option in security.scram_credentials() if CANARY in option]


def test_names_and_passwords_are_quoted_as_java_reads_them() -> None:
    security = ClusterSecurity(mechanisms=("PLAIN",), users={"a": 'w"\\\n;'})
    jaas = security.client_settings(
        security.listener(None), mechanism=None, user=None, password=None
    )["sasl_jaas_config"]
    assert jaas.endswith(r"""required "username"="a" "password"="w\"\\\n;";""")


@pytest.mark.parametrize(("mechanism", "digest"), [("256", "sha256"), ("512", "sha512")])
def test_scram_stores_what_the_password_becomes_with_a_salt_of_its_own(
    mechanism: str, digest: str
) -> None:
    security = ClusterSecurity(mechanisms=(f"SCRAM-SHA-{mechanism}",), users={"a": "x", "b": "x"})
    salts = set()
    for user, option in zip("ab", security.scram_credentials(), strict=True):
        pattern = (
            rf'SCRAM-SHA-{mechanism}=\[name="{user}",salt="(.+)",saltedpassword="(.+)",'
            r"iterations=(\d+)\]"
        )
        found = re.fullmatch(pattern, option)
        assert found is not None
        salt = base64.b64decode(found[1])
        salted = hashlib.pbkdf2_hmac(digest, b"x", salt, int(found[3]))
        assert base64.b64decode(found[2]) == salted
        salts.add(salt)
    assert len(salts) == 2


def test_one_listener_takes_no_client_without_a_certificate() -> None:
    security = ClusterSecurity(listeners=("SSL", "MTLS", "OTHER:SSL"))
    assert [*security.client_listeners] == [
        Listener("SSL", "SSL"),
        Listener("MTLS", "SSL"),
        Listener("OTHER", "SSL"),
    ]
    settings = security.server_settings(KEYSTORE, TRUSTSTORE)
    required = {name for name, value in settings.items() if value == "required"}
    assert required == {"listener.name.mtls.ssl.client.auth"}


def test_without_acls_there_is_no_authorizer_and_with_them_brokers_are_super_users() -> None:
    plain = ClusterSecurity().server_settings(KEYSTORE, TRUSTSTORE)
    assert not {"authorizer.class.name", "super.users"} & plain.keys()
    security = ClusterSecurity(acls=(), super_users=("User:admin",))
    settings = security.server_settings(KEYSTORE, TRUSTSTORE)
    assert str(settings["authorizer.class.name"]).endswith("StandardAuthorizer")
    assert settings["super.users"] == "User:ANONYMOUS;User:admin"


def test_signed_tokens_are_for_the_brokers_that_have_an_address_of_keys() -> None:
    url = "https://identity.example.com/jwks"
    handler = "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class"
    settings = ClusterSecurity(jwks_url=url).server_settings(KEYSTORE, TRUSTSTORE)
    assert settings["sasl.oauthbearer.jwks.endpoint.url"] == url
    assert str(settings[handler]).endswith("OAuthBearerValidatorCallbackHandler")
    options = ClusterSecurity(jwks_url=url).java_options()
    assert [option for option in options if option.endswith(f"oauthbearer.allowed.urls={url}")]
    unsigned = ClusterSecurity()
    assert handler not in unsigned.server_settings(KEYSTORE, TRUSTSTORE)
    assert not [option for option in unsigned.java_options() if "oauthbearer" in option]


def test_real_brokers_have_not_the_mechanism_of_amazon_msk() -> None:
    security = ClusterSecurity(mechanisms=("AWS_MSK_IAM",), users={"AKID": CANARY})
    with pytest.raises(ConfigError, match="leave it out of mechanisms, or use FakeKafka") as caught:
        security.server_settings(KEYSTORE, TRUSTSTORE)
    assert CANARY not in str(caught.value)


def client_settings(listener: str, **chosen: str) -> dict[str, str]:
    security = ClusterSecurity(
        listeners=("SSL", "SASL_PLAINTEXT"), mechanisms=("PLAIN",), users={"alice": CANARY}
    )
    arguments = {"mechanism": None, "user": None, "password": None, **chosen}
    return security.client_settings(security.listener(listener), **arguments)


def test_a_client_gets_the_first_mechanism_and_user_unless_it_gives_another() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert client_settings("SASL_PLAINTEXT") == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_config": f'{module} required "username"="alice" "password"="{CANARY}";',
    }
    wrong = client_settings("SASL_PLAINTEXT", user="mallory", password="wrong")
    assert '"username"="mallory" "password"="wrong"' in wrong["sasl_jaas_config"]


@pytest.mark.parametrize(
    ("listener", "chosen", "message"),
    [
        ("SASL_SSL", {}, "there is no listener 'SASL_SSL'; there are SSL, SASL_PLAINTEXT"),
        ("SASL_PLAINTEXT", {"mechanism": "PLAINE"}, "Did you mean 'PLAIN'"),
        ("SASL_PLAINTEXT", {"user": "bob"}, "there is no user 'bob'; there are alice"),
        ("SSL", {"mechanism": "PLAIN"}, "leave out mechanism and password"),
        ("SSL", {"password": "x"}, "leave out mechanism and password"),
    ],
)
def test_a_client_gets_nothing_that_the_cluster_has_not(
    listener: str, chosen: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        client_settings(listener, **chosen)
    assert message in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("alice", "READ", "ALLOW"), "User:alice"),
        (("User:alice", "READ", "ALOW"), "Did you mean 'ALLOW'"),
        (("User:alice", "RAED", "ALLOW"), "Did you mean 'READ'"),
    ],
)
def test_an_acl_with_a_word_that_kafka_has_not_is_refused(
    arguments: tuple[str, str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Acl(*arguments, topic="orders")
    assert message in str(caught.value)


def test_an_acl_has_one_resource_which_is_the_cluster_if_it_names_none() -> None:
    with pytest.raises(ConfigError, match="create an Acl for each"):
        Acl("User:alice", "READ", topic="orders", group="orders")
    of_cluster = Acl("User:alice", "CREATE").creation()
    assert (of_cluster.resource_type, of_cluster.resource_name) == (4, "kafka-cluster")
    of_group = Acl("User:alice", "READ", "DENY", group="o", pattern_type="PREFIXED").creation()
    assert (of_group.resource_type, of_group.resource_name) == (3, "o")
    assert (of_group.resource_pattern_type, of_group.permission_type) == (4, 2)
