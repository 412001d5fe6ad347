"""BrokerQuestions: the consumer's calls that ask brokers something and wait for the answer.

Each drives the engine until it is answered or its time is up, and takes nothing from the records
that are fetched meanwhile.

Owner: one thread at a time, whichever calls.
Source: the methods of Java's ``KafkaConsumer`` that take a ``Duration``, polling apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.arguments import (
    check_partition,
    check_topic,
    partition_list,
    times_by_partition,
)
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.consumer.core import ConsumerCore
from pykclient.consumer.fetch.stalls import unknown_partition
from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST
from pykclient.consumer.partition_list import describe_partitions
from pykclient.consumer.public_call import public_call
from pykclient.errors import KafkaTimeoutError
from pykclient.network.drive import Until, drive, now_ms
from pykclient.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from pykclient.consumer.offsets.list_offsets import OffsetLookup
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.network.drive import Decisions
    from pykclient.types import OffsetAndTimestamp

__all__ = ["BrokerQuestions"]

UNKNOWN_TOPIC_WAIT_MS = 5_000
"""How long a call about a topic waits for brokers to know it; a typing error shows before that of a
`default_api_timeout_ms` of a minute."""


class BrokerQuestions(ConsumerCore):
    """Where partitions begin and end, where this consumer stands in them, and which there are."""

    @public_call
    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be handed out, looking it up if need be.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            UsageError: the partition is not assigned.
            KafkaTimeoutError: no broker could tell in time.
            NoOffsetForPartitionError, UnknownTopicOrPartitionError and others: as in `poll`.
        """
        check_partition(partition, "position")
        assigned = self._subscription.require(partition)
        timeout_ms = self._timeout_ms(timeout)

        def is_ready() -> bool:
            return assigned.has_position or self._subscription.error_of(assigned) is not None

        if not is_ready() and not self._drive(is_ready, timeout_ms, (partition,)):
            last_error = self._positions.last_error(assigned)
            raise self._late(f"the position of {partition}", timeout_ms, last_error)
        if assigned.has_position:
            return assigned.offset
        raise self._subscription.take_error_of(assigned)

    @public_call
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition has. They need not be assigned.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            UnknownTopicOrPartitionError: the brokers do not know a partition.
            KafkaTimeoutError: not all brokers answered in time.
            BrokerError: a broker refuses.
        """
        return self._edges(partitions, EARLIEST, timeout, "beginning_offsets")

    @public_call
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition.

        With `read_committed` it is the last stable offset, else the high watermark. Otherwise as
        `beginning_offsets`. The lag of partitions that are assigned is counted to these ends.
        """
        ends = self._edges(partitions, LATEST, timeout, "end_offsets")
        is_committed = self._config.isolation_level is IsolationLevel.READ_COMMITTED
        for partition, end in ends.items():
            assigned = self._subscription.find(partition)
            if assigned is not None and is_committed:
                assigned.last_stable_offset = end
            elif assigned is not None:
                assigned.high_watermark = end
        return ends

    @public_call
    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time for each partition, None where none is.

        Times are milliseconds since 1970, or datetimes with a time zone. Otherwise as
        `beginning_offsets`.

        Raises:
            UsageError: a time is none, such as a float (of seconds?), or it is before 1970.
        """
        return self._look_up(times_by_partition(timestamps_ms, "offsets_for_times"), timeout)

    @public_call
    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions, in order of their numbers. It need not be assigned.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            UnknownTopicOrPartitionError: the brokers do not know the topic.
            KafkaTimeoutError: no broker answered in time.
            BrokerError: a broker refuses, such as InvalidTopicError.
            UsageError: brokers cannot be asked about such a name.
        """
        check_topic(topic, "partitions_for")
        timeout_ms = self._timeout_ms(timeout)
        self._asked_topics.add(topic)
        try:
            self._follow_topics()
            self._drive(lambda: self._is_told(topic), timeout_ms, (TopicPartition(topic, 0),))
            cluster = self._metadata.cluster
            infos = cluster.partitions_for(topic)
            if infos is not None:
                return infos
            raise cluster.topic_errors.get(topic) or self._late(f"topic {topic!r}", timeout_ms)
        finally:
            self._asked_topics.discard(topic)
            self._follow_topics()

    @public_call
    def list_topics(self, timeout: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return all topics that this client may see, with their partitions; internal ones too.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            KafkaTimeoutError: no broker answered in time.
            BrokerError: a broker refuses.
        """
        timeout_ms = self._timeout_ms(timeout)
        listing = self._listing.start()
        try:
            if not self._drive(
                lambda: listing.operation.is_done, timeout_ms, what="the list of topics"
            ):
                raise self._late("the list of topics", timeout_ms, listing.last_error)
            topics = listing.operation.result()
        finally:
            self._listing.cancel(listing)
        return {topic.name: topic.partitions for topic in topics}

    # Waiting.

    def _timeout_ms(self, timeout: float | None) -> int:
        return milliseconds(timeout, self._config.default_api_timeout_ms)

    def _drive(
        self,
        is_ready: Callable[[], bool],
        timeout_ms: int,
        about: Sequence[TopicPartition] = (),
        *,
        what: str = "",
    ) -> bool:
        """Run the engine until `is_ready` or the time is up; return which.

        `what` is waited for, for the log; by default the partitions that this is `about`.

        Raises `WakeupError`, what is fatal, and `UnknownTopicOrPartitionError` when brokers do not
        know one of the partitions that this is `about`.
        """
        wait = self._wait(is_ready, timeout_ms, about, what=what)
        return drive(self._engine, self._port, wait)

    def _wait(
        self,
        is_ready: Callable[[], bool],
        timeout_ms: int,
        about: Sequence[TopicPartition],
        *,
        what: str,
    ) -> Decisions[bool]:
        started_ms = now_ms()
        deadline_ms = started_ms + timeout_ms
        is_done = yield from self._wait_to(
            is_ready, min(deadline_ms, started_ms + UNKNOWN_TOPIC_WAIT_MS)
        )
        for partition in () if is_done else about:
            error = unknown_partition(self._metadata.cluster, partition)
            if error is not None:
                raise error
        if is_done:
            return True
        wait = self._waits.begin(
            what or describe_partitions(about), self._client.describe_failures, started_ms
        )
        for until_ms in dict.fromkeys((wait.until_ms(deadline_ms), deadline_ms)):
            if (yield from self._wait_to(is_ready, until_ms)):
                return True
            wait.look(now_ms())
        return False

    def _wait_to(self, is_ready: Callable[[], bool], deadline_ms: int) -> Decisions[bool]:
        yield Until(lambda: is_ready() or self._is_interrupted, deadline_ms)
        if is_ready():
            return True
        self._raise_interruption()
        return False

    # Looking up offsets.

    def _edges(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        timeout: float | None,
        call: str,
    ) -> dict[TopicPartition, int]:
        wanted = partition_list(partitions, call)
        found = self._look_up(dict.fromkeys(wanted, timestamp), timeout)
        return {
            partition: answer.offset for partition, answer in found.items() if answer is not None
        }

    def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        timeout_ms = self._timeout_ms(timeout)
        self._asked_topics.update(partition.topic for partition in timestamps)
        lookups = [self._lookups.start(*question) for question in timestamps.items()]

        def is_ready() -> bool:
            return all(lookup.operation.is_done for lookup in lookups) or any(
                lookup.operation.error is not None for lookup in lookups
            )

        try:
            self._follow_topics()
            self._drive(is_ready, timeout_ms, tuple(timestamps))
            self._raise_failed(lookups, timeout_ms)
            return {lookup.partition: lookup.operation.result() for lookup in lookups}
        finally:
            for lookup in lookups:
                self._lookups.cancel(lookup)
            self._asked_topics.difference_update(partition.topic for partition in timestamps)
            self._follow_topics()

    def _raise_failed(self, lookups: Sequence[OffsetLookup], timeout_ms: int) -> None:
        for lookup in lookups:
            if lookup.operation.error is not None:
                raise lookup.operation.error
        late = [lookup for lookup in lookups if not lookup.operation.is_done]
        if late:
            shown = describe_partitions(lookup.partition for lookup in late)
            raise self._late(f"offsets of {shown}", timeout_ms, late[0].attempt.last_error)

    def _is_told(self, topic: str) -> bool:
        cluster = self._metadata.cluster
        error = cluster.topic_errors.get(topic)
        return topic in cluster.topics or (error is not None and not error.retriable)

    def _late(
        self, what: str, timeout_ms: int, last_error: KafkaError | None = None
    ) -> KafkaTimeoutError:
        reasons = [str(last_error)] if last_error is not None else []
        failures = self._client.describe_failures()
        if failures:
            reasons.append(failures)
        why = "; ".join(reasons) or "the brokers did not answer"
        error = KafkaTimeoutError(f"waited {timeout_ms} ms for {what}: {why}")
        error.__cause__ = last_error
        return error
