"""A pytest plugin with Kafka fixtures, active in every project that has this package installed.

`kafka_cluster`          one broker, shared by the whole run; give each test its own topics.
`kafka_cluster_factory`  starts other clusters: more brokers, another version, own settings.
`fake_kafka`             in-process brokers, new for each test; no Java needed.
`spark_cluster`          standalone Spark with two workers, shared by the whole run.

If Java, PySpark, Kafka's jars or the requested Docker engine (``PYKCLIENT_KAFKA_PROVIDER=docker``)
is missing, a test that needs a cluster is skipped with the reason, so that a project's other tests
run on any machine. In CI (the environment variable ``CI`` is set, and not to ``false`` or ``0``) it
fails instead, because a skip would go unnoticed. No other problem is turned into a skip.

pytest imports this module at every start, so it imports only pytest until a fixture is used.

Owner: pytest's session.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pykclient.testing.cluster.cluster import KafkaCluster
    from pykclient.testing.cluster.properties import PropertyValue
    from pykclient.testing.cluster.security import ClusterSecurity
    from pykclient.testing.fake.server import FakeKafka
    from pykclient.testing.spark_cluster.cluster import SparkCluster


class KafkaClusterFactory(Protocol):
    """Type of `kafka_cluster_factory`; the arguments are those of `KafkaCluster`."""

    def __call__(
        self,
        brokers: int = ...,
        version: str = ...,
        config: Mapping[str, PropertyValue] | None = ...,
        *,
        proxied: bool = ...,
        security: ClusterSecurity | None = ...,
    ) -> KafkaCluster:
        """Start a cluster; it is closed at the end of the run, if not before."""


@pytest.fixture(scope="session")
def kafka_cluster_factory() -> Iterator[KafkaClusterFactory]:
    """Start a new cluster at each call: ``make(brokers=3, version="3.9.2", config={...})``.

    Use it in a ``with`` block, or in a fixture of your own that many tests share. Clusters that
    are still open at the end of the run are closed then.
    """
    from pykclient.testing.cluster.cluster import KafkaCluster
    from pykclient.testing.cluster.jars import KAFKA_VERSIONS
    from pykclient.testing.cluster.java import MissingPrerequisiteError

    with ExitStack() as clusters:

        def make(
            brokers: int = 1,
            version: str = KAFKA_VERSIONS[0],
            config: Mapping[str, PropertyValue] | None = None,
            *,
            proxied: bool = False,
            security: ClusterSecurity | None = None,
        ) -> KafkaCluster:
            try:
                cluster = KafkaCluster(brokers, version, config, proxied=proxied, security=security)
                return clusters.enter_context(cluster)
            except MissingPrerequisiteError as error:
                skip_or_fail(str(error))

        yield make


@pytest.fixture(scope="session")
def kafka_cluster(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """One broker of the newest version, shared by the whole run; do not kill it."""
    return kafka_cluster_factory()


@pytest.fixture
def fake_kafka() -> Iterator[FakeKafka]:
    """Three fake brokers on loopback ports, for any client: ``fake_kafka.bootstrap_servers``.

    ``with fake_kafka.control() as cluster:`` moves leaders, stops brokers and adds faults.
    """
    from pykclient.testing.fake.server import FakeKafka

    with FakeKafka(brokers=3) as fake:
        yield fake


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    """Provide a Spark master and two workers for the whole run; repair what you break."""
    from pykclient.testing.cluster.java import MissingPrerequisiteError
    from pykclient.testing.spark_cluster.cluster import SparkCluster

    try:
        cluster = SparkCluster()
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))
    with cluster:
        yield cluster


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or fail it in CI, because this machine lacks a prerequisite.

    While a module is imported, this applies to all its tests.
    """
    if os.environ.get("CI", "").lower() in {"", "0", "false"}:
        pytest.skip(reason, allow_module_level=True)
    pytest.fail(reason, pytrace=False)
