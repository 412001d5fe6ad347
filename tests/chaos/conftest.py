"""What chaos without Spark is done to."""

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
    """Three brokers behind proxies, which soon give up what is silent."""
    if os.environ.get(BOOTSTRAP_VARIABLE):
        pytest.skip(f"needs brokers of its own; {BOOTSTRAP_VARIABLE} names others")
    with kafka_cluster_factory(brokers=3, config=BROKER_SETTINGS, proxied=True) as cluster:
        yield cluster
