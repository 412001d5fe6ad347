"""Fetcher: fetches records from the leaders of partitions, one request per node at a time.

Each node is *idle* or has one fetch *in flight*. While one response waits to be read, the next
fetch requests records that are known to exist, so that the broker works while the application does.
A response for a partition that was moved or unassigned meanwhile is dropped.

Owner: the driver of the engine.
Source: Java class ``AbstractFetch``; KIP-227 (sessions), KIP-320 (leader epochs), KIP-392 (read
from followers).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from pykclient.consumer.config import LAG
from pykclient.consumer.fetch.completed_fetch import CompletedFetch, FetchedResponse
from pykclient.consumer.fetch.session import FetchCall, FetchSession, Target, Targets
from pykclient.errors import (
    CorruptMessageError,
    CorruptRecordError,
    DecodeError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    FrameTooLargeError,
    InvalidFetchSessionEpochError,
    OffsetOutOfRangeError,
    UnknownServerError,
    error_for_code,
)
from pykclient.network.cluster.cluster import LeaderHints
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.network.manager import NEVER_MS, PollResult, Request
from pykclient.network.retry import Attempt
from pykclient.protocol.messages.fetch import FetchResponse
from pykclient.records.control import AbortedTransactions
from pykclient.types import IsolationLevel

if TYPE_CHECKING:
    from collections.abc import Set

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.fetch.buffer import FetchBuffer
    from pykclient.consumer.fetch.stalls import Stalls
    from pykclient.consumer.metrics import ConsumerMetrics
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.fetch import PartitionData

UNUSED_RESPONSES_MAX: Final = 1
"""Maximum number of a node's responses in use at which another fetch is sent."""

LATE_MS: Final = 2_000
"""Time after `fetch_max_wait_ms` at which a response is late, and the leader is suspect."""

ABSENCE_MS: Final = 500
"""Delay of a step at which a fetch does not count as late: its response may be unread."""

UNGROUPED: Final = (-1, -1, -1)

_LOST_SESSIONS: Final = (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
"""Errors of the session alone: the next fetch, which names all partitions, is sent at once."""


class _Node:
    __slots__ = ("attempt", "late_ms", "nothing_ahead_ms", "oversized", "session")

    def __init__(self, backoff: Backoff, *, prefers_lag: bool) -> None:
        self.session = FetchSession(is_always_full=prefers_lag)
        self.attempt = Attempt(backoff)
        """State of the fetch in flight, and whether the last response could be read."""
        self.late_ms = 0
        """Time at which the response to the fetch in flight counts as late."""
        self.nothing_ahead_ms = 0
        """Time until which no further records are known to exist."""
        self.oversized: AssignedPartition | None = None
        """Partition that carries the error about a response that was too large."""


class Fetcher:
    """Manager of all fetches. Comes last in the engine: it reads positions that others set."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        metadata: Metadata,
        client: NetworkClient,
        retry_backoff: Backoff,
        metrics: ConsumerMetrics,
        stalls: Stalls,
    ) -> None:
        self._config = config
        self._prefers_lag = prefers_lag = config.fetch_order == LAG
        self._metrics = metrics
        self._stalls = stalls
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._repeated = RateLimitedLog(self._log)
        self._subscription = subscription
        self._buffer = buffer
        self._metadata = metadata
        self._client = client
        self._retry_backoff = retry_backoff
        self._nodes: defaultdict[int, _Node] = defaultdict(
            lambda: _Node(retry_backoff, prefers_lag=prefers_lag)
        )
        self._by_node: dict[int, list[AssignedPartition]] = {}
        self._grouped_at = UNGROUPED
        """Versions of subscription, cluster and buffer from which `_by_node` was built."""
        self._node_max_bytes = config.fetch_max_bytes
        """Share of `fetch_max_bytes` of each node."""

    def poll(self, now_ms: int) -> PollResult:
        """Fetch from every node that is idle and has partitions to read."""
        next_poll_ms = self._suspect_late(now_ms)
        self._group(now_ms)
        requests: list[Request] = []
        for node_id in self._by_node:
            node = self._nodes[node_id]
            unused_count = self._buffer.response_count(node_id)
            if node.attempt.is_in_flight or unused_count > UNUSED_RESPONSES_MAX:
                continue
            if self._waits_for_user(node):
                continue
            if self._client.is_unavailable(node_id, now_ms):
                next_poll_ms = min(next_poll_ms, self._client.next_ready_ms(node_id, now_ms))
                continue
            targets, retry_ms = self._targets(node_id, now_ms, is_ahead=unused_count > 0)
            next_poll_ms = min(next_poll_ms, retry_ms)
            if targets:
                node.attempt.sent()
                node.late_ms = now_ms + self._config.fetch_max_wait_ms + LATE_MS
                next_poll_ms = min(next_poll_ms, node.late_ms)
                requests.append(self._request(node_id, targets, now_ms))
        return PollResult(requests, next_poll_ms)

    def end_sessions(self, now_ms: int) -> list[Request]:
        """Return requests that end the sessions. Their responses are not waited for.

        Only for brokers that owe no response: after a fetch that waits for records, the request
        would not be read before the connection closes. Other brokers reuse the slot of the session
        when they need it.
        """
        requests = []
        for node_id, node in self._nodes.items():
            is_free = not node.attempt.is_in_flight and self._client.is_ready(node_id, now_ms)
            last_fetch = node.session.end() if is_free else None
            if last_fetch is not None:
                message = last_fetch.message(self._config, self._node_max_bytes)
                requests.append(Request(message, node_id, _ignore, _ignore))
        return requests

    def restart(self, now_ms: int) -> None:
        del now_ms
        self._grouped_at = UNGROUPED
        for node in self._nodes.values():
            node.attempt.lost()
            node.nothing_ahead_ms = 0
            node.session.restart()

    # Grouping by node.

    def _suspect_late(self, now_ms: int) -> int:
        """Update metadata if a node is late; return when to check again.

        A leader that hangs, but keeps its connections, has usually been replaced long before
        `request_timeout_ms` is over.
        """
        next_late_ms = NEVER_MS
        for node_id, node in self._nodes.items():
            if not node.attempt.is_in_flight:
                continue
            late_ms = node.late_ms
            if now_ms >= late_ms:
                node.late_ms = now_ms + LATE_MS
                # If the step itself is late, the application was away, not the broker.
                if now_ms < late_ms + ABSENCE_MS:
                    self._metadata.request_update()
                    for assigned in self._by_node.get(node_id, ()):
                        self._stalls.note(assigned, f"broker {node_id} does not respond", now_ms)
            next_late_ms = min(next_late_ms, node.late_ms)
        return next_late_ms

    def _group(self, now_ms: int) -> None:
        """Sort the partitions by node, if something has changed."""
        cluster = self._metadata.cluster
        versions = (self._subscription.version, cluster.version, self._buffer.version)
        if versions == self._grouped_at and not self._has_expired_replica(now_ms):
            return
        self._grouped_at = versions
        for node in self._nodes.values():
            node.nothing_ahead_ms = 0
        by_node: dict[int, list[AssignedPartition]] = {}
        for assigned in self._subscription:
            if not assigned.is_fetching:
                continue
            node_id = self._node_id(assigned, now_ms)
            if node_id is not None:
                by_node.setdefault(node_id, []).append(assigned)
            elif cluster.partitions_for(assigned.partition.topic) is not None:
                self._metadata.request_update()
                self._stalls.note(assigned, "it has no leader", now_ms)
        self._by_node = by_node
        # Two responses of each node may wait to be read: twice the setting in total.
        self._node_max_bytes = self._config.fetch_max_bytes // max(1, len(by_node))

    def _node_id(self, assigned: AssignedPartition, now_ms: int) -> int | None:
        cluster = self._metadata.cluster
        replica_id = assigned.read_replica_id
        if replica_id is not None:
            if replica_id in cluster.nodes and now_ms < assigned.read_replica_expires_ms:
                return replica_id
            assigned.read_replica_id = None
        info = cluster.partition(assigned.partition)
        return None if info is None else info.leader_id

    def _has_expired_replica(self, now_ms: int) -> bool:
        return bool(self._config.client_rack) and any(
            assigned.read_replica_id is not None and now_ms >= assigned.read_replica_expires_ms
            for assigned in self._subscription
        )

    def _targets(self, node_id: int, now_ms: int, *, is_ahead: bool) -> tuple[Targets, int]:
        """Return the targets of a fetch from a node, and when the first back-off of others ends.

        While a response waits to be read, a fetch is sent only for records known to exist. A fetch
        that waits at the broker would occupy the node, and delay a seek.
        """
        node = self._nodes[node_id]
        if is_ahead and now_ms < node.nothing_ahead_ms:
            return {}, node.nothing_ahead_ms
        targets: Targets = {}
        retry_ms = NEVER_MS
        for assigned in self._by_node[node_id]:
            if assigned.retry_at_ms > now_ms:
                retry_ms = min(retry_ms, assigned.retry_at_ms)
                continue
            offset = self._buffer.fetch_offset(assigned)
            if offset is not None:
                targets[assigned.partition] = Target(assigned, assigned.fetch_epoch, offset)
        level = self._config.isolation_level
        if is_ahead and not any(target.backlog(level) > 0 for target in targets.values()):
            # Until the next response or change: a poll that takes a few records must not look at
            # all partitions each time.
            node.nothing_ahead_ms = retry_ms
            return {}, retry_ms
        if self._prefers_lag:
            # A broker fills its response in this order.
            furthest_behind = sorted(targets.values(), key=lambda target: -target.backlog(level))
            targets = {target.assigned.partition: target for target in furthest_behind}
        return targets, retry_ms

    def _request(self, node_id: int, targets: Targets, now_ms: int) -> Request:
        session = self._nodes[node_id].session
        call = FetchCall(node_id, targets, self._metadata.cluster, session)
        return call.request(
            self._config,
            self._node_max_bytes,
            on_response=partial(self._on_response, call, now_ms),
            on_failure=partial(self._on_failure, call),
        )

    # Responses.

    def _on_response(
        self, call: FetchCall, asked_ms: int, message: Message | None, now_ms: int
    ) -> None:
        assert isinstance(message, FetchResponse)
        node_id = call.node_id
        node = self._nodes[node_id]
        node.attempt.succeeded()
        node.nothing_ahead_ms = 0
        error = call.settle(message)
        if error is not None:
            self._log.debug("%s", error)
            if call.is_full or not isinstance(error, _LOST_SESSIONS):
                self._fail_all(call.targets, error, now_ms)
            return
        partitions = list(call.partitions(message))
        size_bytes = sum(len(data.records or b"") for _, data in partitions)
        response = FetchedResponse(node_id, size_bytes)
        hints = LeaderHints(message.node_endpoints)
        named: set[tuple[str, int]] = set()
        if self._stalls:
            self._stalls.end([target.assigned for target in call.served(message)])
        if self._subscription.sought:
            self._accept_topics(call, message)
        for target, data in partitions:
            named.add(target.assigned.partition)
            hints.add(target.assigned.partition, data.current_leader)
            if target.is_current:
                self._on_partition(target, data, response, now_ms)
        self._metrics.on_fetched(size_bytes, now_ms - asked_ms, now_ms)
        if self._metadata.learn_leaders(hints):
            self._end_back_off_at_new_leaders(call, now_ms)
        if call.is_full:
            self._back_off_unnamed(call, named, now_ms)
            self._let_others_first(node_id, response)

    def _accept_topics(self, call: FetchCall, message: FetchResponse) -> None:
        """Store the topics for which brokers have served positions that the user has set."""
        for target in call.served(message):
            sought_in = self._subscription.sought.get(target.assigned)
            if sought_in is None or not target.is_current:
                continue
            topic_id = call.served_topic(target, message, sought_in)
            if topic_id is None:
                self._metadata.request_update()
            else:
                self._subscription.accept_topic(target.assigned, topic_id)

    def _back_off_unnamed(self, call: FetchCall, named: Set[tuple[str, int]], now_ms: int) -> None:
        """Back off from partitions that were requested, and are missing in a full response."""
        for name, target in call.targets.items():
            if name not in named:
                self._log.debug("broker %d: no data for %s", call.node_id, name)
                target.assigned.back_off(self._retry_backoff, now_ms)

    def _on_partition(
        self, target: Target, data: PartitionData, response: FetchedResponse, now_ms: int
    ) -> None:
        assigned = target.assigned
        if data.error_code != 0:
            self._on_error(target, data, now_ms)
            return
        assigned.failure_count = 0
        self._note_log(assigned, data)
        if data.preferred_read_replica >= 0:
            self._read_from(assigned, data.preferred_read_replica, now_ms)
        if not data.records:
            return
        if target.offset != self._buffer.fetch_offset(assigned):
            self._log.debug(
                "%s: data fetched at %d is not needed", assigned.partition, target.offset
            )
            return
        aborted = None
        if self._config.isolation_level is IsolationLevel.READ_COMMITTED:
            aborted = AbortedTransactions(
                (transaction.producer_id, transaction.first_offset)
                for transaction in data.aborted_transactions or ()
            )
        fetched = CompletedFetch(
            assigned.partition,
            target.offset,
            data.records,
            self._config,
            response=response,
            high_watermark=assigned.high_watermark,
            aborted=aborted,
        )
        self._buffer.add(assigned, fetched)

    def _end_back_off_at_new_leaders(self, call: FetchCall, now_ms: int) -> None:
        """End the back-off of partitions that have another leader now."""
        for target in call.targets.values():
            leader = self._metadata.cluster.leader_of(target.assigned.partition)
            if target.is_current and leader is not None and leader.id != call.node_id:
                target.assigned.retry_at_ms = now_ms

    def _note_log(self, assigned: AssignedPartition, data: PartitionData) -> None:
        # -1 is "unknown"; brokers have no reason to send less, and nothing depends on it.
        if data.high_watermark >= 0:
            assigned.high_watermark = data.high_watermark
        if data.last_stable_offset >= 0:
            assigned.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            assigned.log_start_offset = data.log_start_offset

    def _read_from(self, assigned: AssignedPartition, replica_id: int, now_ms: int) -> None:
        if assigned.read_replica_id != replica_id:
            self._log.info("%s: reading from replica %d", assigned.partition, replica_id)
        assigned.read_replica_id = replica_id
        assigned.read_replica_expires_ms = now_ms + self._config.metadata_max_age_ms
        self._grouped_at = UNGROUPED

    def _on_error(self, target: Target, data: PartitionData, now_ms: int) -> None:
        assigned = target.assigned
        what = f"Fetch of {assigned.partition} at offset {target.offset}"
        error: KafkaError = error_for_code(data.error_code, what)
        if isinstance(error, OffsetOutOfRangeError):
            self._on_out_of_range(target, now_ms)
            return
        if isinstance(error, CorruptMessageError):
            error = CorruptRecordError(
                f"{assigned.partition}: the broker's own copy of the records at offset "
                f"{target.offset} is corrupt: {error}",
                topic=assigned.partition.topic,
                partition=assigned.partition.partition,
                offset=target.offset,
            )
        self._fail(assigned, error, now_ms)

    def _on_out_of_range(self, target: Target, now_ms: int) -> None:
        assigned = target.assigned
        if assigned.read_replica_id is not None:
            self._leave_replica(assigned)  # a follower may lag; the leader decides
        elif target.offset != assigned.offset:
            # Requested ahead of the buffered data: it counts when reading gets there.
            assigned.back_off(self._retry_backoff, now_ms)
        else:
            self._buffer.drop(assigned)
            self._subscription.lose_position(assigned, self._config.offset_reset)

    def _on_failure(self, call: FetchCall, error: KafkaError, now_ms: int) -> None:
        node = self._nodes[call.node_id]
        call.fail(error)
        self._log.debug("fetch from broker %d failed: %s", call.node_id, error)
        self._fail_all(call.targets, error, now_ms)
        current = [target.assigned for target in call.targets.values() if target.is_current]
        cause = error.__cause__
        if isinstance(cause, FrameTooLargeError):
            # It would be as large again, so it is not repeated before the user has got the error.
            node.attempt.lost()
            if current:
                node.oversized = current[0]
                self._subscription.fail(current[0], self._too_large(call, cause))
            return
        # A broker whose responses cannot be decoded must not look like one without data. Each
        # partition's back-off decides when to fetch again.
        final_error = node.attempt.failed(error, now_ms)
        if current and isinstance(final_error, DecodeError):
            self._subscription.fail(current[0], final_error)

    def _waits_for_user(self, node: _Node) -> bool:
        if node.oversized is None:
            return False
        if self._subscription.error_of(node.oversized) is None:
            node.oversized = None
        return node.oversized is not None

    def _too_large(self, call: FetchCall, cause: FrameTooLargeError) -> FrameTooLargeError:
        count = len(call.targets)
        error = FrameTooLargeError(
            f"the response of broker {call.node_id} to a Fetch of {count} partition(s), "
            f"{min(call.targets)} the first, is too large: {cause}; or lower fetch_max_bytes "
            f"({self._config.fetch_max_bytes}) and max_partition_fetch_bytes "
            f"({self._config.max_partition_fetch_bytes})"
        )
        error.__cause__ = cause
        return error

    def _fail_all(self, targets: Targets, error: KafkaError, now_ms: int) -> None:
        for target in targets.values():
            if target.is_current:
                self._fail(target.assigned, error, now_ms)

    def _fail(self, assigned: AssignedPartition, error: KafkaError, now_ms: int) -> None:
        """Back off; raise the error unless a retry may resolve it."""
        self._leave_replica(assigned)
        assigned.back_off(self._retry_backoff, now_ms)
        self._stalls.note(assigned, error, now_ms)
        if error.retriable:
            self._metadata.request_update()
        elif isinstance(error, UnknownServerError):
            # A temporary failure of the broker, as Java treats it.
            key = (assigned.partition, type(error))
            self._repeated.log(logging.WARNING, now_ms, key, "%s; retrying", error)
        else:
            self._subscription.fail(assigned, error)

    def _leave_replica(self, assigned: AssignedPartition) -> None:
        if assigned.read_replica_id is not None:
            assigned.read_replica_id = None
            self._grouped_at = UNGROUPED

    def _let_others_first(self, node_id: int, response: FetchedResponse) -> None:
        """Put the partitions that had data in this response last in the next full request.

        A broker fills a response in the order of the request, up to max_bytes. In a session it
        rotates the order itself.
        """
        if response.ready_count and node_id in self._by_node:
            self._by_node[node_id].sort(key=self._buffer.has)


def _ignore(_: object, now_ms: int) -> None:
    """Ignore a response that is not needed."""
