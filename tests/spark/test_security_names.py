"""Settings of TLS and SASL have the names of Java, librdkafka and kafka-python, here and in Spark.

Each name leads to the one setting of all clients, and of what Spark's tasks are given; two names
that disagree are refused with both.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from pyspark.sql.types import BinaryType, StructType

from pykclient.admin.config import AdminConfig
from pykclient.config.oidc import AZURE_IMDS_URL
from pykclient.config.setting import Password, PasswordSource
from pykclient.config.unknown_keys import UNSUPPORTED
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from pykclient.producer.config import ProducerConfig
from spark_connector.options import KafkaOptions, Use
from spark_connector.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.config.client import ClientConfig

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "config"
CONFIGS: Final[tuple[type[ClientConfig], ...]] = (ProducerConfig, ConsumerConfig, AdminConfig)
SERVERS: Final = {"bootstrap.servers": "h:9092"}

LIBRDKAFKA: Final = {
    # What librdkafka calls as Java does is in Java's own table.
    "ssl.ca.location": "ssl_truststore_location",
    "ssl.ca.pem": "ssl_truststore_certificates",
    "ssl.certificate.location": "ssl_keystore_location",
    "ssl.certificate.pem": "ssl_keystore_certificate_chain",
    "ssl.key.location": "ssl_key_location",
    "ssl.key.pem": "ssl_keystore_key",
    "ssl.crl.location": "ssl_crl_location",
    "enable.ssl.certificate.verification": "enable_ssl_certificate_verification",
    "https.ca.location": "https_ca_location",
    "https.ca.pem": "https_ca_pem",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "sasl.kerberos.keytab": "sasl_kerberos_keytab",
    "sasl.kerberos.principal": "sasl_kerberos_principal",
    "oauth_cb": "oauth_cb",
    "oauthbearer_token_refresh_cb": "oauth_cb",
    "enable.sasl.oauthbearer.unsecure.jwt": "enable_sasl_oauthbearer_unsecure_jwt",
    "sasl.oauthbearer.config": "sasl_oauthbearer_config",
    "sasl.oauthbearer.method": "sasl_oauthbearer_method",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_credentials_client_secret",
    "sasl.oauthbearer.extensions": "sasl_oauthbearer_extensions",
    "sasl.oauthbearer.grant.type": "sasl_oauthbearer_grant_type",
    "sasl.oauthbearer.assertion.jwt.template.file": "sasl_oauthbearer_assertion_template_file",
    "sasl.oauthbearer.metadata.authentication.type": (
        "sasl_oauthbearer_metadata_authentication_type"
    ),
    "sasl.oauthbearer.assertion.private.key.pem": "sasl_oauthbearer_assertion_private_key_pem",
}
LIBRDKAFKA_REFUSED: Final = (
    *("ssl_key", "ssl_certificate", "ssl_ca", "ssl.curves.list", "ssl.sigalgs.list"),
    *("ssl.ca.certificate.stores", "ssl.providers", "ssl.engine.location", "ssl.engine.id"),
    *("ssl_engine_callback_data", "ssl.certificate.verify_cb"),
)
KAFKA_PYTHON: Final = {
    "security_protocol": "security_protocol",
    "ssl_context": "ssl_context",
    "ssl_check_hostname": "ssl_endpoint_identification_algorithm",
    "ssl_cafile": "ssl_truststore_location",
    "ssl_certfile": "ssl_keystore_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_password": "ssl_key_password",
    "ssl_crlfile": "ssl_crl_location",
    "ssl_ciphers": "ssl_cipher_suites",
    "sasl_mechanism": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "sasl_kerberos_name": "sasl_kerberos_principal",
    "sasl_kerberos_service_name": "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name": "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider": "sasl_oauth_token_provider",
}


def kafkas_names() -> list[str]:
    """Java's names of settings of TLS and SASL, of Kafka 4.4.0."""
    with (GOLDEN / "kafka-4.4.0-admin.tsv").open(encoding="utf-8") as table:
        names = [row["name"] for row in csv.DictReader(table, delimiter="\t")]
    return [name for name in names if name.startswith(("ssl.", "sasl.", "security."))]


def is_refused(name: str) -> bool:
    return any(name.replace(".", "_") in unsupported.harmless for unsupported in UNSUPPORTED)


JAVA: Final = {name: name.replace(".", "_") for name in kafkas_names() if not is_refused(name)}
JAVA_REFUSED: Final = tuple(filter(is_refused, kafkas_names()))

OWN: Final = {
    *("https_certificate_location", "https_key_location", "https_key_password"),
    "sasl_oauthbearer_audience",
}
"""Settings that only this client has; Java and strimzi have options in ``sasl.jaas.config``."""

NAMES: Final = {
    **{("Java", name): setting for name, setting in JAVA.items()},
    **{("librdkafka", name): setting for name, setting in LIBRDKAFKA.items()},
    **{("kafka-python", name): setting for name, setting in KAFKA_PYTHON.items()},
}


class Values(NamedTuple):
    """Two texts that differ, and what the config is not valid without."""

    one: str
    other: str
    beside: Mapping[str, str] = {}


PLAIN: Final = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "a",
}
CERTIFICATE: Final = {"ssl.keystore.location": "c.pem"}
HANDLER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
RETRIEVER: Final = "org.apache.kafka.common.security.oauthbearer."
JAAS: Final = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}";'
VALUES: Final = {
    "security_protocol": Values("SSL", "PLAINTEXT"),
    "ssl_endpoint_identification_algorithm": Values("https", ""),
    "enable_ssl_certificate_verification": Values("true", "false"),
    "ssl_protocol": Values("TLS", "TLSv1.2"),
    "ssl_enabled_protocols": Values("TLSv1.3", "TLSv1.2"),
    "ssl_truststore_type": Values("PEM", "JKS"),
    "ssl_keystore_type": Values("PEM", "JKS"),
    "ssl_keystore_key": Values("k", "l", {"ssl.keystore.certificate.chain": "c"}),
    "ssl_keystore_certificate_chain": Values("c", "d", {"ssl.keystore.key": "k"}),
    "ssl_key_location": Values("k", "l", CERTIFICATE),
    "sasl_mechanism": Values("PLAIN", "SCRAM-SHA-256"),
    "sasl_jaas_config": Values(JAAS.format("a"), JAAS.format("b")),
    "sasl_oauth_token_provider": Values("a:b", "c:d"),
    "oauth_cb": Values("a:b", "c:d"),
    "enable_sasl_oauthbearer_unsecure_jwt": Values("true", "false"),
    "sasl_oauthbearer_metadata_authentication_type": Values("azure_imds", "none"),
    "sasl_oauthbearer_method": Values("oidc", "default"),
    "sasl_oauthbearer_token_endpoint_url": Values("https://a/t", "https://b/t"),
    "sasl_oauthbearer_extensions": Values("a=b", "a=c"),
    "sasl_oauthbearer_grant_type": Values(
        "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"
    ),
    "sasl_oauthbearer_header_urlencode": Values("true", "false"),
    "sasl_oauthbearer_jwt_retriever_class": Values(
        f"{RETRIEVER}ClientCredentialsJwtRetriever", f"{RETRIEVER}JwtBearerJwtRetriever"
    ),
    "sasl_login_callback_handler_class": Values(HANDLER, HANDLER),
    "sasl_oauthbearer_assertion_algorithm": Values("ES256", "RS256"),
    "sasl_oauthbearer_assertion_claim_jti_include": Values("true", "false"),
    "sasl_oauthbearer_assertion_claim_exp_seconds": Values("10", "11"),
    "sasl_oauthbearer_assertion_claim_nbf_seconds": Values("10", "11"),
    "sasl_login_refresh_window_factor": Values("0.6", "0.7"),
    "sasl_login_refresh_window_jitter": Values("0.1", "0.2"),
    "sasl_login_refresh_min_period_seconds": Values("10", "11"),
    "sasl_login_refresh_buffer_seconds": Values("10", "11"),
    "sasl_login_retry_backoff_ms": Values("10", "11"),
    "sasl_login_retry_backoff_max_ms": Values("10", "11"),
    "sasl_login_connect_timeout_ms": Values("10", "11"),
    "sasl_login_read_timeout_ms": Values("10", "11"),
}
TEXT: Final = Values("one", "other")

READ_SCHEMA: Final = StructType().add("value", BinaryType())


def spark_reads(settings: Mapping[str, str]) -> ClientConfig:
    """Return the config of the consumers that Spark's tasks read with."""
    given = {f"kafka.{name}": value for name, value in settings.items()}
    options = KafkaOptions.from_spark({**given, "subscribe": "t"}, Use.BATCH)
    return ConsumerConfig.from_settings(options.consumer_settings())


def spark_writes(settings: Mapping[str, str]) -> ClientConfig:
    given = {f"kafka.{name}": value for name, value in settings.items()}
    sink = Sink.from_spark({**given, "topic": "t"}, READ_SCHEMA)
    return ProducerConfig.from_settings(sink.client.of_producer())


MAKERS: Final[dict[str, Callable[[Mapping[str, Any]], ClientConfig]]] = {
    **{config.client: config.from_settings for config in CONFIGS},
    "spark.read": spark_reads,
    "spark.write": spark_writes,
}


ONLY_IN_CODE: Final = ("oauth_cb",)
"""Functions, which text cannot name."""


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's options are text, which names what the process allows."""
    monkeypatch.setenv("PYKCLIENT_ALLOWED_IMPORTS", "a,c")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_URLS", f"https://a/t,https://b/t,{AZURE_IMDS_URL}")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_FILES", ".")


def shown(value: object) -> object:
    return value.value if isinstance(value, Password) else value


@pytest.mark.promise("TLS and SASL accept the settings of Java, librdkafka and kafka-python")
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    ("name", "setting"),
    [(name, setting) for (_, name), setting in NAMES.items() if setting != "ssl_context"],
    ids=[f"{of} {name}" for (of, name), setting in NAMES.items() if setting != "ssl_context"],
)
def test_each_name_leads_to_the_one_setting(name: str, setting: str, maker: str) -> None:
    values = VALUES.get(setting, TEXT)
    if setting in ONLY_IN_CODE and maker.startswith("spark"):
        with pytest.raises(ConfigError, match=f"{name}: text from Spark's options may not name"):
            MAKERS[maker]({**SERVERS, name: values.one})
        return
    made = [
        getattr(MAKERS[maker]({**SERVERS, **values.beside, name: value}), setting)
        for value in (values.one, values.other)
    ]
    by_own_name = [
        getattr(ConsumerConfig.from_settings({**SERVERS, **values.beside, setting: value}), setting)
        for value in (values.one, values.other)
    ]
    assert list(map(shown, made)) == list(map(shown, by_own_name))
    assert values.one == values.other or made[0] != made[1]


OF_SEVERAL: Final = {
    setting: sorted({name for (_, name), each in NAMES.items() if each == setting})
    for setting in NAMES.values()
    if setting != "ssl_context"
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(
    "setting", [name for name, spellings in OF_SEVERAL.items() if len(spellings) > 1]
)
def test_two_names_that_disagree_are_refused_with_both(setting: str, maker: str) -> None:
    values = VALUES.get(setting, TEXT)
    if setting in ONLY_IN_CODE and maker.startswith("spark"):
        return
    first, *others = OF_SEVERAL[setting]
    for other in others:
        if first.replace(".", "_") == other.replace(".", "_") and maker.startswith("spark"):
            continue  # Spark's options have no case, and dots are kept
        agreed = {**SERVERS, **values.beside, first: values.one, other: values.one}
        MAKERS[maker](agreed)
        with pytest.raises(ConfigError) as caught:
            MAKERS[maker]({**agreed, other: values.other})
        assert repr(first) in str(caught.value)
        assert repr(other) in str(caught.value)
        assert "the same setting" in str(caught.value)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.client)
@pytest.mark.parametrize("name", [*JAVA_REFUSED, *LIBRDKAFKA_REFUSED])
def test_what_is_not_built_is_refused_by_its_name(name: str, config: type[ClientConfig]) -> None:
    with pytest.raises(ConfigError) as caught:
        config.from_settings({**SERVERS, name: "something"})
    assert name in str(caught.value)
    assert "unsupported part of TLS or SASL" in str(caught.value)


def test_every_setting_here_is_one_of_another_client() -> None:
    known = {*NAMES.values()}
    own = {
        setting.name
        for setting in AdminConfig.settings()
        if setting.name.startswith(("ssl_", "sasl_", "security_", "oauth", "https_", "enable_s"))
    }
    assert own == known | OWN


def test_passwords_that_are_functions_are_taken_by_each_name() -> None:
    for name in ("sasl.password", "sasl_plain_password"):
        config = ConsumerConfig.from_settings({**SERVERS, **PLAIN, name: lambda: "secret"})
        assert isinstance(config.sasl_password, PasswordSource)
