"""A broker that responds as it should, but for what a test has it do instead.

Owner: each connection has a thread of `LoopbackServer`; a `ScriptedBroker` does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from pykclient.protocol.api_keys import ApiKey, request_type
from pykclient.protocol.message import Message, RequestHeader, decode_request, encode_response
from pykclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from pykclient.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from pykclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from pykclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from pykclient.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    ProducerState,
)
from pykclient.protocol.messages.describe_producers import (
    PartitionResponse as DescribeProducersPartition,
)
from pykclient.protocol.messages.describe_producers import (
    TopicResponse as DescribeProducersTopic,
)
from pykclient.protocol.messages.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
)
from pykclient.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from pykclient.protocol.messages.find_coordinator import FindCoordinatorResponse
from pykclient.protocol.messages.heartbeat import HeartbeatResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdResponse
from pykclient.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from pykclient.protocol.messages.leave_group import LeaveGroupResponse
from pykclient.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from pykclient.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykclient.protocol.messages.list_transactions import ListTransactionsResponse
from pykclient.protocol.messages.list_transactions import TransactionState as ListedTransaction
from pykclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from pykclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from pykclient.protocol.messages.sasl_handshake import SaslHandshakeResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.hostile.client import TOPIC

if TYPE_CHECKING:
    import socket

    from pykclient.protocol.message import Request

BROKER_ID: Final = 1
EPOCH: Final = 5
TOPIC_ID: Final = b"i" * 16
GROUP: Final = "g"
TRANSACTIONAL_ID: Final = "x"
ILLEGAL_SASL_STATE: Final = 34
"""The error code of a listener without SASL."""
TOPIC_ID_VERSION: Final = 10
"""Metadata has the ids of topics since this version."""

VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 6,
    ApiKey.METADATA: 9,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.JOIN_GROUP: 7,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.API_VERSIONS: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.LIST_TRANSACTIONS: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
}
"""The newest of each API that topics have names in, and groups a request of their own."""
KIP848_VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.METADATA: 12,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 0,
}
"""The API versions of a broker that supports the consumer group protocol."""


class Received(NamedTuple):
    """One request, and where it came."""

    header: RequestHeader
    request: Request
    host: str
    port: int

    def frame(self, body: bytes, correlation_id: int | None = None) -> bytes:
        """Return a response's frame around a body of any bytes."""
        number = self.header.correlation_id if correlation_id is None else correlation_id
        kind = request_type(self.header.api_key)
        is_flexible = kind.flexible_from is not None and (
            self.header.api_version >= kind.flexible_from
        )
        tags = b"\0" if is_flexible and kind.api_key is not ApiKey.API_VERSIONS else b""
        content = number.to_bytes(4) + tags + body
        return len(content).to_bytes(4) + content


Reply = Message | bytes | Callable[["socket.socket"], None] | None
"""A response; bytes that are sent as they are; a function that sends; or nothing at all."""
Responder = Callable[[Received], Reply]


class HangUp(Exception):
    """The broker closes the connection."""


class ScriptedBroker:
    """A broker with the topic `TOPIC`; `instead` has what it does to requests of some APIs."""

    def __init__(
        self,
        instead: Mapping[ApiKey, Responder] | None = None,
        versions: Mapping[ApiKey, int] | None = None,
    ) -> None:
        self._versions = {**VERSIONS, **(versions or {})}
        self.hostile_count = 0
        """Number of malformed responses so far."""
        self._instead = frozenset(instead or ())
        self._responders = {**GOOD, ApiKey.API_VERSIONS: self._list_versions, **(instead or {})}

    def __call__(self, connection: socket.socket) -> None:
        """Serve one connection."""
        host, port = connection.getsockname()
        stream = connection.makefile("rb")
        while size := stream.read(4):
            header, request = decode_request(stream.read(int.from_bytes(size)))
            received = Received(header, request, host, port)
            try:
                reply = self._responders[ApiKey(header.api_key)](received)
            except HangUp:
                return
            self.hostile_count += header.api_key in self._instead
            if isinstance(reply, Message):
                reply = bytes(encode_response(reply, header.api_version, header.correlation_id))
            if callable(reply):
                reply(connection)
            elif reply is not None:
                connection.sendall(reply)

    def _list_versions(self, _: Received) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(key, request_type(key).min_version, newest)
                for key, newest in self._versions.items()
            ]
        )


def metadata(received: Received) -> MetadataResponse:
    topic = MetadataResponseTopic(name=TOPIC, partitions=[partition()])
    if received.header.api_version >= TOPIC_ID_VERSION:
        topic.topic_id = TOPIC_ID
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=BROKER_ID, host=received.host, port=received.port)],
        cluster_id="c",
        controller_id=BROKER_ID,
        topics=[topic],
    )


def partition(index: int = 0, leader_id: int = BROKER_ID) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader_id,
        leader_epoch=EPOCH,
        replica_nodes=[leader_id],
        isr_nodes=[leader_id],
    )


def coordinator(received: Received) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(node_id=BROKER_ID, host=received.host, port=received.port)


def joined(received: Received) -> JoinGroupResponse:
    """Make the member the only one of its group, and its leader."""
    request = cast("JoinGroupRequest", received.request)
    protocol = request.protocols[0]
    return JoinGroupResponse(
        generation_id=1,
        protocol_type=request.protocol_type,
        protocol_name=protocol.name,
        leader="m",
        member_id="m",
        members=[JoinGroupResponseMember(member_id="m", metadata=protocol.metadata)],
    )


def synced(received: Received) -> SyncGroupResponse:
    request = cast("SyncGroupRequest", received.request)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=request.assignments[0].assignment if request.assignments else b"",
    )


def stored_offset(offset: int) -> OffsetFetchResponse:
    stored = OffsetFetchResponsePartition(partition_index=0, committed_offset=offset)
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name=TOPIC, partitions=[stored])])


def listed_offset(offset: int) -> ListOffsetsResponse:
    found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, leader_epoch=EPOCH)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])


def written(base_offset: int = 0, error_code: int = 0) -> ProduceResponse:
    result = PartitionProduceResponse(index=0, base_offset=base_offset, error_code=error_code)
    return ProduceResponse(
        responses=[TopicProduceResponse(name=TOPIC, partition_responses=[result])]
    )


def assigned_by_kip848(
    topic_partitions: list[ResponseTopicPartitions] | None = None, **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    """Return a heartbeat's response, with the one partition; the keywords change it."""
    if topic_partitions is None:
        topic_partitions = [ResponseTopicPartitions(TOPIC_ID, [0])]
    return ConsumerGroupHeartbeatResponse(
        **{
            "error_message": "",
            "member_id": "m",
            "member_epoch": 1,
            "heartbeat_interval_ms": 5_000,
            "assignment": Assignment(topic_partitions=topic_partitions),
            **fields,
        }
    )


def described_configs(received: Received) -> DescribeConfigsResponse:
    request = cast("DescribeConfigsRequest", received.request)
    entry = DescribeConfigsResourceResult(
        name="retention.ms",
        value="1",
        synonyms=[DescribeConfigsSynonym("log.retention.ms", "1", 5)],
        documentation="How long records stay.",
    )
    (resource,) = request.resources
    kind, name = resource.resource_type, resource.resource_name
    result = DescribeConfigsResult(resource_type=kind, resource_name=name, configs=[entry])
    return DescribeConfigsResponse(results=[result])


def described_groups(_: Received) -> DescribeGroupsResponse:
    member = DescribedGroupMember(
        *("m", None, "client", "host"),
        member_metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
        member_assignment=b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff",
    )
    group = DescribedGroup(
        group_id=GROUP,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    return DescribeGroupsResponse(groups=[group])


def described_producers(_: Received) -> DescribeProducersResponse:
    partition = DescribeProducersPartition(active_producers=[ProducerState(producer_id=1)])
    return DescribeProducersResponse(topics=[DescribeProducersTopic(TOPIC, [partition])])


def described_transactions(_: Received) -> DescribeTransactionsResponse:
    state = DescribedTransaction(
        transactional_id=TRANSACTIONAL_ID,
        transaction_state="Ongoing",
        topics=[TopicData(TOPIC, [0])],
    )
    return DescribeTransactionsResponse(transaction_states=[state])


def listed_transactions(_: Received) -> ListTransactionsResponse:
    state = ListedTransaction(TRANSACTIONAL_ID, 1, "Ongoing")
    return ListTransactionsResponse(transaction_states=[state])


GOOD: Final[Mapping[ApiKey, Responder]] = {
    ApiKey.METADATA: metadata,
    ApiKey.FIND_COORDINATOR: coordinator,
    ApiKey.JOIN_GROUP: joined,
    ApiKey.SYNC_GROUP: synced,
    ApiKey.HEARTBEAT: lambda _: HeartbeatResponse(),
    ApiKey.LEAVE_GROUP: lambda _: LeaveGroupResponse(),
    ApiKey.OFFSET_FETCH: lambda _: stored_offset(0),
    ApiKey.LIST_OFFSETS: lambda _: listed_offset(0),
    ApiKey.FETCH: lambda _: None,
    ApiKey.INIT_PRODUCER_ID: lambda _: InitProducerIdResponse(producer_id=1),
    ApiKey.PRODUCE: lambda _: written(),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda _: assigned_by_kip848(),
    ApiKey.DESCRIBE_CONFIGS: described_configs,
    ApiKey.LIST_GROUPS: lambda _: ListGroupsResponse(
        groups=[ListedGroup(GROUP, "consumer", "Stable", "Classic")]
    ),
    ApiKey.DESCRIBE_GROUPS: described_groups,
    ApiKey.DESCRIBE_PRODUCERS: described_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: described_transactions,
    ApiKey.LIST_TRANSACTIONS: listed_transactions,
    ApiKey.SASL_HANDSHAKE: lambda _: SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE),
}
