"""Settings of TLS and SASL: names, aliases, contradictions, Java's login configuration, secrets."""

from __future__ import annotations

import pickle
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient import Admin, Consumer, Producer
from pykclient.admin.config import AdminConfig
from pykclient.config.jaas import parse_jaas
from pykclient.config.setting import Password
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

CANARY = "canary-7f3a"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def config(**settings: object) -> AdminConfig:
    return AdminConfig.from_settings({"bootstrap_servers": "h:9092", **settings})


def refusal(**settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**settings)
    return str(caught.value)


def jaas(module: str = PLAIN_MODULE, user: str = "alice", password: str = CANARY) -> str:
    return f'{module} required username="{user}" password="{password}";'


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("option", "hint"), [("pasword", "'password'"), ("useKeyTab", ""), ("clientId", "")]
)
def test_an_option_that_a_login_does_not_have_is_refused(
    mechanism: str, option: str, hint: str
) -> None:
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    given = jaas(module).replace(";", f' {option}="{CANARY}";')
    settings = {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
    said = refusal(**settings, sasl_jaas_config=given)
    assert f"has the option {option}, which {mechanism} does not have" in said
    assert hint in said
    assert CANARY not in said
    # What a broker's own file has beside means nothing to a client, in Java either.
    given = jaas(module).replace(";", ' user_bob="b" serviceName="kafka";')
    config(**settings, sasl_jaas_config=given)


def test_a_delegation_token_is_of_scram() -> None:
    given = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    text = jaas().replace(";", ' tokenauth="true";')
    assert "tokenauth is for SCRAM" in refusal(**given, sasl_jaas_config=text)
    text = jaas(SCRAM_MODULE).replace(";", ' tokenauth="yes";')
    given["sasl_mechanism"] = "SCRAM-SHA-256"
    assert "tokenauth in sasl_jaas_config must be true or false" in refusal(
        **given, sasl_jaas_config=text
    )
    assert config(**given, sasl_jaas_config=text.replace("yes", "true")).has_delegation_token


@pytest.mark.promise("TLS and SASL accept the settings of Java, librdkafka and kafka-python")
@pytest.mark.parametrize(
    ("name", "spellings", "value", "read"),
    [
        ("security_protocol", ["security.protocol"], "sasl_ssl", "SASL_SSL"),
        ("ssl_truststore_location", ["ssl.ca.location", "ssl_cafile"], "a.pem", "a.pem"),
        ("ssl_truststore_certificates", ["ssl.ca.pem"], "x", "x"),
        ("ssl_keystore_location", ["ssl.certificate.location", "ssl_certfile"], "a", "a"),
        ("ssl_key_password", ["ssl.key.password", "ssl_password"], "s", Password("s")),
        ("ssl_cipher_suites", ["ssl_ciphers"], "A:B,C", ("A", "B", "C")),
        ("ssl_crl_location", ["ssl.crl.location", "ssl_crlfile"], "a", "a"),
        ("ssl_endpoint_identification_algorithm", ["ssl_check_hostname"], False, ""),
        ("ssl_endpoint_identification_algorithm", ["ssl_check_hostname"], True, "https"),
        ("ssl_endpoint_identification_algorithm", [], "none", ""),
        ("enable_ssl_certificate_verification", [], "false", False),
        ("sasl_mechanism", ["sasl.mechanisms", "sasl.mechanism"], "plain", "PLAIN"),
        ("sasl_username", ["sasl.username", "sasl_plain_username"], "a", "a"),
        ("sasl_password", ["sasl.password", "sasl_plain_password"], "s", Password("s")),
    ],
)
def test_a_setting_has_the_names_of_other_clients(
    name: str, spellings: list[str], value: object, read: object
) -> None:
    for spelling in (name, *spellings):
        context = {"ssl_truststore_location": "t"} if name == "security_protocol" else {}
        sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
        needed = sasl if name == "security_protocol" else context
        assert getattr(config(**{**needed, spelling: value}), name) == read


@pytest.mark.parametrize("name", ["TLS", "TLSv1.3", "TLSv1.2", "tlsv1.2"])
def test_javas_names_of_tls_are_taken_and_1_2_leaves_1_3_out(name: str) -> None:
    versions = config(ssl_protocol=name).tls_versions
    assert versions == (("TLSv1.2",) if name.endswith("1.2") else ("TLSv1.2", "TLSv1.3"))
    for refused in ("SSL", "SSLv3", "TLSv1", "TLSv1.1"):
        assert "must be one of TLSv1.3, TLS, TLSv1.2" in refusal(ssl_protocol=refused)


def test_two_spellings_may_agree_and_must_not_disagree() -> None:
    agreed = config(**{"ssl_cafile": "a.pem", "ssl.ca.location": "a.pem"})
    assert agreed.ssl_truststore_location == "a.pem"
    assert "'ssl.ca.location' and 'ssl_cafile' are the same setting" in refusal(
        **{"ssl_cafile": "a.pem", "ssl.ca.location": "b.pem"}
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"ssl_cafile": "a", "ssl_truststore_certificates": "x"},
            "ssl_truststore_certificates and ssl_truststore_location are two sources",
        ),
        ({"ssl_keystore_key": "x"}, "belong together; give both"),
        ({"ssl_keyfile": "x"}, "give it in ssl_keystore_location"),
        (
            {"ssl_context": ssl.create_default_context(), "ssl_cafile": "a"},
            "ssl_context replaces ssl_truststore_location, which would have no effect",
        ),
        ({"ssl_context": "x"}, "must be an ssl.SSLContext"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "some of TLSv1.2, TLSv1.3"),
        (
            {"ssl_enabled_protocols": "TLSv1.3", "ssl_protocol": "TLSv1.2"},
            "ssl_protocol=TLSv1.2 leaves none of the versions in ssl_enabled_protocols=TLSv1.3",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "DIGEST-MD5"},
            "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM, GSSAPI",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"},
            "needs sasl_username and sasl_password, or Java's sasl_jaas_config",
        ),
        ({"security_protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_what_contradicts_itself_or_is_missing_is_refused(
    settings: dict[str, object], reason: str
) -> None:
    assert reason in refusal(**settings)


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN_MODULE), ("SCRAM-SHA-512", SCRAM_MODULE)]
)
def test_a_login_configuration_of_java_gives_name_and_password(mechanism: str, module: str) -> None:
    found = config(
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_jaas_config=jaas(module, r"al\"ice", r"a\\b;c=d"),
    )
    assert found.credentials == ('al"ice', Password("a\\b;c=d"))


def test_quotation_marks_may_be_single_as_in_the_form_of_confluent_cloud() -> None:
    found = parse_jaas(f"""{PLAIN_MODULE} required username='KEY' password='a"b\\'c d=;';""")
    assert found.options == {"username": "KEY", "password": "a\"b'c d=;"}
    with pytest.raises(ValueError, match="quotation mark"):
        parse_jaas(f"{PLAIN_MODULE} required username='KEY\";")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (jaas()[:-1], "must end with a semicolon"),
        (f"{PLAIN_MODULE};", "begin with a login module and a control flag"),
        (f'{PLAIN_MODULE} needed username="a";', "one of required"),
        (f'{PLAIN_MODULE} required username="a;', "quotation mark"),
        (f'{PLAIN_MODULE} required username "a";', 'name="value"'),
        (jaas() + jaas(), "only one module is supported"),
        (f'{PLAIN_MODULE} required username="{CANARY}";', "has no password"),
        (jaas(SCRAM_MODULE), "sasl_mechanism=PLAIN needs org.apache.kafka"),
    ],
)
def test_a_login_configuration_that_cannot_be_used_is_refused_without_showing_it(
    text: str, reason: str
) -> None:
    said = refusal(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_jaas_config=text)
    assert reason in said
    assert CANARY not in said


def test_a_login_configuration_beside_another_password_is_refused() -> None:
    said = refusal(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=jaas(),
        sasl_password="other",
    )
    assert "disagree" in said
    assert CANARY not in said


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(), max_size=4))
def test_options_of_a_login_configuration_are_read_as_they_were_written(
    options: dict[str, str],
) -> None:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    written = " ".join(f'{name}="{quoted(value)}"' for name, value in options.items())
    assert parse_jaas(f"a.B required {written};") == ("a.B", options)


def test_escapes_of_java_are_read() -> None:
    text = r'a.B required x="\\n\n\t\101\0";'
    assert parse_jaas(text).options == {"x": "\\n\n\tA\0"}


@given(st.text())
def test_no_text_breaks_the_reading_of_a_login_configuration(text: str) -> None:
    with suppress(ValueError):  # the only error there may be
        parse_jaas(text)


def test_a_config_shows_no_secret() -> None:
    found = config(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password=CANARY,
        ssl_key_password=CANARY,
        ssl_keystore_password=CANARY,
        ssl_truststore_password=CANARY,
    )
    assert CANARY not in repr(found)
    assert CANARY not in repr(vars(found))
    assert CANARY not in str(found.credentials)
    assert pickle.loads(pickle.dumps(found)) == found


def context(verify_mode: ssl.VerifyMode) -> ssl.SSLContext:
    """Return a context of an application that does not verify all."""
    made = ssl.create_default_context()
    made.check_hostname = False
    made.verify_mode = verify_mode
    return made


SASL = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": CANARY}
OIDC = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "HTTPS://h",
    "sasl_oauthbearer_client_credentials_client_id": "client",
    "sasl_oauthbearer_client_credentials_client_secret": CANARY,
}
TOKEN = {"sasl_mechanism": "OAUTHBEARER", "oauth_cb": "a:b"}


@pytest.mark.parametrize(
    ("settings", "warned_of"),
    [
        ({}, []),
        ({"security_protocol": "SSL"}, []),
        ({"security_protocol": "SSL", "ssl_keystore_location": "a.pem"}, []),
        ({"security_protocol": "SASL_SSL", **SASL}, []),
        ({"security_protocol": "SASL_SSL", **SASL, "ssl_keystore_location": "a.pem"}, []),
        (
            {"security_protocol": "SASL_PLAINTEXT", **SASL, "sasl_mechanism": "SCRAM-SHA-256"},
            ["the exchange is sent in plain text: anyone who reads it can test passwords"],
        ),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM"},
            ["the signed request is sent in plain text"],
        ),
        (
            {"security_protocol": "SSL", "enable_ssl_certificate_verification": False},
            ["the brokers' certificates are not verified"],
        ),
        ({"enable_ssl_certificate_verification": False}, []),
        (
            {"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": ""},
            ["host names in the brokers' certificates are not verified"],
        ),
        ({"ssl_endpoint_identification_algorithm": ""}, []),
        (
            {
                "security_protocol": "SSL",
                "ssl_endpoint_identification_algorithm": "",
                "enable_ssl_certificate_verification": False,
            },
            ["the brokers' certificates are not verified"],
        ),
        (
            {"security_protocol": "SSL", "ssl_context": context(ssl.CERT_NONE)},
            ["the brokers' certificates are not verified (ssl_context has the verify_mode CERT_N"],
        ),
        (
            {"security_protocol": "SSL", "ssl_context": context(ssl.CERT_OPTIONAL)},
            ["host names in the brokers' certificates are not verified (ssl_context has check_h"],
        ),
        ({"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}, []),
        ({"security_protocol": "SASL_PLAINTEXT", **SASL}, ["the password is sent in plain text"]),
        ({"security_protocol": "SASL_PLAINTEXT", **TOKEN}, ["the token is sent in plain text"]),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "enable_sasl_oauthbearer_unsecure_jwt": True,
                "sasl_oauthbearer_config": "principal=alice",
            },
            [],
        ),
        (SASL, ["sasl_username, sasl_password: not used with security_protocol=PLAINTEXT"]),
        (TOKEN, ["oauth_cb: not used with security_protocol=PLAINTEXT"]),
        (
            {"sasl_jaas_config": f'a.B required password="{CANARY}";', "security_protocol": "SSL"},
            ["sasl_jaas_config: not used with security_protocol=SSL"],
        ),
        ({"ssl_keystore_location": "a.pem"}, ["ssl_keystore_location: not used with "]),
        ({"security_protocol": "SASL_SSL", **OIDC}, []),
        (
            {
                "security_protocol": "SASL_SSL",
                **OIDC,
                "sasl_oauthbearer_token_endpoint_url": "HTTP://h",
            },
            ["requests to the identity server and its tokens are sent in plain text"],
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                **SASL,
                "ssl_context": ssl.create_default_context(),
            },
            ["the password is sent in plain text", "ssl_context: not used with "],
        ),
    ],
)
def test_what_is_less_safe_than_it_looks_is_warned_of(
    settings: dict[str, object], warned_of: list[str]
) -> None:
    found = config(**settings).security_warnings
    assert len(found) == len(warned_of)
    assert all(words in warning for words, warning in zip(warned_of, found, strict=True))
    assert CANARY not in str(found)


@pytest.mark.parametrize("make", [Admin, Consumer, Producer])
def test_each_client_logs_such_a_warning_once(
    make: Callable[..., Admin | Consumer | Producer], caplog: pytest.LogCaptureFixture
) -> None:
    with make(bootstrap_servers="localhost:1", client_id="c", **SASL):
        pass
    (record,) = [record for record in caplog.records if "not used" in record.getMessage()]
    assert (record.name, record.levelname) == ("pykclient.security", "WARNING")
    assert record.getMessage().startswith("[c] sasl_username, sasl_password: not used with ")
    assert CANARY not in caplog.text
