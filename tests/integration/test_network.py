"""The network layer against real brokers: metadata while they pause, go and come back."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pykclient.network.broker.connection import SUSPECT_MS
from pykclient.network.drive import now_ms
from pykclient.network.manager import Request
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.types import TopicPartition
from tests.integration.confluent_tools import confluent_create_topic
from tests.integration.loopback_server import LoopbackServer, is_silent, unused_address
from tests.integration.network_line import NetworkLine
from tests.network.scripted_network import Outcome
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = pytest.mark.kafka
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def three_brokers(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster_factory(brokers=3) as cluster:
        yield cluster


@pytest.mark.promise("administration and metadata work on 4.3.1 and 3.9.2")
def test_metadata_of_each_tested_version_is_learned(each_kafka_cluster: KafkaCluster) -> None:
    servers = each_kafka_cluster.bootstrap_servers
    topic = confluent_create_topic(each_kafka_cluster, "network", partition_count=3)
    with NetworkLine(servers) as line:
        line.metadata.add_topic(topic, now_ms())
        partitions = [TopicPartition(topic, number) for number in range(3)]
        assert line.drive(
            lambda: all(line.metadata.cluster.leader_of(partition) for partition in partitions),
            TIMEOUT_MS,
        )
        cluster = line.metadata.cluster
        assert {str(node.port) for node in cluster.nodes.values()} <= {
            server.rpartition(":")[2] for server in servers.split(",")
        }
        assert cluster.cluster_id
        assert cluster.topic_name(cluster.topic_id(topic)) == topic
        assert line.client.describe_failures() == ""
        node_id = next(iter(cluster.nodes))
        line.client.connect(node_id, now_ms())
        assert line.drive(lambda: line.client.is_ready(node_id, now_ms()), TIMEOUT_MS)
        for message in (MetadataRequest, ProduceRequest):
            shared = line.client.supported_versions(node_id, message)
            assert shared is not None
            assert message.min_version <= shared[0] <= shared[1] <= message.max_version


@pytest.mark.promise("any bootstrap address may be down")
def test_one_working_address_among_many_is_enough_and_found_soon(
    kafka_cluster: KafkaCluster,
) -> None:
    with LoopbackServer(is_silent) as silent:
        servers = [unused_address(), silent.address, "no-host.invalid:1", unused_address()]
        with NetworkLine(",".join([*servers, kafka_cluster.bootstrap_servers])) as line:
            # One silent address, and one name that is looked up, may each take their turn.
            assert line.learn(5_000)
            assert line.metadata.cluster.nodes


@OWN_BROKERS
def test_metadata_is_learned_from_whichever_brokers_are_left(three_brokers: KafkaCluster) -> None:
    with NetworkLine(three_brokers.bootstrap_servers, request_timeout_ms=1_000) as line:
        assert line.drive(lambda: len(line.metadata.cluster.nodes) == 3, TIMEOUT_MS)
        for broker in (1, 2, 3):
            three_brokers.pause(broker)
            for _ in range(5):
                assert line.learn(TIMEOUT_MS)
            three_brokers.resume(broker)


@pytest.mark.promise("a hanging broker gets no request that another broker can handle")
@OWN_BROKERS
def test_a_hung_broker_is_not_asked_for_metadata_while_others_are_there(
    three_brokers: KafkaCluster,
) -> None:
    with NetworkLine(three_brokers.bootstrap_servers) as line:
        assert line.drive(lambda: len(line.metadata.cluster.nodes) == 3, TIMEOUT_MS)
        for broker in (1, 2, 3):
            line.client.connect(broker, now_ms())
            assert line.drive(partial(is_ready, line, broker), TIMEOUT_MS)
            three_brokers.pause(broker)
            try:
                asked, asked_ms = Outcome(), now_ms()
                request = Request(MetadataRequest(), broker, asked.on_response, asked.on_failure)
                line.client.send(request, asked_ms)
                line.drive(asked.is_done, SUSPECT_MS)
                assert now_ms() - asked_ms >= SUSPECT_MS
                for _ in range(5):
                    # A third of these would wait for request_timeout_ms, half a minute.
                    assert line.learn(TIMEOUT_MS)
                    assert line.client.in_flight_count(broker) == 1
                assert not asked.is_done()
            finally:
                three_brokers.resume(broker)
            assert line.drive(asked.is_done, TIMEOUT_MS)


def is_ready(line: NetworkLine, broker: int) -> bool:
    return line.client.is_ready(broker, now_ms())


@OWN_BROKERS
def test_a_broker_that_is_down_is_told_and_found_again_when_it_is_back(
    kafka_cluster_factory: KafkaClusterFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pykclient.network")
    with kafka_cluster_factory() as kafka, NetworkLine(kafka.bootstrap_servers) as line:
        assert line.learn(TIMEOUT_MS)
        kafka.stop(1)  # as good as killed for us, and sooner back
        caplog.clear()
        assert not line.learn(3_000)
        assert f"{kafka.bootstrap_servers}: connection refused" in line.client.describe_failures()
        # The broker and the bootstrap address are the same place.
        attempts_s = [r.created for r in caplog.records if r.msg.startswith("connecting to")]
        assert len(attempts_s) >= 3, "it goes on trying"
        # Log records are written a moment after the clock was read, hence less than a second.
        windows = [sum(at <= other < at + 0.98 for other in attempts_s) for at in attempts_s]
        assert max(windows) <= 5
        kafka.start(1)
        assert line.learn(TIMEOUT_MS)
        assert line.client.describe_failures() == ""
