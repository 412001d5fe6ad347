"""Admin: the blocking front-end. Each call drives the engine until it is done or its time is up.

It is *open*, then *closed*. Calls from several threads queue.

Owner: the admin lock, which a call holds from start to end.
Source: Java interface ``Admin``.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from pykclient.admin.config import AdminConfig
from pykclient.admin.core import SPREAD_MS_MAX, AdminCore
from pykclient.admin.topics import (
    ALL_TOPICS,
    CreateTopics,
    DeleteTopics,
    DescribeTopics,
    ListTopics,
    TopicsAbsent,
    TopicsPresent,
)
from pykclient.errors import ClosedError, ForkedClientError, KafkaTimeoutError, UsageError
from pykclient.network.call_timeout import timeout_ms as milliseconds
from pykclient.network.drive import drive, now_ms
from pykclient.network.selector import SelectorPort

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from pykclient.admin.call import AdminCall, AdminHandler
    from pykclient.admin.topics import CreatedTopic, NewTopic, TopicDescription, TopicListing

__all__ = ["Admin"]

log = logging.getLogger("pykclient.admin")

KeyT = TypeVar("KeyT", bound="Hashable")
ValueT = TypeVar("ValueT")


class Admin(AdminCore):
    """Creates, deletes and describes topics.

    Safe from many threads; their calls run one after the other. It does not survive a fork. Use it
    in a ``with`` block, or call `close`.

    Every call tries every topic that it is given. When one fails, its error is raised; when several
    do, an `AdminCallError` that has them by name. `timeout` is in seconds, None means
    `default_api_timeout_ms`.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `AdminConfig`, as a mapping, as keywords, or both.

        Nothing is connected before the first call.

        Raises:
            ConfigError: a setting is unknown, malformed or not built yet.
        """
        config = AdminConfig.from_settings(settings, **keywords)
        super().__init__(config, SelectorPort.from_config(config))
        self._lock = threading.Lock()
        self._is_closed = False
        self._process_id = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Close all connections, once the call under way has ended. Again it does nothing.

        Raises:
            KafkaTimeoutError: that call did not end within `timeout` seconds.
        """
        if self._is_closed:
            return
        try:
            with self._entered(self._timeout_ms(timeout)):
                self._is_closed = True
                self._client.close()
                self._port.shutdown()
        except ClosedError:
            return  # another thread closed it while this one waited

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
            UsageError: a topic is given twice, or is no `NewTopic`.
            KafkaTimeoutError: no answer in time; the topics may have been created.
        """
        given = list(topics)
        by_name = {_name_of(topic): topic for topic in given}
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
        names = _names(topics)
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
        deadline_ms, timeout_ms = self._deadline(timeout)
        with self._entered(timeout_ms):
            call = self._call(ListTopics(), (ALL_TOPICS,), deadline_ms)
            self._drive(call, deadline_ms)
            topics = self._result(call, "the list of", timeout_ms)[ALL_TOPICS]
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
        names = _names(topics)
        deadline_ms, timeout_ms = self._deadline(timeout)
        with self._entered(timeout_ms):
            call = self._call(DescribeTopics(), names, deadline_ms)
            self._drive(call, deadline_ms)
            return self._result(call, "the description of topics", timeout_ms)

    def _timeout_ms(self, timeout: float | None) -> int:
        return milliseconds(timeout, self._config.default_api_timeout_ms)

    def _deadline(self, timeout: float | None) -> tuple[int, int]:
        """Return when a call's time is up, and the milliseconds until then."""
        timeout_ms = self._timeout_ms(timeout)
        return now_ms() + timeout_ms, timeout_ms

    @contextmanager
    def _entered(self, timeout_ms: int) -> Iterator[None]:
        """Wait for the calls before this one. Their time counts as ours."""
        if os.getpid() != self._process_id:
            raise ForkedClientError(
                f"this admin client was made in process {self._process_id}, and this is process "
                f"{os.getpid()}; make a new one after a fork"
            )
        if not self._lock.acquire(timeout=min(timeout_ms / 1000, threading.TIMEOUT_MAX)):
            raise KafkaTimeoutError(
                f"waited {timeout_ms} ms for a call that another thread makes with this admin "
                f"client"
            )
        try:
            if self._is_closed:
                raise ClosedError("this admin client is closed; make a new one")
            yield
        finally:
            self._lock.release()

    def _drive(self, call: AdminCall[KeyT, ValueT], deadline_ms: int) -> None:
        """Run the engine until the call is done or its time is up. Raises what is fatal."""
        self._calls.start(call)
        try:
            drive(
                self._engine,
                self._port,
                until=lambda: call.is_done or self._metadata.fatal_error is not None,
                deadline_ms=deadline_ms,
            )
        finally:
            self._calls.end(call)
        if not call.is_done and self._metadata.fatal_error is not None:
            raise self._metadata.fatal_error

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


def _name_of(topic: NewTopic) -> str:
    name = getattr(topic, "name", None)
    if not isinstance(name, str):
        raise UsageError(f"{topic!r:.100} is no topic to create; give NewTopic(name, ...)")
    return name


def _names(topics: Iterable[str]) -> list[str]:
    # A single string is an iterable of strings as well, though not the one that was meant.
    names = None if isinstance(topics, str) else list(dict.fromkeys(topics))
    if names is None or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{topics!r:.100}: give a list of topic names")
    return names
