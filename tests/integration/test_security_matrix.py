"""The matrix of security: who is let in by real brokers, and who is refused, why and how soon.

Goal: each listener and mechanism works, and each mistake is an error of its own that names the
cure; on each tested version of Kafka, for each client. Method: a row of `WAYS_IN` or `MISTAKES` is
tried with each of the `CLIENTS`, each time with new ones. A refusal has to come within
`REFUSED_WITHIN_S`, although the calls have a minute.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType

from pykclient import Admin, Consumer, NewTopic, Producer
from pykclient.errors import AuthenticationError, ConfigError, KafkaError, TlsError
from pykclient.testing.cluster.certificates import HOSTNAMES, CertificateAuthority
from spark_connector.source import KafkaDataSource
from spark_connector.worker_clients import close_waiting
from tests.integration.conftest import SECURITY
from tests.integration.identity_server import Signer
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.kafka, OWN_BROKERS]

REFUSED_WITHIN_S: Final = 2.0
TIMEOUT_S: Final = 60.0
CANARY: Final = "canary-5d1e"
"""Stands in each password that is refused, and in no error and no log."""
VALUES: Final = [*(b"%d" % number for number in range(20)), bytes(900_000)]

SIGNED: Final = "SIGNED_SSL"
"""A listener for signed tokens."""

TOKEN: Final = "MATRIX_TOKEN"
"""The environment variable in which the functions of Spark's settings find the token."""

Settings = dict[str, Any]


def with_expiry(token: str) -> str:
    """Return a function for `oauth_cb`: the token, whose expiry the client reads in it."""
    return token


def without_expiry(token: str) -> tuple[str, None]:
    """Return a token whose expiry the client does not know."""
    return token, None


def out_of_reach(_token: str) -> str:
    raise LookupError("the identity server is down")


class WithExpiry:
    """A provider whose name Spark's options may give, as the process allows its module."""

    function: Callable[[str], object] = staticmethod(with_expiry)

    def token(self) -> object:
        """Return the token of the environment, as a function for `oauth_cb` does."""
        return self.function(os.environ[TOKEN])


class WithoutExpiry(WithExpiry):
    function = staticmethod(without_expiry)


class OutOfReach(WithExpiry):
    function = staticmethod(out_of_reach)


def name_of(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__name__}"


PROVIDERS: Final = {
    name_of(each.function): name_of(each) for each in (WithExpiry, WithoutExpiry, OutOfReach)
}
"""For each function of `oauth_cb`, which text may not name, the class that Spark's options name."""


class Place:
    """Environment of a table row: it makes the settings of a client."""

    def __init__(
        self, cluster: KafkaCluster, signer: Signer, folder: Path, environment: pytest.MonkeyPatch
    ) -> None:
        self.cluster = cluster
        self.signer = signer
        self.environment = environment
        self.rogue = Signer(folder / "rogue.json")
        self.stranger = CertificateAuthority(folder, "stranger")

    def of(self, listener: str, **credentials: str) -> Settings:
        """Return the settings of a listener."""
        return dict(self.cluster.client_settings(listener, **credentials))

    def at(self, listener: str, settings: Settings) -> Settings:
        """Return the settings of another listener, with the addresses of this one."""
        servers = self.cluster.client_settings(listener)["bootstrap_servers"]
        return {**settings, "bootstrap_servers": servers}

    def presented(self, *hosts: str, from_days: int = -2, to_days: int = 2) -> Settings:
        """Return settings for a listener whose certificate has these hosts and validity days."""
        now = datetime.now(UTC)
        certificate = self.cluster.certificates.issue(
            "renewed",
            hostnames=hosts,
            not_before=now + timedelta(days=from_days),
            not_after=now + timedelta(days=to_days),
        )
        self.cluster.replace_certificate("RENEWED", certificate)
        return self.of("RENEWED")

    def keystore(self, path: Path) -> Settings:
        return {**self.of("MTLS"), "ssl_keystore_location": str(path)}

    def expired_client(self) -> Settings:
        now = datetime.now(UTC)
        certificate = self.cluster.certificates.issue(
            "expired", not_before=now - timedelta(days=2), not_after=now - timedelta(days=1)
        )
        return self.keystore(certificate.path)

    def foreign_key(self) -> Settings:
        """Return a certificate, and the key of another one."""
        own, other = (self.cluster.certificates.issue(name) for name in ("own", "other"))
        return {
            **without(self.of("MTLS"), "keystore"),
            "ssl_keystore_certificate_chain": own.chain_pem.decode(),
            "ssl_keystore_key": other.key_pem.decode(),
        }

    def expired_token(self) -> str:
        """Make a token that expired ten minutes ago; brokers tolerate less clock skew."""
        return self.signer.token("carol", lifetime_s=-600, iat=int(time.time()) - 700)

    def token(
        self, token: str, function: Callable[[str], object] = with_expiry, listener: str = SIGNED
    ) -> Settings:
        """Return settings with this token from `oauth_cb`, or in Spark from a provider."""
        self.environment.setenv(TOKEN, token)
        return {
            **without(self.of(listener, mechanism="OAUTHBEARER"), "jaas"),
            "oauth_cb": name_of(function),
            "sasl_oauthbearer_config": token,
        }


def without(settings: Settings, word: str) -> Settings:
    return {name: value for name, value in settings.items() if word not in name}


class WayIn(NamedTuple):
    name: str
    settings: Callable[[Place], Settings]


def by(listener: str, mechanism: str, user: str) -> WayIn:
    return WayIn(
        f"{listener} {mechanism}",
        lambda place: place.of(listener, mechanism=mechanism, user=user),
    )


def by_signed_token(listener: str) -> WayIn:
    return WayIn(
        f"{listener} OAUTHBEARER",
        lambda place: place.token(place.signer.token("carol"), listener=listener),
    )


ALICE, BOB = SECURITY.users
WAYS_IN: Final = [
    WayIn("PLAINTEXT", lambda place: place.of("PLAINTEXT")),
    WayIn("SSL", lambda place: place.of("SSL")),
    WayIn("SSL 1.2", lambda place: {**place.of("SSL"), "ssl_enabled_protocols": "TLSv1.2"}),
    WayIn("SSL 1.3", lambda place: place.of("TLS13")),
    WayIn("SSL with a client certificate", lambda place: place.of("MTLS")),
    *(by("SASL_PLAINTEXT", mechanism, ALICE) for mechanism in SECURITY.mechanisms),
    *(by("SASL_SSL", mechanism, BOB) for mechanism in SECURITY.mechanisms),
    by_signed_token("SIGNED_PLAINTEXT"),
    by_signed_token(SIGNED),
]


class Mistake(NamedTuple):
    name: str
    error: type[KafkaError]
    reason: str
    """Text that the error must contain: the reason and the cure."""
    settings: Callable[[Place], Settings]

    def reason_for(self, use: Callable[[Settings, str], None]) -> str:
        """Return the reason with the setting that this client has its token from."""
        if use in SPARK:
            return self.reason.replace("oauth_cb", "sasl_oauth_token_provider")
        return self.reason


def wrong_password(mechanism: str, user: str) -> Mistake:
    return Mistake(
        f"{mechanism}: {'unknown user' if user == 'mallory' else 'wrong password'}",
        AuthenticationError,
        f"authentication by {mechanism} failed: the broker refused the user {user!r}: ",
        lambda place: place.of("SASL_SSL", mechanism=mechanism, user=user, password=CANARY),
    )


MISTAKES: Final = [
    # Certificates of brokers.
    Mistake(
        "wrong CA",
        TlsError,
        "give the authority in ssl_truststore_location",
        lambda place: {**place.of("SSL"), "ssl_truststore_location": str(place.stranger.path)},
    ),
    Mistake(
        "the system's CAs alone",
        TlsError,
        "give the authority in ssl_truststore_location",
        lambda place: without(place.of("SSL"), "truststore"),
    ),
    Mistake(
        "wrong host",
        TlsError,
        "the certificate is for other hosts: connect by a name that it has",
        lambda place: place.presented("kafka.example.com"),
    ),
    Mistake(
        "expired",
        TlsError,
        "the certificate has expired: the broker needs a new one",
        lambda place: place.presented(*HOSTNAMES, to_days=-1),
    ),
    Mistake(
        "not yet valid",
        TlsError,
        "the certificate is not valid yet: check this machine's clock",
        lambda place: place.presented(*HOSTNAMES, from_days=1),
    ),
    # Certificates of clients.
    Mistake(
        "no client certificate",
        TlsError,
        "it requires a client certificate, but none is set (ssl_keystore_location)",
        lambda place: without(place.of("MTLS"), "keystore"),
    ),
    Mistake(
        "rogue client certificate",
        TlsError,
        "(ssl_keystore_location)",
        lambda place: place.keystore(place.stranger.issue("alice").path),
    ),
    Mistake(
        "expired client certificate",
        TlsError,
        "(ssl_keystore_location)",
        Place.expired_client,
    ),
    Mistake(
        "key of another certificate",
        ConfigError,
        "the key does not belong to the certificate",
        Place.foreign_key,
    ),
    # TLS, or none.
    Mistake(
        "no common version of TLS",
        TlsError,
        "it shares no version or cipher suite with this client (ssl_enabled_protocols",
        lambda place: {**place.of("TLS13"), "ssl_enabled_protocols": "TLSv1.2"},
    ),
    Mistake(
        "PLAINTEXT at the port of SSL",
        TlsError,
        "its listener is SSL or SASL_SSL; set security_protocol",
        lambda place: place.at("SSL", place.of("PLAINTEXT")),
    ),
    Mistake(
        "SASL_PLAINTEXT at the port of SASL_SSL",
        TlsError,
        "its listener is SSL or SASL_SSL; set security_protocol",
        lambda place: place.at("SASL_SSL", place.of("SASL_PLAINTEXT")),
    ),
    Mistake(
        "SSL at the port of PLAINTEXT",
        TlsError,
        "its listener is PLAINTEXT or SASL_PLAINTEXT; set security_protocol",
        lambda place: place.at("PLAINTEXT", place.of("SSL")),
    ),
    Mistake(
        "SASL_SSL at the port of SASL_PLAINTEXT",
        TlsError,
        "its listener is PLAINTEXT or SASL_PLAINTEXT; set security_protocol",
        lambda place: place.at("SASL_PLAINTEXT", place.of("SASL_SSL")),
    ),
    # SASL.
    *(
        wrong_password(mechanism, user)
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
        for user in (ALICE, "mallory")
    ),
    Mistake(
        "mechanism that is not offered",
        AuthenticationError,
        "the broker does not offer it; it offers 'SCRAM-SHA-512': set sasl_mechanism to one",
        lambda place: place.of("SCRAM_ONLY", mechanism="PLAIN"),
    ),
    Mistake(
        "SASL_PLAINTEXT at the port of PLAINTEXT",
        AuthenticationError,
        "the broker has no SASL on this listener; check security_protocol",
        lambda place: place.at("PLAINTEXT", place.of("SASL_PLAINTEXT")),
    ),
    Mistake(
        "SASL_SSL at the port of SSL",
        AuthenticationError,
        "the broker has no SASL on this listener; check security_protocol",
        lambda place: place.at("SSL", place.of("SASL_SSL")),
    ),
    Mistake(
        "PLAINTEXT at the port of SASL_PLAINTEXT",
        AuthenticationError,
        "set security_protocol=SASL_PLAINTEXT, sasl_mechanism to one of ",
        lambda place: place.at("SASL_PLAINTEXT", place.of("PLAINTEXT")),
    ),
    Mistake(
        "SSL at the port of SASL_SSL",
        AuthenticationError,
        "set security_protocol=SASL_SSL, sasl_mechanism to one of ",
        lambda place: place.at("SASL_SSL", place.of("SSL")),
    ),
    # Tokens.
    Mistake(
        "token that has expired",
        AuthenticationError,
        "no token of oauth_cb: the token expired ",
        lambda place: place.token(place.expired_token()),
    ),
    Mistake(
        "token that has expired, unknown to the client",
        AuthenticationError,
        "authentication by OAUTHBEARER failed: the broker refused the ",
        lambda place: place.token(place.expired_token(), without_expiry),
    ),
    Mistake(
        "token with a line break",
        AuthenticationError,
        "no token of oauth_cb: the token has characters that a bearer token must not have",
        lambda place: place.token("a.b\n.c"),
    ),
    Mistake(
        "token that is no JWT",
        AuthenticationError,
        "authentication by OAUTHBEARER failed: the broker refused the client: status=invalid_token",
        lambda place: place.token("a.b.c"),
    ),
    Mistake(
        "token of another key",
        AuthenticationError,
        "the broker refused the user 'carol': status=invalid_token",
        lambda place: place.token(place.rogue.token("carol")),
    ),
    Mistake(
        "token without a signature",
        AuthenticationError,
        "the broker refused the user 'alice': status=invalid_token",
        lambda place: place.at(SIGNED, place.of("SASL_SSL", mechanism="OAUTHBEARER")),
    ),
    Mistake(
        "no token",
        AuthenticationError,
        "no token of oauth_cb: LookupError: the identity server is down",
        lambda place: place.token("none", out_of_reach),
    ),
]


def administer(settings: Settings, topic: str) -> None:
    with Admin(settings) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])


def produce(settings: Settings, topic: str) -> None:
    with Producer(settings, compression_type="lz4") as producer:
        deliveries = [producer.send(topic, value) for value in VALUES]
        offsets = [delivery.result(timeout=TIMEOUT_S).offset for delivery in deliveries]
    assert offsets == [*range(len(VALUES))]


def consume(settings: Settings, topic: str) -> None:
    """As a member of a group, which commits."""
    with Consumer(settings, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        read: list[object] = []
        while len(read) < len(VALUES):
            read += [record.value for record in consumer.poll(timeout=TIMEOUT_S)]
        consumer.commit()
    assert read == VALUES


def read_in_spark(settings: Settings, topic: str) -> None:
    """As Spark's driver plans a batch, and its executors read it."""
    reader = spark_source(settings, subscribe=topic).reader(VALUE)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [value.as_py() for batch in batches for value in batch.column("value")] == VALUES


def write_in_spark(settings: Settings, topic: str) -> None:
    """As one of Spark's executors writes its rows."""
    writer = spark_source(settings, topic=topic).writer(VALUE, overwrite=False)
    rows = pa.record_batch({"value": pa.array(VALUES, pa.binary())})
    assert writer.write(iter([rows])).row_count == len(VALUES)


def spark_source(settings: Settings, **options: str) -> KafkaDataSource:
    """Make the source as Spark does. tests/spark/test_secured.py tries it with a session."""
    settings = dict(settings)
    if "oauth_cb" in settings:
        settings["sasl_oauth_token_provider"] = PROVIDERS[settings.pop("oauth_cb")]
        del settings["sasl_oauthbearer_config"]
    of_clients = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    return KafkaDataSource({**of_clients, **options})


SPARK: Final = (read_in_spark, write_in_spark)
CLIENTS: Final = (administer, produce, consume, *SPARK)
"""In an order in which each has what the ones before it have made."""
VALUE: Final = StructType().add("value", BinaryType())


@pytest.fixture
def place(
    each_secured_kafka_cluster: KafkaCluster,
    token_signer: Signer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    monkeypatch.setenv("PYKCLIENT_ALLOWED_IMPORTS", __name__)
    yield Place(each_secured_kafka_cluster, token_signer, tmp_path, monkeypatch)
    close_waiting()


def names_of(rows: Sequence[WayIn | Mistake]) -> list[str]:
    return [row.name for row in rows]


@pytest.mark.promise(
    "producer, consumer, admin and Spark work over TLS and SASL, with the newest and the oldest "
    "Kafka"
)
@pytest.mark.parametrize("way", WAYS_IN, ids=names_of(WAYS_IN))
def test_each_client_works_on_each_listener(place: Place, way: WayIn) -> None:
    topic = f"secured-{uuid.uuid4().hex}"
    for use in CLIENTS:
        use(way.settings(place), topic)


@pytest.mark.promise(
    "each security mistake raises an error of its own within two seconds, with the cure"
)
@pytest.mark.parametrize("mistake", MISTAKES, ids=names_of(MISTAKES))
def test_each_mistake_is_an_error_with_the_cure_within_two_seconds(
    place: Place, mistake: Mistake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = mistake.settings(place)
    for use in CLIENTS:
        # A machine that stands still for a moment does so once; a client that waits does it again.
        error, seconds = refusal(use, settings)
        if seconds > REFUSED_WITHIN_S:
            error, seconds = refusal(use, settings)
        assert type(error) is mistake.error, f"{use.__name__}: {error!r}"
        assert mistake.reason_for(use) in str(error), use.__name__
        assert seconds <= REFUSED_WITHIN_S, use.__name__
        assert CANARY not in str(error)
    assert CANARY not in caplog.text


def refusal(use: Callable[[Settings, str], None], settings: Settings) -> tuple[KafkaError, float]:
    """Return the error of a client's use, and after how many seconds it was closed again."""
    begun_s = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        use(settings, "refused")
    return caught.value, time.monotonic() - begun_s
