"""Kip848Coordinator: the manager of a KIP-848 group, in which the broker assigns.

Owner: the core lock.
Source: KIP-848; Java class ``ConsumerMembershipManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.kip848.membership import Assign, Kip848Membership
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import StaleMemberEpochError
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.consumer.group.rebalance import Intent
    from pykclient.consumer.group.wiring import GroupWiring
    from pykclient.errors import BrokerError, KafkaError

__all__ = ["Kip848Coordinator"]


class Kip848Coordinator(ConsumerGroup):
    """The manager of one consumer's KIP-848 group."""

    _membership: Kip848Membership

    def __init__(self, config: ConsumerConfig, wiring: GroupWiring) -> None:
        super().__init__(config, wiring)
        self._membership = Kip848Membership(
            config,
            self._coordinator,
            subscription=wiring.subscription,
            metadata=wiring.metadata,
            history=self.history,
            retry_backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
        )

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Take note that the coordinator rejected a commit; return what to raise."""
        refused = super().on_commit_refused(member, error)
        if isinstance(error, StaleMemberEpochError) and member.is_member:
            return error if self._membership.can_commit else refused  # it has a newer epoch
        return refused

    def enforce_rebalance(self, reason: str) -> None:
        """Log that it is not for members to do: the coordinator assigns by itself."""
        self._log.warning(
            "enforce_rebalance(%r) has no effect with group_protocol=consumer: the coordinator "
            "assigns anew when something has changed",
            reason,
        )

    def _join_with_subscription(self) -> None:
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self._match(self._metadata.cluster)
        self._membership.request_join()

    def _carry_out(self, intent: Intent, now_ms: int) -> None:
        if isinstance(intent, Assign):
            self._reconciliation.change_to(intent, intent.partitions, now_ms)
            self._wiring.follow_topics()
        else:
            self._reconciliation.give_up(intent, now_ms)
