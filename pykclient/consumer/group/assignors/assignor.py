"""What an assignor is: the rule by which a group's leader shares partitions among the members.

Owner: the member that was given it; the leader asks its own.
Source: Java interface ``ConsumerPartitionAssignor``; KIP-429 (protocols), KIP-881 (racks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.types import TopicPartition

__all__ = [
    "Assignment",
    "Assignor",
    "GroupMember",
    "RebalanceProtocol",
    "TopicRacks",
    "is_rack_aware",
    "member_order",
]

TopicRacks = Mapping[str, Sequence[frozenset[str]]]
"""The topics that may be shared out: for each of its partitions, in order, the racks of the brokers
that have a replica. A topic that the cluster does not have is not in it."""


class RebalanceProtocol(IntEnum):
    """What members give up before they join again (KIP-429)."""

    EAGER = 0
    """Everything."""
    COOPERATIVE = 1
    """Nothing; they give up later what the new assignment takes from them."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What one member of a group told its leader.

    `owned_partitions` were the member's in `generation`, None before its first one or when it did
    not say. `group_instance_id` is set for static members (KIP-345), `rack` from `client_rack`.
    `user_data` is what the member's own assignor wrote.
    """

    topics: frozenset[str]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    group_instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets; its own assignor hears of `user_data`, which nobody else reads."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(Protocol):
    """Shares partitions out. One object serves one consumer, for as long as that lives."""

    @property
    def name(self) -> str:
        """What members vote for; each must have an assignor of that name."""
        ...

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """The protocols that it works with."""
        ...

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return what the leader's assignor shall know of this member; None for nothing."""
        ...

    def assign(
        self, topics: TopicRacks, members: Mapping[str, GroupMember]
    ) -> Mapping[str, Assignment | Sequence[TopicPartition]]:
        """Return what every member gets, by member id, with no partition twice.

        Partitions alone do where there is nothing to tell its assignor.
        """
        ...

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Hear what this member got in a new generation, and what the leader's assignor tells."""
        ...


def member_order(item: tuple[str, GroupMember]) -> tuple[bool, str]:
    """Sort key: static members first, by instance id, so that a restart changes nothing."""
    member_id, member = item
    if member.group_instance_id is not None:
        return False, member.group_instance_id
    return True, member_id


def is_rack_aware(member_racks: frozenset[str], racks: Iterable[frozenset[str]]) -> bool:
    """Whether racks make a difference for partitions whose replicas are in `racks`.

    They make none when members and replicas share no rack, or all partitions have the same ones.
    """
    of_partitions = list(racks)
    everywhere = frozenset[str]().union(*of_partitions)
    return bool(member_racks & everywhere) and any(here != everywhere for here in of_partitions)
