"""ConsumerCoordinator: the manager of a group of the classic protocol, on the consumer's side.

It is no broker, in spite of the name, which is Java's. The members assign: each sends its
subscription, and one of them leads. `ClassicMembership` exchanges requests with the broker that
coordinates the group, `GroupLeader` assigns.

Owner: the core lock.
Source: Java class ``ConsumerCoordinator``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.group.assignors.setting import common_protocol
from pykclient.consumer.group.classic.leader import GroupLeader, chosen_assignor
from pykclient.consumer.group.classic.membership import Assign, ClassicMembership, RevokeToJoin
from pykclient.consumer.group.classic.protocol import read_assignment
from pykclient.consumer.group.classic.unassigned import UnassignedPartitions
from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.protocols import commit_refused
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import KafkaError, RebalanceInProgressError, UsageError
from pykclient.network.interrupts import raise_foreign, raise_of_signal_handler
from pykclient.network.manager import PollResult
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.assignors import Assignor
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.consumer.group.rebalance import Intent
    from pykclient.consumer.group.wiring import GroupWiring
    from pykclient.errors import BrokerError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.types import TopicPartition

__all__ = ["ConsumerCoordinator"]


class ConsumerCoordinator(ConsumerGroup):
    """The manager of one consumer's classic group."""

    _membership: ClassicMembership

    def __init__(
        self, config: ConsumerConfig, wiring: GroupWiring, assignors: Sequence[Assignor]
    ) -> None:
        super().__init__(config, wiring)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._protocol = common_protocol(assignors)
        self._compared_version = 0
        """The cluster that was compared with the leader's assignment last."""
        self._was_unfit = False
        """Whether the last assignment had topics that this member does not subscribe to. Once, it
        may be what a static member had before it restarted; twice is a leader's mistake.
        """
        self._unmatched_version = 0
        """The cluster whose topics the pattern was not compared with yet."""
        retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._leader = GroupLeader(config, wiring, self._assignors)
        self._unassigned = UnassignedPartitions(
            self._coordinator, retry_backoff=retry_backoff, log=self._log
        )
        self._membership = ClassicMembership(
            config,
            self._coordinator,
            subscription=wiring.subscription,
            assignors=self._assignors,
            leader=self._leader,
            history=self.history,
            retry_backoff=retry_backoff,
        )

    # For the consumer.

    @property
    def topics(self) -> frozenset[str]:
        """What all members subscribe to, while this one assigns their partitions."""
        return self._leader.topics

    def member(self) -> GroupMetadata:
        """Return the member in whose name to commit now: for `assign` the group alone.

        Raises:
            RebalanceInProgressError: the group is rebalancing; poll first.
            CommitFailedError: this consumer is no member any more.
        """
        if self._subscription.is_by_group and self._membership.is_rebalancing:
            raise self._in_rebalance()
        return super().member()

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Take note that the coordinator rejected a commit; return what to raise."""
        is_of_before = member.is_member and member != self.identity
        if is_of_before and not isinstance(error, RebalanceInProgressError):
            # Even an instance id that was fenced then may be this member's own by now.
            rebalances = self._membership.is_rebalancing
            return self._in_rebalance() if rebalances else commit_refused(member, error)
        return super().on_commit_refused(member, error)

    def _in_rebalance(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"group {self.identity.group_id!r} is distributing its partitions: poll until that is "
            f"done, then commit again what is still assigned"
        )

    def enforce_rebalance(self, reason: str) -> None:
        """Join again at the next poll."""
        self._membership.request_join(reason)

    def _join_with_subscription(self) -> None:
        is_pattern = self._subscription.mode is SubscriptionMode.PATTERN
        self._membership.knows_topics = not is_pattern
        if is_pattern:
            self._unmatched_version = self._metadata.cluster.version
            self._metadata.request_update()
        if self.identity.is_member or self._membership.needs_join:
            return  # `_notice_changes` sees it
        self._membership.request_join("the consumer has subscribed")

    # For the engine.

    def poll(self, now_ms: int) -> PollResult:
        """Go on with what the group needs."""
        if self._is_polling:
            self._notice_changes()
        result, describing = super().poll(now_ms), self._unassigned.poll(now_ms)
        return PollResult(
            [*result.requests, *describing.requests],
            min(result.next_poll_ms, describing.next_poll_ms),
        )

    def restart(self, now_ms: int) -> None:
        """Begin anew what is under way with the coordinator and with partitions."""
        self._unassigned.restart()
        super().restart(now_ms)

    def _match(self, cluster: Cluster) -> None:
        # To join with half of the topics would be to join twice.
        if self._membership.knows_topics or cluster.version > self._unmatched_version:
            self._membership.knows_topics = True
            super()._match(cluster)

    def _notice_changes(self) -> None:
        """Join again when what the last assignment was made from does not hold any more.

        Runs in each turn, and costs nothing while nothing is new.
        """
        if self._unassigned.has_found:
            self._unassigned.forget()
            self._membership.request_join("partitions came while this leader restarted")
        wanted, version = self._subscription.wanted_topics, self._metadata.cluster.version
        joined = self._membership.joined_topics
        if version == self._compared_version and (wanted is joined or wanted == joined):
            return
        if self._membership.needs_join or not self.identity.is_member:
            return
        if not self._membership.knows_topics:
            return
        if not self._metadata.cluster.nodes:
            return  # it starts over: what it knew before is no worse than that
        if joined not in (None, wanted):
            self._membership.request_join("subscription has changed")
            return
        self._compared_version = version
        if self._leader.is_outdated():
            self._membership.request_join("cached metadata has changed")

    # For the membership.

    def _carry_out(self, intent: Intent, now_ms: int) -> None:
        if isinstance(intent, Assign):
            try:
                self._assign(intent, now_ms)
            except KafkaError as error:
                raise_foreign(error)
                intent.fail(error)
            return
        self._leader.resign()
        self._unassigned.forget()
        if isinstance(intent, RevokeToJoin):
            self._reconciliation.before_join(intent, self._protocol, now_ms)
        else:
            self._reconciliation.give_up(intent, now_ms)

    def _assign(self, intent: Assign, now_ms: int) -> None:
        """Revoke what is not in the leader's assignment, then take the rest.

        Raises:
            KafkaError: the assignment cannot be read, does not fit again, or the assignor failed.
        """
        assignor = chosen_assignor(self._assignors, intent.protocol, self._coordinator.group_id)
        assignment = read_assignment(intent.assignment)
        assigned = assignment.partitions
        if not self._fits(assigned):
            has_changed = self._membership.joined_topics != self._subscription.wanted_topics
            if self._was_unfit and not has_changed:
                raise UsageError(
                    f"the leader of group {self.identity.group_id!r} assigned partitions of topics "
                    f"that this member does not subscribe to: "
                    f"{', '.join(map(str, sorted(assigned)))}; correct its assignor "
                    f"{assignor.name!r}"
                )
            self._was_unfit = not has_changed
            intent.rejoin_reason = "received assignment does not match the current subscription"
            intent.succeed(None)
            return
        self._was_unfit = False
        try:
            assignor.on_assignment(assigned, self.identity.generation, assignment.user_data)
        except Exception as error:
            raise_of_signal_handler(error)
            raise UsageError(f"the assignor {assignor.name!r} failed: {error!r}") from error
        if not self._subscription.partitions <= set(assigned):
            intent.rejoin_reason = "need to revoke partitions and re-join"
        if self._leader.unsent is not None:
            self._unassigned.compare(self._leader.unsent)
            self._leader.unsent = None
        self._reconciliation.change_to(intent, assigned, now_ms)

    def _fits(self, assigned: Sequence[TopicPartition]) -> bool:
        topics = {partition.topic for partition in assigned}
        if self._subscription.mode is SubscriptionMode.PATTERN:
            pattern = self._subscription.pattern
            assert pattern is not None
            return all(pattern.fullmatch(topic) for topic in topics)
        return topics <= self._subscription.wanted_topics
