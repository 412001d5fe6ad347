"""Heartbeats of KIP-848: what a member sends, in full at first and then only what has changed.

Owner: the core lock.
Source: Java class ``ConsumerHeartbeatRequestManager`` (``HeartbeatState``); KIP-848, KIP-1082.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.metadata import GroupMetadata

    TopicIdPartitions = Mapping[bytes, tuple[int, ...]]

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "LEAVE_STATIC_EPOCH",
    "HeartbeatFields",
    "Interest",
    "heartbeat_of",
]

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: its partitions wait for it until its session ends."""


class Interest(NamedTuple):
    """What is subscribed to; `regex` is matched by the broker (RE2)."""

    topics: frozenset[str]
    regex: str | None = None


class _Sent(NamedTuple):
    interest: Interest
    assigned: dict[bytes, tuple[int, ...]] | None
    """None when it has to be sent again."""


class HeartbeatFields:
    """What the coordinator has received of this member, so that it is not sent again."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._sent: _Sent | None = None

    def forget(self) -> None:
        """Send everything again: the coordinator may not have received the last."""
        self._sent = None

    def forget_assigned(self) -> None:
        """Send what is assigned again, though it has not changed: the coordinator waits for it."""
        if self._sent is not None:
            self._sent = self._sent._replace(assigned=None)

    def has_news(self, interest: Interest, assigned: TopicIdPartitions) -> bool:
        """Whether a heartbeat would send anything but that the member lives."""
        sent = self._sent
        return sent is None or sent.interest != interest or sent.assigned != assigned

    def request(
        self, member: GroupMetadata, interest: Interest, assigned: TopicIdPartitions, *, epoch: int
    ) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat; what is in it counts as sent."""
        message = heartbeat_of(member, epoch)
        sent, self._sent = self._sent, _Sent(interest, dict(assigned))
        is_first = sent is None or epoch == JOIN_EPOCH
        if is_first:
            message.rebalance_timeout_ms = self._config.max_poll_interval_ms
            message.server_assignor = self._config.group_remote_assignor or None
            message.rack_id = self._config.client_rack or None
        if is_first or sent is None or sent.interest.topics != interest.topics:
            message.subscribed_topic_names = sorted(interest.topics)
        before = None if is_first or sent is None else sent.interest.regex
        if before != interest.regex:
            message.subscribed_topic_regex = interest.regex or ""  # empty takes it back
        if is_first or sent is None or sent.assigned != assigned:
            message.topic_partitions = [
                RequestTopicPartitions(topic_id, list(numbers))
                for topic_id, numbers in assigned.items()
            ]
        return message


def heartbeat_of(member: GroupMetadata, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat with nothing but that the member lives, or leaves."""
    return ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        instance_id=member.group_instance_id,
    )
