"""Hostile input: old versions, garbage and huge lengths get Kafka's response, or an end.

No input may raise: an exception here would end an application's test process.
"""

from __future__ import annotations

import sys
from random import Random

import pytest

from pykclient.errors.broker import BrokerUnsupportedVersionError
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.message import decode_response, encode_request
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from pykclient.testing import FakeCluster, faults
from pykclient.testing.fake import connection
from pykclient.testing.fake.connection import WAITING_FRAMES_MAX, FakeConnection
from pykclient.testing.fake.handlers import HANDLERS
from pykclient.types import TopicPartition
from tests.protocol.instances import SeededChoices
from tests.protocol.schemas import generated, jar_or_skip
from tests.testing.fake.requests import batch_of, response_to

HIGHEST = [("transaction.version", 0, 2)]
TRANSACTIONS = [("transaction.version", 2, 2)]
VERSIONS = bytes(encode_request(ApiVersionsRequest(), 0, 1, "test"))


class Client:
    """The client side of a connection."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.connection = FakeConnection(cluster, 0, on_change=lambda: None)

    def send(self, data: bytes, now_ms: int = 0) -> bytes:
        """Send bytes as far as the broker accepts them, and return the output."""
        while data and not self.connection.is_closed:
            buffer = self.connection.get_buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size, now_ms)
        return b"".join(self.connection.take_output())


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    return cluster


def versions_in(frame: bytes) -> ApiVersionsResponse:
    return decode_response(ApiVersionsResponse, 0, frame[4:])


def test_a_request_byte_by_byte_gets_its_response_once_it_is_whole(cluster: FakeCluster) -> None:
    client = Client(cluster)
    responses = [client.send(VERSIONS[index : index + 1]) for index in range(len(VERSIONS))]
    assert not any(responses[:-1])
    spoken = {api.api_key for api in versions_in(responses[-1]).api_keys}
    assert spoken == set(HANDLERS)


def test_an_unsupported_version_of_api_versions_gets_the_range(
    cluster: FakeCluster,
) -> None:
    cluster.limit_versions({ApiKey.API_VERSIONS: (0, 2), ApiKey.METADATA: None})
    client = Client(cluster)
    newest = bytes(encode_request(ApiVersionsRequest(), ApiVersionsRequest.max_version, 1, None))
    response = versions_in(client.send(newest))
    assert response.error_code == BrokerUnsupportedVersionError.code
    (api,) = response.api_keys
    assert (api.api_key, api.min_version, api.max_version) == (ApiKey.API_VERSIONS, 0, 2)
    assert versions_in(client.send(VERSIONS)).error_code == 0
    client.send(bytes(encode_request(MetadataRequest(), 1, 1, None)))
    assert client.connection.is_closed


@pytest.mark.parametrize(
    ("version", "has_groups", "supported", "finalized"),
    [
        (3, True, [], [("group.version", 1, 1), *TRANSACTIONS]),
        (4, True, [("group.version", 0, 1), *HIGHEST], [("group.version", 1, 1), *TRANSACTIONS]),
        (4, False, HIGHEST, TRANSACTIONS),
    ],
)
def test_groups_of_kip_848_are_a_feature(
    cluster: FakeCluster,
    version: int,
    has_groups: bool,
    supported: list[tuple[str, int, int]],
    finalized: list[tuple[str, int, int]],
) -> None:
    """Ranges from 0 on are announced from version 4 on: older clients reject such a response."""
    if not has_groups:
        cluster.limit_versions({ApiKey.CONSUMER_GROUP_HEARTBEAT: None})
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = response_to(cluster, request, ApiVersionsResponse, version=version)
    assert [(f.name, f.min_version, f.max_version) for f in response.supported_features] == (
        supported
    )
    assert [
        (f.name, f.min_version_level, f.max_version_level) for f in response.finalized_features
    ] == finalized
    assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x0a\x7f\x00\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0a\x00\x03\x7f\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0a\x00\x04\x00\x00\x00\x00\x00\x01\xff\xff",
    ],
)
def test_what_is_no_request_closes_the_connection(data: bytes, cluster: FakeCluster) -> None:
    client = Client(cluster)
    assert client.send(data) == b""
    assert client.connection.is_closed
    assert not cluster.brokers[0].connections


def test_requests_wait_for_the_one_before_them(cluster: FakeCluster) -> None:
    cluster.faults.add(faults.delay_response(50))
    client = Client(cluster)
    assert client.send(VERSIONS * 3) == b""
    cluster.advance(50)
    responses = b"".join(client.connection.take_output())
    assert len(responses) % 3 == 0
    assert versions_in(responses[: len(responses) // 3])


def test_a_client_that_sends_on_and_on_is_not_read_on_and_on(cluster: FakeCluster) -> None:
    cluster.faults.add(faults.delay_response(50))
    client = Client(cluster)

    def wants_input() -> bool:
        return client.connection.wants_input

    client.send(VERSIONS * WAITING_FRAMES_MAX)
    assert wants_input()
    client.send(VERSIONS)
    assert not wants_input()
    cluster.advance(50)
    assert wants_input()


def test_large_requests_are_read_ahead_by_their_bytes(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame_bytes = len(VERSIONS) - 4  # without its size
    monkeypatch.setattr(connection, "WAITING_BYTES_MAX", 2 * frame_bytes)
    cluster.faults.add(faults.delay_response(50))
    client = Client(cluster)
    wants_input = []
    for _ in range(4):
        client.send(VERSIONS)
        wants_input.append(client.connection.wants_input)
    assert wants_input == [True, True, False, False], "one is served, two wait"
    cluster.advance(50)
    client.connection.take_output()
    assert client.connection.wants_input


def test_a_client_that_reads_no_response_is_served_no_more(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    response_bytes = len(Client(cluster).send(VERSIONS))
    monkeypatch.setattr(connection, "OUTPUT_BYTES_MAX", 2 * response_bytes)
    client = Client(cluster)
    assert len(client.send(VERSIONS * 7)) == 2 * response_bytes
    taken = [sum(map(len, client.connection.take_output())) for _ in range(4)]
    assert taken == [2 * response_bytes, 2 * response_bytes, response_bytes, 0]


def test_calls_that_end_each_other_do_not_pile_up(cluster: FakeCluster) -> None:
    """Each client waits for records, and has a queued request that writes some.

    The first write completes another client's fetch, and so on, without recursion.
    """
    wait = FetchRequest(
        max_wait_ms=1_000,
        min_bytes=1,
        max_bytes=1_000,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=1_000)])],
    )
    data = PartitionProduceData(records=batch_of(b"v"))
    write = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    frames = [bytes(encode_request(each, 9, 1, "test")) for each in (wait, write)]
    clients = [Client(cluster) for _ in range(sys.getrecursionlimit() // 4)]
    for client in clients:
        assert client.send(b"".join(frames)) == b""
    assert Client(cluster).send(frames[1])
    assert all(len(client.connection.take_output()) == 2 for client in clients)
    assert cluster.partition(TopicPartition("t", 0)).log.log_end_offset == len(clients) + 1


def test_after_a_lost_response_nothing_comes_on_the_connection(cluster: FakeCluster) -> None:
    cluster.faults.add(faults.lose_response())
    client = Client(cluster)
    assert client.send(VERSIONS) == b""
    assert client.send(VERSIONS) == b""
    assert not client.connection.is_closed


def test_a_broker_that_stops_closes_its_connections(cluster: FakeCluster) -> None:
    client = Client(cluster)
    cluster.stop_broker(0)
    assert client.connection.is_closed


@pytest.mark.parametrize("seed", range(10))
def test_any_well_formed_request_gets_a_response_or_closes(seed: int) -> None:
    """Method: random values, mostly invalid, in every field of every API and version."""
    jar_or_skip()
    random = Random(seed)
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2)
    now_ms = 0
    for key in HANDLERS:
        instances = next(i for i in generated().values() if i.type.__name__ == _request_name(key))
        for version in range(instances.type.min_version, instances.type.max_version + 1):
            client = Client(cluster)
            request = instances.make(version, SeededChoices(random))
            frame = encode_request(request, version, 1, "fuzz")  # type: ignore[arg-type]
            now_ms += 1
            client.send(bytes(frame), now_ms)
    cluster.advance(now_ms + 10_000_000)


def _request_name(key: ApiKey) -> str:
    return "".join(part.capitalize() for part in key.name.split("_")) + "Request"


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_never_raise(seed: int) -> None:
    random = Random(seed)
    frames = [VERSIONS, bytes(encode_request(MetadataRequest(), 9, 1, "test"))]
    cluster = FakeCluster(2)
    for _ in range(200):
        data = bytearray(random.choice(frames))
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        Client(cluster).send(bytes(data))
