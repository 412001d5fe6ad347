"""The cluster for chaos without Spark."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.cluster import BOOTSTRAP_VARIABLE
from tests.chaos.arena import BROKER_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory


@pytest.fixture(scope="session")
def brokers_under_fire(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """Start three brokers behind proxies, with short timeouts."""
    if os.environ.get(BOOTSTRAP_VARIABLE):
        pytest.skip(f"needs brokers of its own; {BOOTSTRAP_VARIABLE} names others")
    with kafka_cluster_factory(brokers=3, config=BROKER_SETTINGS, proxied=True) as cluster:
        yield cluster
