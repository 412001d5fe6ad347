"""FollowedTopics: the topics whose metadata a consumer keeps, and what brokers say of them.

Those are the topics of the assignment, of the subscription, of the whole group while this member
leads it, and of calls under way.

Owner: the core lock.
Source: the topics of Java's ``ConsumerMetadata``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.group.group import ConsumerGroup
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.log import ClientLog

__all__ = ["FollowedTopics"]


class FollowedTopics:
    """`group` is set once it is there; None without `group_id`."""

    def __init__(self, metadata: Metadata, subscription: SubscriptionState, log: ClientLog) -> None:
        self.group: ConsumerGroup | None = None
        self._metadata = metadata
        self._subscription = subscription
        self._log = log
        self._requested: set[str] = set()
        self._unavailable: frozenset[str] = frozenset()
        """Those that were logged as such."""
        metadata.set_topics(())
        metadata.add_listener(self._on_cluster)

    def follow(self) -> None:
        """Have metadata kept for what is wanted by now."""
        if self._subscription.is_by_pattern:
            self._metadata.set_all_topics()
            return
        topics = self._subscription.topics | self._subscription.wanted_topics | self._requested
        if self.group is not None:
            topics |= self.group.topics
        self._metadata.set_topics(sorted(topics))

    def add_for_call(self, topics: Iterable[str]) -> None:
        """Follow topics for as long as a call is under way."""
        self._requested.update(topics)
        self.follow()

    def remove_for_call(self, topics: Iterable[str]) -> None:
        """Follow them no longer."""
        self._requested.difference_update(topics)
        self.follow()

    def forget_calls(self) -> None:
        """Note that no call is under way."""
        self._requested.clear()

    def _on_cluster(self, cluster: Cluster) -> None:
        """Report topics that no waiting will bring, and log those that it may."""
        if self.group is not None:
            self.group.on_cluster(cluster)
        for assigned in self._subscription:
            error = cluster.topic_errors.get(assigned.partition.topic)
            if error is not None and not error.retriable:
                self._subscription.fail(assigned, error)
        unavailable = self._subscription.topics & cluster.topic_errors.keys()
        for topic in unavailable - self._unavailable:
            self._log.warning("%s; it is waited for", cluster.topic_errors[topic])
        self._unavailable = unavailable
