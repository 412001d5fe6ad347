"""Heartbeats of KIP-848: what a member tells, in full at first and then only what has changed.

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

    from pykclient.consumer.group.metadata import GroupMetadata

    Assignment = Mapping[bytes, tuple[int, ...]]

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "LEAVE_STATIC_EPOCH",
    "HeartbeatFields",
    "Interest",
    "ModernSettings",
]

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for a while: its partitions wait for it until its session ends."""


class ModernSettings(NamedTuple):
    """What a member tells of itself. None leaves it to the group."""

    rebalance_timeout_ms: int
    request_timeout_ms: int
    server_assignor: str | None
    rack: str | None


class Interest(NamedTuple):
    """What is subscribed to; `regex` is for the broker to match (RE2)."""

    topics: frozenset[str]
    regex: str | None = None


class _Told(NamedTuple):
    interest: Interest
    assigned: dict[bytes, tuple[int, ...]] | None
    """None when the coordinator has to hear of it again."""


class HeartbeatFields:
    """What the coordinator has heard of this member, so that it is not told again."""

    def __init__(self, settings: ModernSettings) -> None:
        self._settings = settings
        self._told: _Told | None = None

    def forget(self) -> None:
        """Tell everything again: the coordinator may not have heard the last."""
        self._told = None

    def forget_assigned(self) -> None:
        """Tell what is assigned again, though it has not changed: the coordinator waits for it."""
        if self._told is not None:
            self._told = self._told._replace(assigned=None)

    def has_news(self, interest: Interest, assigned: Assignment) -> bool:
        """Whether a heartbeat would tell anything but that the member lives."""
        told = self._told
        return told is None or told.interest != interest or told.assigned != assigned

    def request(
        self, member: GroupMetadata, interest: Interest, assigned: Assignment, *, epoch: int
    ) -> ConsumerGroupHeartbeatRequest:
        """Make the next heartbeat; what it tells counts as told."""
        message = heartbeat_of(member, epoch)
        told, self._told = self._told, _Told(interest, dict(assigned))
        is_first = told is None or epoch == JOIN_EPOCH
        if is_first:
            message.rebalance_timeout_ms = self._settings.rebalance_timeout_ms
            message.server_assignor = self._settings.server_assignor
            message.rack_id = self._settings.rack
        if is_first or told is None or told.interest.topics != interest.topics:
            message.subscribed_topic_names = sorted(interest.topics)
        before = None if is_first or told is None else told.interest.regex
        if before != interest.regex:
            message.subscribed_topic_regex = interest.regex or ""  # empty takes it back
        if is_first or told is None or told.assigned != assigned:
            message.topic_partitions = [
                RequestTopicPartitions(topic_id, list(numbers))
                for topic_id, numbers in assigned.items()
            ]
        return message


def heartbeat_of(member: GroupMetadata, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """Return a heartbeat that tells nothing but who lives, or leaves."""
    return ConsumerGroupHeartbeatRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        instance_id=member.group_instance_id,
    )
