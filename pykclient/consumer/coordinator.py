"""ConsumerCoordinator: the consumer's side of its group.

It knows what is subscribed to and what is assigned, leads the group when it falls to this member,
and has partitions change hands; `ClassicMembership` speaks with the coordinator. The application
is *polling* or *away*: only while it polls do partitions come and go, so that what it has in hand
stays its own.

Owner: the core lock.
Source: Java class ``ConsumerCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.consumer.assignors import GroupMember, RebalanceProtocol
from pykclient.consumer.assignors.choice import common_protocol
from pykclient.consumer.group.classic import ClassicMembership
from pykclient.consumer.group.classic_requests import ClassicSettings
from pykclient.consumer.group.consumer_protocol import (
    encode_assignment,
    encode_subscription,
    read_assignment,
)
from pykclient.consumer.group.heartbeat import Heartbeat
from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.leader import is_known, read_members, share_out, topic_racks
from pykclient.consumer.group.member import GroupMetadata
from pykclient.consumer.handover import Handover
from pykclient.consumer.membership import NoMembership, commit_refused
from pykclient.consumer.rebalance import RebalanceListener, given_up_to_join
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import (
    CommitFailedError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UsageError,
)
from pykclient.network.backoff import Backoff
from pykclient.network.client_log import ClientLog
from pykclient.network.coordinators import CoordinatorType
from pykclient.network.manager import Operation, PollResult

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence

    from pykclient.consumer.assignors import Assignor
    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.handover import Buffered
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.cluster import Cluster
    from pykclient.network.coordinators import Coordinators
    from pykclient.network.manager import UserCall
    from pykclient.network.metadata import Metadata
    from pykclient.protocol.messages.join_group import JoinGroupResponse
    from pykclient.types import TopicPartition

__all__ = ["ConsumerCoordinator", "GroupAddress", "GroupInBackground"]


class GroupAddress:
    """Where the coordinator of one group is."""

    def __init__(self, coordinators: Coordinators, group_id: str) -> None:
        self._coordinators = coordinators
        self._group_id = group_id

    def node_id(self) -> int | None:
        """Return whom to ask; None while it is looked up."""
        node = self._coordinators.coordinator(CoordinatorType.GROUP, self._group_id)
        return None if node is None else node.id

    def other_node_id(self) -> int | None:
        """Return the same broker by its connection for data, which no JoinGroup holds up."""
        node = self._coordinators.coordinator(CoordinatorType.GROUP, self._group_id)
        return None if node is None else node.broker_id

    def mark_unknown(self, node_id: int, reason: object) -> None:
        """Have it looked up again, if it is still this one."""
        self._coordinators.mark_unknown(
            CoordinatorType.GROUP, self._group_id, node_id=node_id, reason=reason
        )

    def failure(self) -> KafkaError | None:
        """Return why it cannot be found, if that does not cure itself."""
        return self._coordinators.failure(CoordinatorType.GROUP, self._group_id)


class PolledInBackground(Protocol):
    """What a group does by itself."""

    def poll_in_background(self, now_ms: int) -> PollResult:
        """Go on with what must not wait for the application."""
        ...


class GroupInBackground:
    """The manager of a group while the application is elsewhere."""

    def __init__(self, group: PolledInBackground) -> None:
        self._group = group

    def poll(self, now_ms: int) -> PollResult:
        """Send heartbeats, and go on with what was begun."""
        return self._group.poll_in_background(now_ms)


class ConsumerCoordinator:
    """The manager of one consumer's group. Comes before `Coordinators` in the engine."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        group_id: str,
        assignors: Sequence[Assignor],
        subscription: SubscriptionState,
        buffer: Buffered,
        metadata: Metadata,
        coordinators: Coordinators,
        user_calls: deque[UserCall],
        commit: Callable[[int], Operation[None]],
        follow_topics: Callable[[], None],
    ) -> None:
        self.group_topics: frozenset[str] = frozenset()
        """What all members subscribe to, while this one leads."""
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._subscription = subscription
        self._metadata = metadata
        self.history = GroupHistory()
        self._handover = Handover(
            subscription,
            buffer,
            user_calls,
            self.history,
            commit=commit,
            client_id=config.client_id,
        )
        self._user_calls = user_calls
        self._follow_topics = follow_topics
        self._address = GroupAddress(coordinators, group_id)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = common_protocol(assignors)
        self._rack = config.client_rack or None
        self._exclude_internal_topics = config.exclude_internal_topics
        self._max_poll_interval_ms = config.max_poll_interval_ms
        self._is_polling = False
        self._leave_commit_deadline_ms = 0
        self._joined_topics: frozenset[str] | None = None
        """What the last JoinGroup told; None while there was none."""
        self._compared_version = 0
        """The cluster that was held against `_shared` last."""
        self._shared: object = None
        """What was shared out as the leader; None while another one leads."""
        self._expected: frozenset[TopicPartition] | None = None
        """What this leader would have got had it shared out; None when it did, or does not lead."""
        self._topic_error: KafkaError | None = None
        """Why a topic that is subscribed to cannot be read, however long one waits."""
        self._unmatched_version: int | None = None
        """The cluster whose topics the pattern has not been held against yet."""
        self._incomplete_version: int | None = None
        """The cluster that does not know what others subscribe to, while another is asked for."""
        self._membership = self._make_membership(config, group_id)

    def _make_membership(self, config: ConsumerConfig, group_id: str) -> ClassicMembership:
        retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        return ClassicMembership(
            group_id,
            self,
            self._address,
            settings=ClassicSettings(
                config.session_timeout_ms, config.max_poll_interval_ms, config.request_timeout_ms
            ),
            heartbeat=Heartbeat(
                interval_ms=config.heartbeat_interval_ms,
                session_timeout_ms=config.session_timeout_ms,
                max_poll_interval_ms=config.max_poll_interval_ms,
                retry_backoff=retry_backoff,
            ),
            history=self.history,
            retry_backoff=retry_backoff,
            group_instance_id=config.group_instance_id,
            client_id=config.client_id,
        )

    # Asked by the consumer.

    @property
    def identity(self) -> GroupMetadata:
        """Who this consumer is in its group now, member or not."""
        return self._membership.member

    def member(self) -> GroupMetadata:
        """Return as whom to commit now.

        Raises:
            RebalanceInProgressError: the group is distributing its partitions; poll first.
            CommitFailedError: this consumer is no member any more.
        """
        identity = self.identity
        if not self._subscription.is_by_group or self._membership.can_commit:
            return identity
        if self._membership.is_rebalancing:
            raise RebalanceInProgressError(
                f"group {identity.group_id!r} is distributing its partitions: poll until that is "
                f"done, then commit again what is still assigned"
            )
        raise CommitFailedError(
            f"this consumer is no member of group {identity.group_id!r} any more, and its "
            f"partitions may be read by others; poll joins again. If processing took longer than "
            f"max_poll_interval_ms, raise that or lower max_poll_records"
        )

    def reader(self) -> GroupMetadata:
        """Return as whom to read offsets: the group alone, which anybody may."""
        return GroupMetadata(self.identity.group_id)

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Hear that the coordinator does not take this member's commit; return what to raise."""
        if not self._subscription.is_by_group and not member.is_member:
            return NoMembership(member.group_id).on_commit_refused(member, error)
        self._membership.on_commit_refused(error.code, member)
        if error.fatal or isinstance(error, RebalanceInProgressError):
            return error
        return commit_refused(member, error)

    def on_subscribed(self, listener: RebalanceListener | None) -> None:
        """Join, or join again, with what is subscribed to now."""
        self._handover.listener = listener or RebalanceListener()
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self._unmatched_version = self._metadata.cluster.version
            self._metadata.request_update()
        else:
            self._unmatched_version = None
        if self.identity.is_member or self._membership.needs_join:
            return  # `_notice_changes` sees it
        self._membership.ask_to_join("the consumer has subscribed")

    def enforce_rebalance(self, reason: str) -> None:
        """Join again at the next poll."""
        self._membership.ask_to_join(reason)

    def begin_poll(self) -> None:
        """Note that the application is done with what it had: partitions may come and go."""
        self._is_polling = True

    def end_poll(self) -> None:
        """Note that the application goes away with records."""
        self._is_polling = False

    def wants_turn(self, now_ms: int) -> bool:
        """Whether the group has business now that goes before records."""
        return bool(self._user_calls) or (
            self._subscription.is_by_group
            and self._unmatched_version is None
            and self._membership.wants_turn(now_ms)
        )

    def begin_leave(
        self, reason: str, *, sends: bool, now_ms: int, commit_deadline_ms: int
    ) -> Operation[None]:
        """Give everything up and leave; the result comes when the coordinator has been told.

        Partitions go in `poll` while the application polls. `sends` False leaves the coordinator
        to find out when the session ends.
        """
        self._joined_topics = self._shared = None
        self._leave_commit_deadline_ms = commit_deadline_ms
        return self._membership.begin_leave(reason, sends=sends, now_ms=now_ms)

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        return (
            self._handover.has_error
            or self._membership.has_error
            or self._topic_error is not None
            or (self._subscription.is_by_group and self._address.failure() is not None)
        )

    def take_listener_error(self) -> KafkaError | None:
        """Return what a listener failed with, and forget it."""
        return self._handover.take_error()

    def take_error(self) -> KafkaError | None:
        """Return what the application must know of its group, and forget it."""
        error = self._handover.take_error() or self._membership.take_error()
        if error is None:
            error, self._topic_error = self._topic_error, None
        if error is None and self._subscription.is_by_group:
            error = self._address.failure()
        return error

    @property
    def has_request_in_flight(self) -> bool:
        """Whether the coordinator owes an answer."""
        return self._membership.has_request_in_flight

    # Asked by the engine.

    def poll(self, now_ms: int) -> PollResult:
        """Go on with what the group needs."""
        if self._is_polling:
            self._handover.expire(now_ms)
            self._notice_changes()
        may_rebalance = self._is_polling and self._unmatched_version is None
        result = self._membership.poll(now_ms, may_rebalance=may_rebalance)
        if not self._is_polling:
            return result
        if self.wants_turn(now_ms):
            return PollResult(result.requests, now_ms)
        return PollResult(result.requests, min(result.next_poll_ms, self._handover.deadline_ms))

    def poll_in_background(self, now_ms: int) -> PollResult:
        """Go on with what must not wait for the application: it may be in a listener of its own."""
        return self._membership.poll(now_ms, may_rebalance=False)

    def on_cluster(self, cluster: Cluster) -> None:
        """Hold what is subscribed to against the topics that there are by now."""
        if self._subscription.mode is SubscriptionMode.TOPICS:
            # Of partitions that are assigned it is told anyway; a refused topic has none.
            refused = self._subscription.wanted_topics & cluster.topic_errors.keys()
            errors = (cluster.topic_errors[topic] for topic in sorted(refused))
            self._topic_error = next((error for error in errors if not error.retriable), None)
        if self._subscription.mode is not SubscriptionMode.PATTERN:
            return
        if self._unmatched_version is not None and cluster.version <= self._unmatched_version:
            return
        self._unmatched_version = None
        self._subscription.match(
            topic.name
            for topic in cluster.topics.values()
            if not (topic.is_internal and self._exclude_internal_topics)
        )

    def _notice_changes(self) -> None:
        """Join again when what the last round was made from does not hold any more.

        Runs in each turn, and costs nothing while nothing is new.
        """
        wanted, version = self._subscription.wanted_topics, self._metadata.cluster.version
        if wanted is self._joined_topics and version == self._compared_version:
            return
        if self._membership.needs_join or not self.identity.is_member:
            return
        if self._joined_topics not in (None, wanted):
            self._membership.ask_to_join("subscription has changed")
            return
        self._compared_version = version
        if self._shared is not None and self._shared != self._shape():
            self._membership.ask_to_join("cached metadata has changed")

    def _shape(self) -> object:
        """What an assignment is made from, of the cluster: partitions and, if they count, racks."""
        cluster = self._metadata.cluster
        racks = topic_racks(cluster, self.group_topics)
        if self._rack is not None:
            return racks
        return {topic: len(partitions) for topic, partitions in racks.items()}

    # Asked by the membership.

    def protocols(self, member: GroupMetadata) -> list[tuple[str, bytes]]:
        """Return the assignors, with what the leader shall know for each."""
        topics = self._joined_topics = self._subscription.wanted_topics
        owned = tuple(sorted(self._subscription.partitions))
        generation = member.generation if member.is_member else None
        return [
            (
                assignor.name,
                encode_subscription(
                    GroupMember(
                        topics=topics,
                        owned_partitions=owned,
                        generation=generation,
                        rack=self._rack,
                        user_data=assignor.user_data(topics),
                    )
                ),
            )
            for assignor in self._assignors.values()
        ]

    def prepare(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give up what must not be held while joining."""
        self._shared = self._expected = None
        self._follow_group(frozenset())
        operation = self._handover.begin(now_ms)
        owned = sorted(self._subscription.partitions)
        if not is_member:
            if owned:
                self._handover.lose(owned)
        else:
            given_up = given_up_to_join(self._protocol, owned, self._subscription.wanted_topics)
            if given_up or self._protocol is RebalanceProtocol.EAGER:
                deadline_ms = now_ms + self._max_poll_interval_ms
                self._handover.revoke(given_up, deadline_ms=deadline_ms)
        self._handover.go()
        return operation

    def lead(
        self, protocol: str, response: JoinGroupResponse
    ) -> Sequence[tuple[str, bytes]] | None:
        """Share out; None until all topics of the group are known."""
        assignor = self._assignor(protocol)
        members = read_members(response.members)
        topics = frozenset[str]().union(*(member.topics for member in members.values()))
        self._follow_group(topics)
        cluster = self._metadata.cluster
        if not is_known(cluster, topics) and self._awaits_topics(cluster):
            return None
        self._incomplete_version = None
        assigned = share_out(assignor, self._protocol, topic_racks(cluster, topics), members)
        given_topics = {each.topic for given in assigned.values() for each in given}
        self._follow_group(topics | given_topics)
        self._shared, self._compared_version = self._shape(), cluster.version
        if response.skip_assignment:
            # KIP-814: what was shared out before this leader restarted holds; if it still fits.
            self._expected = frozenset(assigned.get(response.member_id, ()))
            return []
        return [(member, encode_assignment(given)) for member, given in assigned.items()]

    def _awaits_topics(self, cluster: Cluster) -> bool:
        """Whether the next metadata may tell of more topics than this cluster has.

        Of topics asked for by name each is told of, also one that does not exist. Who asks for all
        hears nothing of that one, and must not wait for it: the whole group would.
        """
        if not self._subscription.is_by_pattern:
            return True
        if self._incomplete_version is None:
            self._incomplete_version = cluster.version
            self._metadata.request_update()
        return cluster.version <= self._incomplete_version

    def take(self, protocol: str, assignment: bytes, now_ms: int) -> Operation[str | None]:
        """Take what came, and give up what is not in it."""
        assignor = self._assignor(protocol)
        assigned = read_assignment(assignment)
        taken: Operation[str | None] = Operation()
        if not self._fits(assigned):
            taken.succeed("received assignment does not match the current subscription")
            return taken
        try:
            assignor.on_assignment(assigned, self.identity.generation)
        except Exception as error:
            raise UsageError(f"the assignor {protocol!r} failed: {error!r}") from error
        owned = self._subscription.partitions
        revoked = sorted(owned.difference(assigned))
        added = sorted(set(assigned) - owned)
        operation = self._handover.begin(now_ms)
        if revoked:
            self._handover.revoke(revoked, deadline_ms=now_ms + self._max_poll_interval_ms)
        self._handover.assign(assigned, added)
        reason = "need to revoke partitions and re-join" if revoked else None
        if self._expected is not None and self._expected != set(assigned):
            reason = "the assignment from before this leader restarted is out of date"
        self._expected = None
        operation.on_done(lambda _: taken.succeed(reason))
        self._handover.go()
        return taken

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give up everything."""
        self._follow_group(frozenset())
        operation = self._handover.begin(now_ms)
        owned = sorted(self._subscription.partitions)
        if owned and is_member:
            self._handover.revoke(owned, deadline_ms=self._leave_commit_deadline_ms)
        elif owned:
            self._handover.lose(owned)
        self._handover.go()
        return operation

    def _assignor(self, name: str) -> Assignor:
        assignor = self._assignors.get(name)
        if assignor is None:
            raise InconsistentGroupProtocolError(
                f"the coordinator of group {self.identity.group_id!r} chose the assignor {name!r}, "
                f"and this consumer has {', '.join(self._assignors)}"
            )
        return assignor

    def _fits(self, assigned: Sequence[TopicPartition]) -> bool:
        topics = {partition.topic for partition in assigned}
        if self._subscription.mode is SubscriptionMode.PATTERN:
            pattern = self._subscription.pattern
            assert pattern is not None
            return all(pattern.fullmatch(topic) for topic in topics)
        return topics <= self._subscription.wanted_topics

    def _follow_group(self, topics: frozenset[str]) -> None:
        if topics != self.group_topics:
            self.group_topics = topics
            self._follow_topics()
