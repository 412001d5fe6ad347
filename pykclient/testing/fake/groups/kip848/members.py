"""The members of a KIP-848 group: by id, by instance id, and by the partitions that they have.

A partition has one owner at most, counting who has yet to give it up. Static members keep their
place: one that left for a while (epoch -2) is replaced by the next that has its instance id.

Owner: the group.
Source: KIP-848; Java classes ``ConsumerGroup``, ``GroupMetadataManager``, as of 4.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pykclient.errors.broker import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from pykclient.testing.fake.groups.modern_member import ModernMember
from pykclient.testing.fake.groups.server_assignors import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )

__all__ = ["JOIN_EPOCH", "LEAVE_EPOCH", "STATIC_LEAVE_EPOCH", "ModernMembers", "owned_partitions"]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class ModernMembers:
    """All members of a group, the oldest first."""

    def __init__(self, group_name: str) -> None:
        self._group_name = group_name
        self._members: dict[str, ModernMember] = {}
        self._static_ids: dict[str, str] = {}
        self._owners: dict[TopicIdPartition, str] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ModernMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ModernMember | None:
        """The member; None if there is none."""
        return self._members.get(member_id)

    def owner_id(self, name: TopicIdPartition) -> str | None:
        """The member that has a partition, or has yet to give it up; None when it is free."""
        return self._owners.get(name)

    def asking(self, request: ConsumerGroupHeartbeatRequest) -> ModernMember:
        """The member that heartbeats, as it was; a new one when it joins.

        Raises:
            UnknownMemberIdError, FencedMemberEpochError, FencedInstanceIdError,
            UnreleasedInstanceIdError: it may not.
        """
        is_join = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            if is_join and request.member_id not in self._members:
                return ModernMember(request.member_id)
            member = self.member(request.member_id)
        else:
            if is_join:
                return self._joining_static_member(request.instance_id, request.member_id)
            member = self.static_member(request.instance_id, request.member_id)
        _check_epoch(member, request)
        return member

    def _joining_static_member(self, instance_id: str, member_id: str) -> ModernMember:
        existing_id = self._static_ids.get(instance_id)
        if existing_id is None:
            return self._members.get(member_id) or ModernMember(member_id)
        existing = self._members[existing_id]
        if existing.epoch != STATIC_LEAVE_EPOCH:
            raise UnreleasedInstanceIdError(
                f"the instance id {instance_id} is that of the member {existing_id}, which has "
                f"not left: {member_id} cannot join"
            )
        return replace(existing, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def member(self, member_id: str) -> ModernMember:
        """The member. Raises `UnknownMemberIdError`."""
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMemberIdError(f"{member_id} is no member of the group {self._group_name}")
        return member

    def static_member(self, instance_id: str, member_id: str) -> ModernMember:
        """The member with both ids. Raises `UnknownMemberIdError`, `FencedInstanceIdError`."""
        existing_id = self._static_ids.get(instance_id)
        if existing_id is None:
            raise UnknownMemberIdError(f"the instance id {instance_id} is unknown")
        if existing_id != member_id:
            raise FencedInstanceIdError(
                f"{member_id} with the instance id {instance_id} was fenced by {existing_id}"
            )
        return self._members[existing_id]

    def replaced_id(self, member: ModernMember) -> str | None:
        """The static member whose place this one takes."""
        existing_id = self._static_ids.get(member.instance_id or "")
        return None if existing_id == member.member_id else existing_id

    def put(self, member: ModernMember) -> None:
        """Take a member, or what has become of it."""
        self._disown(member.member_id)
        for name in (*member.assigned, *member.pending_revocation):
            assert name not in self._owners, "a partition has one owner"
            self._owners[name] = member.member_id
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Lose a member; what it had is free."""
        self._disown(member_id)
        member = self._members.pop(member_id)
        if member.instance_id is not None and self._static_ids[member.instance_id] == member_id:
            del self._static_ids[member.instance_id]

    def _disown(self, member_id: str) -> None:
        member = self._members.get(member_id)
        if member is not None:
            for name in (*member.assigned, *member.pending_revocation):
                del self._owners[name]


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> frozenset[TopicIdPartition] | None:
    """What a member says that it has; None when it does not say."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(topic.topic_id, number)
        for topic in request.topic_partitions
        for number in topic.partitions
    )


def _check_epoch(member: ModernMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """A member may be one epoch behind: the answer that told it the newer one may be lost."""
    said = request.member_epoch
    if said in (JOIN_EPOCH, member.epoch):
        return
    owned = owned_partitions(request)
    is_answer_lost = (
        said < member.epoch
        and said == member.previous_epoch
        and owned is not None
        and owned <= member.assigned.keys()
    )
    if not is_answer_lost:
        raise FencedMemberEpochError(
            f"the member {member.member_id} is in epoch {member.epoch}, not {said}: it must "
            "give up all its partitions and join again"
        )
