"""CommittedOffsets: requests committed offsets of a group from its coordinator.

A lookup ends with a result or with a final error. The call that started it has a deadline, and
cancels it then.

Owner: the driver of the engine.
Source: Java classes ``ConsumerCoordinator``, ``CommitRequestManager``; KIP-447 (stable offsets),
KIP-709 (several groups), KIP-848 (topic ids).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.errors import DecodeError, error_for_code
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.manager import NEVER_MS, Operation, PollResult, Request, check_partitions
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.coordinators import CoordinatorLookup
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message

    CommittedPartition = tuple[TopicPartition, int, OffsetAndMetadata | None]
    """A partition, an error code, and the committed offset; None if there is none."""

STABLE_FROM_VERSION: Final = 7
GROUPS_FROM_VERSION: Final = 8
TOPIC_NAMES_MAX_VERSION: Final = 9
"""Later versions of OffsetFetch identify topics by id only."""

NO_OFFSET: Final = -1
"""Offset in a response if nothing is committed."""


class CommittedLookup:
    """One lookup. `operation` ends with the committed offsets, None if there is none."""

    __slots__ = ("attempt", "operation", "partitions")

    def __init__(self, partitions: Iterable[TopicPartition], backoff: Backoff) -> None:
        self.partitions = frozenset(partitions)
        self.operation: Operation[dict[TopicPartition, OffsetAndMetadata | None]] = Operation()
        self.attempt = Attempt(backoff)


class CommittedOffsets:
    """Manager of all lookups under way."""

    def __init__(
        self,
        coordinator: CoordinatorLookup,
        *,
        metadata: Metadata,
        retry_backoff: Backoff,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._retry_backoff = retry_backoff
        self._waiting: dict[CommittedLookup, None] = {}
        """Lookups neither done nor cancelled; some are in flight."""

    def start(self, partitions: Iterable[TopicPartition]) -> CommittedLookup:
        lookup = CommittedLookup(partitions, self._retry_backoff)
        self._waiting[lookup] = None
        return lookup

    def cancel(self, lookup: CommittedLookup) -> None:
        self._waiting.pop(lookup, None)

    def poll(self, now_ms: int) -> PollResult:
        next_poll_ms = NEVER_MS
        due = []
        for lookup in self._waiting:
            if lookup.attempt.is_due(now_ms):
                due.append(lookup)
            else:
                next_poll_ms = min(next_poll_ms, lookup.attempt.next_ms)
        if not due:
            return PollResult(next_poll_ms=next_poll_ms)
        node_id = self._coordinator.node_id_for(lookup.attempt for lookup in due)
        if node_id is not None:
            return PollResult([self._request(each, node_id) for each in due], next_poll_ms)
        failure = self._coordinator.failure()
        if failure is not None:
            for lookup in due:
                self._fail(lookup, failure)
        return PollResult(next_poll_ms=next_poll_ms)

    def restart(self, now_ms: int) -> None:
        del now_ms
        for lookup in self._waiting:
            lookup.attempt.lost()

    def _request(self, lookup: CommittedLookup, node_id: int) -> Request:
        lookup.attempt.sent()
        call = OffsetFetchCall(self._coordinator.key, lookup.partitions, self._metadata.cluster)
        return Request(
            OffsetFetchRequest(),
            node_id,
            partial(self._on_response, lookup, call, node_id),
            partial(self._on_failure, lookup, node_id),
            max_version=call.max_version,
            check=call.check,
            build=call.build,
        )

    def _on_response(
        self,
        lookup: CommittedLookup,
        call: OffsetFetchCall,
        node_id: int,
        message: Message | None,
        now_ms: int,
    ) -> None:
        assert message is not None
        group_error = call.group_error(message)
        if group_error != 0:
            text = f"OffsetFetch of group {self._coordinator.key!r}"
            self._on_error(lookup, error_for_code(group_error, text), node_id, now_ms)
            return
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        errors: list[KafkaError] = []
        for partition, error_code, committed in call.partitions(message):
            found[partition] = committed
            if error_code != 0:
                text = f"OffsetFetch of {partition} in group {self._coordinator.key!r}"
                errors.append(error_for_code(error_code, text))
        if errors:
            # Final errors come first: retriable ones are requested again together.
            self._on_error(lookup, min(errors, key=lambda e: e.retriable), node_id, now_ms)
            return
        self._waiting.pop(lookup, None)
        lookup.operation.succeed(found)

    def _on_failure(
        self, lookup: CommittedLookup, node_id: int, error: KafkaError, now_ms: int
    ) -> None:
        if error.retriable and not isinstance(error.__cause__, DecodeError):
            self._coordinator.mark_unknown(node_id, error)
        self._on_error(lookup, error, node_id, now_ms)

    def _on_error(
        self, lookup: CommittedLookup, error: KafkaError, node_id: int, now_ms: int
    ) -> None:
        self._coordinator.has_moved(node_id, error)
        final_error = lookup.attempt.failed(error, now_ms)
        if final_error is not None:
            self._fail(lookup, final_error)
        elif lookup.attempt.last_error is error and error.refresh_metadata:
            self._metadata.request_update()

    def _fail(self, lookup: CommittedLookup, error: KafkaError) -> None:
        self._waiting.pop(lookup, None)
        lookup.attempt.lost()
        lookup.operation.fail(error)


class OffsetFetchCall:
    """A request for `partitions` of a group; topic ids come from `cluster`.

    It names no member: Java's members of KIP-848 groups send their epoch, which fences them.
    """

    def __init__(
        self, group_id: str, partitions: Iterable[TopicPartition], cluster: Cluster
    ) -> None:
        self._group_id = group_id
        self._partitions = frozenset(partitions)
        self._indexes: dict[str, list[int]] = {}
        for name, index in sorted(self._partitions):
            self._indexes.setdefault(name, []).append(index)
        self._ids = {name: cluster.topic_id(name) for name in self._indexes}
        self._names_by_id = {topic_id: name for name, topic_id in self._ids.items()}
        has_ids = NO_TOPIC_ID not in self._names_by_id
        self.max_version = None if has_ids else TOPIC_NAMES_MAX_VERSION

    def build(self, version: int) -> OffsetFetchRequest:
        """Return the message for a version.

        From Kafka 2.5 on, the broker waits for offsets of open transactions.
        """
        is_stable = version >= STABLE_FROM_VERSION
        if version < GROUPS_FROM_VERSION:
            return OffsetFetchRequest(
                group_id=self._group_id,
                topics=[OffsetFetchRequestTopic(*topic) for topic in self._indexes.items()],
                require_stable=is_stable,
            )
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopics(name, self._ids[name], indexes)
                for name, indexes in self._indexes.items()
            ],
        )
        return OffsetFetchRequest(groups=[group], require_stable=is_stable)

    def check(self, message: Message) -> None:
        """Check that a response names each requested partition once, with a valid offset or -1.

        Raises:
            DecodeError: it does not.
        """
        assert isinstance(message, OffsetFetchResponse)
        groups = [group.group_id for group in message.groups]
        if groups not in ([], [self._group_id]):
            raise DecodeError(f"an OffsetFetch response is about the groups {groups}")
        if self.group_error(message) != 0:
            return
        responded = (partition for partition, *_ in self.partitions(message))
        check_partitions("OffsetFetch", self._partitions, responded)
        for partition, offset in self._offsets(message):
            if offset < NO_OFFSET:
                raise DecodeError(f"an OffsetFetch response gives {partition} the offset {offset}")

    def group_error(self, message: Message) -> int:
        assert isinstance(message, OffsetFetchResponse)
        return message.groups[0].error_code if message.groups else message.error_code

    @staticmethod
    def _offsets(message: OffsetFetchResponse) -> Iterator[tuple[str, int]]:
        """Yield each partition, as text, with its offset."""
        for topic in message.topics:
            for each in topic.partitions:
                yield f"{topic.name}-{each.partition_index}", each.committed_offset
        for group in message.groups:
            for newer_topic in group.topics:
                for newer in newer_topic.partitions:
                    yield f"{newer_topic.name}-{newer.partition_index}", newer.committed_offset

    def partitions(self, message: Message) -> Iterator[CommittedPartition]:
        assert isinstance(message, OffsetFetchResponse)
        for group in message.groups:
            for topic in group.topics:
                name = topic.name or self._names_by_id.get(topic.topic_id, "")
                for partition in topic.partitions:
                    yield _committed_partition(name, partition)
        for older in message.topics:
            for older_partition in older.partitions:
                yield _committed_partition(older.name, older_partition)


def _committed_partition(
    topic: str, response: OffsetFetchResponsePartitions | OffsetFetchResponsePartition
) -> CommittedPartition:
    committed = None
    if response.committed_offset >= 0:
        epoch = response.committed_leader_epoch
        committed = OffsetAndMetadata(
            response.committed_offset, response.metadata or "", None if epoch < 0 else epoch
        )
    return TopicPartition(topic, response.partition_index), response.error_code, committed
