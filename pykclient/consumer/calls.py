"""Calls: the consumer calls that wait for a response: about commits, offsets and topics.

They return no records, even if some are fetched meanwhile.

Owner: the thread guard.
Source: the methods of Java's ``KafkaConsumer`` that take a ``Duration``, except ``poll``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST
from pykclient.consumer.subscription import describe_partitions
from pykclient.errors import KafkaTimeoutError
from pykclient.network.drive import Until, now_ms
from pykclient.network.manager import NEVER_MS
from pykclient.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pykclient.consumer.offsets.commit import Commits
    from pykclient.consumer.offsets.list_offsets import OffsetLookup
    from pykclient.consumer.wiring import Wiring
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.network.drive import Decisions
    from pykclient.network.manager import Operation
    from pykclient.network.retry import Attempt
    from pykclient.types import OffsetAndMetadata, OffsetAndTimestamp

    Offsets = dict[TopicPartition, OffsetAndMetadata]
    CommitCallback = Callable[[Offsets, KafkaError | None], object]

T = TypeVar("T")


class Calls:
    """See the module."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._metadata = wiring.metadata
        self._subscription = wiring.subscription
        self._topics = wiring.topics
        self._waiting = wiring.waiting
        self._unprocessed = wiring.unprocessed

    # Committed offsets. With `offsets` None, a call commits `Commits.consumed`. Records count as
    # processed only after a successful commit: if it was refused, they may not be processed yet.

    def commit(self, commits: Commits, offsets: Offsets | None, timeout_ms: int) -> Decisions[None]:
        """Commit, and retry until there is a final response."""
        commit = commits.commit(offsets, NEVER_MS)  # cancelled below
        try:
            yield from self._until_done(
                commit.operation,
                commit.attempt,
                timeout_ms,
                lambda: f"the commit of {describe_partitions(commit.offsets)}",
            )
        finally:
            commits.cancel(commit)
        self._unprocessed.finish(commit.offsets)

    def commit_async(
        self, commits: Commits, offsets: Offsets | None, callback: CommitCallback | None
    ) -> Decisions[None]:
        """Commit without retries; a later call of the consumer runs `callback`."""
        deadline_ms = now_ms() + self._wiring.config.default_api_timeout_ms
        commit = commits.commit_async(offsets, deadline_ms, callback)
        self._unprocessed.finish(commit.offsets)
        yield from self._send_at_once()

    def commit_if_due(self, commits: Commits) -> Decisions[None]:
        """Commit before partitions are dropped whose offsets are not committed later."""
        started_ms = now_ms()
        deadline_ms = started_ms + self._wiring.config.default_api_timeout_ms
        if commits.commit_if_due(started_ms, deadline_ms):
            yield from self._send_at_once()

    def committed(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, OffsetAndMetadata | None]]:
        lookups = self._wiring.committed
        assert lookups is not None
        lookup = lookups.start(partitions)
        try:
            return (
                yield from self._until_done(
                    lookup.operation,
                    lookup.attempt,
                    timeout_ms,
                    lambda: f"the committed offsets of {describe_partitions(partitions)}",
                )
            )
        finally:
            lookups.cancel(lookup)

    # Offsets, positions and topics.

    def position(self, partition: TopicPartition, timeout_ms: int) -> Decisions[int]:
        assigned = self._subscription.require(partition)

        def is_ready() -> bool:
            return assigned.has_position or self._subscription.error_of(assigned) is not None

        if not is_ready():
            yield from self._waiting.until(
                is_ready,
                timeout_ms,
                lambda: f"the position of {partition}",
                lambda: self._wiring.positions.last_error(assigned),
                about=(partition,),
            )
        if assigned.has_position:
            return assigned.offset
        raise self._subscription.take_error_of(assigned)

    def positions(self, timeout_ms: int) -> Decisions[dict[TopicPartition, int]]:
        """Return the positions of all assigned partitions."""
        deadline_ms = now_ms() + timeout_ms
        found: dict[TopicPartition, int] = {}
        for partition in self._subscription.partitions:
            # While this waits for one partition, another may be revoked.
            if self._subscription.find(partition) is not None:
                left_ms = max(0, deadline_ms - now_ms())
                found[partition] = yield from self.position(partition, left_ms)
        return found

    def beginning_offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, int]]:
        return self._edges(partitions, EARLIEST, timeout_ms)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, int]]:
        ends = yield from self._edges(partitions, LATEST, timeout_ms)
        is_committed = self._wiring.config.isolation_level is IsolationLevel.READ_COMMITTED
        for partition, end in ends.items():
            assigned = self._subscription.find(partition)
            if assigned is not None and is_committed:
                assigned.last_stable_offset = end
            elif assigned is not None:
                assigned.high_watermark = end
        return ends

    def _edges(
        self, partitions: Sequence[TopicPartition], timestamp: int, timeout_ms: int
    ) -> Decisions[dict[TopicPartition, int]]:
        found = yield from self.offsets_for_times(dict.fromkeys(partitions, timestamp), timeout_ms)
        return {partition: edge.offset for partition, edge in found.items() if edge is not None}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Decisions[dict[TopicPartition, OffsetAndTimestamp | None]]:
        topics = {partition.topic for partition in timestamps}
        lookups: list[OffsetLookup] = []

        def missing() -> list[OffsetLookup]:
            return [lookup for lookup in lookups if not lookup.operation.is_done]

        def error() -> KafkaError | None:
            return next((each.operation.error for each in lookups if each.operation.error), None)

        try:
            lookups += [self._wiring.lookups.start(*lookup) for lookup in timestamps.items()]
            self._topics.add_for_call(topics)
            yield from self._waiting.until(
                lambda: error() is not None or not missing(),
                timeout_ms,
                lambda: f"offsets of {describe_partitions(each.partition for each in missing())}",
                lambda: missing()[0].attempt.last_error,
                about=tuple(timestamps),
            )
            if (failed := error()) is not None:
                raise failed
            return {lookup.partition: lookup.operation.result() for lookup in lookups}
        finally:
            for lookup in lookups:
                self._wiring.lookups.cancel(lookup)
            self._topics.remove_for_call(topics)

    def partitions_for(self, topic: str, timeout_ms: int) -> Decisions[tuple[PartitionInfo, ...]]:
        def error() -> KafkaError | None:
            return self._metadata.cluster.topic_errors.get(topic)

        # An error of an earlier response, such as a missing ACL, may be resolved by now.
        before = error()

        def is_ready() -> bool:
            refusal = error()
            is_refused = refusal is not None and refusal is not before and not refusal.retriable
            return topic in self._metadata.cluster.topics or is_refused

        if before is not None:
            self._metadata.request_update()
        about = (TopicPartition(topic, 0),)
        late: KafkaTimeoutError | None = None
        try:
            self._topics.add_for_call((topic,))
            yield from self._waiting.until(
                is_ready, timeout_ms, lambda: f"topic {topic!r}", error, about=about
            )
        except KafkaTimeoutError as raised:
            late = raised
        finally:
            self._topics.remove_for_call((topic,))
        infos = self._metadata.cluster.partitions_for(topic)
        if infos is not None:
            return infos
        reason = error() or late
        assert reason is not None
        raise reason

    def list_topics(self, timeout_ms: int) -> Decisions[dict[str, tuple[PartitionInfo, ...]]]:
        lookups = self._wiring.topic_lookups
        lookup = lookups.start()
        try:
            topics = yield from self._until_done(
                lookup.operation, lookup.attempt, timeout_ms, lambda: "the list of topics"
            )
        finally:
            lookups.cancel(lookup)
        return {topic.name: topic.partitions for topic in topics}

    def _until_done(
        self,
        operation: Operation[T],
        attempt: Attempt,
        timeout_ms: int,
        what: Callable[[], str],
    ) -> Decisions[T]:
        yield from self._waiting.until(
            lambda: operation.is_done, timeout_ms, what, lambda: attempt.last_error
        )
        return operation.result()

    def _send_at_once(self) -> Decisions[None]:
        """Send a request now, as far as that is possible without waiting."""
        yield Until(lambda: True, now_ms())
