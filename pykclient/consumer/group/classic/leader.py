"""GroupLeader: assigns partitions to all members while this member is the group's leader.

The leader follows the metadata of all topics; when their partitions change, the group rebalances. A
static leader that has restarted sends no assignment (KIP-814): `UnassignedPartitions` then
describes the group, to find out whether topics have grown.

Owner: the core lock.
Source: ``onLeaderElected`` of Java's ``ConsumerCoordinator``; KIP-429, KIP-814, KIP-881.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Final

from pykclient.arguments import TOPIC_NAME
from pykclient.config.setting import INT_MAX
from pykclient.consumer.group.assignors import (
    Assignment,
    CooperativeStickyAssignor,
    PartitionReplicas,
    RebalanceProtocol,
    TopicReplicas,
)
from pykclient.consumer.group.assignors.setting import common_protocol
from pykclient.consumer.group.classic.protocol import (
    encode_assignment,
    group_member,
    read_assignment,
    read_subscription,
)
from pykclient.errors import (
    DecodeError,
    InconsistentGroupProtocolError,
    UsageError,
    error_for_code,
)
from pykclient.errors.text import printable
from pykclient.network.coordinators import MOVED_ERRORS
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.manager import NEVER_MS, PollResult, Request, check_sent_back
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor, GroupMember
    from pykclient.consumer.group.rebalance import GroupContext
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.log import ClientLog
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
    from pykclient.protocol.messages.describe_groups import DescribedGroup
    from pykclient.protocol.messages.join_group import (
        JoinGroupResponse,
        JoinGroupResponseMember,
    )

KNOWN_TO_COOPERATE: Final = (CooperativeStickyAssignor.name,)
"""Assignors that compare generations: a claim of an old one is not a partition that it owns."""

STABLE: Final = "Stable"
"""State of a stable group; in other states its leader is about to assign."""

Subscriptions = dict[str, "ConsumerProtocolSubscription"]
"""The subscription of each member, by its id."""

GroupAssignment = dict[str, Assignment]
"""Assignment of each member, by its id."""


class GroupLeader:
    """The leader's part of a classic group; call `resign` before each rebalance."""

    def __init__(
        self, config: ConsumerConfig, context: GroupContext, assignors: Mapping[str, Assignor]
    ) -> None:
        self.topics: frozenset[str] = frozenset()
        """Topics of all members, while this one is the leader."""
        self.unsent: frozenset[TopicPartition] | None = None
        """Partitions that this leader would have assigned, but for KIP-814, by which the previous
        assignment stays; None if it was sent, or another member leads."""
        self._context = context
        self._assignors = assignors
        self._protocol = common_protocol(tuple(assignors.values()))
        self._compares_racks = bool(config.client_rack)
        self._assigned_shape: object = None
        """Topics from which the assignment was made; None while another member leads."""
        self._incomplete_version: int | None = None
        """Version of a cluster that lacks topics of other members, while a newer is requested."""
        self._read: tuple[JoinGroupResponse, Subscriptions] | None = None
        """Decoded subscriptions of a response, while the group's topics are not all known."""

    def resign(self) -> None:
        """Follow only this member's topics; another member may lead the next generation."""
        self.unsent = self._assigned_shape = self._incomplete_version = self._read = None
        self._follow(frozenset())

    def is_outdated(self) -> bool:
        return self._assigned_shape is not None and self._assigned_shape != self._shape()

    def _subscription_of(self, member: JoinGroupResponseMember) -> ConsumerProtocolSubscription:
        check_sent_back("JoinGroup", "a member id", member.member_id)
        try:
            return read_subscription(member.metadata)
        except DecodeError as error:
            raise DecodeError(
                f"group {self._context.coordinator.key!r}: the subscription of member "
                f"{printable(member.member_id)!r} cannot be read: {error}"
            ) from error

    def assign(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        """Return the assignment of each member; None until all topics of the group are known.

        Raises:
            KafkaError: a subscription is malformed, or the assignor failed.
        """
        assignor = chosen_assignor(self._assignors, protocol, self._context.coordinator.key)
        subscriptions = self._subscriptions_of(response)
        topics = frozenset[str]().union(*(each.topics for each in subscriptions.values()))
        self._follow(topics)
        cluster = self._context.metadata.cluster
        if not is_known(cluster, topics) and self._awaits_topics(cluster):
            return None
        self._incomplete_version = self._read = None
        replicas = topic_replicas(cluster, topics)
        counts = {topic: len(partitions) for topic, partitions in replicas.items()}
        members = {
            member.member_id: group_member(
                subscriptions[member.member_id], member.group_instance_id, counts
            )
            for member in response.members
        }
        assigned = assign_partitions(assignor, self._protocol, replicas, members)
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

    def _subscriptions_of(self, response: JoinGroupResponse) -> Subscriptions:
        """Return the subscription of each member; each response is decoded once."""
        if self._read is None or self._read[0] is not response:
            found = {each.member_id: self._subscription_of(each) for each in response.members}
            self._read = response, found
        return self._read[1]

    def _follow(self, topics: frozenset[str]) -> None:
        if topics != self.topics:
            self.topics = topics
            self._context.follow_topics()

    def _awaits_topics(self, cluster: Cluster) -> bool:
        """Return True if the next metadata may have more topics than this cluster.

        Metadata requested by name has each topic, even one that does not exist. Metadata of all
        topics lacks missing topics, and waiting for one would make the whole group wait.
        """
        if not self._context.subscription.is_by_pattern or not cluster.nodes:
            return True
        if self._incomplete_version is None:
            self._incomplete_version = cluster.version
            self._context.metadata.request_update()
        return cluster.version <= self._incomplete_version

    def _shape(self) -> object:
        replicas = topic_replicas(self._context.metadata.cluster, self.topics)
        if self._compares_racks:
            return replicas  # these compare by racks
        return {topic: len(partitions) for topic, partitions in replicas.items()}


def chosen_assignor(assignors: Mapping[str, Assignor], name: str, group_id: str) -> Assignor:
    """Return the assignor that all members of a group have.

    Raises:
        InconsistentGroupProtocolError: this member does not have it.
    """
    assignor = assignors.get(name)
    if assignor is None:
        raise InconsistentGroupProtocolError(
            f"the coordinator of group {group_id!r} chose the assignor {printable(name)!r}, and "
            f"this consumer has {', '.join(assignors)}"
        )
    return assignor


def is_known(cluster: Cluster, topics: Iterable[str]) -> bool:
    """Return True if a cluster has all of these topics, or errors for them."""
    return all(topic in cluster.topics or topic in cluster.topic_errors for topic in topics)


def topic_replicas(cluster: Cluster, topics: Iterable[str]) -> TopicReplicas:
    """Return the existing topics, with the brokers of each partition."""
    nodes = cluster.nodes
    found: dict[str, list[PartitionReplicas]] = {}
    for topic in sorted(topics):
        infos = cluster.partitions_for(topic)
        if infos is not None:
            found[topic] = [
                PartitionReplicas(
                    None if info.leader_id is None else nodes.get(info.leader_id),
                    [nodes[each] for each in info.replica_ids if each in nodes],
                )
                for info in infos
            ]
    return found


def assign_partitions(
    assignor: Assignor,
    protocol: RebalanceProtocol,
    topics: TopicReplicas,
    members: Mapping[str, GroupMember],
) -> GroupAssignment:
    """Return the assignment of each member, empty for members that the assignor leaves out.

    Raises:
        UsageError: a custom assignor returned an invalid result: a partition twice, something that
            is not a partition, or, in a cooperative group, a partition that another member owns.
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
    """Return an assignment that can be encoded; `given` may be an iterator."""
    partitions, user_data = (
        (given.partitions, given.user_data) if isinstance(given, Assignment) else (given, None)
    )
    assignment = Assignment(tuple(partitions), user_data)
    if not isinstance(assignment.user_data, (bytes, NoneType)):
        raise TypeError(f"user data must be bytes, not {assignment.user_data!r:.100}")
    for each in assignment.partitions:
        if not _is_partition(each):
            raise TypeError(f"{each!r:.100} is not a TopicPartition")
    return assignment


def _is_partition(given: object) -> bool:
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
    wrong = f"{doubles[0]} twice" if doubles else f"partitions to {min(strangers)!r}, not a member"
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
            f"another one still has it, which a cooperative assignor must not do: leave it out for "
            f"one round"
        )


class UnassignedPartitions:
    """Describes one group; sets `has_found` if wanted partitions are unassigned."""

    def __init__(self, context: GroupContext, log: ClientLog) -> None:
        self.has_found = False
        self._coordinator = context.coordinator
        self._retry_backoff = context.retry_backoff
        self._log = log
        self._wanted: frozenset[TopicPartition] | None = None
        """Partitions that should be assigned; None while there is nothing to compare."""
        self._attempt = Attempt(self._retry_backoff)
        """Attempt of the present request; responses to other requests are late."""

    def compare(self, wanted: frozenset[TopicPartition]) -> None:
        self.forget()
        self._wanted = wanted

    def forget(self) -> None:
        """Stop comparing: the group rebalances."""
        self._wanted = None
        self._attempt = Attempt(self._retry_backoff)
        self.has_found = False

    def restart(self) -> None:
        self._attempt = Attempt(self._retry_backoff)

    def poll(self, now_ms: int) -> PollResult:
        if self._wanted is None:
            return PollResult()
        attempt = self._attempt
        if not attempt.is_due(now_ms):
            return PollResult(next_poll_ms=attempt.next_ms)
        node_id = self._coordinator.node_id()
        if node_id is None:
            return PollResult()
        attempt.sent()
        request = Request(
            DescribeGroupsRequest(groups=[self._coordinator.key]),
            node_id,
            partial(self._on_response, attempt, node_id),
            partial(self._on_failure, attempt, node_id),
        )
        return PollResult([request], NEVER_MS)

    def _on_response(
        self, attempt: Attempt, node_id: int, message: Message | None, now_ms: int
    ) -> None:
        assert isinstance(message, DescribeGroupsResponse)
        if self._attempt is not attempt:
            return
        group_id = self._coordinator.key
        described = next((each for each in message.groups if each.group_id == group_id), None)
        if described is None:
            self._fail(DecodeError(f"a DescribeGroups response lacks {group_id!r}"), now_ms)
        elif described.error_code != 0:
            error = error_for_code(described.error_code, f"DescribeGroups of {group_id!r}")
            if isinstance(error, MOVED_ERRORS):
                self._coordinator.mark_unknown(node_id, error.name)
            self._fail(error, now_ms)
        else:
            self._on_described(described)

    def _on_described(self, described: DescribedGroup) -> None:
        wanted = self._wanted
        assert wanted is not None
        self.forget()
        if described.group_state != STABLE:
            return
        try:
            assigned = frozenset(
                partition
                for member in described.members
                for partition in read_assignment(member.member_assignment).partitions
            )
        except DecodeError as error:
            self._log.info("group %r: its assignment cannot be read: %s", described.group_id, error)
            return
        self.has_found = bool(wanted - assigned)

    def _on_failure(self, attempt: Attempt, node_id: int, error: KafkaError, now_ms: int) -> None:
        if self._attempt is not attempt:
            return
        if error.retriable:
            self._coordinator.mark_unknown(node_id, error)
        self._fail(error, now_ms)

    def _fail(self, error: KafkaError, now_ms: int) -> None:
        final_error = self._attempt.failed(error, now_ms)
        if final_error is not None:
            group_id = self._coordinator.key
            self._log.info("group %r: its assignment is unknown: %s", group_id, final_error)
            self.forget()
