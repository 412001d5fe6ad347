"""Behaviour that all config classes share: parsing, validation, immutability, properties files."""

from __future__ import annotations

import csv
import inspect
import pickle
import re
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pykclient
from pykclient.admin.config import AdminConfig
from pykclient.config.client_properties import from_properties
from pykclient.config.properties import read_properties
from pykclient.config.setting import REQUIRED
from pykclient.config.unknown_keys import UNSUPPORTED
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors.base import ConfigError
from pykclient.producer.config import ProducerConfig

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

CONFIGS: list[type[ClientConfig]] = [ProducerConfig, ConsumerConfig, AdminConfig]
PACKAGE = Path(pykclient.__file__).parent
GOLDEN = Path(__file__).parent / "golden" / "config"
REQUIRED_IN_KAFKA = {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}


def kafka_settings(config: type[ClientConfig]) -> list[dict[str, str]]:
    """Kafka 4.4.0's own table of one client's settings."""
    with (GOLDEN / f"kafka-4.4.0-{config.client}.tsv").open(encoding="utf-8") as table:
        return list(csv.DictReader(table, delimiter="\t"))


def unbuilt_keys(config: type[ClientConfig]) -> dict[str, tuple[str, ...]]:
    """Underscore name -> harmless values, for one client."""
    return {
        name: harmless
        for unsupported in UNSUPPORTED
        if config.client in unsupported.clients
        for name, harmless in unsupported.harmless.items()
    }


@pytest.mark.parametrize("config", CONFIGS)
def test_every_kafka_key_is_either_a_setting_or_known_as_unbuilt(
    config: type[ClientConfig],
) -> None:
    built = {setting.key.replace(".", "_") for setting in config.settings() if not setting.is_ours}
    unsupported = unbuilt_keys(config).keys()
    assert not built & unsupported
    assert built | unsupported == {row["name"].replace(".", "_") for row in kafka_settings(config)}


@pytest.mark.parametrize("config", CONFIGS)
def test_defaults_are_those_of_kafka(config: type[ClientConfig]) -> None:
    rows = {row["name"]: row for row in kafka_settings(config)}
    for setting in config.settings():
        assert setting.meaning.endswith(".")
        if setting.is_ours or setting.key in REQUIRED_IN_KAFKA:
            continue
        default = rows[setting.key]["default"]
        if setting.key == "bootstrap.servers":
            assert setting.default is REQUIRED
        else:
            written = default.removeprefix("[").removesuffix("]").replace(", ", ",")
            assert setting.default_written == ("" if written == "null" else written)


@pytest.mark.parametrize("config", CONFIGS)
def test_defaults_of_unbuilt_settings_are_those_of_kafka(config: type[ClientConfig]) -> None:
    harmless = unbuilt_keys(config)
    for row in kafka_settings(config):
        name = row["name"].replace(".", "_")
        default = row["default"].removeprefix("[").removesuffix("]").replace(", ", ",")
        if name in harmless:
            expected = "" if default == "null" else default
            assert expected.lower() in [value.lower() for value in harmless[name]], name


@pytest.mark.parametrize("config", CONFIGS)
def test_ranges_are_those_of_kafka(config: type[ClientConfig]) -> None:
    rows = {row["name"]: row for row in kafka_settings(config)}
    for setting in config.settings():
        minimum = re.match(r"\[(-?\d+),\.\.\.", rows.get(setting.key, {}).get("validator", ""))
        if minimum is None:
            continue
        low = int(minimum[1])
        assert setting.read(low, setting.key) == low
        with pytest.raises(ConfigError):
            setting.read(low - 1, setting.key)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_is_read_by_the_client_that_has_it(config: type[ClientConfig]) -> None:
    """A setting that nothing reads would be ignored; until then it belongs in UNSUPPORTED."""
    folders = [PACKAGE / config.client, PACKAGE / "network"]
    files = [file for folder in folders for file in folder.rglob("*.py") if file.stem != "config"]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    read = set(re.findall(r"\b_?config\.(\w+)", source))
    names = {setting.name for setting in config.settings()}
    # It is read where references are replaced, before there is a config.
    names.remove("config_providers")
    assert [name for name in names if not _is_read(config, name, read)] == []


def _is_read(config: type[ClientConfig], name: str, read: set[str]) -> bool:
    """Tell whether a client reads a setting, itself or through the config's own methods."""
    found, ways = {name}, [name]
    while ways:
        way = ways.pop()
        if way in read:
            return True
        users = {
            key for key, text in _members(config.__mro__) if re.search(rf"\bself\.{way}\b", text)
        }
        ways += users - found
        found |= users
    return False


@cache
def _members(kinds: tuple[type, ...]) -> list[tuple[str, str]]:
    """Return the configs' own methods and properties with their source, without mere checks."""
    return [
        (key, inspect.getsource(function))
        for kind in kinds
        for key, value in vars(kind).items()
        if inspect.isfunction(function := value.fget if isinstance(value, property) else value)
        and not key.startswith(("__", "check_", "_check", "_reconcile"))
    ]


def test_keywords_and_a_mapping_are_read_in_both_spellings_and_keywords_win() -> None:
    config = ProducerConfig.from_settings(
        {"bootstrap.servers": "h1:9092", "linger.ms": "7", "batch_size": 1},
        linger_ms=9,
        **{"client.id": "me"},
    )
    assert config.bootstrap_servers == (("h1", 9092),)
    assert (config.linger_ms, config.batch_size, config.client_id) == (9, 1, "me")


def test_a_setting_given_in_two_spellings_at_once_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'client_id' and 'client\.id' are the same setting"):
        AdminConfig.from_settings({"client.id": "a", "client_id": "b"})


@pytest.mark.parametrize("config", CONFIGS)
def test_bootstrap_servers_are_required(config: type[ClientConfig]) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap_servers is missing: give host:port"):
        config.from_settings()


@pytest.mark.parametrize("settings", ["h1:9092", ["h1:9092"], 5])
def test_settings_that_are_no_mapping_are_refused(settings: object) -> None:
    with pytest.raises(ConfigError, match="write bootstrap_servers='host:9092'"):
        AdminConfig.from_settings(settings)  # type: ignore[arg-type]


def test_a_topic_in_the_place_of_settings_is_sent_to_subscribe() -> None:
    with pytest.raises(ConfigError, match=r"For topics call subscribe\(\['orders'\]\)"):
        ConsumerConfig.from_settings("orders", bootstrap_servers="h1:9092")  # type: ignore[arg-type]


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="A setting's name is a string, not 5"):
        AdminConfig.from_settings({5: 5})  # type: ignore[dict-item]


def test_a_config_cannot_be_changed() -> None:
    config = AdminConfig.from_settings(bootstrap_servers="h1:1")
    with pytest.raises(AttributeError, match="AdminConfig is immutable; client_id was not set"):
        config.client_id = "other"
    with pytest.raises(AttributeError, match="immutable"):
        del config.client_id
    with pytest.raises(AttributeError, match="immutable"):
        config.clientid = "other"
    assert config.client_id == ""


@pytest.mark.parametrize("config", CONFIGS)
def test_a_config_survives_pickling(config: type[ClientConfig]) -> None:
    made = config.from_settings(bootstrap_servers="h1:1", client_id="me")
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert copy.client_id == "me"


def test_configs_are_equal_when_their_settings_are() -> None:
    first = ProducerConfig.from_settings(bootstrap_servers="h1:1", linger_ms="5")
    assert first == ProducerConfig.from_settings({"bootstrap.servers": [("h1", 1)]})
    assert first != ProducerConfig.from_settings(bootstrap_servers="h1:1", linger_ms=6)
    assert first != AdminConfig.from_settings(bootstrap_servers="h1:1")


def test_a_client_without_a_name_gets_one_as_in_java(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {client: count(1) for client in ("producer", "consumer", "admin")}
    monkeypatch.setattr("pykclient.config.client._CLIENT_NUMBERS", numbers)

    def name(config: type[ClientConfig], **settings: object) -> str:
        return config.from_settings(bootstrap_servers="h:1", **settings).named().client_id

    assert [name(ProducerConfig), name(ProducerConfig)] == ["producer-1", "producer-2"]
    assert name(AdminConfig) == "adminclient-1"
    assert name(ConsumerConfig, group_id="g") == "consumer-g-1"
    assert name(ConsumerConfig) == "consumer-null-2"
    assert name(ConsumerConfig, group_id="g", group_instance_id="pod-7") == "consumer-g-pod-7"
    assert name(ConsumerConfig, client_id="mine") == "mine"
    assert name(ConsumerConfig, group_id="h") == "consumer-h-3"
    config = AdminConfig.from_settings(bootstrap_servers="h:1")
    assert {**vars(config.named()), "client_id": ""} == vars(config)


def test_repr_shows_what_differs_from_the_defaults() -> None:
    config = AdminConfig.from_settings(bootstrap_servers="h1:1", retries=3, client_id="")
    assert repr(config) == "AdminConfig(bootstrap_servers=(('h1', 1),), retries=3)"


def test_a_lone_reconnect_backoff_is_also_the_longest_as_in_java() -> None:
    def read(**settings: object) -> int:
        return AdminConfig.from_settings(
            bootstrap_servers="h1:1", **settings
        ).reconnect_backoff_max_ms

    assert read(reconnect_backoff_ms=5_000) == 5_000
    assert read(reconnect_backoff_ms=20, reconnect_backoff_max_ms=60) == 60
    assert read() == 1_000


def test_a_properties_text_is_read_as_java_reads_it() -> None:
    text = (
        "# a comment\n"
        "! another = comment\n"
        "\n"
        "bootstrap.servers=h1:9092,\\\n"
        "    h2:9092\n"
        "  linger.ms : 5\r\n"
        "acks all\r"
        "empty=\n"
        "lonely\n"
        "equals=a=b:c\n"
        "escaped\\ key\\:\\==tab\\tsnow\\u2603 back\\\\slash\\q\n"
        "linger.ms=6\n"
        "even=two\\\\\n"
        "trailing=kept  \n"
        "last=no newline\\"
    )
    assert read_properties(text) == {
        "bootstrap.servers": "h1:9092,h2:9092",
        "linger.ms": "6",
        "acks": "all",
        "empty": "",
        "lonely": "",
        "equals": "a=b:c",
        "escaped key:=": "tab\tsnow\u2603 back\\slashq",
        "even": "two\\",
        "trailing": "kept  ",
        "last": "no newline",
    }


def test_a_properties_file_is_read_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=h1:9092\nclient.id=\u2603\n", encoding="utf-8")
    config = AdminConfig.from_settings(read_properties(file))
    assert (config.bootstrap_servers, config.client_id) == ((("h1", 9092),), "\u2603")


def test_a_properties_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read settings from .*missing\.properties"):
        read_properties(tmp_path / "missing.properties")
    (tmp_path / "latin.properties").write_bytes(b"client.id=\xe9")
    with pytest.raises(ConfigError, match=r"Cannot read settings from .*latin\.properties"):
        read_properties(tmp_path / "latin.properties")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("client.properties", r"pass a pathlib\.Path"),
        ("a=\\ud800", "properties, line 1: half of a surrogate pair"),
        *(
            (f"a=b\nc={escape}", "properties, line 2: .* is not an escape with four hex digits")
            for escape in ("\\u12", "\\u12g4", "\\u+123", "\\u")
        ),
    ],
)
def test_a_text_that_holds_no_properties_is_refused_with_its_line(
    text: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_properties(text)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_properties_written_with_escapes_are_read_back(settings: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

    text = "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in settings.items())
    assert read_properties(text) == settings


SHARED = """\
bootstrap.servers=h1:9092
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="k" password="canary-in-a-file";
client.dns.lookup=use_all_dns_ips
acks=all
transactional.id=t
session.timeout.ms=45000
max_poll_records=7
default.api.timeout.ms=9000
schema.registry.url=https://registry
basic.auth.user.info=canary-in-a-file
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Provide a file with the settings of every client, as Confluent Cloud's console has it."""
    file = tmp_path / "client.properties"
    file.write_text(SHARED)
    return file


@pytest.mark.parametrize(
    ("client", "config", "left_out"),
    [
        (
            "consumer",
            ConsumerConfig,
            "acks, transactional.id, schema.registry.url, basic.auth.user.info",
        ),
        (
            "admin",
            AdminConfig,
            "acks, transactional.id, session.timeout.ms, max_poll_records, schema.registry.url, "
            "basic.auth.user.info",
        ),
    ],
)
@pytest.mark.parametrize("is_text", [True, False])
def test_a_shared_file_gives_a_client_its_own_settings_and_logs_the_names_of_the_others(
    shared: Path,
    client: Literal["consumer", "admin"],
    config: type[ClientConfig],
    left_out: str,
    *,
    is_text: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("DEBUG"):
        settings = from_properties(str(shared) if is_text else shared, client=client)
    made = config.from_settings(settings)
    assert made.bootstrap_servers == (("h1", 9092),)
    assert made.credentials is not None
    assert made.credentials[1].current().value == "canary-in-a-file"
    assert [record.getMessage() for record in caplog.records] == [
        f"{shared}: not for the {client}, left out: {left_out}"
    ]
    assert "canary" not in caplog.text + repr(settings) + str(settings)


def test_a_misspelled_key_of_a_shared_file_is_left_to_the_client_to_refuse(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=h1:9092\nsession.timout.ms=1\n")
    with pytest.raises(ConfigError, match=r"Did you mean 'session\.timeout\.ms'"):
        ConsumerConfig.from_settings(from_properties(file, client="consumer"))


def test_a_shared_file_that_is_not_there_and_a_client_that_is_none_are_named(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read settings from .*missing"):
        from_properties(tmp_path / "missing", client="consumer")
    with pytest.raises(ConfigError, match="client='reader' is unknown; give one of producer"):
        from_properties(tmp_path / "missing", client="reader")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give the path of a properties file"):
        from_properties(5, client="consumer")  # type: ignore[arg-type]


@pytest.mark.parametrize("spelling", [True, "true", "https"])
def test_two_spellings_of_one_value_agree(spelling: object) -> None:
    config = AdminConfig.from_settings(
        {"ssl.endpoint.identification.algorithm": "HTTPS", "ssl_check_hostname": spelling},
        bootstrap_servers="h:1",
    )
    assert config.ssl_endpoint_identification_algorithm == "https"
