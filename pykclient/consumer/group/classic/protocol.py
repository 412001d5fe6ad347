"""Requests of a classic group member, and the consumer protocol in them.

Members and their leader agree by the consumer protocol: a member sends its *subscription*, the
leader an *assignment* for each member; the coordinator passes both on. Both begin with a version.
For a newer version the known fields are read, since versions only add fields.

Owner: none, it has no state.
Source: Java class ``ConsumerProtocol``; APIs JoinGroup, SyncGroup, Heartbeat and LeaveGroup;
KIP-345, KIP-429 (owned partitions), KIP-559, KIP-792 (generation), KIP-800, KIP-881 (racks).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors import Assignment, GroupMember
from pykclient.errors import DecodeError, error_for_code
from pykclient.network.manager import Request
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pykclient.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pykclient.protocol.primitives import INT16
from pykclient.protocol.reader import Reader
from pykclient.types import TopicPartition, by_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.errors import KafkaError
    from pykclient.network.log import ClientLog
    from pykclient.network.manager import Operation
    from pykclient.protocol.message import Message
    from pykclient.types import GroupMetadata

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1

SEVERAL_MEMBERS_FROM_VERSION: Final = 3
"""First version of LeaveGroup with several members; before, it has one, by id only."""

REASON_LENGTH_MAX: Final = 255
"""Maximum length of a reason that coordinators accept (KIP-800)."""

REBALANCE_SLACK_MS: Final = 5_000
"""Additional time for a JoinGroup, beyond the rebalance timeout that the coordinator waits for."""


def encode_subscription(member: GroupMember) -> bytes:
    """Encode the subscription of a member. The coordinator adds the instance id."""
    message = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(sorted(member.owned_partitions)).items()
        ],
        generation_id=NO_GENERATION if member.generation is None else member.generation,
        rack_id=member.rack,
    )
    version = ConsumerProtocolSubscription.max_version
    out = bytearray(INT16.pack(version))
    message.write(out, version)
    return bytes(out)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read the subscription of a member.

    Raises:
        DecodeError: the bytes are malformed.
    """
    reader = Reader(data)
    version = _version(reader, ConsumerProtocolSubscription.max_version)
    return ConsumerProtocolSubscription.read(reader, version)


def group_member(
    subscription: ConsumerProtocolSubscription,
    group_instance_id: str | None,
    partition_counts: Mapping[str, int],
) -> GroupMember:
    """Return the member for assignors, with its existing partitions without duplicates.

    `partition_counts` are those of the topics to assign. Others are left out, because a partition
    takes four bytes in a request and a hundred times as much in an assignor.
    """
    generation = None
    if subscription.generation_id != NO_GENERATION:
        generation = subscription.generation_id
    owned = {
        TopicPartition(each.topic, number): None
        for each in subscription.owned_partitions
        for number in each.partitions
        if 0 <= number < partition_counts.get(each.topic, 0)
    }
    return GroupMember(
        topics=frozenset(subscription.topics),
        owned_partitions=tuple(owned),
        generation=generation,
        group_instance_id=group_instance_id,
        rack=subscription.rack_id,
        user_data=subscription.user_data,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(sorted(partitions)).items()
        ],
        user_data=user_data,
    )
    version = ConsumerProtocolAssignment.max_version
    out = bytearray(INT16.pack(version))
    message.write(out, version)
    return bytes(out)


def read_assignment(data: bytes) -> Assignment:
    """Read the assignment of this member, each partition once.

    Empty bytes are an assignment without partitions: brokers and leaders with older Sarama clients
    send them.

    Raises:
        DecodeError: the bytes are malformed.
    """
    if not data:
        return Assignment((), None)
    reader = Reader(data)
    version = _version(reader, ConsumerProtocolAssignment.max_version)
    message = ConsumerProtocolAssignment.read(reader, version)
    for topic in message.assigned_partitions:
        lowest = min(topic.partitions, default=0)
        if lowest < 0:
            partition = TopicPartition(topic.topic, lowest)
            raise DecodeError(f"an assignment has a negative partition: {partition}")
    partitions = {
        TopicPartition(topic.topic, number): None
        for topic in message.assigned_partitions
        for number in topic.partitions
    }
    return Assignment(tuple(partitions), message.user_data)


def _version(reader: Reader, newest: int) -> int:
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol does not exist")
    return min(version, newest)


# Requests.


def join_timeout_ms(config: ConsumerConfig) -> int:
    """Return the time-out of a response that is sent when the whole group has joined."""
    return max(config.max_poll_interval_ms + REBALANCE_SLACK_MS, config.request_timeout_ms)


def heartbeat_timeout_ms(config: ConsumerConfig) -> int:
    """Return the time-out of a heartbeat; after the session time-out the response is useless."""
    return min(config.session_timeout_ms, config.request_timeout_ms)


def join_request(
    member: GroupMetadata,
    protocols: Sequence[tuple[str, bytes]],
    config: ConsumerConfig,
    reason: str,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
        ],
        reason=reason[:REASON_LENGTH_MAX],
    )


def sync_request(
    member: GroupMetadata, protocol: str, assignments: Sequence[tuple[str, bytes]]
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments
        ],
    )


def heartbeat_request(member: GroupMetadata) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
    )


def leave_request(member: GroupMetadata, reason: str, version: int) -> LeaveGroupRequest:
    if version < SEVERAL_MEMBERS_FROM_VERSION:
        return LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
    identity = MemberIdentity(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        reason=reason[:REASON_LENGTH_MAX],
    )
    return LeaveGroupRequest(group_id=member.group_id, members=[identity])


def leave(
    member: GroupMetadata, reason: str, node_id: int, *, left: Operation[None], log: ClientLog
) -> Request:
    """Return a LeaveGroup request, which ends `left` whatever its result is.

    If the coordinator does not know the member, or cannot be notified, the session ends later.
    """

    def on_response(response: Message | None, now_ms: int) -> None:
        del now_ms
        assert isinstance(response, LeaveGroupResponse)
        codes = [response.error_code, *(each.error_code for each in response.members)]
        error_code = next((code for code in codes if code != 0), 0)
        if error_code != 0:
            about = f"LeaveGroup of group {member.group_id!r}"
            log.info("%s", error_for_code(error_code, about))
        left.succeed(None)

    def on_failure(error: KafkaError, now_ms: int) -> None:
        del now_ms
        log.info(
            "group %r: LeaveGroup has failed, the session will end: %s", member.group_id, error
        )
        left.succeed(None)

    build = partial(leave_request, member, reason)
    log.info("group %r: leaving: %s", member.group_id, reason)
    message = build(LeaveGroupRequest.max_version)
    return Request(message, node_id, on_response, on_failure, build=build)
