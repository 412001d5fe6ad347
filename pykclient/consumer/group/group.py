"""ConsumerGroup: the consumer's side of its group, as far as both protocols have it alike.

It knows what is subscribed to and what is assigned, and has partitions change hands; a membership
speaks with the coordinator. The application is *polling* or *away*: only while it polls do
partitions come and go, so that what it has in hand stays its own. `ConsumerCoordinator` adds what
the classic protocol wants of a member, `ModernCoordinator` what KIP-848 does.

Owner: the core lock.
Source: Java classes ``ConsumerCoordinator`` and ``ConsumerMembershipManager``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.metadata import CoordinatorNode, GroupMetadata
from pykclient.consumer.group.protocols import NoMembership, commit_refused
from pykclient.consumer.group.rebalance import Handover, RebalanceListener
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import CommitFailedError, RebalanceInProgressError
from pykclient.network.log import ClientLog
from pykclient.network.manager import PollResult

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Collection

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.participant import GroupMembership
    from pykclient.consumer.group.rebalance import Buffered
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.coordinators import Coordinators
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.manager import Operation, UserCall
    from pykclient.types import TopicPartition

__all__ = ["ConsumerGroup", "GroupInBackground", "GroupSurroundings"]


class GroupSurroundings(NamedTuple):
    """The parts of the same consumer that its group works with."""

    group_id: str
    subscription: SubscriptionState
    buffer: Buffered
    metadata: Metadata
    coordinators: Coordinators
    user_calls: deque[UserCall]
    commit: Callable[[int], Operation[None]]
    """Commits before a revocation, until a deadline."""
    follow_topics: Callable[[], None]
    """Has metadata kept for what is wanted, assigned and in `group_topics`."""


class ConsumerGroup(ABC):
    """The manager of one consumer's group. Comes before `Coordinators` in the engine."""

    _membership: GroupMembership
    """Made by the class for the protocol."""

    def __init__(self, config: ConsumerConfig, surroundings: GroupSurroundings) -> None:
        self.history = GroupHistory()
        self.group_topics: frozenset[str] = frozenset()
        """What all members subscribe to, while this one has to share it out."""
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._subscription = surroundings.subscription
        self._metadata = surroundings.metadata
        self._user_calls = surroundings.user_calls
        self._follow_topics = surroundings.follow_topics
        self._handover = Handover(
            surroundings.subscription,
            surroundings.buffer,
            surroundings.user_calls,
            self.history,
            commit=surroundings.commit,
            client_id=config.client_id,
        )
        self._address = CoordinatorNode(surroundings.coordinators, surroundings.group_id)
        self._exclude_internal_topics = config.exclude_internal_topics
        self._max_poll_interval_ms = config.max_poll_interval_ms
        self._is_polling = False
        self._leave_commit_deadline_ms = 0
        self._topic_error: KafkaError | None = None
        """Why a topic that is subscribed to cannot be read, however long one waits."""

    # Asked by the consumer.

    @property
    def identity(self) -> GroupMetadata:
        """Who this consumer is in its group now, member or not."""
        return self._membership.member

    def member(self) -> GroupMetadata:
        """Return as whom to commit now: the group alone for partitions assigned by hand.

        Raises:
            RebalanceInProgressError: the group is distributing its partitions; poll first.
            CommitFailedError: this consumer is no member any more.
        """
        if not self._subscription.is_by_group:
            return self.reader()
        if self._membership.can_commit:
            return self.identity
        raise CommitFailedError(
            f"this consumer is no member of group {self.identity.group_id!r} now, and its "
            f"partitions may be read by others; poll joins again. If processing took longer than "
            f"max_poll_interval_ms, raise that or lower max_poll_records"
        )

    def reader(self) -> GroupMetadata:
        """Return as whom to read offsets: the group alone, which anybody may."""
        return GroupMetadata(self.identity.group_id)

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Hear that the coordinator does not take this member's commit; return what to raise."""
        if not member.is_member:
            return NoMembership(member.group_id).on_commit_refused(member, error)
        self._membership.on_commit_refused(error.code, member)
        if error.fatal or isinstance(error, RebalanceInProgressError):
            return error
        return commit_refused(member, error)

    def on_subscribed(self, listener: RebalanceListener | None) -> None:
        """Join with what is subscribed to now, or have the group hear of it."""
        self._handover.listener = listener or RebalanceListener()
        self._topic_error = None
        self._join_with_subscription()

    @abstractmethod
    def enforce_rebalance(self, reason: str) -> None:
        """Have the group share out anew, if that is for members to ask."""

    def note_poll(self, now_ms: int) -> None:
        """Note that the application asks for records: it is not late."""
        self._membership.note_poll(now_ms)

    def begin_poll(self) -> None:
        """Note that the application is done with what it had: partitions may come and go."""
        self._is_polling = True

    def end_poll(self) -> None:
        """Note that the application goes away with records."""
        self._is_polling = False

    def wants_turn(self, now_ms: int) -> bool:
        """Whether the group has business now that goes before records."""
        return bool(self._user_calls) or (
            self._subscription.is_by_group and self._membership.wants_turn(now_ms)
        )

    def begin_leave(
        self, reason: str, *, sends: bool, now_ms: int, commit_deadline_ms: int
    ) -> Operation[None]:
        """Give everything up and leave; the result comes when the coordinator has been told.

        Partitions go in `poll` while the application polls. `sends` False leaves the coordinator
        to find out when the session ends.
        """
        self._topic_error = None
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
    def trouble(self) -> KafkaError | None:
        """Why the coordinator does not take this consumer in; None if it does, or need not."""
        return self._membership.trouble if self._subscription.is_by_group else None

    @property
    def has_request_in_flight(self) -> bool:
        """Whether the coordinator owes an answer."""
        return self._membership.has_request_in_flight

    # Asked by the engine.

    def poll(self, now_ms: int) -> PollResult:
        """Go on with what the group needs."""
        if self._is_polling:
            self._handover.expire(now_ms)
        result = self._membership.poll(now_ms, may_rebalance=self._is_polling)
        if not self._is_polling:
            return result
        if self.wants_turn(now_ms):
            return PollResult(result.requests, now_ms)
        return PollResult(result.requests, min(result.next_poll_ms, self._handover.deadline_ms))

    def restart(self, now_ms: int) -> None:
        """Begin anew what is under way with the coordinator and with partitions.

        The state of the membership tells whether it was settled; a round that was not is run again.
        """
        self._handover.restart()
        self._membership.restart(now_ms, is_wanted=self._subscription.is_by_group)

    def poll_in_background(self, now_ms: int) -> PollResult:
        """Go on with what must not wait for the application: it may be in a listener of its own."""
        return self._membership.poll(now_ms, may_rebalance=False)

    def on_cluster(self, cluster: Cluster) -> None:
        """Hold what is subscribed to against the topics that there are by now."""
        if not cluster.nodes:
            return  # metadata starts over, and knows of no topic yet
        if self._subscription.mode is SubscriptionMode.TOPICS:
            # Of partitions that are assigned it is told anyway; a refused topic has none.
            refused = self._subscription.wanted_topics & cluster.topic_errors.keys()
            errors = (cluster.topic_errors[topic] for topic in sorted(refused))
            self._topic_error = next((error for error in errors if not error.retriable), None)
        elif self._subscription.mode is SubscriptionMode.PATTERN:
            self._match(cluster)

    # Asked by the membership.

    def give_up(self, *, is_member: bool, now_ms: int) -> Operation[None]:
        """Give everything up because this consumer leaves, or lose what others may have by now."""
        operation = self._handover.begin(now_ms)
        owned = sorted(self._subscription.partitions)
        if owned and is_member:
            self._handover.revoke(owned, deadline_ms=self._leave_commit_deadline_ms)
        elif owned:
            self._handover.lose(owned)
        self._handover.go()
        return operation

    # What the protocols make of it.

    @abstractmethod
    def _join_with_subscription(self) -> None:
        """Have the membership see to what is subscribed to now."""

    def _match(self, cluster: Cluster) -> None:
        """Look which topics a pattern of Python's matches."""
        self._subscription.match(
            topic.name
            for topic in cluster.topics.values()
            if not (topic.is_internal and self._exclude_internal_topics)
        )

    def _change_to(self, assigned: Collection[TopicPartition], now_ms: int) -> Operation[None]:
        """Have exactly `assigned`: give up what is not in it, then take the rest."""
        owned = self._subscription.partitions
        revoked = sorted(owned.difference(assigned))
        operation = self._handover.begin(now_ms)
        if revoked:
            self._handover.revoke(revoked, deadline_ms=now_ms + self._max_poll_interval_ms)
        self._handover.assign(assigned)
        self._handover.go()
        return operation


class GroupInBackground:
    """The manager of a group while the application is elsewhere."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group

    def poll(self, now_ms: int) -> PollResult:
        """Send heartbeats, and go on with what was begun."""
        return self._group.poll_in_background(now_ms)
