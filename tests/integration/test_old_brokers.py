"""Brokers since Kafka 2.1 receive requests in the versions that they support."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from pykclient import Admin, Consumer, GroupMetadata, NewTopic, Producer, TopicPartition
from pykclient.errors import UnsupportedVersionError
from pykclient.protocol.api_keys import APIS, ApiKey
from pykclient.protocol.message import decode_request_header, decode_response, encode_response
from pykclient.protocol.messages.api_versions import ApiVersionsResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.metadata import MetadataResponse
from tests.integration.java_tools import CODECS
from tests.integration.loopback_server import LoopbackServer

if TYPE_CHECKING:
    from typing import BinaryIO

    from pykclient.protocol.message import RequestHeader
    from pykclient.testing import KafkaCluster

TIMEOUT_S = 30.0
UNSUPPORTED_VERSION = 35
VERSIONS_OF_2_1: Final = {
    ApiKey.PRODUCE: 7,
    ApiKey.FETCH: 10,
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.METADATA: 7,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 2,
    ApiKey.SASL_AUTHENTICATE: 0,
}
"""The newest version that Kafka 2.1 spoke, of each API that the clients here use and it had."""
USED = {
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA),
    *(ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.INIT_PRODUCER_ID),
}
VALUES = [b"%d" % number for number in range(100)]


class OldBroker:
    """A real broker whose ApiVersions has, as in Kafka 2.1, nothing newer.

    It relays each request to the broker at `address`, which still speaks all that 2.1 did. On the
    way back it cuts the ranges of ApiVersions down to those of 2.1 and puts its own address into
    Metadata and FindCoordinator. As 2.1 did (KIP-511), it refuses newer versions of ApiVersions in
    version 0 without a list. `requested` holds each (API key, version) that was used. It loses one
    response of each API in `to_lose`, with the connection.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self.requested: set[tuple[int, int]] = set()
        self.to_lose: set[int] = set()

    def __call__(self, connection: socket.socket) -> None:
        """Serve one connection."""
        with socket.create_connection(self._address) as broker:
            requests, responses = connection.makefile("rb"), broker.makefile("rb")
            while frame := read_frame(requests):
                header = decode_request_header(frame[4:])
                if self._is_refused(header):
                    refusal = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION)
                    connection.sendall(encode_response(refusal, 0, header.correlation_id))
                    continue
                self.requested.add((header.api_key, header.api_version))
                broker.sendall(frame)
                response = aged(read_frame(responses), header, connection.getsockname())
                if header.api_key in self.to_lose:
                    self.to_lose.remove(header.api_key)
                    return
                connection.sendall(response)

    def _is_refused(self, header: RequestHeader) -> bool:
        newest = VERSIONS_OF_2_1[ApiKey(header.api_key)]
        return header.api_key == ApiKey.API_VERSIONS and header.api_version > newest


def read_frame(stream: BinaryIO) -> bytes:
    """Return the next frame with its size; empty at the end."""
    size = stream.read(4)
    return size + stream.read(int.from_bytes(size))


def aged(frame: bytes, header: RequestHeader, address: tuple[str, int]) -> bytes | bytearray:
    """Return a response as the old broker at `address` would have sent it."""
    version = header.api_version
    if header.api_key == ApiKey.API_VERSIONS:
        versions = decode_response(ApiVersionsResponse, version, frame[4:])
        known = [api for api in versions.api_keys if api.api_key in VERSIONS_OF_2_1]
        for api in known:
            api.max_version = VERSIONS_OF_2_1[ApiKey(api.api_key)]
        versions.api_keys = known
        return encode_response(versions, version, header.correlation_id)
    if header.api_key == ApiKey.METADATA:
        metadata = decode_response(MetadataResponse, version, frame[4:])
        for broker in metadata.brokers:
            broker.host, broker.port = address
        return encode_response(metadata, version, header.correlation_id)
    if header.api_key == ApiKey.FIND_COORDINATOR:
        coordinator = decode_response(FindCoordinatorResponse, version, frame[4:])
        coordinator.host, coordinator.port = address
        return encode_response(coordinator, version, header.correlation_id)
    return frame


@pytest.mark.promise("every API version of brokers 2.1 to 4.4 is supported, with its headers")
@pytest.mark.parametrize("key", VERSIONS_OF_2_1)
def test_the_newest_version_of_kafka_2_1_is_spoken(key: ApiKey) -> None:
    api = APIS[key]
    assert api.min_version <= VERSIONS_OF_2_1[key] <= api.max_version


@pytest.mark.promise("every API version of brokers 2.1 to 4.4 is supported, with its headers")
@pytest.mark.kafka
def test_all_clients_work_with_a_broker_that_has_the_versions_of_2_1(
    kafka_cluster: KafkaCluster,
) -> None:
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
    assert old.requested == newest | {(ApiKey.API_VERSIONS, 0)}


@pytest.mark.kafka
def test_transactions_work_with_a_broker_that_has_the_versions_of_2_1(
    kafka_cluster: KafkaCluster,
) -> None:
    """A transaction cannot commit the offsets of a member: a zombie's would be taken, too."""
    topic = f"old-broker-{uuid.uuid4().hex[:8]}"
    source = TopicPartition(topic, 0)
    member = GroupMetadata(topic, 3, "m")
    old = OldBroker(kafka_cluster.bootstrap_servers)
    with (
        LoopbackServer(old) as server,
        Producer(bootstrap_servers=server.address, transactional_id=topic) as producer,
    ):
        with Admin(bootstrap_servers=server.address) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"a")
            producer.send_offsets_to_transaction({source: 7}, GroupMetadata(topic))
        producer.begin_transaction()
        producer.send(topic, b"b").result(TIMEOUT_S)
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"c").result(TIMEOUT_S)
        with pytest.raises(UnsupportedVersionError, match=r"KIP-447.* create a new producer"):
            producer.send_offsets_to_transaction({source: 8}, member)
        with pytest.raises(UnsupportedVersionError, match="KIP-447"):
            producer.commit_transaction()
    with Producer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=topic
    ) as newer:
        newer.init_transactions()
    with Consumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        group_id=topic,
        isolation_level="read_committed",
    ) as consumer:
        consumer.assign([source])
        consumer.seek_to_beginning([source])
        end = consumer.end_offsets([source])[source]
        values: list[bytes | None] = []
        while consumer.position(source) < end:
            values += [record.value for record in consumer.poll(TIMEOUT_S)]
        committed = consumer.committed([source])[source]
    assert values == [b"a"]
    assert committed is not None
    assert committed.offset == 7
    assert (ApiKey.TXN_OFFSET_COMMIT, 2) in old.requested


@pytest.mark.kafka
def test_a_lost_response_after_a_commit_ends_no_producer_with_the_versions_of_2_1(
    kafka_cluster: KafkaCluster,
) -> None:
    """These brokers give a producer no new epoch, which it would have after a lost response."""
    topic = f"old-broker-{uuid.uuid4().hex[:8]}"
    old = OldBroker(kafka_cluster.bootstrap_servers)
    with (
        LoopbackServer(old) as server,
        Producer(bootstrap_servers=server.address, transactional_id=topic) as producer,
    ):
        with Admin(bootstrap_servers=server.address) as admin:
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"first").result(TIMEOUT_S)
            old.to_lose.add(ApiKey.END_TXN)
        assert not old.to_lose
        with producer.transaction():
            producer.send(topic, b"second")
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        assert producer.prepare_transaction() is not None
        producer.commit_transaction()
        with producer.transaction():
            producer.send(topic, b"last")
    partition = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        values: list[bytes | None] = []
        while len(values) < 4:
            values += [record.value for record in consumer.poll(TIMEOUT_S)]
    assert values == [b"first", b"second", b"prepared", b"last"]


def write(servers: str, topic: str, codec: str) -> None:
    """Send all values, acknowledged in order; idempotent, as is the default."""
    with Producer({"compression_type": codec}, bootstrap_servers=servers) as producer:
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
