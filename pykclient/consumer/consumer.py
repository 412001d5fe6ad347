"""Consumer: the blocking front-end. It adds reading and closing to `BrokerQuestions`.

It is *open*, then *closed*. Each call drives the engine until it has what it wants or its time is
up; between calls nothing happens.

Owner: one thread at a time, whichever calls; `wakeup` and `metrics` may come from any.
Source: Java class ``KafkaConsumer``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pykclient.arguments import check_count, limits_by_partition
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.config.setting import INT_MAX
from pykclient.consumer.arrow import arrow_batch
from pykclient.consumer.closing import GroupCalls, check_membership_at_close
from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.core import NO_LIMITS
from pykclient.consumer.public_call import public_call
from pykclient.consumer.record import ConsumerRecords
from pykclient.errors import ClosedError
from pykclient.network.drive import drive_until, now_ms
from pykclient.network.io.selector import SelectorPort
from pykclient.network.manager import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    import pyarrow

    from pykclient.consumer.record import ConsumerRecord, RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.metrics.catalogue import MetricName
    from pykclient.types import TopicPartition

__all__ = ["Consumer"]

CLOSE_TIMEOUT_MS: Final = 30_000
"""How long `close` may take where nothing is said; Java's."""

ITERATION_STEP_MS = 1_000
"""How often an iteration that gets nothing looks whether something is wrong."""

TURN_INTERVAL_MS = 1
"""Polls that only take what is at hand share the turns of the engine, about one in so long."""

NEVER_LOOKED: Final = -1
"""No version of a subscription: its partitions are to be looked at."""


class Consumer(GroupCalls):
    """Reads records of partitions.

    One thread at a time may use it: another one gets `ConcurrentModificationError` at once, and
    only `wakeup` and `metrics` may be called from anywhere. It does not survive a fork. Use it in a
    ``with`` block, or call `close`.
    """

    _turned_ms = 0
    _turned_at_count = 0
    """When the last turn was made, and how many answers had been used up by then."""

    _is_closing = False

    _has_kept_news = False
    """Whether records were handed out though there was an error to tell."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `ConsumerConfig`, as a mapping, as keywords, or both.

        Nothing is connected before the first call that needs a broker.

        Raises:
            ConfigError: a setting is unknown, malformed, not built yet, or cannot be imported.
        """
        config = ConsumerConfig.from_settings(settings, **keywords).named()
        port = SelectorPort.from_config(config)
        try:
            super().__init__(config, port)
        except BaseException:
            port.shutdown()
            raise
        group = f", a member of group {config.group_id!r}," if config.group_id else ""
        port.warn_if_dropped(
            self,
            f"{self!r}{group} was not closed: nothing was committed at its end, and its group "
            f"waits for it until the session ends. Use it in a with block, or call close()",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception the application has not finished with what was handed out last.
        self._end(None, "default", has_finished=kind is None)

    def close(self, timeout: float | None = None, *, group_membership: str = "default") -> None:
        """Commit as configured, leave the group, close all connections.

        Calling it again does nothing. With `enable_auto_commit` everything that was handed out is
        committed. `timeout` is in seconds, None means 30; what could not be done by then is left
        undone, and logged. `group_membership` (KIP-1092) is `leave_group`, `remain_in_group` (until
        the session ends), or `default`: static members remain, others leave.

        While an exception is on its way (in a `finally`, at the end of a ``with`` block or of
        `contextlib.closing`, in an `except`), what was handed out last is not committed: the
        application has not finished with it. `commit()` it before, if it has.

        A signal handler that calls this on top of another call has that call end, close, and raise
        `ClosedError`. In a child process it does nothing.

        Raises:
            ConcurrentModificationError: another thread is using the consumer.
            UsageError: `group_membership` is none of the three.
            RebalanceListenerError: the listener failed. The consumer is closed all the same.
        """
        check_membership_at_close(group_membership)
        self._end(timeout, group_membership, has_finished=sys.exception() is None)

    def _end(self, timeout: float | None, group_membership: str, *, has_finished: bool) -> None:
        """Close, now or when the call under way has ended; again it does nothing."""
        guard = self._guard
        if guard.is_in_child or self._is_shut_down:
            return
        if guard.is_in_call:
            if not self._is_closing:
                self._close_request = (timeout, group_membership)
                self._client.wakeup()
            return
        self._close_request = None
        if guard.is_closed:
            self._shut_down()  # an interrupt has ended the first attempt
            return
        self._is_closing = True
        try:
            self._close(timeout, group_membership, has_finished=has_finished)
        finally:
            self._is_closing = False

    def _close_as_requested(self) -> None:
        """Close, because `close` was called on top of the call that ends now."""
        if self._close_request is not None:
            self._end(*self._close_request, has_finished=True)

    @public_call
    def _close(self, timeout: float | None, group_membership: str, *, has_finished: bool) -> None:
        deadline_ms = now_ms() + milliseconds(timeout, CLOSE_TIMEOUT_MS)
        try:
            try:
                self._leave_at_close(deadline_ms, group_membership, has_finished=has_finished)
                self._commit_at_close(deadline_ms, has_finished=has_finished)
            except ClosedError:
                if not self._guard.is_closed:  # a listener has closed it, while it was told of this
                    raise
            if not self._guard.is_closed:
                self._end_heartbeats(deadline_ms)
                for dropped in self._subscription.unsubscribe():
                    self._buffer.drop(dropped)
                self._end_fetch_sessions()
        finally:
            self._shut_down()
        if has_finished:
            self._raise_listener_error()

    def _shut_down(self) -> None:
        """Let go of everything, however torn it is. It may be interrupted, and called again."""
        if self._is_shut_down:
            return
        self._guard.is_closed = True
        if self._heartbeat_thread is not None:
            self._heartbeat_thread.stop()
        self._client.is_closed = True
        self._port.shutdown()
        self._interceptors.close()
        self._is_shut_down = True

    def _end_fetch_sessions(self) -> None:
        """Have brokers forget us, as far as a request that is written at once can do that."""
        ended_ms = now_ms()
        for request in self._fetcher.end_sessions(ended_ms):
            self._client.send(request, ended_ms)
        self._client.prepare(ended_ms)

    # Reading.

    @public_call
    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> ConsumerRecords:
        """Return the next records, waiting up to `timeout` seconds for the first one.

        `timeout` None means `default_api_timeout_ms`, `max_records` None means `max_poll_records`.
        Positions move past what is returned. The result is empty when nothing came in time, unless
        there is a reason that waiting does not cure: then that is raised. Records that are at hand
        are returned before an error, but once only: the next call raises it.

        Raises:
            NotSubscribedError: nothing is assigned.
            NoOffsetForPartitionError: a partition has no position, and `auto_offset_reset` is none.
            OffsetOutOfRangeError: as before, for a position outside the log.
            CorruptRecordError: the records at a position are damaged. The position stays; `seek`
                past them, or poll again to fetch them anew.
            RecordDeserializationError: a deserializer failed. The position stays at that record.
                With `on_record_error` both may be passed over instead.
            LogTruncationError: records that were read are no longer in the log, and
                `auto_offset_reset` is none (an `OffsetOutOfRangeError`; KIP-320, brokers from 2.3).
            KafkaTimeoutError: no broker could be reached since the first poll; or a partition could
                not be read for `default_api_timeout_ms`, whatever the reason.
            UnknownTopicOrPartitionError: the brokers do not know a partition, for a second by now.
            BrokerError: a broker refuses, such as TopicAuthorizationFailedError.
            UnsupportedVersionError: the brokers are older than 2.1.
            WakeupError: `wakeup` was called.
        """
        self._set_limits(NO_LIMITS)
        spans = self._poll_spans(timeout, max_records, is_raw=False)
        # Only noted: most applications never look at `next_offsets`.
        positions = [
            (assigned.partition, assigned.offset, assigned.leader_epoch)
            for assigned in self._buffer.begun
            if assigned.is_assigned
        ]
        records = ConsumerRecords(spans, positions)
        if not self._interceptors or not spans:
            return records
        return self._lend(self._interceptors.on_consume, records)

    @public_call
    def poll_arrow(
        self,
        timeout: float | None = 1.0,
        max_records: int | None = None,
        until: Mapping[TopicPartition, int] | None = None,
        *,
        include_headers: bool = False,
    ) -> pyarrow.RecordBatch:
        """Return the next records as one Arrow record batch; empty when nothing came in time.

        `max_records` None means all that are at hand, whatever `max_poll_records` is: that is up to
        `fetch_max_bytes`.

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
        self._set_limits(NO_LIMITS if until is None else limits_by_partition(until))
        spans = self._poll_spans(timeout, max_records, is_raw=True)
        return arrow_batch(spans, include_headers=include_headers)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield record after record, without end, or until none comes for `consumer_timeout_ms`.

        The position moves record by record: one that was not handed out, because the loop was left
        or the consumer sought elsewhere, is not skipped.

        Raises: what `poll` raises.
        """
        while (found := self._next_span()) is not None:
            assigned, span, fetch_epoch = found
            if assigned.fetch_epoch != fetch_epoch:
                continue  # the leader is another one, which may have lost what was found
            first_offset, last_offset = span.columns.first_offset, span.columns.last_offset
            assigned.leader_epoch = span.leader_epoch
            version = NEVER_LOOKED
            for record in self._records_of(span):
                position = assigned.offset
                # An interceptor may have put in records of its own.
                if first_offset <= record.offset <= last_offset:
                    position = assigned.offset = record.offset + 1
                yield record
                if assigned.offset != position:
                    break
                # The partition is looked at again only when something has changed.
                if version != self._subscription.version:
                    if not assigned.is_fetching:
                        break
                    version = self._subscription.version
            else:
                assigned.offset = last_offset + 1

    def metrics(self) -> dict[MetricName, float]:
        """Return what the consumer has measured, by name; lag per partition is among it.

        Names, units and meanings are those of `docs/metrics.md`. What nothing is known of is left
        out. It may be called from any thread, and asks no broker.

        Raises:
            ForkedClientError: this is a child process.
        """
        self._guard.check_process()
        return self._metrics.snapshot(now_ms())

    # Waiting.

    def _poll_spans(
        self, timeout: float | None, max_records: int | None, *, is_raw: bool
    ) -> list[RecordSpan]:
        """Take records as soon as there are any, and send for the next ones."""
        self._records.check_may_read()
        self._require_assignment()
        if self._is_interrupted:
            self._note_finished()
            self._raise_interruption()
        count_max = max_records
        if count_max is None:
            count_max = INT_MAX if is_raw else self._config.max_poll_records
        check_count(count_max, "poll_arrow: max_records" if is_raw else "poll: max_records")
        timeout_ms = self._timeout_ms(timeout)
        self._begin_poll()
        self._metrics.on_poll(now_ms())
        spans: list[RecordSpan] = []
        is_over = self._giving_up_at(now_ms() + timeout_ms)

        def is_ready() -> bool:
            if not spans:
                taken = self._records.take(count_max, now_ms(), is_over=is_over, is_raw=is_raw)
                spans.extend(taken)
                self._note_unprocessed(spans)
                if spans:
                    self._metrics.on_consumed(spans, now_ms())
            return bool(spans)

        try:
            self._tell_kept_news()
            if not is_ready():
                self._wait_for_records(is_ready, timeout_ms)
            self._has_kept_news = self._has_news
            self._keep_partitions()
            self._turn_if_due()
        finally:
            self._end_poll()
        return spans

    def _giving_up_at(self, deadline_ms: int) -> Callable[[], bool]:
        """Return what tells that a call must end, though it might find something yet."""
        return lambda: self._is_interrupted or now_ms() >= deadline_ms

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
                or self._has_news
                or self._have_all_reached_limits()
            )

        is_done = drive_until(
            self._engine, self._port, until=is_over, deadline_ms=started_ms + timeout_ms
        )
        if has_records:
            return
        self._raise_interruption()
        error = self._take_news()
        if error is None and not is_done:
            error = self._empty_polls.reason(started_ms, now_ms())
        if error is not None:
            raise error

    @public_call
    def _next_span(self) -> tuple[AssignedPartition, RecordSpan, int] | None:
        """Return the next records of one partition, and the fetch epoch in which they were found.

        The turn after that may find another leader.
        """
        self._records.check_may_read()
        self._require_assignment()
        if self._is_interrupted:
            self._note_finished()
            self._raise_interruption()
        self._begin_poll()
        self._metrics.on_poll(now_ms())
        self._set_limits(NO_LIMITS)
        timeout_ms = self._config.consumer_timeout_ms
        deadline_ms = NEVER_MS if timeout_ms is None else now_ms() + timeout_ms
        is_over = self._giving_up_at(deadline_ms)
        found: list[tuple[AssignedPartition, RecordSpan]] = []

        def is_ready() -> bool:
            count_max = self._config.max_poll_records
            next_span = self._records.next_span(count_max, now_ms(), is_over=is_over)
            found[:] = [] if next_span is None else [next_span]
            return bool(found)

        # In steps, after each of which there may be a reason for finding nothing.
        step_ms = min(timeout_ms or ITERATION_STEP_MS, ITERATION_STEP_MS)
        try:
            self._tell_kept_news()
            while not is_ready():
                self._wait_for_records(is_ready, min(step_ms, max(0, deadline_ms - now_ms())))
                if found:
                    break
                if now_ms() >= deadline_ms:
                    return None
            self._has_kept_news = self._has_news
            assigned, span = found[0]
            fetch_epoch = assigned.fetch_epoch
            self._note_iterated(assigned, span)
            self._metrics.on_consumed([span], now_ms())
            self._keep_partitions()
            self._turn_if_due()
        finally:
            self._end_poll()
        return assigned, span, fetch_epoch

    def _tell_kept_news(self) -> None:
        """Raise what the last call kept back: a partition that always has records hides nothing."""
        is_due, self._has_kept_news = self._has_kept_news, False
        error = self._take_news() if is_due else None
        if error is not None:
            raise error

    def _records_of(self, span: RecordSpan) -> Iterable[ConsumerRecord]:
        if not self._interceptors:
            return span.records()
        return self._interceptors.on_consume(ConsumerRecords([span]))

    def _turn_if_due(self) -> None:
        """Make a turn, unless there was one just now and no answer was used up since."""
        is_recent = now_ms() - self._turned_ms < TURN_INTERVAL_MS
        if not is_recent or self._buffer.used_up_count != self._turned_at_count:
            self._turn()

    def _turn(self) -> None:
        """Send what the last step left to be sent, and take what has arrived, without waiting."""
        started_ms = now_ms()
        self._turned_at_count = self._buffer.used_up_count
        self._engine.step(started_ms)
        self._port.wait(0)
        self._turned_ms = now_ms()
        self._engine.complete(self._turned_ms)
