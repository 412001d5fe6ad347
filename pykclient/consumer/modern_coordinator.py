"""ModernCoordinator: the consumer's side of a group of KIP-848.

It knows what is subscribed to and what is assigned, and has partitions change hands;
`ModernMembership` speaks with the coordinator, which assigns. The application is *polling* or
*away*: only while it polls do partitions come and go, so that what it has in hand stays its own.

Owner: the core lock.
Source: KIP-848; Java class ``ConsumerMembershipManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.coordinator import GroupAddress
from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.member import GroupMetadata
from pykclient.consumer.group.modern import ModernMembership
from pykclient.consumer.group.modern_requests import Interest, ModernSettings
from pykclient.consumer.handover import Handover
from pykclient.consumer.membership import NoMembership, commit_refused
from pykclient.consumer.rebalance import RebalanceListener
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import CommitFailedError, RebalanceInProgressError, StaleMemberEpochError
from pykclient.network.backoff import Backoff
from pykclient.network.client_log import ClientLog
from pykclient.network.manager import Operation, PollResult
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.handover import Buffered
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.cluster import Cluster
    from pykclient.network.coordinators import Coordinators
    from pykclient.network.manager import UserCall
    from pykclient.network.metadata import Metadata

__all__ = ["ModernCoordinator"]


class ModernCoordinator:
    """The manager of one consumer's group. Comes before `Coordinators` in the engine."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        group_id: str,
        subscription: SubscriptionState,
        buffer: Buffered,
        metadata: Metadata,
        coordinators: Coordinators,
        user_calls: deque[UserCall],
        commit: Callable[[int], Operation[None]],
        follow_topics: Callable[[], None],
    ) -> None:
        self.group_topics: frozenset[str] = frozenset()
        """Nothing: what the other members read is the coordinator's matter."""
        self.history = GroupHistory()
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._subscription = subscription
        self._metadata = metadata
        self._user_calls = user_calls
        self._follow_topics = follow_topics
        self._handover = Handover(
            subscription,
            buffer,
            user_calls,
            self.history,
            commit=commit,
            client_id=config.client_id,
        )
        self._address = GroupAddress(coordinators, group_id)
        self._exclude_internal_topics = config.exclude_internal_topics
        self._rebalance_timeout_ms = config.max_poll_interval_ms
        self._is_polling = False
        self._leave_commit_deadline_ms = 0
        self._membership = ModernMembership(
            group_id,
            self,
            self._address,
            settings=ModernSettings(
                rebalance_timeout_ms=config.max_poll_interval_ms,
                request_timeout_ms=config.request_timeout_ms,
                server_assignor=config.group_remote_assignor or None,
                rack=config.client_rack or None,
            ),
            history=self.history,
            retry_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
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
            CommitFailedError: this consumer is no member any more.
        """
        identity = self.identity
        if not self._subscription.is_by_group:
            return GroupMetadata(identity.group_id)
        if self._membership.can_commit:
            return identity
        raise CommitFailedError(
            f"this consumer is no member of group {identity.group_id!r} now, and its partitions "
            f"may be read by others; poll joins again. If processing took longer than "
            f"max_poll_interval_ms, raise that or lower max_poll_records"
        )

    def reader(self) -> GroupMetadata:
        """Return as whom to read offsets: the group alone, which anybody may."""
        return GroupMetadata(self.identity.group_id)

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Hear that the coordinator does not take this member's commit; return what to raise."""
        if not member.is_member:
            return NoMembership(member.group_id).on_commit_refused(member, error)
        self._membership.on_commit_refused()
        if error.fatal or isinstance(error, RebalanceInProgressError):
            return error
        if isinstance(error, StaleMemberEpochError) and self._membership.can_commit:
            return error  # it is a member still, with a newer epoch
        return commit_refused(member, error)

    def on_subscribed(self, listener: RebalanceListener | None) -> None:
        """Join, or tell the coordinator, with what is subscribed to now."""
        self._handover.listener = listener or RebalanceListener()
        self._membership.ask_to_join()
        self.on_cluster(self._metadata.cluster)

    def enforce_rebalance(self, reason: str) -> None:
        """Say that it is not for a member to do: the coordinator shares out by itself."""
        self._log.warning(
            "enforce_rebalance(%r) has no effect with group_protocol=consumer: the coordinator "
            "assigns anew when something has changed",
            reason,
        )

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
        """Give everything up and leave; the result comes when the coordinator has been told."""
        self._leave_commit_deadline_ms = commit_deadline_ms
        return self._membership.begin_leave(reason, sends=sends, now_ms=now_ms)

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        return (
            self._handover.has_error
            or self._membership.has_error
            or (self._subscription.is_by_group and self._address.failure() is not None)
        )

    def take_listener_error(self) -> KafkaError | None:
        """Return what a listener failed with, and forget it."""
        return self._handover.take_error()

    def take_error(self) -> KafkaError | None:
        """Return what the application must know of its group, and forget it."""
        error = self._handover.take_error() or self._membership.take_error()
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
        result = self._membership.poll(now_ms, may_rebalance=self._is_polling)
        if not self._is_polling:
            return result
        if self.wants_turn(now_ms):
            return PollResult(result.requests, now_ms)
        return PollResult(result.requests, min(result.next_poll_ms, self._handover.deadline_ms))

    def poll_in_background(self, now_ms: int) -> PollResult:
        """Go on with what must not wait for the application: it may be in a listener of its own."""
        return self._membership.poll(now_ms, may_rebalance=False)

    def on_cluster(self, cluster: Cluster) -> None:
        """Hold a pattern of Python's against the topics that there are by now."""
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self._subscription.match(
                topic.name
                for topic in cluster.topics.values()
                if not (topic.is_internal and self._exclude_internal_topics)
            )

    # Asked by the membership.

    def interest(self) -> Interest:
        """Return what is subscribed to."""
        if self._subscription.mode is SubscriptionMode.BROKER_PATTERN:
            return Interest(frozenset(), self._subscription.broker_pattern)
        return Interest(self._subscription.wanted_topics)

    def resolve(self, target: Mapping[bytes, tuple[int, ...]]) -> dict[bytes, tuple[int, ...]]:
        """Return the part of a target whose topics are known by name."""
        cluster = self._metadata.cluster
        return {
            topic_id: numbers
            for topic_id, numbers in target.items()
            if cluster.topic_name(topic_id) is not None
        }

    def ask_for_names(self) -> None:
        """Have the names of the other topics found out."""
        self._metadata.request_update()

    def reconcile(self, assigned: Mapping[bytes, tuple[int, ...]], now_ms: int) -> Operation[None]:
        """Give up what is not in `assigned`, then take the rest."""
        cluster = self._metadata.cluster
        wanted = sorted(
            TopicPartition(name, number)
            for topic_id, numbers in assigned.items()
            if (name := cluster.topic_name(topic_id)) is not None
            for number in numbers
        )
        owned = self._subscription.partitions
        revoked = sorted(owned.difference(wanted))
        added = [partition for partition in wanted if partition not in owned]
        operation = self._handover.begin(now_ms)
        if revoked:
            self._handover.revoke(revoked, deadline_ms=now_ms + self._rebalance_timeout_ms)
        self._handover.assign(wanted, added)
        self._handover.go()
        self._follow_topics()
        return operation

    def lose(self, now_ms: int) -> Operation[None]:
        """Give everything up that others may have by now."""
        operation = self._handover.begin(now_ms)
        owned = sorted(self._subscription.partitions)
        if owned:
            self._handover.lose(owned)
        self._handover.go()
        return operation

    def give_up(self, now_ms: int) -> Operation[None]:
        """Give everything up, because this consumer leaves."""
        operation = self._handover.begin(now_ms)
        owned = sorted(self._subscription.partitions)
        if owned:
            self._handover.revoke(owned, deadline_ms=self._leave_commit_deadline_ms)
        self._handover.go()
        return operation

    def stop(self, now_ms: int) -> None:
        """Let go of what is under way."""
        self._handover.begin(now_ms)
