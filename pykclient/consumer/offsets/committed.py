"""CommittedOffsets: asks a group's coordinator how far the group has come.

A lookup waits for the coordinator, is in flight, waits out a back-off, and ends with an answer or
with an error that trying again does not cure. It never gives up on its own: who started it has a
deadline, and cancels it then.

Owner: the driver of the engine.
Source: Java classes ``ConsumerCoordinator`` (``OffsetFetchResponseHandler``) and
``CommitRequestManager``; KIP-447 (offsets of open transactions are waited for).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pykclient.consumer.offsets.fetch_request import OffsetFetchCall
from pykclient.errors import (
    CoordinatorNotAvailableError,
    DecodeError,
    NotCoordinatorError,
    error_for_code,
)
from pykclient.network.cluster.coordinators import CoordinatorType
from pykclient.network.manager import NEVER_MS, Operation, PollResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.group.protocols import Membership
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.coordinators import Coordinators
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.manager import Request
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.types import OffsetAndMetadata, TopicPartition

__all__ = ["CommittedLookup", "CommittedOffsets"]


class CommittedLookup:
    """One question. `operation` ends with what is committed, None where nothing is."""

    __slots__ = (
        "failure_count",
        "is_in_flight",
        "last_error",
        "operation",
        "partitions",
        "retry_at_ms",
    )

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        self.operation: Operation[dict[TopicPartition, OffsetAndMetadata | None]] = Operation()
        self.is_in_flight = False
        self.retry_at_ms = 0
        self.failure_count = 0
        self.last_error: KafkaError | None = None


class CommittedOffsets:
    """The manager of all lookups under way, for one group."""

    def __init__(
        self,
        group_id: str,
        *,
        coordinators: Coordinators,
        metadata: Metadata,
        membership: Membership,
        retry_backoff: Backoff,
    ) -> None:
        self._group_id = group_id
        self._coordinators = coordinators
        self._metadata = metadata
        self._membership = membership
        self._retry_backoff = retry_backoff
        self._waiting: dict[CommittedLookup, None] = {}
        """Neither done nor cancelled; some of them in flight."""

    def start(self, partitions: Iterable[TopicPartition]) -> CommittedLookup:
        """Ask about partitions, at least one."""
        lookup = CommittedLookup(partitions)
        self._waiting[lookup] = None
        return lookup

    def cancel(self, lookup: CommittedLookup) -> None:
        """Forget a lookup. Its operation does not end."""
        self._waiting.pop(lookup, None)

    def poll(self, now_ms: int) -> PollResult:
        """Ask what is due."""
        next_poll_ms = NEVER_MS
        due = []
        for lookup in self._waiting:
            if lookup.is_in_flight:
                continue
            if lookup.retry_at_ms > now_ms:
                next_poll_ms = min(next_poll_ms, lookup.retry_at_ms)
            else:
                due.append(lookup)
        node_id = self._find_coordinator(due) if due else None
        requests = [] if node_id is None else [self._request(each, node_id) for each in due]
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        """Ask anew."""
        del now_ms
        for lookup in self._waiting:
            lookup.is_in_flight = False

    def _find_coordinator(self, due: list[CommittedLookup]) -> int | None:
        group = CoordinatorType.GROUP, self._group_id
        node = self._coordinators.coordinator(*group)
        if node is not None:
            return node.id
        failure = self._coordinators.failure(*group)
        for lookup in due:
            if failure is not None:
                self._fail(lookup, failure)
            else:
                lookup.last_error = self._coordinators.last_error(*group) or lookup.last_error
        return None

    def _request(self, lookup: CommittedLookup, node_id: int) -> Request:
        lookup.is_in_flight = True
        member = self._membership.reader()
        call = OffsetFetchCall(member, lookup.partitions, self._metadata.cluster)
        return call.request(
            node_id,
            on_response=partial(self._on_response, lookup, call, node_id),
            on_failure=partial(self._on_failure, lookup, node_id),
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
            text = f"OffsetFetch of group {self._group_id!r}"
            self._on_error(lookup, error_for_code(group_error, text), node_id, now_ms)
            return
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        errors: list[KafkaError] = []
        for answer in call.answers(message):
            found[answer.partition] = answer.committed
            if answer.error_code != 0:
                text = f"OffsetFetch of {answer.partition} in group {self._group_id!r}"
                errors.append(error_for_code(answer.error_code, text))
        if errors:
            # What trying again does not cure comes first: the others are asked for with it.
            self._on_error(lookup, min(errors, key=lambda e: e.retriable), node_id, now_ms)
            return
        self._waiting.pop(lookup, None)
        lookup.operation.succeed(found)

    def _on_failure(
        self, lookup: CommittedLookup, node_id: int, error: KafkaError, now_ms: int
    ) -> None:
        cause = error.__cause__
        if not isinstance(cause, DecodeError):
            if error.retriable:
                self._mark_unknown(node_id, error)
            self._on_error(lookup, error, node_id, now_ms)
        elif isinstance(lookup.last_error, DecodeError):
            # A flipped bit is cured by another connection; this one always sends such answers.
            self._fail(lookup, cause)
        else:
            self._retry(lookup, cause, now_ms)

    def _on_error(
        self, lookup: CommittedLookup, error: KafkaError, node_id: int, now_ms: int
    ) -> None:
        if isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError)):
            self._mark_unknown(node_id, error)
        if not error.retriable:
            self._fail(lookup, error)
            return
        if error.refresh_metadata:
            self._metadata.request_update()
        self._retry(lookup, error, now_ms)

    def _mark_unknown(self, node_id: int, reason: KafkaError) -> None:
        self._coordinators.mark_unknown(
            CoordinatorType.GROUP, self._group_id, node_id=node_id, reason=reason
        )

    def _retry(self, lookup: CommittedLookup, error: KafkaError, now_ms: int) -> None:
        lookup.is_in_flight = False
        lookup.last_error = error
        lookup.retry_at_ms = now_ms + self._retry_backoff.delay_ms(lookup.failure_count)
        lookup.failure_count += 1

    def _fail(self, lookup: CommittedLookup, error: KafkaError) -> None:
        self._waiting.pop(lookup, None)
        lookup.is_in_flight = False
        lookup.operation.fail(error)
