"""GroupLeader: assigns the partitions of all members' topics, while this member leads its group.

The group's topics are followed in metadata meanwhile; when their partitions change, the leader has
the group rebalance.

Owner: the core lock.
Source: ``onLeaderElected`` of Java's ``ConsumerCoordinator``; KIP-429, KIP-814, KIP-881.
"""

from __future__ import annotations

from collections import Counter
from types import NoneType
from typing import TYPE_CHECKING, Final

from pykclient.arguments import TOPIC_NAME
from pykclient.config.setting import INT_MAX
from pykclient.consumer.group.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    RebalanceProtocol,
    TopicRacks,
)
from pykclient.consumer.group.assignors.setting import common_protocol
from pykclient.consumer.group.classic.protocol import encode_assignment, read_subscription
from pykclient.errors import InconsistentGroupProtocolError, UsageError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor, GroupMember
    from pykclient.consumer.group.wiring import GroupWiring
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.protocol.messages.join_group import (
        JoinGroupResponse,
        JoinGroupResponseMember,
    )

__all__ = [
    "GroupAssignment",
    "GroupLeader",
    "assign_partitions",
    "chosen_assignor",
    "is_known",
    "read_members",
    "topic_racks",
]

KNOWN_TO_COOPERATE: Final = (CooperativeStickyAssignor.name,)
"""It compares generations, too: what a member claims of an old one is no partition that it has."""

GroupAssignment = dict[str, Assignment]
"""The assignment of each member, by its id."""


class GroupLeader:
    """What the leader of a classic group does; `resign` before each rebalance."""

    def __init__(
        self, config: ConsumerConfig, wiring: GroupWiring, assignors: Mapping[str, Assignor]
    ) -> None:
        self.topics: frozenset[str] = frozenset()
        """What all members subscribe to, while this one assigns their partitions."""
        self.unsent: frozenset[TopicPartition] | None = None
        """What this leader would have assigned, but for KIP-814, by which the assignment of before
        holds; None when it was sent, or another member leads."""
        self._wiring = wiring
        self._assignors = assignors
        self._protocol = common_protocol(tuple(assignors.values()))
        self._compares_racks = bool(config.client_rack)
        self._assigned_shape: object = None
        """What the assignment was made from; None while another member leads."""
        self._incomplete_version: int | None = None
        """The cluster that lacks topics of other members, while another one is requested."""

    def resign(self) -> None:
        """Follow the topics of this member alone; another one may lead the next generation."""
        self.unsent = self._assigned_shape = self._incomplete_version = None
        self._follow(frozenset())

    def is_outdated(self) -> bool:
        """Whether the metadata is not that of the assignment any more."""
        return self._assigned_shape is not None and self._assigned_shape != self._shape()

    def assign(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        """Return the assignment of each member; None until all topics of the group are known.

        Raises:
            KafkaError: the subscriptions cannot be read, or the assignor failed.
        """
        assignor = chosen_assignor(self._assignors, protocol, self._wiring.coordinator.group_id)
        members = read_members(response.members)
        topics = frozenset[str]().union(*(member.topics for member in members.values()))
        self._follow(topics)
        cluster = self._wiring.metadata.cluster
        if not is_known(cluster, topics) and self._awaits_topics(cluster):
            return None
        self._incomplete_version = None
        racks = topic_racks(cluster, topics)
        assigned = assign_partitions(assignor, self._protocol, racks, members)
        all_assigned = [each for one in assigned.values() for each in one.partitions]
        self._follow(topics.union(partition.topic for partition in all_assigned))
        self._assigned_shape = self._shape()
        if response.skip_assignment:
            self.unsent = frozenset(all_assigned)
            return []
        return [
            (member_id, encode_assignment(one.partitions, one.user_data))
            for member_id, one in assigned.items()
        ]

    def _follow(self, topics: frozenset[str]) -> None:
        if topics != self.topics:
            self.topics = topics
            self._wiring.follow_topics()

    def _awaits_topics(self, cluster: Cluster) -> bool:
        """Whether the next metadata may have more topics than this cluster.

        Metadata requested by name has each topic, also one that does not exist. Metadata of all
        topics lacks that one, and it must not be waited for: the whole group would wait.
        """
        if not self._wiring.subscription.is_by_pattern or not cluster.nodes:
            return True
        if self._incomplete_version is None:
            self._incomplete_version = cluster.version
            self._wiring.metadata.request_update()
        return cluster.version <= self._incomplete_version

    def _shape(self) -> object:
        """What an assignment is made from, of the cluster: partitions and, if they count, racks."""
        racks = topic_racks(self._wiring.metadata.cluster, self.topics)
        if self._compares_racks:
            return racks
        return {topic: len(partitions) for topic, partitions in racks.items()}


def chosen_assignor(assignors: Mapping[str, Assignor], name: str, group_id: str) -> Assignor:
    """Return the assignor that the members of a group have in common.

    Raises:
        InconsistentGroupProtocolError: this member does not have it.
    """
    assignor = assignors.get(name)
    if assignor is None:
        raise InconsistentGroupProtocolError(
            f"the coordinator of group {group_id!r} chose the assignor {name!r}, and this consumer "
            f"has {', '.join(assignors)}"
        )
    return assignor


def read_members(members: Iterable[JoinGroupResponseMember]) -> dict[str, GroupMember]:
    """Read the subscriptions of the members.

    Raises:
        DecodeError: one cannot be read.
    """
    return {
        member.member_id: read_subscription(member.metadata, member.group_instance_id)
        for member in members
    }


def is_known(cluster: Cluster, topics: Iterable[str]) -> bool:
    """Whether a cluster has all of these topics, or the errors of them."""
    return all(topic in cluster.topics or topic in cluster.topic_errors for topic in topics)


def topic_racks(cluster: Cluster, topics: Iterable[str]) -> TopicRacks:
    """Return the topics that there are, with the racks of each partition's replicas."""
    racks = {node.id: node.rack for node in cluster.nodes.values()}
    found: dict[str, list[frozenset[str]]] = {}
    for topic in sorted(topics):
        infos = cluster.partitions_for(topic)
        if infos is not None:
            found[topic] = [
                frozenset(rack for each in info.replica_ids if (rack := racks.get(each)))
                for info in infos
            ]
    return found


def assign_partitions(
    assignor: Assignor,
    protocol: RebalanceProtocol,
    topics: TopicRacks,
    members: Mapping[str, GroupMember],
) -> GroupAssignment:
    """Return the assignment of each member, empty for one that the assignor leaves out.

    Raises:
        UsageError: an assignor of the user's own broke the rules: a partition that is assigned
            twice, that is no partition, or, in a cooperative group, that another member still has.
    """
    assigned = {member_id: Assignment(()) for member_id in members}
    try:
        for member_id, given in assignor.assign(topics, members).items():
            assigned[member_id] = _checked(given)
    except Exception as error:
        raise_of_signal_handler(error)
        raise UsageError(f"the assignor {assignor.name!r} failed: {error!r}") from error
    _check_members(assignor, assigned, members)
    if protocol is RebalanceProtocol.COOPERATIVE and assignor.name not in KNOWN_TO_COOPERATE:
        _check_cooperative(assignor, assigned, members)
    return assigned


def _checked(given: Assignment | Iterable[TopicPartition]) -> Assignment:
    """Return an assignment that can be encoded, also of partitions that can be read only once."""
    partitions, user_data = (
        (given.partitions, given.user_data) if isinstance(given, Assignment) else (given, None)
    )
    assignment = Assignment(tuple(partitions), user_data)
    if not isinstance(assignment.user_data, (bytes, NoneType)):
        raise TypeError(f"user data must be bytes, not {assignment.user_data!r:.100}")
    for each in assignment.partitions:
        if not _is_partition(each):
            raise TypeError(f"{each!r:.100} is no TopicPartition")
    return assignment


def _is_partition(given: object) -> bool:
    """Whether what the user's code returned can be encoded: it may be anything."""
    return (
        isinstance(given, TopicPartition)
        and isinstance(given.topic, str)
        and TOPIC_NAME.fullmatch(given.topic) is not None
        and isinstance(given.partition, int)
        and not isinstance(given.partition, bool)
        and 0 <= given.partition <= INT_MAX
    )


def _check_members(
    assignor: Assignor, assigned: Mapping[str, Assignment], members: Iterable[str]
) -> None:
    strangers = assigned.keys() - set(members)
    counts = Counter(partition for one in assigned.values() for partition in one.partitions)
    doubles = [partition for partition, count in counts.items() if count > 1]
    if not strangers and not doubles:
        return
    wrong = f"{doubles[0]} twice" if doubles else f"partitions to {min(strangers)!r}, no member"
    raise UsageError(f"the assignor {assignor.name!r} assigned {wrong}; correct it")


def _check_cooperative(
    assignor: Assignor, assigned: Mapping[str, Assignment], members: Mapping[str, GroupMember]
) -> None:
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, assignment in assigned.items():
        owned = members[member_id].owned_partitions
        added.update(set(assignment.partitions).difference(owned))
        revoked.update(set(owned).difference(assignment.partitions))
    if added & revoked:
        raise UsageError(
            f"the assignor {assignor.name!r} assigned {min(added & revoked)} to a member while "
            f"another one still has it, which a cooperative assignor must not: leave it out for a "
            f"round"
        )
