"""PositionValidator: asks a new leader whether its log still has the records read before.

Each position is validated with each new leader before anything is read there, by the epoch of the
record before it. (If a leader is elected that lacks records, the other replicas truncate their
logs.) If the logs diverge, reading goes back to that offset, which is logged; without
`auto_offset_reset` it is an error. A log that reaches the position but does not know the epoch
proves nothing: reading continues, with a warning. If a topic is recreated, its positions are
dropped, and the new topic is read from its beginning. Brokers with stale metadata, or a former
leader, get no request for a while.

Back-offs are those of the partition, which fetches respect as well; this class has no `Attempt`.

Owner: the driver of the engine.
Source: KIP-320; Java classes ``OffsetsForLeaderEpochUtils``, ``SubscriptionState``.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.subscription import OffsetReset, PositionState
from pykclient.errors import (
    ClusterAuthorizationFailedError,
    LogTruncationError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, PollResult, Request, check_partitions
from pykclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.fetch.buffer import FetchBuffer
    from pykclient.consumer.fetch.stalls import Stalls
    from pykclient.consumer.offsets.former_topics import FormerTopics
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.retry import Backoff
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.offset_for_leader_epoch import EpochEndOffset

CONSUMER_REPLICA_ID: Final = -1
NOT_LOOKED_AT: Final = (-1, -1)

OLD_LEADER_LOOKS_MAX: Final = 28
"""Number of metadata requests if a position has a newer leader epoch than the known leader.

With the default back-offs that takes at least 20 s, longer than a broker's session time-out
(`broker.session.timeout.ms` is 9 s, often set to 18 s). That long a leader that hung may not know
that it has been replaced. Then the leader in the metadata gets the request: the epoch may be a
false one.
"""

_CANNOT_TELL: Final = (ClusterAuthorizationFailedError, UnsupportedVersionError)
"""Errors without an answer: before Kafka 2.3, brokers answer this request of brokers only."""


class _Validation(NamedTuple):
    """A position to be validated: its offset, and the epoch of the record before.

    `validated_in` is the epoch of the leader that validates it.
    """

    assigned: AssignedPartition
    fetch_epoch: int
    offset: int
    leader_epoch: int
    validated_in: int

    @property
    def is_current(self) -> bool:
        """True if the position has not changed since the request.

        An iteration may yield one more record meanwhile: then it is validated again.
        """
        assigned = self.assigned
        return (
            assigned.is_assigned
            and assigned.fetch_epoch == self.fetch_epoch
            and assigned.state is PositionState.AWAITING_VALIDATION
            and (assigned.offset, assigned.leader_epoch) == (self.offset, self.leader_epoch)
        )


_Validations = dict[TopicPartition, _Validation]


class PositionValidator:
    """Validates positions when leaders change. Comes before the fetcher in the engine."""

    def __init__(
        self,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        metadata: Metadata,
        *,
        auto_offset_reset: OffsetReset,
        retry_backoff: Backoff,
        stalls: Stalls,
        former_topics: FormerTopics,
        client_id: str = "",
    ) -> None:
        self._stalls = stalls
        self._log = ClientLog("pykclient.consumer", client_id)
        self._subscription = subscription
        self._buffer = buffer
        self._metadata = metadata
        self._auto_offset_reset = auto_offset_reset
        self._retry_backoff = retry_backoff
        self._looked_at = NOT_LOOKED_AT
        """Versions of subscription and cluster of the last check."""
        self._in_flight: dict[AssignedPartition, int] = {}
        """Partitions under validation, each with its `fetch_epoch`."""
        self._made_anew: dict[AssignedPartition, int] = {}
        """Partitions of recreated topics that wait for a seek, each with its `fetch_epoch`."""
        self._former_topics = former_topics

    def poll(self, now_ms: int) -> PollResult:
        """Stop reading if the leader has changed, and send it a request."""
        next_poll_ms = NEVER_MS
        versions = (self._subscription.version, self._metadata.cluster.version)
        if versions != self._looked_at:
            if self._lose_what_was_made_anew():
                next_poll_ms = now_ms  # resets were polled before this
            self._look()
            self._looked_at = (self._subscription.version, self._metadata.cluster.version)
        by_node: defaultdict[int, _Validations] = defaultdict(dict)
        for assigned in self._subscription.awaiting_validation:
            if self._in_flight.get(assigned) == assigned.fetch_epoch:
                continue
            if assigned.retry_at_ms > now_ms:
                next_poll_ms = min(next_poll_ms, assigned.retry_at_ms)
                continue
            if self._waits_for_seek(assigned):
                assigned.back_off(self._retry_backoff, now_ms)
                self._subscription.fail(assigned, _made_anew(assigned))
                continue
            self._ask(assigned, by_node, now_ms)
            if assigned.retry_at_ms > now_ms:
                next_poll_ms = min(next_poll_ms, assigned.retry_at_ms)
        requests = [self._request(node_id, validations) for node_id, validations in by_node.items()]
        return PollResult(requests, next_poll_ms)

    def restart(self, now_ms: int) -> None:
        del now_ms
        self._in_flight.clear()
        self._looked_at = NOT_LOOKED_AT

    def _lose_what_was_made_anew(self) -> bool:
        """Drop positions in recreated topics (KIP-516); return whether there were any.

        Brokers report topic ids from Kafka 2.8 on.
        """
        cluster = self._metadata.cluster
        has_new_cluster = cluster.version != self._looked_at[1]
        has_lost = False
        for assigned in self._subscription:
            was_id = assigned.topic_id
            if not has_new_cluster and was_id != NO_TOPIC_ID:
                continue  # a quick exit, as each pause and resume comes here
            if assigned in self._subscription.sought:
                continue  # the user may know of a newer topic than the metadata
            # If a topic is missing, it may also be that a broker does not know it yet.
            now_id = self._former_topics.present_id(cluster, assigned.partition.topic)
            if now_id in (NO_TOPIC_ID, was_id):
                continue
            if was_id != NO_TOPIC_ID:
                self._former_topics.add(was_id)
                if assigned.has_offset:
                    has_lost = True
                    self._lose(assigned)
            if not self._waits_for_seek(assigned):
                assigned.topic_id = now_id
        for gone in [each for each in self._made_anew if not each.is_assigned]:
            del self._made_anew[gone]
        return has_lost

    def _lose(self, assigned: AssignedPartition) -> None:
        self._buffer.drop(assigned)
        if self._auto_offset_reset is OffsetReset.NONE:
            if assigned.state is PositionState.FETCHING:
                self._subscription.await_validation(assigned)
            self._made_anew[assigned] = assigned.fetch_epoch
            return
        self._log.warning(
            "%s: its topic was deleted and recreated, and the position %d belongs to the old log; "
            "the new one is read from its beginning",
            assigned.partition,
            assigned.offset,
        )
        # The whole new log was written after the last record read, also for `latest`.
        self._subscription.await_reset(assigned, OffsetReset.EARLIEST)

    def _waits_for_seek(self, assigned: AssignedPartition) -> bool:
        return self._made_anew.get(assigned) == assigned.fetch_epoch

    def _look(self) -> None:
        cluster = self._metadata.cluster
        for assigned in self._subscription:
            info = cluster.partition(assigned.partition)
            if (
                assigned.state is not PositionState.FETCHING
                or info is None
                or info.leader_epoch is None
                or info.leader_epoch == assigned.validated_epoch
            ):
                continue
            if assigned.validated_epoch is not None:
                self._buffer.drop(assigned)
            if assigned.leader_epoch is None or assigned.validated_epoch is None:
                self._subscription.accept_leader(assigned, info.leader_epoch)
            else:
                self._subscription.await_validation(assigned)

    def _ask(
        self, assigned: AssignedPartition, by_node: dict[int, _Validations], now_ms: int
    ) -> None:
        cluster = self._metadata.cluster
        info = cluster.partition(assigned.partition)
        if info is None or info.leader_id is None or info.leader_epoch is None:
            self._metadata.request_update()
            has_leader = info is not None and info.leader_id is not None
            why = "its leader's epoch is not known" if has_leader else "it has no leader"
            error = cluster.topic_errors.get(assigned.partition.topic)
            self._stalls.note(assigned, error or why, now_ms)
            return
        assert assigned.leader_epoch is not None
        topic_id = cluster.topic_id(assigned.partition.topic)
        is_behind = topic_id in self._former_topics or info.leader_epoch < assigned.leader_epoch
        if is_behind and assigned.failure_count < OLD_LEADER_LOOKS_MAX:
            # 1. A leader hangs, and another one is elected. 2. A member of the group reads there,
            # and commits with the new epoch. 3. This consumer gets the partition. 4. The old leader
            # continues, not knowing that it was replaced: it does not know that epoch.
            assigned.back_off(self._retry_backoff, now_ms)
            self._metadata.request_update()
            self._stalls.note(assigned, "brokers name only a former leader", now_ms)
            return
        self._former_topics.discard(topic_id)  # reported for so long, it is the present one
        self._in_flight[assigned] = assigned.fetch_epoch
        by_node[info.leader_id][assigned.partition] = _Validation(
            assigned,
            assigned.fetch_epoch,
            assigned.offset,
            assigned.leader_epoch,
            info.leader_epoch,
        )

    def _request(self, node_id: int, validations: _Validations) -> Request:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (topic, index), validation in validations.items():
            topics.setdefault(topic, OffsetForLeaderTopic(topic=topic)).partitions.append(
                OffsetForLeaderPartition(
                    partition=index,
                    current_leader_epoch=validation.validated_in,
                    leader_epoch=validation.leader_epoch,
                )
            )
        return Request(
            OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values())
            ),
            node_id,
            on_response=partial(self._on_response, validations),
            on_failure=partial(self._on_failure, validations),
            check=partial(_check, validations),
        )

    # Responses.

    def _on_response(self, validations: _Validations, message: Message | None, now_ms: int) -> None:
        assert isinstance(message, OffsetForLeaderEpochResponse)
        for topic in message.topics:
            for found in topic.partitions:
                validation = validations[TopicPartition(topic.topic, found.partition)]
                self._end(validation)
                if validation.is_current and not self._waits_for_seek(validation.assigned):
                    self._on_partition(validation, found, now_ms)

    def _on_failure(self, validations: _Validations, error: KafkaError, now_ms: int) -> None:
        for validation in validations.values():
            self._end(validation)
            if validation.is_current and not self._waits_for_seek(validation.assigned):
                self._on_error(validation, error, now_ms)

    def _end(self, validation: _Validation) -> None:
        if self._in_flight.get(validation.assigned) == validation.fetch_epoch:
            del self._in_flight[validation.assigned]

    def _on_partition(self, validation: _Validation, found: EpochEndOffset, now_ms: int) -> None:
        assigned = validation.assigned
        if found.error_code != 0:
            what = f"OffsetForLeaderEpoch of {assigned.partition}"
            self._on_error(validation, error_for_code(found.error_code, what), now_ms)
            return
        has_end = found.end_offset >= 0 and found.leader_epoch >= 0
        if has_end and found.end_offset < validation.offset:
            self._on_truncation(validation, found, now_ms)
        elif has_end and found.leader_epoch >= validation.leader_epoch:
            self._confirm(validation, validation.leader_epoch)
        else:
            # Nothing was written in that epoch, or compaction removed it; or a former leader wrote
            # on, and was elected nevertheless. The epoch is kept, since another replica may know
            # it, unless it is beyond all epochs of this log: the response then has no end, and the
            # next fetch shows whether the log reaches that far.
            self._log.warning(
                "%s: the log has nothing of leader epoch %d, to which the position %d belongs; "
                "reading continues there",
                assigned.partition,
                validation.leader_epoch,
                validation.offset,
            )
            self._confirm(validation, validation.leader_epoch if has_end else None)

    def _confirm(self, validation: _Validation, leader_epoch: int | None) -> None:
        self._subscription.complete_validation(
            validation.assigned, validation.offset, leader_epoch, validation.validated_in
        )

    def _on_truncation(self, validation: _Validation, found: EpochEndOffset, now_ms: int) -> None:
        assigned = validation.assigned
        if self._auto_offset_reset is OffsetReset.NONE:
            assigned.back_off(self._retry_backoff, now_ms)
            self._subscription.fail(assigned, _truncated(assigned, found.end_offset))
            return
        self._log.warning(
            "%s: the log was truncated at offset %d, before the position %d; reading continues "
            "there",
            assigned.partition,
            found.end_offset,
            assigned.offset,
        )
        self._subscription.complete_validation(
            assigned, found.end_offset, found.leader_epoch, validation.validated_in
        )

    def _on_error(self, validation: _Validation, error: KafkaError, now_ms: int) -> None:
        assigned = validation.assigned
        if isinstance(error, _CANNOT_TELL):
            self._log.debug("%s cannot be validated: %s", assigned.partition, error)
            self._confirm(validation, validation.leader_epoch)
            return
        self._log.debug("%s", error)
        assigned.back_off(self._retry_backoff, now_ms)
        self._stalls.note(assigned, error, now_ms)
        if error.retriable:
            self._metadata.request_update()
        else:
            self._subscription.fail(assigned, error)


def _truncated(assigned: AssignedPartition, diverging_offset: int) -> LogTruncationError:
    topic, partition = assigned.partition
    return LogTruncationError(
        f"{assigned.partition}: the position is {assigned.offset}, but the log was truncated at "
        f"offset {diverging_offset}, and may have other records there by now, and "
        f"auto_offset_reset is none: seek() to {diverging_offset} to read from there, or set it to "
        f"earliest or latest",
        topic=topic,
        partition=partition,
        offset=assigned.offset,
        diverging_offset=diverging_offset,
    )


def _made_anew(assigned: AssignedPartition) -> LogTruncationError:
    topic, partition = assigned.partition
    return LogTruncationError(
        f"{assigned.partition}: the position is {assigned.offset}, but the topic was deleted and "
        f"recreated since, so that offset belongs to a log that is gone, and auto_offset_reset is "
        f"none: seek() to an offset to continue, or set it to earliest or latest",
        topic=topic,
        partition=partition,
        offset=assigned.offset,
        diverging_offset=None,
    )


def _check(validations: Mapping[TopicPartition, _Validation], message: Message) -> None:
    assert isinstance(message, OffsetForLeaderEpochResponse)
    responded = (
        (topic.topic, found.partition) for topic in message.topics for found in topic.partitions
    )
    check_partitions("OffsetForLeaderEpoch", validations, responded)
