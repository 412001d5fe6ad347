"""No secret shows: not in errors with the variables of their tracebacks, not in logs or reprs."""

from __future__ import annotations

import logging
import pickle
from contextlib import suppress
from traceback import TracebackException
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructType

from pykclient import Admin, Consumer, Producer, from_properties
from pykclient.admin.config import AdminConfig
from pykclient.config.given_settings import hidden
from pykclient.config.properties import read_properties
from pykclient.config.setting import is_secret
from pykclient.config.setting_text import HIDDEN, SecretText
from pykclient.consumer.config import ConsumerConfig
from pykclient.errors import AuthenticationError, ConfigError, KafkaError
from pykclient.testing import ClusterSecurity, FakeKafka
from spark_connector.source import KafkaDataSource
from tests.spark.test_security_names import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CANARY = "canary-2c77"
OURS = ("/pykclient/", "/spark_connector/")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="alice" password="{CANARY}";'


def shown_by(error: BaseException) -> str:
    """All that a service that collects errors has of one: texts, and variables of our functions.

    Those of the application's own functions, as of this test, are the application's.
    """
    found = [repr(error), str(error)]
    rendered: TracebackException | None = TracebackException.from_exception(
        error, capture_locals=True
    )
    while rendered is not None:
        found += rendered.format_exception_only()
        for frame in rendered.stack:
            if any(part in frame.filename for part in OURS) and "/tests/" not in frame.filename:
                found += (frame.locals or {}).values()
        rendered = rendered.__cause__ or rendered.__context__
    return "\n".join(found)


CLIENTS: list[Callable[..., Any]] = [Producer, Consumer, Admin]
SERVERS = {"bootstrap_servers": "h:9092"}
SECRETS = [
    *("sasl_password", "sasl.plain.password", "sasl_plain_password", "ssl.key.password"),
    *("ssl_password", "ssl_keystore_password", "ssl.truststore.password", "sasl.jaas.config"),
    *("ssl.key.pem", "ssl_keystore_key", "sasl.oauthbearer.client.secret"),
    *("sasl_oauthbearer_assertion_private_key_passphrase", "sasl_oauthbearer_config"),
]


@pytest.mark.promise("no error shows a secret, not even with the variables of its traceback")
@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("name", SECRETS)
def test_an_error_of_other_settings_shows_no_secret(make: Callable[..., Any], name: str) -> None:
    wrong = {**SERVERS, "request_timeout_ms": "soon", name: CANARY}
    for settings, keywords in ((wrong, {}), (None, wrong), (SERVERS, {name: CANARY, "x": 1})):
        with pytest.raises(ConfigError) as caught:
            make(settings, **keywords)
        assert CANARY not in shown_by(caught.value)


MISSPELLED = ("sasl_pasword", "ssl.pass", "api_key", "apiKey", "sasl.pwd", "credentials")


@pytest.mark.promise("no error shows a secret, not even with the variables of its traceback")
@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("name", MISSPELLED)
def test_a_secret_under_a_name_that_no_client_has_shows_nowhere(
    make: Callable[..., Any], name: str, tmp_path: Path
) -> None:
    wrong = {**SERVERS, name: CANARY}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in wrong.items()))
    client: Any = make.__name__.lower()
    for settings, keywords in ((wrong, {}), (None, wrong), (from_properties(file, client), {})):
        with pytest.raises(ConfigError, match=name) as caught:
            make(settings, **keywords)
        assert CANARY not in shown_by(caught.value)
    options = {"subscribe": "t", "kafka.bootstrap.servers": "h:9", f"kafka.{name}": CANARY}
    schema = StructType().add("offset", LongType())
    reader: Any = KafkaDataSource(options).streamReader(schema)
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.from_settings(reader._options.consumer_settings())
    assert CANARY not in shown_by(caught.value)
    with pytest.raises(ConfigError) as caught:
        KafkaDataSource({**options, name: CANARY}).schema()
    assert CANARY not in shown_by(caught.value)


@pytest.mark.promise("no error shows a secret, not even with the variables of its traceback")
@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("name", [*MISSPELLED, "sasl_password", "ssl.keystore.key"])
def test_a_secret_of_another_type_shows_nowhere(make: Callable[..., Any], name: str) -> None:
    for value in (
        CANARY.encode(),
        bytearray(CANARY.encode()),
        {"user": "alice", "password": CANARY},
        [CANARY],
        (CANARY, {"a": CANARY}),
        {CANARY},
        *([] if is_secret(name) else [SimpleNamespace(password=CANARY)]),
    ):
        wrong = {**SERVERS, name: value}
        for settings, keywords in ((wrong, {}), (None, wrong), (SERVERS, {name: value, "x": 1})):
            with pytest.raises(ConfigError, match=name.replace(".", "[._]")) as caught:
                make(settings, **keywords)
            assert CANARY not in shown_by(caught.value)


def test_the_value_of_a_setting_that_is_known_is_shown_as_ever() -> None:
    given = {
        **SERVERS,
        "group.id": "a",
        "ssl.engine.factory.class": "a.B",
        "metadata.broker.list": "c",
    }
    assert "SecretText" not in str(
        {type(each).__name__ for each in hidden(given, AdminConfig).values()}
    )
    with pytest.raises(ConfigError, match=r"ssl\.engine\.factory\.class='a\.B' is refused"):
        Admin({"bootstrap.servers": "h:9", "ssl.engine.factory.class": "a.B"})


def test_what_shows_variables_would_show_one() -> None:
    """The test itself: without what hides them, secrets are in the variables."""

    def fails(settings: dict[str, object]) -> None:
        AdminConfig.from_settings(settings)

    with pytest.raises(ConfigError) as caught:
        fails({**SERVERS, "sasl_password": CANARY, "x": 1})
    assert CANARY in shown_by(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password={CANARY}\nclient.id=\\u12\n",
        f"sasl.password={CANARY}\\u12\n",
        f"sasl.jaas.config={JAAS} \\ud800\n",
    ],
)
def test_a_file_that_cannot_be_read_shows_none_of_its_secrets(tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        from_properties(file, client="admin")
    assert CANARY not in shown_by(caught.value)
    with pytest.raises(ConfigError) as caught:
        read_properties(file)
    assert CANARY not in shown_by(caught.value)
    file.write_bytes(f"sasl.password={CANARY}\n".encode() + b"client.id=\xff\n")
    with pytest.raises(ConfigError) as caught:
        from_properties(file, client="admin")
    assert CANARY not in shown_by(caught.value)


@pytest.mark.parametrize("text", [JAAS[:-1], JAAS.replace("=", " "), JAAS * 2, JAAS + '"'])
def test_a_login_configuration_that_cannot_be_read_shows_none(text: str) -> None:
    settings = {**SERVERS, **PLAIN, "sasl.jaas.config": text}
    settings.pop("sasl.username")
    with pytest.raises(ConfigError) as caught:
        Admin(settings)
    assert CANARY not in shown_by(caught.value)


@pytest.fixture(scope="module")
def brokers() -> Iterator[FakeKafka]:
    """Provide a broker that refuses every client without the right password."""
    security = ClusterSecurity(
        listeners=("SASL_PLAINTEXT",),
        mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        users={"alice": "right"},
    )
    with FakeKafka(security=security) as fake:
        yield fake


def raises_it() -> str:
    raise RuntimeError("the vault is closed")


def returns_bytes() -> Any:
    return CANARY.encode()


REFUSED: dict[str, dict[str, object]] = {
    "PLAIN": {"sasl_mechanism": "PLAIN", "sasl_password": CANARY},
    "PLAIN with a NUL": {"sasl_mechanism": "PLAIN", "sasl_password": f"{CANARY}\0"},
    "PLAIN with half a pair": {"sasl_mechanism": "PLAIN", "sasl_password": f"{CANARY}\ud800"},
    "PLAIN by a function": {"sasl_mechanism": "PLAIN", "sasl_password": lambda: CANARY},
    "a function of bytes": {"sasl_mechanism": "PLAIN", "sasl_password": returns_bytes},
    "a function that raises": {"sasl_mechanism": "PLAIN", "sasl_password": raises_it},
    "SCRAM-SHA-256": {"sasl_mechanism": "SCRAM-SHA-256", "sasl_password": CANARY},
    "SCRAM-SHA-512": {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password": CANARY},
    "Java's": {"sasl_mechanism": "PLAIN", "sasl_jaas_config": JAAS},
    "a token": {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: CANARY},
}


@pytest.mark.promise("no error shows a secret, not even with the variables of its traceback")
@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("case", REFUSED)
def test_a_client_that_is_refused_shows_no_secret(
    brokers: FakeKafka, make: Callable[..., Any], case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = {"sasl_username": "alice", **REFUSED[case]}
    if "sasl_jaas_config" in settings or "sasl_oauth_token_provider" in settings:
        settings.pop("sasl_username")
    shown = []
    with (
        suppress(AuthenticationError),  # of `close`, once more
        make(
            bootstrap_servers=brokers.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            **settings,
        ) as client,
    ):
        with pytest.raises(KafkaError) as caught:
            first_call(client)
        shown += [shown_by(caught.value), repr(client), str(client)]
    assert CANARY not in "\n".join(shown)
    assert CANARY not in caplog.text
    assert all(CANARY not in repr(record.args) for record in caplog.records)


def first_call(client: Any) -> object:
    if isinstance(client, Producer):
        return client.partitions_for("t")
    if isinstance(client, Consumer):
        return client.topics() if hasattr(client, "topics") else client.list_topics()
    return client.list_topics()


def test_a_secret_text_is_itself_in_everything_but_its_repr() -> None:
    text = SecretText("word")
    assert text == "word"
    assert f"{text}" == "word"
    assert repr({"password": text}) == f"{{'password': {HIDDEN}}}"
    again = pickle.loads(pickle.dumps(text))
    assert (again, repr(again)) == ("word", HIDDEN)
    assert hidden({"sasl.password": "a", "client.id": "b", 5: "c"}, AdminConfig) == {
        "sasl.password": "a",
        "client.id": "b",
        5: "c",
    }
    assert hidden(["sasl.password"], AdminConfig) == ["sasl.password"]

    class Word(str):
        __slots__ = ()

    found = hidden(
        {"sasl.password": Word("a"), "api": None, "sasl_username": Word("b")}, AdminConfig
    )
    assert repr(found) == f"{{'sasl.password': {HIDDEN}, 'api': None, 'sasl_username': 'b'}}"
