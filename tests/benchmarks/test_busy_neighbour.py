"""Members of a group beside a thread that computes: a heartbeat that does not come is missed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from busy_neighbour import GROUP_CONFIG, SLICE_COUNT_MIN, member_figures
from contestants.job import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from measuring.arena import Arena
from measuring.client import CONFLUENT, PYKCLIENT
from measuring.pulse import heartbeat_count
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.cluster.cluster import BOOTSTRAP_VARIABLE
from pykclient.testing.proxy.faults import Blackhole, Delay, Direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.client import Client
    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory
    from pykclient.testing.proxy.faults import Fault

pytestmark = [pytest.mark.soak, pytest.mark.kafka, pytest.mark.slow]

BOTH = pytest.mark.parametrize("client", [PYKCLIENT, CONFLUENT], ids=lambda client: client.name)
REQUEST = Direction.REQUEST


@pytest.fixture(scope="module")
def cluster(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """A broker that takes short sessions, behind a proxy."""
    if os.environ.get(BOOTSTRAP_VARIABLE):
        pytest.skip(f"needs a broker of its own; {BOOTSTRAP_VARIABLE} names others")
    with kafka_cluster_factory(config=GROUP_CONFIG, proxied=True) as cluster:
        yield cluster


@pytest.mark.promise(
    "a lost or late heartbeat beside a computing thread is a miss, and one bad turn is enough"
)
@BOTH
def test_heartbeats_are_seen_on_their_way(cluster: KafkaCluster, client: Client) -> None:
    cluster.proxy(1).heal()
    count = heartbeat_count(cluster.proxy(1))
    figures = member_figures(Arena(cluster.bootstrap_servers), client, SLICE_COUNT_MIN, count)
    assert figures["missed_heartbeats"] == 0
    assert HEARTBEAT_INTERVAL_MS / 2 < figures["heartbeat_gap_ms"] < SESSION_TIMEOUT_MS
    assert count() >= 2


@pytest.mark.promise(
    "a lost or late heartbeat beside a computing thread is a miss, and one bad turn is enough"
)
@BOTH
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Blackhole(api=ApiKey.HEARTBEAT, direction=REQUEST), id="lost"),
        pytest.param(
            Delay(api=ApiKey.HEARTBEAT, direction=REQUEST, delay_ms=2 * SESSION_TIMEOUT_MS),
            id="late",
        ),
    ],
)
def test_a_heartbeat_that_does_not_reach_the_broker_is_missed(
    cluster: KafkaCluster, client: Client, fault: Fault
) -> None:
    cluster.proxy(1).heal()
    cluster.proxy(1).inject(fault)  # strikes first; late ones count when they set out
    count = heartbeat_count(cluster.proxy(1))
    figures = member_figures(Arena(cluster.bootstrap_servers), client, SLICE_COUNT_MIN, count)
    assert figures["missed_heartbeats"] >= 1
