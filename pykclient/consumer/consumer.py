"""Consumer: the blocking front-end: names, arguments and documentation of the calls that wait.

`PollLoop`, `Calls` and `Closing` implement them, as decisions that `drive` runs.

Owner: one thread at a time; any thread may call `wakeup`, `store_offset` and `metrics`.
Source: Java class ``KafkaConsumer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, overload
from weakref import ref

from pykclient.arguments import (
    check_callable,
    check_count,
    check_partition,
    check_topic,
    checked_time_ms,
    limits_by_partition,
    offsets_by_partition,
    partition_list,
    times_by_partition,
)
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.config.given_settings import hidden
from pykclient.config.setting import INT_MAX
from pykclient.consumer.arrow import arrow_batch, wanted_columns
from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.core import ConsumerCore, public_call
from pykclient.consumer.offsets.outer import Loop
from pykclient.consumer.poll import NO_LIMITS
from pykclient.consumer.record import ConsumerRecord, ConsumerRecords, follow
from pykclient.network.drive import drive, now_ms
from pykclient.network.live_client import explain_names_of_others
from pykclient.type_parameters import K_co, V_co
from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from datetime import datetime
    from typing import Any, Unpack

    import pyarrow

    from pykclient.config.keywords import ConsumerSettings
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import PartitionInfo
    from pykclient.types import OffsetAndTimestamp, TopicPartition

    Offsets = (
        Mapping[TopicPartition, OffsetAndMetadata | int]
        | ConsumerRecord[object, object]
        | ConsumerRecords[object, object]
    )
    CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object]

NEVER_LOOKED: Final = -1
"""No version of a subscription, so that its partitions are checked."""


class Consumer(ConsumerCore, Generic[K_co, V_co]):
    """Reads records from Kafka.

    Only one thread at a time may use it: another one gets `ConcurrentModificationError` at once.
    Any thread may call `wakeup`, `store_offset` and `metrics`. A consumer does not survive a fork.
    Use it in a ``with`` block, or call `close`.

    K and V are the types that the deserializers return for keys and values, bytes without one. A
    type checker infers them from deserializers passed as keywords. If it cannot (they are named, or
    in the mapping), write ``Consumer[str, Order](settings)``. A record's key and value may also be
    None, which is null.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[ConsumerSettings[K_co, V_co]],
    ) -> None:
        """Create a consumer with settings of `ConsumerConfig`, as a mapping, keywords or both.

        It connects at the first call that needs a broker.

        Raises:
            ConfigError: a setting is unknown, malformed, unsupported, or cannot be imported.
        """
        given, named = hidden(settings, ConsumerConfig), hidden(keywords, ConsumerConfig)
        del settings, keywords  # tracebacks may show variables
        super().__init__(ConsumerConfig.from_settings(given, **named).named())

    # Reading.

    @public_call
    def poll(
        self, timeout: float | None = 1.0, max_records: int | None = None
    ) -> ConsumerRecords[K_co, V_co]:
        """Return the next records, waiting up to `timeout` seconds for the first one.

        `timeout` None is `default_api_timeout_ms`, `max_records` None is `max_poll_records`. It
        moves positions past the returned records. Records of the previous poll count as processed,
        unless their last iteration was left early, by `break`, `return` or an exception: then the
        record in hand and those after it are returned again.

        The result is empty if no record came in time. If waiting would not help, the reason is
        raised. If there are both records and an error, the records are returned once, and the next
        call raises the error.

        Raises:
            NotSubscribedError: nothing is assigned.
            NoOffsetForPartitionError: a partition has no position, and `auto_offset_reset` is none.
            OffsetOutOfRangeError: a position is outside the log, and `auto_offset_reset` is none.
            CorruptRecordError: the records at a position are damaged. The position stays; `seek`
                past them, or poll again to fetch them again.
            RecordDeserializationError: a deserializer failed. The position stays at that record.
                With `on_record_error` both may be skipped instead.
            LogTruncationError: records that were read are no longer in the log, and
                `auto_offset_reset` is none (an `OffsetOutOfRangeError`; KIP-320, Kafka 2.3).
            KafkaTimeoutError: no broker could be reached since the first poll, or a partition could
                not be read for `default_api_timeout_ms`, for whatever reason.
            UnknownTopicOrPartitionError: brokers have not known a partition for a second.
            BrokerError: a broker refuses, for example TopicAuthorizationFailedError.
            UnsupportedVersionError: the brokers are older than Kafka 2.1.
            WakeupError: `wakeup` was called.
        """
        self._wiring.batch_guard.check_poll("poll")
        spans = self._poll(timeout, max_records, NO_LIMITS, is_raw=False)
        # Computed only when used: most applications never read `next_offsets`.
        positions = [
            (assigned.partition, assigned.offset, assigned.leader_epoch)
            for assigned in self._wiring.buffer.begun
            if assigned.is_assigned
        ]
        records: ConsumerRecords[K_co, V_co] = ConsumerRecords(spans, positions)
        if not spans:
            return records
        interceptors = self._wiring.interceptors
        if interceptors:
            records = self._wiring.call_unlocked(interceptors.on_consume, records)
            self._note_dropped(spans, records)
        self._wiring.unprocessed.hand_over(self._wiring.buffer.begun, follow(records))
        return records

    @public_call
    def poll_arrow(
        self,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        until: Mapping[TopicPartition, int] | None = None,
        *,
        include_headers: bool = False,
        columns: Iterable[str] | None = None,
        max_bytes: int | None = None,
    ) -> pyarrow.RecordBatch:
        """Return the next records as an Arrow record batch; empty if none came in time.

        `max_records` None is no limit: all buffered records, up to `fetch_max_bytes`. `max_bytes`
        limits the total size of keys, values and headers; a larger record comes alone. None is
        64 MiB, which is also the maximum.

        Columns: `key` and `value` binary, `topic` string, `partition` int32, `offset` int64,
        `timestamp` timestamp(us, UTC), `timestamp_type` int32, and with `include_headers` also
        `headers` list<struct<key string, value binary>>. Deserializers and interceptors are not
        applied. A timestamp out of range for microseconds is null. `columns` selects columns, None
        is all of these; other columns cost nothing.

        `until` limits partitions: each is read up to that offset, exclusive. A partition is done
        when `position` is at or past it, even if the last offsets have no records (compaction,
        transaction markers). If all assigned partitions are done, this returns at once.

        Raises:
            UsageError: pyarrow is missing, a column is unknown, or a partition in `until` is not
                assigned.
            KafkaError: as `poll`.
        """
        self._wiring.batch_guard.check_poll("poll_arrow")
        wanted = wanted_columns(columns, include_headers=include_headers)
        limits = NO_LIMITS if until is None else limits_by_partition(until)
        if max_bytes is not None:
            check_count(max_bytes, "poll_arrow: max_bytes")
        spans = self._poll(timeout, max_records, limits, is_raw=True, max_bytes=max_bytes)
        return arrow_batch(spans, wanted)

    def __iter__(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        """Yield records without end, or until none comes for `consumer_timeout_ms`.

        The position moves record by record. A record counts as processed when the next one is
        taken. If the loop is left, the record in hand is not committed automatically, and the next
        poll or loop yields it again. `commit` inside the loop includes it. Do not pass the consumer
        to anything that takes records ahead of your processing (`itertools.batched`, an executor's
        `map`): use `poll`, or `enable_auto_offset_store=False` with `store_offset`.

        Raises:
            KafkaError: as `poll`.
        """
        loop = Loop()
        generator = self._iterate(loop)
        loop.source = ref(generator)
        return generator

    def _iterate(self, loop: Loop) -> Generator[ConsumerRecord[K_co, V_co], None, None]:
        subscription = self._wiring.subscription  # looked up once, not per record
        while (found := self._next_span(loop)) is not None:
            assigned, span, fetch_epoch = found
            if assigned.fetch_epoch != fetch_epoch:
                continue  # there is a new leader, which may have lost these records
            first_offset, last_offset = span.columns.first_offset, span.columns.last_offset
            assigned.leader_epoch = span.leader_epoch
            moves, version = assigned.moves, NEVER_LOOKED
            for record in self._records_of(span):
                position = assigned.offset
                # An interceptor may have inserted records of its own.
                if first_offset <= record.offset <= last_offset:
                    position = assigned.offset = record.offset + 1
                yield record
                if assigned.offset != position:
                    break
                # The partition is checked again only after a change.
                if version != subscription.version:
                    if not assigned.is_fetching or assigned.moves != moves:
                        break  # also after a seek to this position, from which it reads on
                    version = subscription.version
            else:
                assigned.offset = last_offset + 1

    @public_call
    def _next_span(self, loop: Loop) -> tuple[AssignedPartition, RecordSpan, int] | None:
        self._wiring.batch_guard.check_poll("next")
        return self._drive(self._poll_loop.next_span(loop))

    def _records_of(self, span: RecordSpan) -> Iterable[ConsumerRecord[K_co, V_co]]:
        if not self._wiring.interceptors:
            return span.records()[0]
        kept = self._wiring.interceptors.on_consume(ConsumerRecords([span]))
        self._note_dropped([span], kept)
        return kept

    def _note_dropped(self, spans: Iterable[RecordSpan], kept: ConsumerRecords[Any, Any]) -> None:
        commits = self._wiring.commits
        if commits is not None and commits.stored is not None:
            commits.stored.note_dropped(spans, kept)

    def _poll(
        self,
        timeout: float | None,
        max_records: int | None,
        limits: Mapping[TopicPartition, int],
        *,
        is_raw: bool,
        max_bytes: int | None = None,
    ) -> list[RecordSpan]:
        wiring = self._wiring
        count_max = max_records
        if count_max is None:
            count_max = INT_MAX if is_raw else wiring.config.max_poll_records
        check_count(count_max, "poll_arrow: max_records" if is_raw else "poll: max_records")
        timeout_ms = milliseconds(timeout, wiring.config.default_api_timeout_ms)
        decisions = self._poll_loop.poll(
            count_max, timeout_ms, limits, is_raw=is_raw, size_bytes_max=max_bytes
        )
        return drive(wiring.engine, wiring.port, decisions)

    # Committed offsets. These calls need `group_id`, but no subscription.

    @public_call
    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit offsets, and wait for the coordinator's response.

        None commits everything returned so far. Inside an iteration that is everything up to the
        record in hand; after an iteration that was left early, everything before that record. With
        `enable_auto_offset_store` off, None commits the stored offsets. Committed records count as
        processed: no later poll returns them again.

        A record commits itself and all before it in its partition; the result of `poll` commits all
        of its records. In a mapping, the offset is that of the next record to read, and may have
        metadata and a leader epoch. `timeout` is in seconds, None is `default_api_timeout_ms`;
        retriable errors are retried until then. Callbacks of earlier `commit_async` calls run
        before it returns.

        Raises:
            UsageError: there is no `group_id`, or the offsets are malformed.
            CommitFailedError: this consumer no longer owns the partitions.
            RebalanceInProgressError: the group is rebalancing; poll, then commit again. (Both are a
                `GroupRebalancedError`.)
            FencedInstanceIdError: another member uses this one's `group_instance_id`.
            KafkaTimeoutError: no response in time. The offsets may have been committed.
            BrokerError: the coordinator refuses, for example TopicAuthorizationFailedError.
            WakeupError: `wakeup` was called.
        """
        commits = self._wiring.require_own_commits("commit")
        checked = None if offsets is None else _checked(offsets, "commit")
        commits.note_finished(checked or {})
        self._drive(self._calls.commit(commits, checked, self._timeout_ms(timeout)))

    @public_call
    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit offsets without waiting and without retries.

        The request is sent at once if the coordinator is known. Otherwise a later call sends it
        when the coordinator is found, within `default_api_timeout_ms`.

        A later call of this consumer on the same thread runs `callback(offsets, error)`, in the
        order of the commits; `error` is None after success. An exception in the callback is raised
        by that call. `offsets` are as in `commit`.

        If another commit may succeed, the error has `retriable`; retrying the same offsets could
        undo a later commit. Without a callback a failure is logged.

        Raises:
            UsageError: there is no `group_id`, or the offsets are malformed.
        """
        commits = self._wiring.require_own_commits("commit_async")
        check_callable(callback, "commit_async: callback", "offsets and error")
        checked = None if offsets is None else _checked(offsets, "commit_async")
        commits.note_finished(checked or {})
        self._drive(self._calls.commit_async(commits, checked, callback))

    @public_call
    def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets of partitions, None if there is none.

        The partitions need not be assigned; None is all assigned ones. It waits for offsets that an
        open transaction is committing. `timeout` is in seconds, None is `default_api_timeout_ms`.

        Raises:
            UsageError: there is no `group_id`, or `partitions` has an invalid item.
            KafkaTimeoutError: no response of the coordinator in time.
            BrokerError: the coordinator refuses, for example GroupAuthorizationFailedError.
            WakeupError: `wakeup` was called.
        """
        self._wiring.require_commits("committed")
        wanted = list(self._wiring.subscription.partitions)
        if partitions is not None:
            wanted = partition_list(partitions, "committed")
        if not wanted:
            return {}
        return self._drive(self._calls.committed(wanted, self._timeout_ms(timeout)))

    # Offsets and topics.

    @overload
    @public_call
    def position(self, partition: TopicPartition, timeout: float | None = None) -> int: ...
    @overload
    @public_call
    def position(
        self, partition: None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int]: ...
    @public_call
    def position(
        self, partition: TopicPartition | None = None, timeout: float | None = None
    ) -> int | dict[TopicPartition, int]:
        """Return the offset of the next record to be returned; look it up if needed.

        Without `partition` return a dict of all assigned partitions. `timeout` is in seconds, None
        is `default_api_timeout_ms`.

        Raises:
            UsageError: the partition is not assigned.
            KafkaTimeoutError: no broker reported it in time.
            NoOffsetForPartitionError, UnknownTopicOrPartitionError and others: as `poll`.
        """
        if partition is None:
            return self._drive(self._calls.positions(self._timeout_ms(timeout)))
        check_partition(partition, "position")
        return self._drive(self._calls.position(partition, self._timeout_ms(timeout)))

    @public_call
    def seek_to_time(
        self,
        time: int | datetime,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Seek to the first record at or after a time, or to the end if there is none.

        The time is in milliseconds since 1970, or a datetime with a time zone. `partitions` None is
        all assigned ones. `timeout` is in seconds, None is `default_api_timeout_ms`.

        Raises:
            UsageError: a partition is not assigned, or the time is invalid.
            KafkaTimeoutError: not all brokers responded in time; the positions stay.
            BrokerError: a broker refuses.
            WakeupError: `wakeup` was called; the positions stay.
        """
        self._wiring.batch_guard.check_seek("seek_to_time")
        listed = None if partitions is None else partition_list(partitions, "seek_to_time")
        subscription = self._wiring.subscription
        chosen = [assigned.partition for assigned in subscription.require_all(listed)]
        time_ms = checked_time_ms(time, "seek_to_time: time")
        timeout_ms = self._timeout_ms(timeout)
        deadline_ms = now_ms() + timeout_ms
        # First: records written between the two lookups are at or after the time, and are read.
        ends = self._drive(self._calls.end_offsets(chosen, timeout_ms))
        left_ms = max(0, deadline_ms - now_ms())
        times = dict.fromkeys(chosen, time_ms)
        found = self._drive(self._calls.offsets_for_times(times, left_ms))
        for partition, first in found.items():
            assigned = subscription.find(partition)
            if assigned is not None:
                self._seek(assigned, ends[partition] if first is None else first.offset, None)

    @public_call
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. They need not be assigned.

        `timeout` is in seconds, None is `default_api_timeout_ms`.

        Raises:
            UnknownTopicOrPartitionError: the brokers do not know a partition.
            KafkaTimeoutError: not all brokers responded in time.
            BrokerError: a broker refuses.
        """
        wanted = partition_list(partitions, "beginning_offsets")
        return self._drive(self._calls.beginning_offsets(wanted, self._timeout_ms(timeout)))

    @public_call
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition.

        With `read_committed` that is the last stable offset, otherwise the high watermark. For
        assigned partitions it updates `current_lag`. The rest is as for `beginning_offsets`.
        """
        wanted = partition_list(partitions, "end_offsets")
        return self._drive(self._calls.end_offsets(wanted, self._timeout_ms(timeout)))

    @public_call
    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int | datetime], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time for each partition, None if there is none.

        Times are milliseconds since 1970, or datetimes with a time zone. The rest is as for
        `beginning_offsets`.

        Raises:
            UsageError: a time is invalid, for example a float (of seconds?) or before 1970.
        """
        wanted = times_by_partition(timestamps_ms, "offsets_for_times")
        return self._drive(self._calls.offsets_for_times(wanted, self._timeout_ms(timeout)))

    @public_call
    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions in order. The topic need not be assigned.

        `timeout` is in seconds, None is `default_api_timeout_ms`.

        Raises:
            UnknownTopicOrPartitionError: the brokers do not know the topic.
            KafkaTimeoutError: no broker responded in time.
            BrokerError: a broker refuses, for example InvalidTopicError.
            UsageError: the name is invalid.
        """
        check_topic(topic, "partitions_for")
        return self._drive(self._calls.partitions_for(topic, self._timeout_ms(timeout)))

    @public_call
    def list_topics(self, timeout: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return all topics that this client may see, internal ones included, with partitions.

        `timeout` is in seconds, None is `default_api_timeout_ms`.

        Raises:
            KafkaTimeoutError: no broker responded in time.
            BrokerError: a broker refuses.
        """
        return self._drive(self._calls.list_topics(self._timeout_ms(timeout)))

    # The group.

    @public_call
    def unsubscribe(self) -> None:
        """Stop reading, and leave the group if this is a member of one.

        The listener is called for the revoked partitions before this returns. The coordinator is
        notified, without waiting for its response; a static member (KIP-345) stays until its
        session ends.

        Raises:
            RebalanceListenerError: the listener failed. The consumer has left nevertheless.
        """
        self._drive(self._closing.unsubscribe())

    # Waiting.

    def _timeout_ms(self, timeout: float | None) -> int:
        return milliseconds(timeout, self._wiring.config.default_api_timeout_ms)


def _checked(offsets: Offsets, call: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets by partition, in the form that is committed."""
    if isinstance(offsets, ConsumerRecord):
        behind = OffsetAndMetadata(offsets.offset + 1, leader_epoch=offsets.leader_epoch)
        offsets = {offsets.topic_partition: behind}
    elif isinstance(offsets, ConsumerRecords):
        offsets = offsets.next_offsets
    return offsets_by_partition(offsets, call)


explain_names_of_others(Consumer)
