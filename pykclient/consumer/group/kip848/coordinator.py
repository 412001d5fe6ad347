"""ModernCoordinator: the consumer's side of a group of KIP-848.

The coordinator assigns; `ModernMembership` speaks with it, in ids of topics. Here they become names
and partitions.

Owner: the core lock.
Source: KIP-848; Java class ``ConsumerMembershipManager``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.group.group import ConsumerGroup
from pykclient.consumer.group.kip848.membership import ModernMembership
from pykclient.consumer.group.kip848.requests import Interest, ModernSettings
from pykclient.consumer.subscription import SubscriptionMode
from pykclient.errors import StaleMemberEpochError
from pykclient.network.retry import Backoff
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.group import GroupSurroundings
    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.errors import BrokerError, KafkaError
    from pykclient.network.manager import Operation

__all__ = ["ModernCoordinator"]


class ModernCoordinator(ConsumerGroup):
    """The manager of one consumer's group of KIP-848."""

    _membership: ModernMembership

    def __init__(self, config: ConsumerConfig, surroundings: GroupSurroundings) -> None:
        super().__init__(config, surroundings)
        self._names: dict[bytes, str] = {}
        """The topics of what is assigned, by id: metadata may lose sight of one for a while."""
        self._membership = ModernMembership(
            surroundings.group_id,
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

    def on_commit_refused(self, member: GroupMetadata, error: BrokerError) -> KafkaError:
        """Hear that the coordinator does not take this member's commit; return what to raise."""
        refused = super().on_commit_refused(member, error)
        if isinstance(error, StaleMemberEpochError) and member.is_member:
            return error if self._membership.can_commit else refused  # it has a newer epoch
        return refused

    def enforce_rebalance(self, reason: str) -> None:
        """Say that it is not for a member to do: the coordinator shares out by itself."""
        self._log.warning(
            "enforce_rebalance(%r) has no effect with group_protocol=consumer: the coordinator "
            "assigns anew when something has changed",
            reason,
        )

    def _join_with_subscription(self) -> None:
        if self._subscription.mode is SubscriptionMode.PATTERN:
            self._match(self._metadata.cluster)
        self._membership.ask_to_join()

    # Asked by the membership.

    def interest(self) -> Interest:
        """Return what is subscribed to."""
        if self._subscription.mode is SubscriptionMode.BROKER_PATTERN:
            return Interest(frozenset(), self._subscription.broker_pattern)
        return Interest(self._subscription.wanted_topics)

    def resolve(self, target: Mapping[bytes, tuple[int, ...]]) -> dict[bytes, tuple[int, ...]]:
        """Return the part of a target whose topics are known by name."""
        return {
            topic_id: numbers
            for topic_id, numbers in target.items()
            if self._name(topic_id) is not None
        }

    def ask_for_names(self) -> None:
        """Have the names of the other topics found out."""
        self._metadata.request_update()

    def reconcile(self, assigned: Mapping[bytes, tuple[int, ...]], now_ms: int) -> Operation[None]:
        """Give up what is not in `assigned`, then take the rest. All of it is known by name."""
        names = {topic_id: self._name(topic_id) for topic_id in assigned}
        self._names = {topic_id: name for topic_id, name in names.items() if name is not None}
        operation = self._change_to(
            [
                TopicPartition(name, number)
                for topic_id, name in sorted(self._names.items(), key=lambda item: item[1])
                for number in assigned[topic_id]
            ],
            now_ms,
        )
        self._follow_topics()
        return operation

    def stop(self, now_ms: int) -> None:
        """Let go of what is under way."""
        self._handover.begin(now_ms)

    def _name(self, topic_id: bytes) -> str | None:
        return self._metadata.cluster.topic_name(topic_id) or self._names.get(topic_id)
