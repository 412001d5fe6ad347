"""Assignor: the interface by which the leader of a classic group assigns partitions.

Owner: the member that it belongs to; the leader uses its own.
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
"""The topics to assign: for each partition, in order, the racks of the brokers that have a replica.
Topics that do not exist are missing."""


class PartitionReplicas(frozenset[str]):
    """Replicas of one partition: the brokers that have one, and the racks of these brokers.

    As a set it contains the racks, and compares as such. `leader` is None if there is none;
    `replicas` are the running brokers, the preferred leader first if it runs. Racks are known if
    brokers have `broker.rack`.
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
"""The topics to assign, with the replicas of each partition, in order. An assignor that needs only
racks may take them as `TopicRacks`."""


class RebalanceProtocol(IntEnum):
    """Partitions that members revoke before they join again (KIP-429)."""

    EAGER = 0
    """All partitions."""
    COOPERATIVE = 1
    """No partitions; members later revoke those that the new assignment takes away."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The subscription of one member of a group, as its leader receives it.

    `owned_partitions` are the member's in `generation`, which is None before its first one, or if
    the member did not send it: those that still exist, of topics that some member subscribes to.
    `group_instance_id` is set for static members (KIP-345), `rack` from `client_rack`. `user_data`
    is the result of the member's `Assignor.user_data`.
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
    """Assigns partitions to members. Each object belongs to one consumer for its whole life."""

    @property
    def name(self) -> str:
        """Name by which members agree; each member must have an assignor with that name."""
        ...

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """Supported protocols."""
        ...

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return data for the leader's assignor; None for nothing.

        `topics` are the member's subscribed topics.
        """
        ...

    def assign(
        self, topics: TopicReplicas, members: Mapping[str, GroupMember]
    ) -> Mapping[str, Assignment | Sequence[TopicPartition]]:
        """Return the partitions of every member, by member id, with no partition twice.

        Called on the member that is the leader. Leaders and replicas of partitions come from its
        latest metadata; no rebalance follows when they move (with `client_rack` one does when racks
        change). A member may only get partitions of topics that it subscribes to, and in a
        cooperative group none that another member still owns.
        """
        ...

    def on_assignment(
        self, partitions: Iterable[TopicPartition], generation: int, user_data: bytes | None = None
    ) -> None:
        """Receive this member's partitions in a new generation, and the `Assignment.user_data`."""
        ...


def member_order(item: tuple[str, GroupMember]) -> tuple[bool, str]:
    """Return a sort key: static members first, by instance id, so that restarts change nothing."""
    member_id, member = item
    if member.group_instance_id is not None:
        return False, member.group_instance_id
    return True, member_id


def is_rack_aware(member_racks: frozenset[str], racks: Iterable[frozenset[str]]) -> bool:
    """Return True if racks matter for partitions whose replicas are in `racks`.

    They do not if members and replicas share no rack, or if all partitions have the same racks.
    """
    of_partitions = list(racks)
    everywhere = frozenset[str]().union(*of_partitions)
    return bool(member_racks & everywhere) and any(here != everywhere for here in of_partitions)
