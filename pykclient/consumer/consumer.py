"""Consumer: the blocking front-end. It adds to `ConsumerCore` the methods that wait.

It is *open*, then *closed*. Each call drives the engine until it has what it wants or its time is
up; between calls nothing happens.

Owner: one thread at a time, whichever calls; `wakeup` may come from any.
Source: Java class ``KafkaConsumer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pykclient.consumer.arrow import arrow_batch
from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.core import NO_LIMITS, ConsumerCore
from pykclient.consumer.offset_lookups import EARLIEST, LATEST
from pykclient.consumer.record import ConsumerRecords
from pykclient.consumer.silence import unknown_partition
from pykclient.errors import KafkaTimeoutError, UsageError
from pykclient.network.drive import drive, now_ms
from pykclient.network.manager import NEVER_MS
from pykclient.network.selector import SelectorPort
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    import pyarrow

    from pykclient.consumer.offset_lookups import OffsetLookup
    from pykclient.consumer.record import ConsumerRecord, RecordRun
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError
    from pykclient.network.cluster import PartitionInfo
    from pykclient.types import OffsetAndTimestamp

__all__ = ["Consumer"]

UNKNOWN_TOPIC_WAIT_MS = 5_000
"""How long a call about a topic waits for brokers to know it; a typing error shows before that of a
`default_api_timeout_ms` of a minute."""

FOREVER_MS = 2**53
"""What an infinite timeout amounts to; added to a clock it stays below `NEVER_MS`."""

PARTITIONS_SHOWN_MAX = 5

ITERATION_STEP_MS = 1_000
"""How often an iteration that gets nothing looks whether something is wrong."""

T = TypeVar("T")


class Consumer(ConsumerCore):
    """Reads records of partitions.

    One thread at a time may use it: another one gets `ConcurrentModificationError` at once, and
    only `wakeup` may be called from anywhere. It does not survive a fork. Use it in a ``with``
    block, or call `close`.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `ConsumerConfig`, as a mapping, as keywords, or both.

        Nothing is connected before the first call that needs a broker.

        Raises:
            ConfigError: a setting is unknown, malformed, not built yet, or cannot be imported.
        """
        config = ConsumerConfig.from_settings(settings, **keywords)
        port = SelectorPort.from_config(config)
        try:
            super().__init__(config, port)
        except BaseException:
            port.shutdown()
            raise

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
        """Close all connections. Calling it again does nothing.

        `timeout` (seconds) is for what must be told to a group, and there is none yet; nothing is
        waited for.

        Raises:
            ConcurrentModificationError: another thread is using the consumer.
        """
        if self._guard.is_closed:
            return
        with self._guard:
            self._guard.close()
            for dropped in self._subscription.assign(()):
                self._buffer.drop(dropped)
            self._client.close()
            self._port.shutdown()
            self._interceptors.close()

    # Reading.

    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> ConsumerRecords:
        """Return the next records, waiting up to `timeout` seconds for the first one.

        At most `max_records`, None means `max_poll_records`. Positions move past what is returned.
        The result is empty when nothing came in time, unless there is a reason that waiting does
        not cure: then that is raised. Records that are at hand are returned before any error.

        Raises:
            NotSubscribedError: nothing is assigned.
            NoOffsetForPartitionError: a partition has no position, and `auto_offset_reset` is none.
            OffsetOutOfRangeError: as before, for a position outside the log.
            CorruptRecordError: the records at a position are damaged. The position stays; `seek`
                past them, or poll again to fetch them anew.
            RecordDeserializationError: a deserializer failed. The position stays at that record.
            KafkaTimeoutError: no broker could be reached since the first poll.
            UnknownTopicOrPartitionError: the brokers do not know a partition, for a second by now.
            BrokerError: a broker refuses, such as TopicAuthorizationFailedError.
            UnsupportedVersionError: the brokers are older than 2.1.
            WakeupError: `wakeup` was called.
        """
        with self._guard:
            self._set_limits(NO_LIMITS)
            runs = self._poll_runs(timeout, max_records, is_raw=False)
            records = ConsumerRecords(runs)
            if not self._interceptors or not runs:
                return records
            try:
                return self._interceptors.on_consume(records)
            except BaseException:  # an interrupt; what an interceptor raises does not get here
                self._give_back(runs)
                raise

    def poll_arrow(
        self,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        until: Mapping[TopicPartition, int] | None = None,
        *,
        include_headers: bool = False,
    ) -> pyarrow.RecordBatch:
        """Return the next records as one Arrow record batch; empty when nothing came in time.

        Columns: `key` and `value` binary, `topic` string, `partition` int32, `offset` int64,
        `timestamp` timestamp(us, UTC), `timestamp_type` int32, and with `include_headers` also
        `headers` list<struct<key string, value binary>>. Deserializers and interceptors are not
        applied. A timestamp beyond what microseconds can hold is null.

        `until` bounds partitions: each is read up to that offset, not included. It is done when
        `position` is at or past it, also where the last offsets hold no record (compaction, ended
        transactions). When all assigned partitions are done, this returns at once.

        Raises: what `poll` raises, and `UsageError` without pyarrow, or when a partition in `until`
        is not assigned.
        """
        with self._guard:
            self._set_limits(NO_LIMITS if until is None else until)
            runs = self._poll_runs(timeout, max_records, is_raw=True)
            try:
                return arrow_batch(runs, include_headers=include_headers)
            except BaseException:
                self._give_back(runs)
                raise

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield record after record, without end, or until none comes for `consumer_timeout_ms`.

        The position moves record by record: one that was not handed out, because the loop was left
        or the consumer sought elsewhere, is not skipped.

        Raises: what `poll` raises.
        """
        while (found := self._wait_for_run()) is not None:
            assigned, run = found
            offsets = run.columns.offsets
            assigned.leader_epoch = run.leader_epoch
            for record in self._records_of(run):
                position = assigned.offset
                # An interceptor may have put in records of its own.
                if offsets[0] <= record.offset <= offsets[-1]:
                    position = assigned.offset = record.offset + 1
                yield record
                if assigned.offset != position or not assigned.is_fetching:
                    break
            else:
                assigned.offset = offsets[-1] + 1

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record to be handed out, looking it up if need be.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            UsageError: the partition is not assigned.
            KafkaTimeoutError: no broker could tell in time.
            NoOffsetForPartitionError, UnknownTopicOrPartitionError and others: as in `poll`.
        """
        with self._guard:
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

    # Questions to the brokers.

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
        with self._guard:
            return self._edges(partitions, EARLIEST, timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition.

        With `read_committed` it is the last stable offset, else the high watermark. Otherwise as
        `beginning_offsets`.
        """
        with self._guard:
            return self._edges(partitions, LATEST, timeout)

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time for each partition, None where none is.

        Times are milliseconds since 1970. Otherwise as `beginning_offsets`.

        Raises:
            UsageError: a time is negative.
        """
        with self._guard:
            for partition, timestamp_ms in timestamps_ms.items():
                if timestamp_ms < 0:
                    raise UsageError(
                        f"offsets_for_times: {timestamp_ms} for {partition} is negative; give "
                        f"milliseconds since 1970, or use beginning_offsets and end_offsets"
                    )
            return self._look_up(timestamps_ms, timeout)

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions, in order of their numbers. It need not be assigned.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            UnknownTopicOrPartitionError: the brokers do not know the topic.
            KafkaTimeoutError: no broker answered in time.
            BrokerError: a broker refuses, such as InvalidTopicError.
        """
        with self._guard:
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

    def list_topics(self, timeout: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return all topics that this client may see, with their partitions; internal ones too.

        `timeout` is in seconds, None means `default_api_timeout_ms`.

        Raises:
            KafkaTimeoutError: no broker answered in time.
            BrokerError: a broker refuses.
        """
        with self._guard:
            timeout_ms = self._timeout_ms(timeout)
            listing = self._listing.start()
            try:
                if not self._drive(lambda: listing.operation.is_done, timeout_ms):
                    raise self._late("the list of topics", timeout_ms, listing.last_error)
                topics = listing.operation.result()
            finally:
                self._listing.cancel(listing)
            return {topic.name: topic.partitions for topic in topics}

    # Waiting.

    def _timeout_ms(self, timeout: float | None) -> int:
        if timeout is None:
            return self._config.default_api_timeout_ms
        if not timeout >= 0:  # not a number is refused as well
            raise UsageError(f"timeout={timeout!r}: give seconds, from 0")
        return round(min(timeout * 1000, FOREVER_MS))

    def _drive(
        self,
        is_ready: Callable[[], bool],
        timeout_ms: int,
        about: Sequence[TopicPartition] = (),
    ) -> bool:
        """Run the engine until `is_ready` or the time is up; return which.

        Raises `WakeupError`, what is fatal, and `UnknownTopicOrPartitionError` when brokers do not
        know one of the partitions that this is `about`.
        """
        started_ms = now_ms()
        deadline_ms = started_ms + timeout_ms
        is_done = self._drive_to(is_ready, min(deadline_ms, started_ms + UNKNOWN_TOPIC_WAIT_MS))
        for partition in () if is_done else about:
            error = unknown_partition(self._metadata.cluster, partition)
            if error is not None:
                raise error
        return is_done or self._drive_to(is_ready, deadline_ms)

    def _drive_to(self, is_ready: Callable[[], bool], deadline_ms: int) -> bool:
        drive(
            self._engine,
            self._port,
            until=lambda: is_ready() or self._is_interrupted,
            deadline_ms=deadline_ms,
        )
        if is_ready():
            return True
        self._raise_interruption()
        return False

    def _poll_runs(
        self, timeout: float | None, max_records: int | None, *, is_raw: bool
    ) -> list[RecordRun]:
        """Take records as soon as there are any, and send for the next ones."""
        self._require_assignment()
        self._raise_interruption()
        count_max = self._config.max_poll_records if max_records is None else max_records
        if count_max < 1:
            raise UsageError(f"max_records={max_records}: give a number from 1")
        runs: list[RecordRun] = []

        def is_ready() -> bool:
            if not runs:
                runs.extend(self._buffer.take(count_max, now_ms(), is_raw=is_raw))
            return bool(runs)

        self._wait_for_records(is_ready, self._timeout_ms(timeout))
        try:
            self._turn()
        except BaseException:
            self._give_back(runs)
            raise
        return runs

    def _wait_for_records(self, is_ready: Callable[[], bool], timeout_ms: int) -> None:
        """Wait until `is_ready`, all limits are reached, or the time is up; raise what is wrong."""
        started_ms = now_ms()
        has_records = False

        def is_over() -> bool:
            nonlocal has_records
            has_records = is_ready()
            return (
                has_records
                or self._is_interrupted
                or self._subscription.has_error
                or self._have_all_reached_limits()
            )

        is_done = drive(
            self._engine, self._port, until=is_over, deadline_ms=started_ms + timeout_ms
        )
        if has_records:
            return
        self._raise_interruption()
        error = self._subscription.take_error()
        if error is None and not is_done:
            error = self._silence.reason(started_ms, now_ms())
        if error is not None:
            raise error

    def _wait_for_run(self) -> tuple[AssignedPartition, RecordRun] | None:
        with self._guard:
            self._require_assignment()
            self._raise_interruption()
            self._set_limits(NO_LIMITS)
            timeout_ms = self._config.consumer_timeout_ms
            found: list[tuple[AssignedPartition, RecordRun]] = []

            def is_ready() -> bool:
                next_run = self._buffer.next_run(self._config.max_poll_records, now_ms())
                found[:] = [] if next_run is None else [next_run]
                return bool(found)

            # In steps, for each of which silence may have a reason by then.
            step_ms = min(timeout_ms or ITERATION_STEP_MS, ITERATION_STEP_MS)
            deadline_ms = NEVER_MS if timeout_ms is None else now_ms() + timeout_ms
            while not found:
                self._wait_for_records(is_ready, min(step_ms, max(0, deadline_ms - now_ms())))
                if not found and now_ms() >= deadline_ms:
                    return None
            self._turn()
            return found[0]

    def _records_of(self, run: RecordRun) -> Iterable[ConsumerRecord]:
        if not self._interceptors:
            return run.records()
        return self._interceptors.on_consume(ConsumerRecords([run]))

    def _turn(self) -> None:
        """Send what the last step left to be sent, and take what has arrived, without waiting."""
        started_ms = now_ms()
        self._engine.step(started_ms)
        self._port.wait(0)
        self._engine.complete(now_ms())

    def _give_back(self, runs: Sequence[RecordRun]) -> None:
        """Undo taking runs that do not reach the application."""
        positions: dict[AssignedPartition, int] = {}
        for run in runs:
            assigned = self._subscription.find(run.partition)
            if assigned is not None:
                positions.setdefault(assigned, run.columns.offsets[0])
        self._buffer.give_back(positions)

    # Looking up offsets.

    def _edges(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        found = self._look_up(dict.fromkeys(partitions, timestamp), timeout)
        return {partition: answer.offset for partition, answer in found.items() if answer}

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
            shown = ", ".join(str(lookup.partition) for lookup in late[:PARTITIONS_SHOWN_MAX])
            rest_count = len(late) - PARTITIONS_SHOWN_MAX
            more = f" and {rest_count} more" if rest_count > 0 else ""
            raise self._late(f"offsets of {shown}{more}", timeout_ms, late[0].last_error)

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
