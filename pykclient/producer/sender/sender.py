"""Sender: drains batches from the accumulator, sends them, and handles the responses.

A response ends each of its batches: written, retried, split, or failed. This class never calls user
code; it adds calls to the list that the driver works through.

Owner: the sender thread.
Source: Java class ``Sender``; KIP-98 (idempotence), KIP-126 (splitting), KIP-467 (refused
records), KIP-516 (topic ids), KIP-794 (slow nodes), KIP-951 (new leaders).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pykclient import accel
from pykclient.errors import (
    ClosedError,
    ClusterAuthorizationFailedError,
    DeliveryTimeoutError,
    DuplicateSequenceNumberError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    PurgedError,
    UnknownProducerIdError,
    UnsupportedVersionError,
    error_for_code,
)
from pykclient.errors.text import printable
from pykclient.metrics import Windows
from pykclient.network.cluster.cluster import NO_TOPIC_ID, LeaderHints
from pykclient.network.log import ClientLog, RateLimitedLog
from pykclient.network.manager import NEVER_MS, PollResult, Request, UserCall, check_partitions
from pykclient.producer.accumulator.batch import BatchState
from pykclient.producer.metrics import ProducerMetrics
from pykclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pykclient.records.compression import Codec
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pykclient.network.broker.client import NetworkClient
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.retry import Backoff
    from pykclient.producer.accumulator.accumulator import RecordAccumulator
    from pykclient.producer.accumulator.batch import ProducerBatch
    from pykclient.producer.config import ProducerConfig
    from pykclient.producer.failure_reports import FailureReports
    from pykclient.producer.sender.idempotence import Idempotence
    from pykclient.producer.sender.transactions import Transactions
    from pykclient.protocol.message import Message
    from pykclient.protocol.messages.produce import PartitionProduceResponse

PARTITIONS_NAMED_MAX = 5
"""Maximum number of partitions named in a message."""


class Sender:
    """Manager that sends batches.

    Without `idempotence` batches have no sequence numbers; without `transactions` they are not
    transactional. `on_failed` is called when the producer has failed, and `failure` is the reason.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        *,
        client: NetworkClient,
        metadata: Metadata,
        idempotence: Idempotence | None,
        backoff: Backoff,
        reports: FailureReports,
        user_calls: deque[UserCall],
        on_failed: Callable[[], None],
        transactions: Transactions | None = None,
    ) -> None:
        self._reports = reports
        self._log = ClientLog("pykclient.producer", config.client_id)
        if accel.implementation_note:
            self._log.info("runs on the pure core: %s", accel.implementation_note)
        self._repeated_log = RateLimitedLog(self._log)
        self._config = config
        self._accumulator = accumulator
        self._client = client
        self._metadata = metadata
        self._idempotence = idempotence
        self._transactions = transactions
        self._backoff = backoff
        self._user_calls = user_calls
        self._on_failed = on_failed
        self._close_deadline_ms = NEVER_MS
        self._is_program_end = False
        """True if that deadline is the end of the program."""
        self._aborted_by: KafkaError | None = None
        self.metrics = ProducerMetrics(
            Windows(config.metrics_num_samples, config.metrics_sample_window_ms)
        )
        self._polled_ms = 0
        self.failure: KafkaError | None = None
        """Reason why the producer can no longer be used; None while it can."""
        self._reads_first = False
        """True if the last `poll` did nothing, so that received responses are read first."""
        self._refused_since_ms: dict[int, int] = {}
        """Time since which a node with ready batches has accepted nothing, by node id."""

    # Each step.

    def poll(self, now_ms: int) -> PollResult:
        accumulator = self._accumulator
        self._polled_ms = now_ms
        accumulator.look(now_ms)
        if self._is_to_read_first(now_ms):
            return PollResult(next_poll_ms=now_ms)
        self._give_up_overdue(now_ms)
        if self._aborted_by is not None:
            self.abort(self._aborted_by, now_ms)  # batches that came or were freed since
        elif now_ms >= self._close_deadline_ms:
            self._log_left(self.abort(_closed_in_time(), now_ms))
        self._reports.log_unseen()
        topics = accumulator.leaderless_topics()
        if topics:
            self._request_leaders(topics, now_ms)
        requests: list[Request] = []
        refused: list[int] = []
        next_ms = NEVER_MS if self._aborted_by is not None else self._close_deadline_ms
        for node_id in accumulator.ready_node_ids():
            if not self._client.is_ready(node_id, now_ms):
                self._client.connect(node_id, now_ms)
                next_ms = min(next_ms, self._client.next_ready_ms(node_id, now_ms))
                refused.append(node_id)
                continue
            batches = accumulator.drain(
                node_id,
                now_ms,
                size_bytes_max=self._config.max_request_size,
                may_send=self._may_send,
            )
            request = self._produce(node_id, batches, now_ms)
            if request is not None:
                requests.append(request)
        self._note_slowness(refused, now_ms)
        next_ms = min(next_ms, accumulator.next_look_ms())
        if self._user_calls or (requests and accumulator.ready_node_ids()):
            next_ms = now_ms  # more batches for the same nodes, or calls that must not wait
        return PollResult(requests, next_ms)

    # Closing.

    def close(
        self, error: KafkaError, now_ms: int, deadline_ms: int, *, is_program_end: bool = False
    ) -> None:
        """Refuse further records with `error`, send the others, fail the rest at the deadline."""
        self._accumulator.close(self.failure or error, now_ms)
        if self._transactions is not None:
            self._transactions.close(now_ms, deadline_ms)
        if deadline_ms < self._close_deadline_ms:
            self._close_deadline_ms = deadline_ms
            self._is_program_end = is_program_end

    def fail(self, error: KafkaError, now_ms: int) -> None:
        """Fail everything: the producer can no longer be used. The first such error counts."""
        failure = self._close_by(error, now_ms)
        if self._transactions is not None:
            self._transactions.on_producer_failed(failure)
        self.abort(failure, now_ms)
        self._on_failed()

    def _close_by(self, error: KafkaError, now_ms: int) -> KafkaError:
        """Accept no more records, before a thread gets the error; return the first such error."""
        if self.failure is None:
            self._log.error("the producer has failed and cannot send: %s", error)
            self.failure = error
            error.fatal = True
            self._accumulator.close(error, now_ms)
        return self.failure

    def withdraw_unsent(self, error: KafkaError, now_ms: int) -> bool:
        """Fail the records that no request carries; return whether there were any."""
        batches = self._accumulator.withdraw_unsent(now_ms)
        for batch in batches:
            self._fail(batch, error)
        return bool(batches)

    def abort(self, error: KafkaError, now_ms: int) -> list[ProducerBatch]:
        """Accept no more records, and fail all that are not delivered; return their batches.

        Each later step does the same, since an interrupted thread may come late.
        """
        self._aborted_by = error
        self._accumulator.close(error, now_ms)
        batches = self._accumulator.withdraw_all(now_ms)
        for batch in batches:
            self._fail(batch, error)
        self._accumulator.fail_flushes(error)
        return batches

    def purge(self, now_ms: int, *, is_queued_wanted: bool, is_in_flight_wanted: bool) -> int:
        """Fail batches that wait, in flight, or both; return their number of records.

        A batch in flight keeps its memory and its place in the sequence until its request ends.
        """
        record_count = 0
        for batch in self._accumulator.withdraw(
            now_ms, is_queued_wanted=is_queued_wanted, is_in_flight_wanted=is_in_flight_wanted
        ):
            record_count += batch.record_count
            self._fail(batch, _purged(batch))
            self._accumulator.look_at(batch.partition, now_ms)
        return record_count

    def _log_left(self, batches: Sequence[ProducerBatch]) -> None:
        if batches:
            counts: dict[TopicPartition, int] = {}
            for batch in batches:
                counts[batch.partition] = counts.get(batch.partition, 0) + batch.record_count
            left = describe_left(counts, is_program_end=self._is_program_end)
            self._log.error("%s", left)

    # Sending.

    def _may_send(self, batch: ProducerBatch) -> bool:
        if self._transactions is not None and not self._transactions.may_send(batch.partition):
            return False
        if self._idempotence is not None:
            return self._idempotence.may_send(batch)
        if self._config.max_in_flight_requests_per_connection > 1:
            return True
        # One request at a time is meant to keep the order, also while leaders change.
        return self._accumulator.in_flight_count(batch.partition) == 0

    def _produce(
        self, node_id: int, batches: Sequence[ProducerBatch], now_ms: int
    ) -> Request | None:
        call = ProduceCall(node_id, self._metadata.cluster, self._transactions)
        for batch in batches:
            if self._idempotence is not None:
                self._idempotence.assign(batch)
            try:
                encoded_bytes = call.carry(batch)
            except Exception as error:  # noqa: BLE001  # no codec or memory: fails this batch only
                if not isinstance(error, KafkaError):
                    self._log.exception("%s cannot be encoded", batch)
                self._accumulator.on_request_ended(batch)
                self._settle_failure(batch, _not_written(batch, error))
            else:
                self.metrics.on_carried(batch, encoded_bytes, now_ms)
        if call.is_empty:
            return None
        self.metrics.on_request(call.record_count, now_ms)
        for name in call.topics:
            self._metadata.add_topic(name, now_ms)
        return call.request(
            self._config,
            on_response=lambda response, now_ms: self._on_response(call, response, now_ms),
            on_failure=lambda error, now_ms: self._on_failure(call, error, now_ms),
        )

    def _request_leaders(self, topics: Iterable[str], now_ms: int) -> None:
        for topic in topics:
            self._metadata.add_topic(topic, now_ms)
        self._metadata.request_update()

    def _note_slowness(self, refused: Sequence[int], now_ms: int) -> None:
        """Keep sticky partitions away from nodes that accept nothing for too long (KIP-794)."""
        timeout_ms = self._config.partitioner_availability_timeout_ms
        if timeout_ms <= 0 or not self._config.partitioner_adaptive_partitioning_enable:
            return
        since_ms = self._refused_since_ms
        self._refused_since_ms = {node_id: since_ms.get(node_id, now_ms) for node_id in refused}
        self._accumulator.on_slow_nodes(
            frozenset(
                node_id
                for node_id, begun_ms in self._refused_since_ms.items()
                if now_ms - begun_ms > timeout_ms
            )
        )

    # Responses.

    def _on_response(self, call: ProduceCall, response: Message | None, now_ms: int) -> None:
        if response is None:  # acks=0: all that is known is that it was sent
            for batch in call.take_rest():
                self._accumulator.on_request_ended(batch)
                self._settle_success(batch, None, None)
                self._accumulator.look_at(batch.partition, now_ms)
            return
        assert isinstance(response, ProduceResponse)
        self.metrics.on_throttled(response.throttle_time_ms, now_ms)
        hints = LeaderHints(response.node_endpoints)
        for batch, part in call.take_parts(response):
            self._accumulator.on_request_ended(batch)
            self._settle(batch, part, now_ms)
            self._accumulator.look_at(batch.partition, now_ms)
            hints.add(batch.partition, part.current_leader)
        self._metadata.learn_leaders(hints)

    def _on_failure(self, call: ProduceCall, error: KafkaError, now_ms: int) -> None:
        for batch in call.take_rest():
            self._accumulator.on_request_ended(batch)
            self._settle_error(batch, error, now_ms)
            self._accumulator.look_at(batch.partition, now_ms)

    def _settle(
        self, batch: ProducerBatch, response: PartitionProduceResponse, now_ms: int
    ) -> None:
        if response.error_code == 0:
            log_append_time_ms = response.log_append_time_ms
            self._settle_success(
                batch,
                response.base_offset if response.base_offset >= 0 else None,
                log_append_time_ms if log_append_time_ms >= 0 else None,
            )
            return
        error = error_for_code(
            response.error_code, f"{batch.partition}: {response.error_message or 'not written'}"
        )
        if isinstance(error, DuplicateSequenceNumberError):
            # An earlier attempt wrote it, at an offset that the broker has forgotten.
            self._settle_success(batch, None, None)
            return
        if isinstance(error, MessageTooLargeError) and self._split(batch, now_ms):
            return
        self._settle_error(batch, error, now_ms, record_errors(batch, response))

    def _settle_success(
        self, batch: ProducerBatch, base_offset: int | None, log_append_time_ms: int | None
    ) -> None:
        if self._idempotence is not None:
            self._idempotence.on_success(batch)
        if batch.state is BatchState.DONE:
            return  # the response came after the batch had expired
        batch.succeed(base_offset, log_append_time_ms)
        self._end(batch)

    def _settle_error(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now_ms: int,
        record_errors: Mapping[int, KafkaError] | None = None,
    ) -> None:
        """Retry a batch, or fail it.

        Unless the error says that the batch was not written (`not_written`; NOT_LEADER_OR_FOLLOWER
        does not), it may be in the log from now on. A retry goes before all later batches of its
        partition, with its sequence number. It is sent at once if metadata or the response names
        another leader, otherwise after the back-off (`ProducerBatch.retry_due_ms`). With
        idempotence it goes first and alone. Retries end after `retries`, or at
        `delivery_timeout_ms`.
        """
        if not error.not_written:
            batch.may_be_written = True
        if error.refresh_metadata:
            self._metadata.request_update()
        if self._may_retry(batch, error):
            self._log.debug("%s is retried: %s", batch, error)
            self.metrics.on_retry(batch, now_ms)
            delay_ms = self._backoff.delay_ms(batch.attempt_count)
            batch.on_retry(error, now_ms + delay_ms)
            self._accumulator.requeue(batch)
            if self._idempotence is not None:
                self._idempotence.on_retry(batch)
            return
        ends_producer = self._idempotence is not None and isinstance(
            error, ClusterAuthorizationFailedError
        )
        if ends_producer:
            self._close_by(error, now_ms)
        self._settle_failure(batch, error, record_errors)
        if ends_producer:
            self.fail(error, now_ms)

    def _may_retry(self, batch: ProducerBatch, error: KafkaError) -> bool:
        is_worthwhile = error.retriable
        if self._idempotence is not None and isinstance(
            error, OutOfOrderSequenceNumberError | UnknownProducerIdError
        ):
            self._metadata.request_update()  # the response may be that of a replaced leader
            is_worthwhile = self._idempotence.on_lost_place(batch)
        return (
            is_worthwhile
            and batch.state is BatchState.IN_FLIGHT
            and batch.attempt_count < self._config.retries
        )

    def _settle_failure(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None = None,
    ) -> None:
        if batch.state is not BatchState.DONE:
            self._fail(batch, error, record_errors)
        elif self._idempotence is not None:
            self._idempotence.on_given_up(batch)

    def _split(self, batch: ProducerBatch, now_ms: int) -> bool:
        if batch.record_count < 2 or batch.state is not BatchState.IN_FLIGHT:
            return False
        self._repeated_log.log(
            logging.INFO,
            now_ms,
            ("split", batch.partition),
            "%s is too large for the broker and is split",
            batch,
        )
        try:
            parts = self._accumulator.split(batch)
        except Exception:  # noqa: BLE001  # no memory, say: only this batch fails, as too large
            self._log.exception("%s cannot be split", batch)
            return False
        self.metrics.on_split(now_ms)
        if self._idempotence is not None:
            self._idempotence.on_split(batch, parts)
        return True

    def _fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        record_errors: Mapping[int, KafkaError] | None = None,
    ) -> None:
        self._log.debug("%s has failed: %s", batch, error)
        self.metrics.on_failed(batch, self._polled_ms)
        reported = error
        if self._transactions is not None:
            reported = self._transactions.reported(error)
        batch.fail(reported, record_errors)
        self._end(batch)
        if self._transactions is not None:
            # Before the sequence ends: this error says more than that a sequence ended.
            self._transactions.on_batch_failed(error)
        if self._idempotence is not None and not batch.is_in_request:
            self._idempotence.on_given_up(batch)

    def _end(self, batch: ProducerBatch) -> None:
        self._accumulator.finish(batch)
        call = batch.result.take_call()
        if call is None:
            self._accumulator.on_reported(batch)
        else:
            self._user_calls.append(
                UserCall(call, (), lambda _: self._accumulator.on_reported(batch))
            )

    # Expiry.

    def _is_to_read_first(self, now_ms: int) -> bool:
        """Return True if responses should be read first, before a batch in flight expires.

        The batch's response may be there: none is read while a callback runs or the process stops.
        """
        is_overdue = self._accumulator.has_overdue_in_flight(now_ms)
        self._reads_first = is_overdue and not self._reads_first
        return self._reads_first

    def _give_up_overdue(self, now_ms: int) -> None:
        for batch in self._accumulator.overdue(now_ms):
            self._fail(batch, self._overdue(batch))
            self._accumulator.look_at(batch.partition, now_ms)

    def _overdue(self, batch: ProducerBatch) -> DeliveryTimeoutError:
        error = DeliveryTimeoutError(
            f"{batch.partition}: {batch.record_count} records were not delivered within "
            f"{self._config.delivery_timeout_ms} ms (delivery_timeout_ms); {self._reason(batch)}"
        )
        error.__cause__ = self._refusal_of_leader(batch) or batch.last_error
        return error

    def _reason(self, batch: ProducerBatch) -> str:
        if batch.state is BatchState.IN_FLIGHT:
            return f"the response of broker {batch.sent_to and batch.sent_to.node_id} is still due"
        if batch.last_error is not None:
            ended = f"attempt {batch.attempt_count} ended with: {batch.last_error}"
            since = self._failure_of_leader(batch)
            return f"{ended}; since then: {since}" if since else ended
        cluster = self._metadata.cluster
        if batch.partition.topic in cluster.topic_errors:
            return str(cluster.topic_errors[batch.partition.topic])
        if cluster.leader_of(batch.partition) is None:
            return "no leader is known for the partition"
        failures = self._client.describe_failures()
        return failures or "the broker accepted no more; it may be overloaded"

    def _refusal_of_leader(self, batch: ProducerBatch) -> KafkaError | None:
        error = self._error_of_leader(batch)
        return error if error is not None and error.is_refusal else None

    def _error_of_leader(self, batch: ProducerBatch) -> KafkaError | None:
        leader = self._metadata.cluster.leader_of(batch.partition)
        return None if leader is None else self._client.last_error(leader.id)

    def _failure_of_leader(self, batch: ProducerBatch) -> str:
        """Return why there is no connection to the leader, if the last error does not say it."""
        error = self._error_of_leader(batch)
        return "" if error is None or str(error) in str(batch.last_error) else str(error)


def describe_left(counts: Mapping[TopicPartition, int], *, is_program_end: bool) -> str:
    """Return a message: how many records were not delivered, for which partitions, and a cure."""
    partitions = ", ".join(str(partition) for partition in list(counts)[:PARTITIONS_NAMED_MAX])
    more = ", ..." if len(counts) > PARTITIONS_NAMED_MAX else ""
    where, cure = "close", "give close() more time, or do not interrupt it"
    if is_program_end:
        where = "the program ended without close() or flush()"
        cure = "call close() before its end, or use the producer in a with block"
    return (
        f"{where}: {sum(counts.values())} records for {len(counts)} partitions were not delivered: "
        f"{partitions}{more}; {cure}"
    )


def _not_written(batch: ProducerBatch, cause: Exception) -> KafkaError:
    if isinstance(cause, KafkaError):
        return cause
    error = KafkaError(
        f"{batch.partition}: {batch.record_count} records could not be encoded: {cause!r}"
    )
    error.__cause__ = cause
    return error


def _purged(batch: ProducerBatch) -> PurgedError:
    may_be_written = batch.may_be_written or batch.state is BatchState.IN_FLIGHT
    where = "the records were in flight, and may be in the log" if may_be_written else "never sent"
    return PurgedError(
        f"{batch.partition}: {batch.record_count} records were purged; {where}",
        may_be_written=may_be_written,
    )


def _closed_in_time() -> ClosedError:
    return ClosedError("the producer was closed before the record was delivered")


ACKS_NONE = 0
TOPIC_IDS_FROM_VERSION = 13
ZSTD_FROM_VERSION = 7


class ProduceCall:
    """One Produce request to `node_id`; `cluster` provides topic ids."""

    def __init__(
        self, node_id: int, cluster: Cluster, transactions: Transactions | None = None
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._transactions = transactions
        self._carried: dict[TopicPartition, ProducerBatch] = {}
        self._has_zstd = False
        self.record_count = 0
        self._topics: dict[str, TopicProduceData] = {}
        self._names_by_id: dict[bytes, str] = {}

    @property
    def is_empty(self) -> bool:
        return not self._carried

    @property
    def topics(self) -> list[str]:
        return list(self._topics)

    def carry(self, batch: ProducerBatch) -> int:
        """Add a batch; return its encoded size in bytes."""
        records = batch.encode(is_transactional=self._transactions is not None)
        name, partition = batch.partition
        topic = self._topics.get(name)
        if topic is None:
            topic_id = self._cluster.topic_id(name)
            topic = self._topics[name] = TopicProduceData(name, topic_id, [])
            self._names_by_id[topic_id] = name
        topic.partition_data.append(PartitionProduceData(partition, records))
        self._carried[batch.partition] = batch
        self.record_count += batch.record_count
        if batch.codec is Codec.ZSTD:
            self._has_zstd = True
        return len(records)

    def request(
        self,
        config: ProducerConfig,
        *,
        on_response: Callable[[Message | None, int], None],
        on_failure: Callable[[KafkaError, int], None],
    ) -> Request:
        """Return the request, in a version that names topics if one of them has no id."""
        max_version = None if NO_TOPIC_ID not in self._names_by_id else TOPIC_IDS_FROM_VERSION - 1
        transactional_id = None
        if self._transactions is not None:
            transactional_id = self._transactions.transactional_id
            max_version = self._transactions.produce_version_max or max_version
        message = ProduceRequest(
            transactional_id=transactional_id,
            acks=config.acks,
            timeout_ms=config.request_timeout_ms,
            topic_data=list(self._topics.values()),
        )
        return Request(
            message,
            node_id=self._node_id,
            on_response=on_response,
            on_failure=on_failure,
            max_version=max_version,
            expects_response=config.acks != ACKS_NONE,
            check=self.check,
            build=partial(_in_zstd, message) if self._has_zstd else None,
        )

    def check(self, response: Message) -> None:
        """Check that a response names each batch's partition exactly once."""
        assert isinstance(response, ProduceResponse)
        named = (partition for partition, _ in self._parts(response))
        check_partitions("Produce", self._carried, named)

    def take_parts(
        self, response: ProduceResponse
    ) -> Iterator[tuple[ProducerBatch, PartitionProduceResponse]]:
        """Remove and yield the batches with their responses. Check the response first."""
        for partition, part in self._parts(response):
            yield self._carried.pop(partition), part

    def _parts(
        self, response: ProduceResponse
    ) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
        for topic in response.responses:
            name = topic.name or self._names_by_id.get(topic.topic_id, "")
            for part in topic.partition_responses:
                yield TopicPartition(name, part.index), part

    def take_rest(self) -> list[ProducerBatch]:
        rest = list(self._carried.values())
        self._carried.clear()
        return rest


def record_errors(
    batch: ProducerBatch, response: PartitionProduceResponse
) -> dict[int, KafkaError] | None:
    """Return an error for each record: it was refused, or others in its batch were (KIP-467)."""
    if not response.record_errors:
        return None
    errors: dict[int, KafkaError] = {
        index: InvalidRecordError(
            f"{batch.partition}: not written, since other records of its batch were refused: "
            f"{printable(response.error_message or 'no reason given')}"
        )
        for index in range(batch.record_count)
    }
    for refused in response.record_errors:
        if refused.batch_index not in errors:
            continue  # the batch has no such index
        reason = refused.batch_index_error_message or response.error_message
        errors[refused.batch_index] = error_for_code(
            response.error_code, f"{batch.partition}: the record was refused: {reason}"
        )
    return errors


def _in_zstd(message: ProduceRequest, version: int) -> ProduceRequest:
    """Return the message if the version supports zstd (KIP-110).

    Raises:
        UnsupportedVersionError: the broker does not support zstd.
    """
    if version < ZSTD_FROM_VERSION:
        raise UnsupportedVersionError(
            f"the broker supports Produce up to version {version}, and batches in zstd need "
            f"version {ZSTD_FROM_VERSION} (Kafka 2.1); set compression_type to lz4, gzip or none, "
            f"also in topic_settings"
        )
    return message
