"""ConsumerGroup: the consumer's side of its group, common to both protocols.

Partitions are revoked and assigned only while the application is in `poll`, so that no other member
gets the partitions of the records it processes. `ClassicMembership` or `Kip848Membership` exchanges
requests with the coordinator and returns changes as an `Intent`, which `Reconciliation` carries
out. With ``group_protocol=auto`` an `AutoMembership` chooses between the two.

`max_poll_interval_ms` is checked here, by the client itself, in `poll_in_background`:
`consumer/heartbeat_thread.py` runs it while the application is outside `poll`. A late member leaves
by `leave_late` of the membership. Sessions are checked by the coordinator: a classic member whose
session passes without a response only looks for another coordinator.

Owner: the core lock.
Source: Java classes ``ConsumerCoordinator`` and ``ConsumerMembershipManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.group.auto import AutoMembership
from pykclient.consumer.group.classic.membership import ClassicMembership
from pykclient.consumer.group.history import GroupHistory
from pykclient.consumer.group.identity import MemberIdentity
from pykclient.consumer.group.kip848.membership import Kip848Membership
from pykclient.consumer.group.metadata import (
    NO_MEMBER_CURES,
    commit_in_rebalance,
    commit_without_membership_refused,
)
from pykclient.consumer.group.rebalance import Assign, RebalanceListener, Reconciliation
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import CommitFailedError
from pykclient.errors.tracebacks import renewed
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, PollResult
from pykclient.types import GroupMetadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor
    from pykclient.consumer.group.rebalance import GroupContext, Intent
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.manager import Operation
    from pykclient.types import TopicPartition


class ConsumerGroup:
    """Manager of one consumer's group. Comes before `Coordinators` in the engine."""

    def __init__(
        self, config: ConsumerConfig, context: GroupContext, assignors: Sequence[Assignor]
    ) -> None:
        self.history = GroupHistory()
        self._config = config
        self._context = context
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._subscription = context.subscription
        self._coordinator = context.coordinator
        self._reconciliation = Reconciliation(config, context, self.history)
        self._identity = MemberIdentity(context.coordinator.key, config.group_instance_id)
        self._membership = self._new_membership(assignors)
        self._is_polling = False
        self._polled_ms = 0
        """Time of the application's last poll."""
        self._topic_error: KafkaError | None = None
        """Final error of a subscribed topic."""

    def _new_membership(
        self, assignors: Sequence[Assignor]
    ) -> ClassicMembership | Kip848Membership | AutoMembership:
        config, context, identity = self._config, self._context, self._identity
        if config.group_protocol == "consumer":
            return Kip848Membership(config, context, self.history, identity)
        classic = ClassicMembership(config, context, self.history, assignors, identity=identity)
        if config.group_protocol == "classic":
            return classic
        kip848 = Kip848Membership(config, context, self.history, identity)
        return AutoMembership(config, context, classic=classic, kip848=kip848)

    # For the consumer.

    @property
    def identity(self) -> GroupMetadata:
        """The member that got the partitions of this consumer; see `MemberIdentity`."""
        return self._identity.member._replace(is_subscribed=self._subscription.is_by_group)

    @property
    def protocol(self) -> str | None:
        """The group's protocol, `classic` or `consumer`; None before `auto` has chosen it."""
        return self._membership.protocol

    @property
    def topics(self) -> frozenset[str]:
        return self._membership.topics

    def member(self) -> GroupMetadata:
        """Return the member for a commit now; with `assign` only the group.

        Raises:
            RebalanceInProgressError: the group is rebalancing; poll first.
            CommitFailedError: this consumer is no longer a member.
        """
        group_id = self._coordinator.key
        if not self._subscription.is_by_group:
            return GroupMetadata(group_id)
        if self._membership.is_rebalancing:
            raise commit_in_rebalance(group_id)
        if self._membership.can_commit:
            return self._membership.member
        raise CommitFailedError(
            f"this consumer is not a member of group {group_id!r} now, and other members may read "
            f"its partitions; poll joins again. {NO_MEMBER_CURES}"
        )

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Handle a commit that the coordinator refused; return the error to raise."""
        if not member.is_member:
            return commit_without_membership_refused(member.group_id, error)
        return self._membership.on_commit_refused(member, error)

    def on_subscribed(self, listener: RebalanceListener | None) -> None:
        """Join with the new subscription, or send it to the coordinator."""
        self._reconciliation.listener = listener or RebalanceListener()
        self._topic_error = None
        self._membership.on_subscribed()

    def on_assigned_by_hand(self) -> None:
        """Commit without a member from now on: the application has assigned partitions itself."""
        self._identity.reset()

    def enforce_rebalance(self, reason: str) -> None:
        """Request a rebalance, if members may do so."""
        self._membership.enforce_rebalance(reason)

    def note_poll(self, now_ms: int) -> None:
        """Restart `max_poll_interval_ms`, since the application polls."""
        self._polled_ms = now_ms

    def begin_poll(self) -> None:
        """Allow changes of partitions: the application has processed its records."""
        self._is_polling = True

    def end_poll(self) -> None:
        self._is_polling = False

    def wants_turn(self, now_ms: int) -> bool:
        """Return True if the group has something to do before records are returned."""
        return bool(self._context.user_calls) or (
            self._subscription.is_by_group and self._membership.wants_turn(now_ms)
        )

    def begin_leave(
        self, reason: str, *, sends: bool, now_ms: int, commit_deadline_ms: int
    ) -> Operation[None]:
        """Revoke everything and leave; the result ends when the coordinator was notified.

        The steps follow in `poll` between `begin_poll` and `end_poll`. With `sends` False the
        coordinator notices when the session ends.
        """
        self._topic_error = None
        intent = self._membership.begin_leave(reason, sends=sends)
        intent.commit_deadline_ms = commit_deadline_ms
        self._carry_out(intent, now_ms)
        return self._membership.left

    @property
    def has_error(self) -> bool:
        return (
            self._reconciliation.has_error
            or self._membership.has_error
            or self._topic_error is not None
            or (self._subscription.is_by_group and self._coordinator.failure() is not None)
        )

    def take_listener_error(self) -> KafkaError | None:
        return self._reconciliation.take_error()

    def take_error(self) -> KafkaError | None:
        error = self._reconciliation.take_error() or self._membership.take_error()
        if error is None:
            error, self._topic_error = self._topic_error, None
        if error is not None and error.fatal:
            return renewed(error)  # each poll raises it
        if error is None and self._subscription.is_by_group:
            failure = self._coordinator.failure()
            return None if failure is None else renewed(failure)  # until it is looked up again
        return error

    @property
    def rejection(self) -> KafkaError | None:
        """Error by which the coordinator does not accept this member, or None."""
        return self._membership.rejection if self._subscription.is_by_group else None

    @property
    def unlisted(self) -> Sequence[TopicPartition]:
        """Assigned partitions that metadata does not list yet, one per topic."""
        return self._membership.unlisted if self._subscription.is_by_group else ()

    @property
    def has_request_in_flight(self) -> bool:
        return self._membership.has_request_in_flight

    # For the engine.

    def poll(self, now_ms: int) -> PollResult:
        if not self._is_polling:
            return self.poll_in_background(now_ms)
        self._polled_ms = now_ms
        self._reconciliation.expire(now_ms)
        intent = self._membership.advance(now_ms)
        if intent is not None:
            self._carry_out(intent, now_ms)
        result = self._membership.poll(now_ms, may_rebalance=True)
        if self.wants_turn(now_ms):
            return PollResult(result.requests, now_ms)
        next_ms = min(result.next_poll_ms, self._reconciliation.deadline_ms)
        return PollResult(result.requests, next_ms)

    def restart(self, now_ms: int) -> None:
        """Start over after an interrupt.

        The membership's state tells whether a rebalance must be repeated.
        """
        if self._subscription.mode is SubscriptionMode.ASSIGNED:
            self._identity.reset()  # `assign` may have been interrupted just before that
        self._reconciliation.restart()
        self._membership.restart(now_ms, is_wanted=self._subscription.is_by_group)

    def poll_in_background(self, now_ms: int) -> PollResult:
        """Make the steps that must not wait for the application, which may be in its listener.

        A member whose application polls too rarely leaves; the next poll loses everything.
        """
        late_ms = self._polled_ms + self._config.max_poll_interval_ms
        if self._membership.must_poll and now_ms >= late_ms:
            self._log.warning(
                "group %r: no poll for max_poll_interval_ms (%d ms), so this member leaves, and "
                "records that it has not committed are read again, by others or by itself; each "
                "time, if its work always takes that long. Lower max_poll_records or raise "
                "max_poll_interval_ms, or keep polling while threads do the work",
                self._coordinator.key,
                self._config.max_poll_interval_ms,
            )
            self.history.fail("the application did not poll for max_poll_interval_ms", now_ms)
            self._membership.leave_late()
        result = self._membership.poll(now_ms, may_rebalance=False)
        next_ms = late_ms if self._membership.must_poll else NEVER_MS
        return PollResult(result.requests, min(result.next_poll_ms, max(now_ms, next_ms)))

    def on_cluster(self, cluster: Cluster) -> None:
        if not cluster.nodes:
            return  # metadata starts over, and has no topics yet
        if self._subscription.mode is SubscriptionMode.TOPICS:
            # Errors of assigned partitions are raised anyway; a topic with an error has none.
            failed = self._subscription.wanted_topics & cluster.topic_errors.keys()
            errors = (cluster.topic_errors[topic] for topic in sorted(failed))
            self._topic_error = next((error for error in errors if not error.retriable), None)
        elif self._subscription.mode is SubscriptionMode.PATTERN:
            self._membership.match(cluster)

    def _carry_out(self, intent: Intent, now_ms: int) -> None:
        self._reconciliation.carry_out(intent, now_ms)
        if isinstance(intent, Assign):
            self._context.follow_topics()
