"""The consumer protocol: bytes by which members of a classic group and their leader agree.

A member sends its *subscription*, the leader an *assignment* for each; the coordinator passes both
on. They begin with a version; of a newer one the known fields are read, since versions only add.

Owner: no state.
Source: Java class ``ConsumerProtocol``; KIP-429 (owned partitions), KIP-792 (generation), KIP-881
(racks).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.assignors import Assignment, GroupMember
from pykclient.errors import DecodeError
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pykclient.protocol.primitives import INT16
from pykclient.protocol.reader import Reader
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "PROTOCOL_TYPE",
    "encode_assignment",
    "encode_subscription",
    "read_assignment",
    "read_subscription",
]

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1


def encode_subscription(member: GroupMember) -> bytes:
    """Encode the subscription of a member. The coordinator adds the instance id."""
    message = ConsumerProtocolSubscription(
        topics=sorted(member.topics),
        user_data=member.user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(member.owned_partitions).items()
        ],
        generation_id=NO_GENERATION if member.generation is None else member.generation,
        rack_id=member.rack,
    )
    version = ConsumerProtocolSubscription.max_version
    out = bytearray(INT16.pack(version))
    message.write(out, version)
    return bytes(out)


def read_subscription(data: bytes, group_instance_id: str | None) -> GroupMember:
    """Read the subscription of a member.

    Raises:
        DecodeError: the bytes are no subscription.
    """
    reader = Reader(data)
    version = _version(reader, ConsumerProtocolSubscription.max_version)
    message = ConsumerProtocolSubscription.read(reader, version)
    generation = None if message.generation_id == NO_GENERATION else message.generation_id
    return GroupMember(
        topics=frozenset(message.topics),
        owned_partitions=tuple(
            TopicPartition(owned.topic, number)
            for owned in message.owned_partitions
            for number in owned.partitions
        ),
        generation=generation,
        group_instance_id=group_instance_id,
        rack=message.rack_id,
        user_data=message.user_data,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    """Encode the assignment of a member."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ],
        user_data=user_data,
    )
    version = ConsumerProtocolAssignment.max_version
    out = bytearray(INT16.pack(version))
    message.write(out, version)
    return bytes(out)


def read_assignment(data: bytes) -> Assignment:
    """Read the assignment of this member, each partition once.

    Raises:
        DecodeError: the bytes are no assignment. No bytes are one without partitions: so it is sent
            by brokers, and by leaders of older Sarama clients.
    """
    if not data:
        return Assignment((), None)
    reader = Reader(data)
    version = _version(reader, ConsumerProtocolAssignment.max_version)
    message = ConsumerProtocolAssignment.read(reader, version)
    partitions = tuple(
        TopicPartition(assigned.topic, number)
        for assigned in message.assigned_partitions
        for number in assigned.partitions
    )
    if min((partition.partition for partition in partitions), default=0) < 0:
        raise DecodeError(f"an assignment has a negative partition: {min(partitions)}")
    return Assignment(tuple(dict.fromkeys(partitions)), message.user_data)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        by_topic[partition.topic].append(partition.partition)
    return by_topic


def _version(reader: Reader, newest: int) -> int:
    version = reader.int16()
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol does not exist")
    return min(version, newest)
