"""Assignor: how the leader of a classic group assigns partitions; and what it is given and returns.

Owner: the member that was given it; the leader uses its own.
Source: Java interface ``ConsumerPartitionAssignor``; KIP-429 (protocols), KIP-881 (racks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.types import Node, TopicPartition

TopicRacks = Mapping[str, Sequence[frozenset[str]]]
"""The topics to be assigned: for each of its partitions, in order, the racks of the brokers that
have a replica. A topic that the cluster does not have is not in it."""


class PartitionReplicas(frozenset[str]):
    """Replicas of one partition: the brokers that have one, and the racks of these brokers.

    As a set it is the racks, and compares as one. `leader` is None while there is none; `replicas`
    are those of the brokers that run, with the preferred leader first if it does. Racks are there
    if brokers have `broker.rack`.
    """

    __slots__ = ("leader", "replicas")
    leader: Node | None
    replicas: tuple[Node, ...]

    def __new__(cls, leader: Node | None, replicas: Sequence[Node]) -> Self:
        made = super().__new__(cls, (node.rack for node in replicas if node.rack))
        made.leader = leader
        made.replicas = tuple(replicas)
        return made


TopicReplicas = Mapping[str, Sequence[PartitionReplicas]]
"""The topics to be assigned, and where each of their partitions is, in order. An assignor that
needs no more than racks may take them as `TopicRacks`."""


class RebalanceProtocol(IntEnum):
    """What members give up before they join again (KIP-429)."""

    EAGER = 0
    """Everything."""
    COOPERATIVE = 1
    """Nothing; they give up later what the new assignment takes from them."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The subscription of one member of a group, as its leader receives it.

    `owned_partitions` were the member's in `generation`, None before its first one or when it did
    not send one. `group_instance_id` is set for static members (KIP-345), `rack` from
    `client_rack`. `user_data` is what `Assignor.user_data` of the member returned.
    """

    topics: frozenset[str]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    group_instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one member; `user_data` is passed to its `Assignor.on_assignment`."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(Protocol):
    """Assigns partitions to members. One object serves one consumer, for as long as that lives."""

    @property
    def name(self) -> str:
        """The name by which members agree; each must have an assignor of that name."""
        ...

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """The protocols that it supports."""
        ...

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return what this member sends to the leader's assignor; None for nothing.

        `topics` are those that the member subscribes to.
        """
        ...

    def assign(
        self, topics: TopicReplicas, members: Mapping[str, GroupMember]
    ) -> Mapping[str, Assignment | Sequence[TopicPartition]]:
        """Return the partitions of every member, by member id, with no partition twice.

        Called for the member that leads. Leaders and replicas are those of its latest metadata;
        no rebalance follows when they move (with `client_rack` one does when racks change). A
        member gets partitions only of topics that it subscribes to; in a cooperative group none
        that another member still owns.
        """
        ...

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Receive this member's partitions in a new generation, and the `Assignment.user_data`."""
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
