"""References in settings: pickles and reprs have the reference, not the value."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StructType

from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from spark_connector.batch_reader import KafkaBatchReader
from spark_connector.options import KafkaOptions, Use

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CANARY = "canary-7f3a"
CLASSES = "org.apache.kafka.common.config.provider"
ENV = {"config.providers": "env", "config.providers.env.class": f"{CLASSES}.EnvVarConfigProvider"}
FILE = {"config.providers": "f", "config.providers.f.class": f"{CLASSES}.FileConfigProvider"}
FOLDER = {"config.providers": "d", "config.providers.d.class": f"{CLASSES}.DirectoryConfigProvider"}
SCRAM = {
    "bootstrap.servers": "h:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
}


def password_of(settings: Mapping[str, object]) -> str:
    credentials = ConsumerConfig.from_settings(settings).credentials
    assert credentials is not None
    return credentials[1].current().value


@pytest.fixture(autouse=True)
def _variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "secrets.properties"
    file.write_text(f"password = {CANARY}\n")
    (tmp_path / "password").write_text(CANARY)
    return file


@pytest.mark.promise("secrets may be references that configuration providers resolve")
def test_values_come_from_variables_files_and_folders(file: Path) -> None:
    assert password_of(SCRAM | ENV | {"sasl.password": "${env:KAFKA_PASSWORD}"}) == CANARY
    assert password_of(SCRAM | FILE | {"sasl.password": f"${{f:{file}:password}}"}) == CANARY
    assert (
        password_of(SCRAM | FOLDER | {"sasl.password": f"${{d:{file.parent}:password}}"}) == CANARY
    )


def test_a_reference_may_be_a_part_of_a_value() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    jaas = f'{module} required username="alice" password="a-${{env:KAFKA_PASSWORD}}";'
    assert password_of(SCRAM | ENV | {"sasl.jaas.config": jaas}) == f"a-{CANARY}"


def test_names_may_have_underscores() -> None:
    settings = {key.replace(".", "_"): value for key, value in (SCRAM | ENV).items()}
    settings["sasl_password"] = "${env:KAFKA_PASSWORD}"
    assert password_of(settings) == CANARY
    assert ConsumerConfig.from_settings(settings).config_providers == ("env",)


@pytest.mark.parametrize("settings", [{}, ENV])
def test_what_no_provider_has_stays_as_it_is(settings: dict[str, str]) -> None:
    assert password_of(SCRAM | settings | {"sasl.password": "${vault:x}"}) == "${vault:x}"


@pytest.mark.promise("secrets may be references that configuration providers resolve")
@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        (
            {"sasl.password": "${env:KAFKA_PASSWORD}"},
            "sasl.password refers to the configuration provider 'env', which no setting defines: "
            "the reference itself is the value. Set config.providers=env and "
            "config.providers.env.class=org.apache.kafka.common.config.provider."
            "EnvVarConfigProvider",
        ),
        (
            FILE | {"sasl_password": "${env:KAFKA_PASSWORD}"},
            "sasl_password refers to the configuration provider 'env', which no setting defines "
            "(config.providers is f): the reference itself is the value. Set "
            "config.providers=f,env",
        ),
        (
            ENV | {"sasl.password": "a-${evn:KAFKA_PASSWORD}"},
            "sasl.password refers to the configuration provider 'evn', which no setting defines "
            "(config.providers is env): the reference itself is the value. "
            "Correct the name, or set",
        ),
        ({"client.id": "${vault:a}${env:b}"}, "providers 'env', 'vault', which no setting defines"),
    ],
)
def test_a_reference_to_a_provider_that_no_setting_defines_is_warned_of(
    settings: dict[str, str], warning: str
) -> None:
    given = {**SCRAM, "security.protocol": "SASL_SSL", "sasl.password": "p"}
    if "sasl_password" in settings:
        del given["sasl.password"]
    (found,) = ConsumerConfig.from_settings(given | settings).security_warnings
    assert warning in found
    assert "KAFKA_PASSWORD" not in found


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.password": "a$}{b${no"},
        {"sasl.password": "${a b!c:d}"},
        ENV | {"sasl.password": "${env:KAFKA_NESTED}"},
        ENV | {"sasl.password": "${env:KAFKA_PASSWORD}"},
    ],
)
def test_other_texts_are_not_warned_of(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NESTED", "${env:KAFKA_PASSWORD}")  # the password is this text
    given = {**SCRAM, "security.protocol": "SASL_SSL"}
    assert ConsumerConfig.from_settings(given | settings).security_warnings == []


def test_an_invalid_value_with_a_reference_says_so() -> None:
    with pytest.raises(ConfigError, match=r"9092.* refers to the configuration provider 'env', w"):
        ConsumerConfig.from_settings({"bootstrap.servers": "${env:BROKER}:9092"})


def test_a_keyword_counts_instead_of_a_reference_of_the_mapping() -> None:
    given = {**SCRAM, "security.protocol": "SASL_SSL", "sasl.password": "${env:KAFKA_PASSWORD}"}
    assert ConsumerConfig.from_settings(given, sasl_password="p").security_warnings == []


def test_keywords_may_refer_to_providers_of_the_mapping() -> None:
    config = ConsumerConfig.from_settings(SCRAM | ENV, sasl_password="${env:KAFKA_PASSWORD}")
    assert config.credentials is not None
    assert config.credentials[1].current().value == CANARY


@pytest.mark.parametrize("names", [{}, {"config.providers": "vault,en"}])
def test_settings_of_a_provider_that_config_providers_does_not_name_are_refused(
    names: dict[str, str],
) -> None:
    given = {key: value for key, value in ENV.items() if key != "config.providers"} | names
    if names:
        given |= {
            f"config.providers.{name}.class": "EnvVarConfigProvider" for name in ("vault", "en")
        }
    with pytest.raises(ConfigError, match=r"config\.providers\.env\.class .* config\.providers"):
        ConsumerConfig.from_settings(SCRAM | given | {"sasl.password": "p"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ENV | {"sasl.password": "${env:NO_SUCH_VARIABLE}"},
            r"sasl\.password: \$\{env:NO_SUCH_VARIABLE\} does not exist\. Set the",
        ),
        (
            ENV | {"config.providers.env.param.allowlist.pattern": "OTHER_.*"},
            r"\$\{env:KAFKA_PASSWORD\} does not exist",
        ),
        (ENV | {"config.providers.env.param.allowlist.pattern": "("}, "not a regular expression"),
        ({"config.providers": "env"}, r"config\.providers\.env\.class is ''; use one of EnvVar"),
        (ENV | {"config.providers.env.class": "a.Vault"}, r"class is 'a\.Vault'; use one of"),
        (FILE | {"sasl.password": "${f:/no/such/file:x}"}, "Cannot read settings from"),
        (FOLDER | {"sasl.password": "${d:/no/such/folder:x}"}, "does not exist"),
        (FILE | {"sasl.password": "${f:x}"}, r"'' is not in config\.providers\.f\.param"),
        (
            FILE
            | {"sasl.password": "${f:/etc/x:y}", "config.providers.f.param.allowed.paths": "/run"},
            r"'/etc/x' is not in config\.providers\.f\.param\.allowed\.paths",
        ),
        ({"config.providers": 5}, "list of names"),
    ],
)
def test_what_cannot_be_looked_up_is_an_error_without_a_value(
    settings: dict[str, object], message: str
) -> None:
    given = SCRAM | {"client.id": "${env:KAFKA_PASSWORD}", "sasl.password": "${env:KAFKA_PASSWORD}"}
    with pytest.raises(ConfigError, match=message) as caught:
        ConsumerConfig.from_settings(given | settings)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert CANARY not in "".join(shown.format())


@pytest.mark.promise("secrets may be references that configuration providers resolve")
def test_what_spark_sends_to_tasks_has_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKCLIENT_ALLOWED_CONFIG_PROVIDERS", "EnvVarConfigProvider")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_VARIABLES", "KAFKA_PASSWORD")
    settings = SCRAM | ENV | {"sasl.password": "${env:KAFKA_PASSWORD}"}
    given = {f"kafka.{key}": value for key, value in settings.items()} | {"subscribe": "t"}
    schema = StructType().add("offset", LongType())
    pickled = pickle.dumps(KafkaBatchReader(KafkaOptions.from_spark(given, Use.BATCH), schema))
    assert b"${env:KAFKA_PASSWORD}" in pickled
    assert CANARY.encode() not in pickled
    options = KafkaOptions.from_spark(given, Use.BATCH)
    assert password_of(options.client.of(ConsumerConfig)) == CANARY
