"""FollowedTopics: the topics whose metadata a consumer keeps; TopicLookups: lookups of all topics.

A consumer follows the topics of the assignment, of the subscription, of the whole group while this
member leads it, and of calls under way.

Owner: the core lock.
Source: the topics of Java's ``ConsumerMetadata``; Java class ``TopicMetadataFetcher``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykclient.errors import DecodeError
from pykclient.network.cluster.cluster import topic_info
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.group.group import ConsumerGroup
    from pykclient.consumer.subscription import SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster, TopicInfo
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.log import ClientLog
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message


class FollowedTopics:
    """See the module. `group` is set later; None without `group_id`."""

    def __init__(self, metadata: Metadata, subscription: SubscriptionState, log: ClientLog) -> None:
        self.group: ConsumerGroup | None = None
        self._metadata = metadata
        self._subscription = subscription
        self._log = log
        self._requested: set[str] = set()
        self._unavailable: frozenset[str] = frozenset()
        """Topics that were logged as unavailable."""
        metadata.set_topics(())
        metadata.add_listener(self._on_cluster)

    def follow(self) -> None:
        """Request metadata of the topics that are used now."""
        if self._subscription.is_by_pattern:
            self._metadata.set_all_topics(self._used)
        else:
            self._metadata.set_topics(sorted(self._used()))

    def _used(self) -> frozenset[str]:
        topics = self._subscription.topics | self._subscription.wanted_topics | self._requested
        return topics if self.group is None else topics | self.group.topics

    def add_for_call(self, topics: Iterable[str]) -> None:
        self._requested.update(topics)
        self.follow()

    def remove_for_call(self, topics: Iterable[str]) -> None:
        self._requested.difference_update(topics)
        self.follow()

    def forget_calls(self) -> None:
        """Remove the topics of calls, since no call is under way."""
        self._requested.clear()

    def _on_cluster(self, cluster: Cluster) -> None:
        """Report errors of topics that are final, and log the others."""
        if self.group is not None:
            self.group.on_cluster(cluster)
        for assigned in self._subscription:
            error = cluster.topic_errors.get(assigned.partition.topic)
            if error is not None and not error.retriable:
                self._subscription.fail(assigned, error)
        unavailable = self._subscription.topics & cluster.topic_errors.keys()
        for topic in unavailable - self._unavailable:
            self._log.warning("%s; waiting for it", cluster.topic_errors[topic])
        self._unavailable = unavailable


class TopicLookup:
    """One lookup of all topics, apart from the metadata that the consumer follows."""

    __slots__ = ("attempt", "operation")

    def __init__(self, backoff: Backoff) -> None:
        self.operation: Operation[tuple[TopicInfo, ...]] = Operation()
        self.attempt = Attempt(backoff)


class TopicLookups:
    """The manager of all lookups under way; any broker may respond."""

    def __init__(self, retry_backoff: Backoff) -> None:
        self._retry_backoff = retry_backoff
        self._waiting: dict[TopicLookup, None] = {}

    def start(self) -> TopicLookup:
        """Request all topics that this client may see, internal ones included."""
        lookup = TopicLookup(self._retry_backoff)
        self._waiting[lookup] = None
        return lookup

    def cancel(self, lookup: TopicLookup) -> None:
        """Forget a lookup. Its operation does not end."""
        self._waiting.pop(lookup, None)

    def poll(self, now_ms: int) -> PollResult:
        requests = []
        next_poll_ms = NEVER_MS
        for lookup in self._waiting:
            if not lookup.attempt.is_due(now_ms):
                next_poll_ms = min(next_poll_ms, lookup.attempt.next_ms)
                continue
            lookup.attempt.sent()
            requests.append(
                Request(
                    MetadataRequest(topics=None, allow_auto_topic_creation=False),
                    node_id=None,
                    on_response=partial(self._on_response, lookup),
                    on_failure=partial(self._on_failure, lookup),
                )
            )
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        del now_ms
        for lookup in self._waiting:
            lookup.attempt.lost()

    def _on_response(self, lookup: TopicLookup, message: Message | None, now_ms: int) -> None:
        assert isinstance(message, MetadataResponse)
        try:
            # A topic with an error is just being created or deleted.
            topics = tuple(topic_info(each) for each in message.topics if each.error_code == 0)
        except DecodeError as error:
            self._on_failure(lookup, error, now_ms)
            return
        self._waiting.pop(lookup, None)
        lookup.operation.succeed(topics)

    def _on_failure(self, lookup: TopicLookup, error: KafkaError, now_ms: int) -> None:
        final_error = lookup.attempt.failed(error, now_ms)
        if final_error is not None:
            self._waiting.pop(lookup, None)
            lookup.operation.fail(final_error)
