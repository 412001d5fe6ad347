"""Text names code, files and addresses as far as the process allows; a program names what it likes.

Each setting that reaches beyond the settings is tried from each place that text comes from.
"""

from __future__ import annotations

import argparse
import copy
import os
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient import from_properties
from pykclient.cli.cluster_options import BOOTSTRAP_VARIABLE, add_cluster_options, client_settings
from pykclient.cli.prompt import variable_of
from pykclient.config.client_properties import config_class
from pykclient.config.given_settings import from_text
from pykclient.config.oidc import AZURE_IMDS_URL, GCP_METADATA_URL
from pykclient.config.policy import Policy, Reach
from pykclient.config.setting import resolve_class_setting
from pykclient.config.setting_text import SecretText, origin_of
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import ConfigError
from pykclient.producer.config import ProducerConfig
from spark_connector.batch_reader import KafkaBatchReader
from spark_connector.client_settings import ClientSettings
from spark_connector.options import KafkaOptions, Use, of_spark
from spark_connector.stream_reader import KafkaStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Literal

    Client = Literal["admin", "consumer", "producer"]
    Enter = Callable[["Tried", Path], Mapping[str, object]]

IMPORTS = "PYKCLIENT_ALLOWED_IMPORTS"
PROVIDERS = "PYKCLIENT_ALLOWED_CONFIG_PROVIDERS"
VARIABLES = "PYKCLIENT_ALLOWED_VARIABLES"
URLS = "PYKCLIENT_ALLOWED_URLS"
FILES = "PYKCLIENT_ALLOWED_FILES"
SWITCHES = (IMPORTS, PROVIDERS, VARIABLES, URLS, FILES)

SERVERS = {"bootstrap.servers": "127.0.0.1:9"}
CLASSES = "org.apache.kafka.common.config.provider"
URL = "http://169.254.169.254/latest"
PLACE = "/outside/of/it"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class Tried(NamedTuple):
    """One setting that reaches beyond the settings, and what allows it in text."""

    client: Client
    key: str
    value: str
    switch: str
    word: str
    """The word that the switch must have; empty if nothing allows it."""
    is_local: bool = False
    """True if it is refused only where the switch is set and lacks the word."""

    @property
    def settings(self) -> dict[str, str]:
        beside = {}
        if self.key == "ssl.key.location":
            beside["ssl.keystore.location"] = f"{PLACE}.pem"
        if self.key == "https.key.location":
            beside["https.certificate.location"] = f"{PLACE}.pem"
        return {**SERVERS, self.key: self.value, **beside}


def imported(client: Client, key: str) -> Tried:
    return Tried(client, key, "os.path:join", IMPORTS, "os.path:join")


def file(key: str, client: Client = "admin", *, is_local: bool = False) -> Tried:
    return Tried(client, key, PLACE, FILES, "/outside", is_local)


TRIED = (
    *(imported("producer", key) for key in ("key.serializer", "value.serializer")),
    *(imported("consumer", key) for key in ("key.deserializer", "value.deserializer")),
    *(imported("producer", key) for key in ("partitioner.class", "interceptor.classes")),
    *(imported("consumer", key) for key in ("interceptor.classes", "on_record_error")),
    imported("consumer", "partition.assignment.strategy"),
    imported("admin", "sasl_oauth_token_provider"),
    Tried("admin", "oauth_cb", "os.path:join", IMPORTS, ""),
    Tried("admin", "oauthbearer_token_refresh_cb", "os.path:join", IMPORTS, ""),
    Tried("admin", "sasl.oauthbearer.token.endpoint.url", URL, URLS, URL),
    Tried(
        "admin", "sasl.oauthbearer.token.endpoint.url", f"file://{PLACE}", URLS, f"file://{PLACE}"
    ),
    Tried("admin", "sasl.oauthbearer.token.endpoint.url", f"FILE://{PLACE}", FILES, PLACE),
    Tried(
        "admin",
        "sasl.oauthbearer.metadata.authentication.type",
        "azure_imds",
        URLS,
        AZURE_IMDS_URL,
    ),
    Tried(
        "admin",
        "sasl.login.callback.handler.class",
        "GcpLoginCallbackHandler",
        URLS,
        GCP_METADATA_URL,
    ),
    Tried(
        "admin",
        "sasl.jaas.config",
        f'{OAUTH} required oauth.token.endpoint.uri="{URL}" oauth.client.id="a";',
        URLS,
        URL,
    ),
    *(
        Tried("admin", "sasl.jaas.config", f'{OAUTH} required {option}="{PLACE}";', FILES, PLACE)
        for option in (
            "oauth.access.token.location",
            "oauth.refresh.token.location",
            "oauth.client.assertion.location",
        )
    ),
    Tried(
        "admin",
        "sasl.jaas.config",
        f'{OAUTH} required oauth.ssl.truststore.location="{PLACE}";',
        FILES,
        PLACE,
        is_local=True,
    ),
    file("sasl.oauthbearer.assertion.file"),
    file("sasl.oauthbearer.assertion.private.key.file"),
    file("sasl.oauthbearer.assertion.template.file"),
    *(
        Tried(
            "admin",
            "sasl.jaas.config",
            f'{KERBEROS} required ticketCache="{kind}{PLACE}";',
            FILES,
            PLACE,
        )
        for kind in ("FILE:", "DIR:", "DIR::")
    ),
    *(
        file(key, is_local=True)
        for key in (
            *("ssl.truststore.location", "ssl.ca.location", "ssl_cafile", "ssl.keystore.location"),
            *("ssl.certificate.location", "ssl.key.location", "ssl.crl.location"),
            *("sasl.kerberos.keytab", "https.ca.location", "https.certificate.location"),
            "https.key.location",
        )
    ),
    Tried(
        "admin",
        "sasl.jaas.config",
        f'{KERBEROS} required useKeyTab=true keyTab="{PLACE}" principal="a@B";',
        FILES,
        PLACE,
        is_local=True,
    ),
    Tried(
        "admin",
        "sasl.jaas.config",
        f'{OAUTH} required clientId="a" clientSecret="b" ssl.truststore.location="{PLACE}";',
        FILES,
        PLACE,
        is_local=True,
    ),
    Tried(
        "admin",
        "sasl.jaas.config",
        f'{OAUTH} required clientId="a" clientSecret="b" ssl.keystore.location="{PLACE}";',
        FILES,
        PLACE,
        is_local=True,
    ),
)


def by_spark(tried: Tried, _: Path) -> Mapping[str, object]:
    options = of_spark({f"kafka.{key}": value for key, value in tried.settings.items()})
    given = ClientSettings({key.removeprefix("kafka."): each for key, each in options.items()})
    return given.of(config_class(tried.client))


def by_file(tried: Tried, folder: Path) -> Mapping[str, object]:
    return from_properties(properties(tried, folder), tried.client)


def by_merged_file(tried: Tried, folder: Path) -> Mapping[str, object]:
    return {"client.id": "a", **dict(by_file(tried, folder))}


def by_command_line(tried: Tried, _: Path) -> Mapping[str, object]:
    words = [word for key, value in tried.settings.items() for word in ("-X", f"{key}={value}")]
    return command(tried, *words)


def by_command_file(tried: Tried, folder: Path) -> Mapping[str, object]:
    return command(tried, "-F", str(properties(tried, folder)))


def by_variable(tried: Tried, _: Path) -> Mapping[str, object]:
    """Set a variable to which the program refers: its value is text."""
    os.environ["CANARY"] = tried.value
    return {
        **tried.settings,
        tried.key: "${env:CANARY}",
        "config.providers": "env",
        "config.providers.env.class": f"{CLASSES}.EnvVarConfigProvider",
    }


def properties(tried: Tried, folder: Path) -> Path:
    place = folder / "client.properties"
    place.write_text("".join(f"{key}={value}\n" for key, value in tried.settings.items()))
    return place


def command(tried: Tried, *words: str) -> Mapping[str, object]:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    is_bounded = tried.client != "producer"
    return client_settings(parser.parse_args(words), tried.client, is_bounded=is_bounded)


def by_command_variable(tried: Tried, _: Path) -> Mapping[str, object]:
    """Set the variable of a command that holds a secret, a login configuration among them."""
    variable = variable_of(tried.key)
    os.environ[variable] = tried.value
    try:
        return command(tried, "-b", SERVERS["bootstrap.servers"])
    finally:
        del os.environ[variable]


PLACES: dict[str, tuple[Enter, str]] = {
    "Spark": (by_spark, r"Spark's options"),
    "file": (by_file, r"\S*client\.properties"),
    "file, merged": (by_merged_file, r"\S*client\.properties"),
    "command line": (by_command_line, r"the command line"),
    "file of a command": (by_command_file, r"\S*client\.properties"),
    "variable": (by_variable, r"\$\{env:CANARY\}"),
}


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for switch in (*SWITCHES, BOOTSTRAP_VARIABLE, "CANARY"):
        monkeypatch.delenv(switch, raising=False)
    yield
    os.environ.pop("CANARY", None)


def each_of(tried: Tried) -> str:
    return f"{tried.key}={tried.value[:30]}"


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("tried", TRIED, ids=each_of)
def test_text_names_what_the_process_allows(
    tried: Tried, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_limits(tried, place, tmp_path, monkeypatch)


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
@pytest.mark.parametrize(
    "tried", [each for each in TRIED if each.key == "sasl.jaas.config"], ids=each_of
)
def test_a_login_configuration_of_a_commands_variable_is_text(
    tried: Tried, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_limits(tried, "variable of a command", tmp_path, monkeypatch)


def check_limits(tried: Tried, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that text from a place names only what the process allows."""
    enter, words = {**PLACES, "variable of a command": (by_command_variable, r"the variable \S+")}[
        place
    ]
    config = config_class(tried.client)
    if tried.is_local:
        config.from_settings(enter(tried, tmp_path))
        monkeypatch.setenv(FILES, "/elsewhere")
    with pytest.raises(ConfigError) as caught:
        config.from_settings(enter(tried, tmp_path))
    text = str(caught.value).replace("_", ".").lower()
    setting = config.setting_of(tried.key)
    assert setting is not None
    # The command line spells keys as Kafka does.
    assert any(key.replace("_", ".") in text for key in (tried.key, setting.key, setting.name))
    caught.match(f"text from {words} may not ")
    names = (PLACE, URL, AZURE_IMDS_URL, GCP_METADATA_URL)
    shown = next((name for name in names if name in (*tried.value.split('"'), tried.word)), "")
    name = "<hidden>" if place == "variable" else shown or tried.value
    assert name.lower().replace("_", ".") in text
    if not tried.word:
        assert "To allow it in text" not in str(caught.value)
        caught.match("Text may name a source of tokens in sasl_oauth_token_provider")
        return
    assert tried.switch in str(caught.value) or FILES in str(caught.value)
    monkeypatch.setenv(tried.switch, f"a, {tried.word} ,b")
    config.from_settings(enter(tried, tmp_path))


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
@pytest.mark.parametrize("tried", TRIED, ids=each_of)
def test_a_program_names_what_it_likes(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILES, "/elsewhere")
    config = config_class(tried.client)
    config.from_settings(tried.settings)
    config.from_settings(**{key.replace(".", "_"): each for key, each in tried.settings.items()})


def test_every_setting_that_reaches_out_is_tried() -> None:
    """A kind of setting that names something has a line here and in docs/security.md."""
    tried = {config_class(each.client).setting_of(each.key) for each in TRIED}
    canaries = {Reach.IMPORT: "a:b", Reach.URL: "http://a", Reach.FILE: "/a"}
    for client in ("admin", "consumer", "producer"):
        for setting in config_class(client).settings():
            named = [
                reach
                for canary in canaries.values()
                for value in (canary, (canary,))
                for reach, _ in setting.kind.named(value)
            ]
            names = {each.name for each in tried if each is not None}
            assert not named or setting.name in names, setting.name


@pytest.mark.parametrize(
    "name",
    [
        *("pykclient.config.setting:os.system", "pykclient.cli:main"),
        *("pykclient.testing:KafkaCluster", "pykclient:Producer"),
        "pykclient.serializationx:A",
    ],
)
def test_names_in_this_package_are_no_way_around(name: str) -> None:
    with pytest.raises(ConfigError, match=r"value\.serializer: text from x may not import"):
        ProducerConfig.from_settings(from_text({**SERVERS, "value.serializer": name}, "x"))


def test_what_the_module_of_our_serializers_imports_is_no_way_around() -> None:
    given = from_text({**SERVERS, "value.serializer": "pykclient.serialization:json.dumps"}, "x")
    config = ProducerConfig.from_settings(given)
    with pytest.raises(ConfigError, match=r"may not name .* which is defined in json"):
        resolve_class_setting("value.serializer", config.value_serializer)


def test_names_of_our_own_serializers_and_of_java_are_always_allowed() -> None:
    settings = {
        "key.serializer": "pykclient.serialization:JsonSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
    }
    config = ProducerConfig.from_settings(from_text({**SERVERS, **settings}, "x"))
    assert type(resolve_class_setting("k", config.key_serializer)).__name__ == "JsonSerializer"
    assert type(resolve_class_setting("v", config.value_serializer)).__name__ == "StringSerializer"
    assignors = "range,org.apache.kafka.clients.consumer.StickyAssignor"
    given = {**SERVERS, "partition.assignment.strategy": assignors, "on_record_error": "skip"}
    assert ConsumerConfig.from_settings(from_text(given, "x")).on_record_error == "skip"


class TestAllowedModules:
    """A module that may be imported brings others along, which may not be named through it."""

    @pytest.fixture(autouse=True)
    def _module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        source = (
            "import os\nfrom os import system\nfrom functools import partial\n"
            "def own(value): return b''\n"
            "class Own:\n    def __call__(self, value): return b''\n    @staticmethod\n"
            "    def made(value): return b''\n"
            "made = Own()\nrun = partial(os.system)\n"
        )
        (tmp_path / "allowed_canary.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv(IMPORTS, "allowed_canary")
        yield
        sys.modules.pop("allowed_canary", None)

    def resolved(self, name: str) -> object:
        given = from_text({**SERVERS, "value.serializer": f"allowed_canary:{name}"}, "x")
        return resolve_class_setting(
            "value.serializer", ProducerConfig.from_settings(given).value_serializer
        )

    @pytest.mark.parametrize("name", ["own", "Own", "Own.made", "made"])
    def test_its_own_names_are_allowed(self, name: str) -> None:
        assert callable(self.resolved(name))

    @pytest.mark.parametrize(
        "name", ["os.system", "system", "os", "os.path.join", "run", "partial", "os.environ.get"]
    )
    def test_names_that_it_has_imported_are_not(self, name: str) -> None:
        with pytest.raises(ConfigError, match=r"value\.serializer: text from x may not name") as e:
            self.resolved(name)
        e.match(f"to {IMPORTS} in the environment")

    @pytest.mark.parametrize("name", ["__builtins__", "own.__globals__", "Own.__init__"])
    def test_names_of_pythons_own_are_not(self, name: str) -> None:
        with pytest.raises(ConfigError, match="may not import"):
            self.resolved(name)

    def test_one_name_may_be_allowed_whatever_defines_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(IMPORTS, "allowed_canary:run")
        assert callable(self.resolved("run"))
        with pytest.raises(ConfigError, match="may not import"):
            self.resolved("own")


# Configuration providers.


def reference(provider: str, text: str) -> dict[str, str]:
    return {
        **SERVERS,
        "client.id": text,
        "config.providers": "p",
        "config.providers.p.class": f"{CLASSES}.{provider}",
    }


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    (folder / "..data").mkdir(parents=True)
    (folder / "..data" / "word").write_text("found")
    (folder / "word").symlink_to("..data/word")  # as Kubernetes mounts a secret
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "circle").symlink_to("circle")
    (folder / "secrets.properties").write_text("word=found\n")
    (tmp_path / "outside").write_text("outside")
    return folder


@pytest.mark.promise("settings from text import, read and contact only what the process allows")
def test_a_reference_in_text_is_looked_up_where_provider_and_place_are_allowed(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "found")
    cases = {
        "EnvVarConfigProvider": ("${p:CANARY}", VARIABLES, "CAN*"),
        "FileConfigProvider": (f"${{p:{secrets}/secrets.properties:word}}", FILES, str(secrets)),
        "DirectoryConfigProvider": (f"${{p:{secrets}:word}}", FILES, str(secrets)),
    }
    for provider, (text, switch, word) in cases.items():
        given = reference(provider, text)
        with pytest.raises(ConfigError, match=f"client.id: .* {provider} to {PROVIDERS} and ") as e:
            ConsumerConfig.from_settings(from_text(given, "x"))
        e.match(f"to {switch} in the environment of this process")
        monkeypatch.setenv(PROVIDERS, f"{CLASSES}.{provider}")
        with pytest.raises(ConfigError, match=f"may not (read|name) .* to {switch} in"):
            ConsumerConfig.from_settings(from_text(given, "x"))
        monkeypatch.setenv(switch, word)
        found = ConsumerConfig.from_settings(from_text(given, "x")).client_id
        assert found == "found"
        monkeypatch.delenv(switch)
        assert ConsumerConfig.from_settings(given).client_id == "found"


def test_a_program_s_provider_does_not_read_for_text_nor_a_text_s_for_a_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CANARY", "found")
    given = reference("EnvVarConfigProvider", "${p:CANARY}")
    for name in given:
        part = from_text({name: given[name]}, "x")
        if name in SERVERS:
            ConsumerConfig.from_settings({**given, **part})
            continue
        with pytest.raises(ConfigError, match="text from x may not use the configuration provider"):
            ConsumerConfig.from_settings({**given, **part})


@pytest.mark.parametrize("key", ["../outside", "/etc/hostname", "..", ".", "", "a/../word", "out"])
def test_a_key_of_a_folder_is_a_bare_file_name(secrets: Path, key: str) -> None:
    given = reference("DirectoryConfigProvider", f"${{p:{secrets}:{key}}}")
    for more in ({}, {"config.providers.p.param.allowed.paths": str(secrets)}):
        with pytest.raises(ConfigError, match="a key is a plain file name"):
            ConsumerConfig.from_settings({**given, **more})


@pytest.mark.parametrize("key", ["a\\b", "a\0b", "circle"])
def test_a_key_that_is_no_file_name_is_an_error_of_ours(secrets: Path, key: str) -> None:
    with pytest.raises(ConfigError):
        ConsumerConfig.from_settings(
            reference("DirectoryConfigProvider", f"${{p:{secrets}:{key}}}")
        )
    with pytest.raises(ConfigError):
        ConsumerConfig.from_settings(reference("FileConfigProvider", f"${{p:/a\0{key}:b}}"))


def test_files_of_a_kubernetes_secret_are_found(secrets: Path) -> None:
    given = reference("DirectoryConfigProvider", f"${{p:{secrets}:word}}")
    assert ConsumerConfig.from_settings(given).client_id == "found"


def test_what_a_provider_returned_shows_in_no_error(
    secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (secrets / "word").unlink()
    (secrets / "word").write_text("canary_7f3a:b")
    given = reference("DirectoryConfigProvider", f"${{p:{secrets}:word}}")
    given["value.deserializer"] = given.pop("client.id")
    with pytest.raises(ConfigError, match="may not import <hidden>") as caught:
        ConsumerConfig.from_settings(given)
    monkeypatch.setenv(IMPORTS, "canary_7f3a")
    config = ConsumerConfig.from_settings(given)
    with pytest.raises(ConfigError, match="cannot be imported") as imported:
        resolve_class_setting("value.deserializer", config.value_deserializer)
    assert "canary_7f3a" not in str(caught.value)
    assert "=<hidden> cannot" in str(imported.value)


# Files.


def test_links_and_dots_are_followed_before_a_file_is_judged(secrets: Path) -> None:
    policy = Policy(files=(str(secrets),))
    assert policy.allows(Reach.FILE, str(secrets))
    assert policy.allows(Reach.FILE, f"{secrets}/../secrets/word")
    for name in ("out", "../outside", "/../outside"):
        assert not policy.allows(Reach.FILE, f"{secrets}/{name}")
    assert not policy.allows(Reach.FILE, f"{secrets}-other/word")
    assert not policy.allows(Reach.FILE, "a\0b")
    assert Policy(files=("/",)).allows(Reach.FILE, "/etc/hostname")


def test_a_url_is_allowed_as_a_whole() -> None:
    policy = Policy(urls=("https://idp.example.com/token",))
    assert policy.allows(Reach.URL, "https://idp.example.com/token")
    for other in ("http://idp.example.com/token", "https://idp.example.com/token/x"):
        assert not policy.allows(Reach.URL, other)


def test_a_ticket_cache_that_is_no_file_may_be_named() -> None:
    given = {**SERVERS, "sasl.jaas.config": f'{KERBEROS} required ticketCache="KCM:1000";'}
    ConsumerConfig.from_settings(from_text(given, "x"))


def test_a_token_outside_of_what_may_be_read_is_not_reached_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the file that is read is the one that the policy has looked at."""
    work = tmp_path / "allowed" / "work"
    work.mkdir(parents=True)
    outside = tmp_path / "base" / "secret"
    outside.parent.mkdir()
    outside.write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(work)
    name = str(link / ".." / "base" / "secret")  # in allowed; without links it would be outside
    monkeypatch.setenv("PYKCLIENT_ALLOWED_FILES", str(tmp_path / "allowed"))
    oauth = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    given = {
        **SERVERS,
        "sasl.mechanism": "OAUTHBEARER",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.jaas.config": f'{oauth} required oauth.access.token.location="{name}";',
    }
    found = ConsumerConfig.from_settings(from_text(given, "x")).oidc
    assert found is not None
    read = Path(found.url.removeprefix("file://"))
    assert read.resolve() == work.parent / "base" / "secret"
    assert not read.exists()


# The origin.


def test_text_keeps_its_origin_in_copies_and_other_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(URLS, URL)
    settings = from_text({"client.id": "a", "sasl.password": "b"}, "x")
    monkeypatch.delenv(URLS)
    for copied in (pickle.loads(pickle.dumps(settings)), copy.deepcopy(settings), {**settings}):
        assert copied == settings
        origin = origin_of(copied["client.id"])
        assert origin is not None
        assert origin.policy.urls == (URL,)
        assert isinstance(copied["sasl.password"], SecretText)
        assert "b'" not in repr(copied)
    assert from_text(settings, "y")["client.id"].origin.place == "x"  # type: ignore[attr-defined]


def test_an_executor_follows_the_policy_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write SQL sets no variable of the driver; a task is the driver's, as its code."""
    from pyspark.sql.types import LongType, StructType

    key = "sasl.oauthbearer.token.endpoint.url"
    given = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", f"kafka.{key}": URL}
    schema = StructType().add("offset", LongType())
    monkeypatch.setenv(URLS, URL)
    options = KafkaOptions.from_spark(given, Use.BATCH)
    readers = (KafkaBatchReader(options, schema), KafkaStreamReader(of_spark(given), schema))
    pickled = [pickle.dumps(each) for each in readers]
    monkeypatch.delenv(URLS)
    for each in pickled:
        reader = pickle.loads(each)
        found = ConsumerConfig.from_settings(reader._options.consumer_settings())
        assert found.sasl_oauthbearer_token_endpoint_url == URL
    monkeypatch.setenv(FILES, "/elsewhere")
    refused = KafkaStreamReader(of_spark(given), schema)._options.consumer_settings()
    with pytest.raises(ConfigError, match=f"add {URL} to {URLS} in the environment of the driver"):
        ConsumerConfig.from_settings(refused)
