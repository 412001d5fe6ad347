"""Real brokers for whole journeys, of each tested Kafka version, shared by the run; a port."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import UsageError
from pykclient.network.io.selector import SelectorPort
from pykclient.testing import Acl, ClusterSecurity
from tests.integration.fake_group import make_brokers
from tests.integration.identity_server import Signer
from tests.integration.recording_stream import HOST, PATIENCE_S
from tests.soak import BETWEEN, NEWEST, NEWEST_AND_OLDEST, NEWEST_FIRST, OLDEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import FakeKafka, KafkaCluster
    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.fixtures import KafkaClusterFactory


@pytest.fixture(scope="session")
def old_kafka_cluster(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """One broker of the oldest tested version, shared by the whole run."""
    return kafka_cluster_factory(version=OLDEST)


@pytest.fixture(scope="session")
def between_kafka_cluster(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """One broker of the middle tested version, for soak."""
    return kafka_cluster_factory(version=BETWEEN[0])


def shared_cluster(request: pytest.FixtureRequest, name: str = "kafka_cluster") -> KafkaCluster:
    """Return the run's cluster of the version in the fixture's parameter."""
    prefix = {NEWEST: "", OLDEST: "old_"}.get(request.param, "between_")
    cluster: KafkaCluster = request.getfixturevalue(f"{prefix}{name}")
    return cluster


THREE_BROKERS: dict[str, PropertyValue] = {
    # The controller soon gives up one that is silent.
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "broker.rack": "rack-${node.id}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "log.cleaner.backoff.ms": 100,
}


@pytest.fixture(scope="session")
def three_kafka_brokers(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """Three brokers of the newest version in racks of their own, shared by the whole run.

    All run again after each test that uses them; see `three_brokers`. Whoever leads a partition
    may have changed. `tests/conftest.py` has the files that use it in one process.
    """
    return kafka_cluster_factory(3, NEWEST, THREE_BROKERS)


@pytest.fixture
def three_brokers(three_kafka_brokers: KafkaCluster) -> Iterator[KafkaCluster]:
    """Provide the three brokers for a test that breaks them; all are repaired afterwards."""
    yield three_kafka_brokers
    repair(three_kafka_brokers)


def repair(cluster: KafkaCluster) -> None:
    """Make three brokers run and know each other, whatever was done to them."""
    for broker in (1, 2, 3):
        for cure in (cluster.resume, cluster.start):
            with contextlib.suppress(UsageError):  # It runs already.
                cure(broker)
    # One that was frozen for long learns what it has missed, as of new topics, only later.
    cluster.wait_until_ready()


FORBIDDEN = "forbidden-"
"""Prefix of topics that only a user `carol` may use; the cluster has no such user."""
SECURITY = ClusterSecurity(
    listeners=(
        *("SSL", "MTLS", "SASL_SSL", "SASL_PLAINTEXT", "RENEWED:SSL", "REAUTH:SASL_PLAINTEXT"),
        *("PLAINTEXT", "TLS13:SSL", "SCRAM_ONLY:SASL_PLAINTEXT"),
        *("SIGNED_SSL:SASL_SSL", "SIGNED_PLAINTEXT:SASL_PLAINTEXT"),
    ),
    users={"alice": "alice-secret", "bob smith": 'w"\\ö, =]'},
    acls=[Acl("User:carol", "ALL", topic=FORBIDDEN, pattern_type="PREFIXED")],
)
"""Every way in that a cluster has, and a user whose name and password have to be quoted. RENEWED
is for tests that replace its certificate; on REAUTH clients authenticate every few seconds. TLS13
has no older TLS, SCRAM_ONLY one mechanism; those that are SIGNED take tokens of `token_signer`.
"""
REAUTH_MS = 5_000
_UNSECURED_TOKENS = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
SECURITY_CONFIG: dict[str, PropertyValue] = {
    "allow.everyone.if.no.acl.found": True,
    # Else a broker holds each refusal back for 100 ms, and sends it 300 ms later where it is idle.
    "connection.failed.authentication.delay.ms": 0,
    "listener.name.reauth.connections.max.reauth.ms": REAUTH_MS,
    "listener.name.tls13.ssl.enabled.protocols": "TLSv1.3",
    "listener.name.scram_only.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    **{
        f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class": _UNSECURED_TOKENS
        for name in ("sasl_ssl", "sasl_plaintext", "reauth", "scram_only")
    },
}


TIMEOUT_MS_MAX = 2_000
"""Maximum transaction timeout of the brokers with two-phase commits."""
UNSTABLE: dict[str, PropertyValue] = {"unstable.api.versions.enable": True}
TWO_PHASE: dict[str, PropertyValue] = UNSTABLE | {
    "transaction.two.phase.commit.enable": True,
    "transaction.max.timeout.ms": TIMEOUT_MS_MAX,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture(scope="session")
def two_phase_cluster(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """One broker with two-phase commits, shared by the whole run."""
    return kafka_cluster_factory(config=TWO_PHASE)


@pytest.fixture(scope="session")
def one_phase_cluster(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """Provide the same broker with two-phase commits disabled."""
    return kafka_cluster_factory(config=UNSTABLE)


@pytest.fixture(scope="session")
def token_signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Provide a signer of tokens for the secured clusters."""
    return Signer(tmp_path_factory.mktemp("keys") / "jwks.json")


@pytest.fixture(scope="session")
def secured_kafka_cluster(
    kafka_cluster_factory: KafkaClusterFactory, token_signer: Signer
) -> KafkaCluster:
    """One broker of the newest version with all secured listeners, shared by the whole run."""
    security = replace(SECURITY, jwks_url=token_signer.url)
    return kafka_cluster_factory(config=SECURITY_CONFIG, security=security)


@pytest.fixture(scope="session")
def old_secured_kafka_cluster(
    kafka_cluster_factory: KafkaClusterFactory, token_signer: Signer
) -> KafkaCluster:
    """One broker of the oldest tested version with all secured listeners."""
    security = replace(SECURITY, jwks_url=token_signer.url)
    return kafka_cluster_factory(1, OLDEST, SECURITY_CONFIG, security=security)


@pytest.fixture(scope="session")
def between_secured_kafka_cluster(
    kafka_cluster_factory: KafkaClusterFactory, token_signer: Signer
) -> KafkaCluster:
    """One broker of the middle tested version with all secured listeners, for soak."""
    security = replace(SECURITY, jwks_url=token_signer.url)
    return kafka_cluster_factory(1, BETWEEN[0], SECURITY_CONFIG, security=security)


@pytest.fixture(params=NEWEST_AND_OLDEST)
def each_secured_kafka_cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    """Provide the shared secured cluster of each tested version in turn."""
    return shared_cluster(request, "secured_kafka_cluster")


@pytest.fixture(params=NEWEST_FIRST)
def any_secured_kafka_cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    """Provide the newest secured cluster, for tests of any version; in soak, the others too."""
    return shared_cluster(request, "secured_kafka_cluster")


@pytest.fixture(params=NEWEST_AND_OLDEST)
def each_kafka_cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    """Provide the shared cluster of each tested version in turn."""
    return shared_cluster(request)


@pytest.fixture(params=NEWEST_FIRST)
def any_kafka_cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    """Provide the newest shared cluster, for tests of any version; in soak, the others too."""
    return shared_cluster(request)


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """Three fake brokers with a topic and short intervals for groups of both protocols."""
    with make_brokers() as fake:
        yield fake


@pytest.fixture
def port() -> Iterator[SelectorPort]:
    """Provide a port, shut down after the test."""
    port = SelectorPort()
    yield port
    port.shutdown()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Provide a server socket that accepts connections and sends nothing."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(PATIENCE_S)
        yield listener
