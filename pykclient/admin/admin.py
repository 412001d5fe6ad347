"""Admin: the blocking front-end. Each call drives the engine until it is done or its time is up.

It is *open*, then *closed*. Calls from several threads queue.

Owner: the admin lock (`AdminDriver`).
Source: Java interface ``Admin``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.admin.core import SPREAD_MS_MAX
from pykclient.admin.group_calls import GroupCalls
from pykclient.admin.topics import (
    ALL_TOPICS,
    CreateTopics,
    DeleteTopics,
    DescribeTopics,
    ListTopics,
    NewTopic,
    TopicsAbsent,
    TopicsPresent,
)
from pykclient.arguments import name_list, shown_argument, value_list
from pykclient.errors import UsageError
from pykclient.network.drive import now_ms
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.admin.call import AdminHandler
    from pykclient.admin.topics import CreatedTopic, TopicDescription, TopicListing

__all__ = ["Admin"]

log = ClientLog("pykclient.admin", "")


class Admin(GroupCalls):
    """Creates, deletes and describes topics; describes groups, and moves and deletes their offsets.

    Safe from many threads; their calls run one after the other. It does not survive a fork. Use it
    in a ``with`` block, or call `close`.

    Every call tries all that it is given, such as topics. When one fails, its error is raised; when
    several do, an `AdminCallError` that has them by name. `timeout` is in seconds, None means
    `default_api_timeout_ms`.
    """

    def create_topics(
        self, topics: Iterable[NewTopic], timeout: float | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics, and wait until every broker knows them and their partitions have leaders.

        So a producer or consumer may use them at once. Should the word take longer than five
        seconds to spread, or a broker be down, that is not waited for.

        Raises:
            TopicAlreadyExistsError, InvalidReplicationFactorError, InvalidConfigError and others:
                what the broker says of the one topic that it did not create.
            AdminCallError: it did not create several.
            UsageError: a topic is given twice, is no `NewTopic`, or has a name that cannot be sent.
            KafkaTimeoutError: no answer in time; the topics may have been created.
        """
        given = _new_topics(topics)
        by_name = {topic.name: topic for topic in given}
        if len(by_name) != len(given):
            raise UsageError("create_topics: a topic is given twice")
        deadline_ms, timeout_ms = self._deadline(timeout)
        with self._entered(timeout_ms):
            call = self._call(CreateTopics(by_name), by_name, deadline_ms)
            self._drive(call, deadline_ms)
            if call.values:
                self._spread(TopicsPresent(list(call.values)), deadline_ms)
            return self._result(call, "the creation of topics", timeout_ms)

    def delete_topics(self, topics: Iterable[str], timeout: float | None = None) -> None:
        """Delete topics with all their records, and wait until no broker lists them any more.

        The wait is bounded as that of `create_topics` is.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: what the broker
                says of the one topic that it did not delete.
            AdminCallError: it did not delete several.
            KafkaTimeoutError: no answer in time; the topics may have been deleted.
        """
        names = name_list(topics, "topic", "delete_topics")
        deadline_ms, timeout_ms = self._deadline(timeout)
        with self._entered(timeout_ms):
            call = self._call(DeleteTopics(), names, deadline_ms)
            self._drive(call, deadline_ms)
            if call.values:
                self._spread(TopicsAbsent(list(call.values)), deadline_ms)
            self._result(call, "the deletion of topics", timeout_ms)

    def list_topics(
        self, timeout: float | None = None, *, include_internal: bool = False
    ) -> dict[str, TopicListing]:
        """Return the topics that this client may see, by name.

        Kafka's own, such as `__consumer_offsets`, are left out unless asked for.

        Raises:
            KafkaTimeoutError: no broker answered in time.
            BrokerError: a broker refuses.
        """
        topics = self._run(ListTopics(), (ALL_TOPICS,), "the list of", timeout)[ALL_TOPICS]
        if include_internal:
            return topics
        return {name: topic for name, topic in topics.items() if not topic.is_internal}

    def describe_topics(
        self, topics: Iterable[str], timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return topics with their partitions, leaders and replicas, by name.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationFailedError and others: what the broker
                says of the one topic that it cannot describe.
            AdminCallError: it cannot describe several.
            KafkaTimeoutError: no broker answered in time.
        """
        names = name_list(topics, "topic", "describe_topics")
        return self._run(DescribeTopics(), names, "the description of topics", timeout)

    def _spread(self, handler: AdminHandler[int, int], deadline_ms: int) -> None:
        """Wait until all brokers have heard of a change that is made already."""
        until_ms = min(deadline_ms, now_ms() + SPREAD_MS_MAX)
        call = self._call(handler, self._metadata.cluster.nodes, until_ms)
        self._drive(call, until_ms)
        if call.unfinished:
            log.warning(
                "brokers %s have not heard of the change yet: %s",
                ", ".join(map(str, call.unfinished)),
                call.last_error,
            )


def _new_topics(topics: Iterable[NewTopic]) -> list[NewTopic]:
    if isinstance(topics, NewTopic):
        raise UsageError(
            f"create_topics(NewTopic({topics.name!r})): give a list, as in "
            f"create_topics([NewTopic({topics.name!r})])"
        )
    found = value_list(topics, "create_topics: topics", "NewTopic(name, ...)")
    for topic in found:
        if not isinstance(topic, NewTopic):
            raise UsageError(
                f"create_topics: {shown_argument(topic)} is no topic to create; give "
                f"NewTopic(name, ...)"
            )
    return found
