"""What consumers tell each other in metadata and assignments, as far as a broker reads it.

Any version is read as the oldest, which is the beginning of all later ones.

Owner: none; it holds no state.
Source: Java class ``ConsumerProtocol``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors.base import DecodeError
from pykclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from pykclient.protocol.reader import Reader
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CONSUMER_PROTOCOL_TYPE", "assigned_partitions", "subscribed_topics"]

CONSUMER_PROTOCOL_TYPE = "consumer"
_OLDEST = 0


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that members subscribe to; None when one of them says it in no known way."""
    topics: set[str] = set()
    try:
        for data in subscriptions:
            reader = Reader(data)
            reader.int16()  # the version
            topics.update(ConsumerProtocolSubscription.read(reader, _OLDEST).topics)
    except DecodeError:
        return None
    return frozenset(topics)


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none when it is empty or says it in no known way."""
    try:
        reader = Reader(data)
        reader.int16()  # the version
        assignment = ConsumerProtocolAssignment.read(reader, _OLDEST)
    except DecodeError:
        return ()
    return tuple(
        TopicPartition(topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in topic.partitions
    )
