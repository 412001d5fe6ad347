"""Brokers since Kafka 2.1 are spoken to in the versions that they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.protocol.api_keys import APIS, ApiKey
from tests.integration.java_tools import CODECS
from tests.integration.loopback_server import LoopbackServer
from tests.integration.old_broker import VERSIONS_OF_2_1, OldBroker

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

TIMEOUT_S = 30.0
USED = {
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA),
    *(ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.INIT_PRODUCER_ID),
}
VALUES = [b"%d" % number for number in range(100)]


@pytest.mark.promise("every version from brokers 2.1 to 4.3 is spoken, with its headers")
@pytest.mark.parametrize("key", VERSIONS_OF_2_1)
def test_the_newest_version_of_kafka_2_1_is_spoken(key: ApiKey) -> None:
    api = APIS[key]
    assert api.min_version <= VERSIONS_OF_2_1[key] <= api.max_version


@pytest.mark.promise("every version from brokers 2.1 to 4.3 is spoken, with its headers")
@pytest.mark.kafka
def test_all_clients_work_with_a_broker_that_speaks_as_2_1_did(kafka_cluster: KafkaCluster) -> None:
    old = OldBroker(kafka_cluster.bootstrap_servers)
    with LoopbackServer(old) as server, Admin(bootstrap_servers=server.address) as admin:
        for codec in CODECS:
            topic = f"old-broker-{codec}"
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
            assert topic in admin.list_topics()
            assert len(admin.describe_topics([topic])[topic].partitions) == 1
            write(server.address, topic, codec)
            assert read(server.address, topic) == VALUES
            admin.delete_topics([topic])
    newest = {api for api in VERSIONS_OF_2_1.items() if api[0] in USED}
    assert old.asked == newest | {(ApiKey.API_VERSIONS, 0)}


def write(servers: str, topic: str, codec: str) -> None:
    """Send all values, acknowledged in order; idempotent, as is the default."""
    with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
        deliveries = [producer.send(topic, value) for value in VALUES]
        offsets = [delivery.result(timeout=TIMEOUT_S).offset for delivery in deliveries]
    assert offsets == list(range(len(VALUES)))


def read(servers: str, topic: str) -> list[object]:
    """All values that the topic holds."""
    partition = TopicPartition(topic, 0)
    values: list[object] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            values += [record.value for record in consumer.poll(timeout=TIMEOUT_S)]
    return values
