"""ConsumerCore: a consumer's life cycle, and all calls that need no broker; see also `Consumer`.

`public_call` wraps every public method. It *enters* the thread guard, *makes good* what an
interrupted call has left, marks the state as torn, makes the call, and marks the state as whole.
Records count as returned when the call returns, not before.

CPython checks for signals at the start of a function, at a jump back and after a call into C.
Consecutive plain stores, and a `return` after them, are therefore atomic: a handler runs before all
of them or after.

Owner: the thread guard, which each public method takes, except `wakeup`, `store_offset` and
`metrics`.
Source: Java class ``KafkaConsumer``; `public_call` is our own, see `network.interrupts`.
"""

from __future__ import annotations

import sys
import weakref
from datetime import UTC, datetime
from functools import partial, wraps
from threading import get_ident
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from pykclient.arguments import (
    check_offset,
    check_partition,
    check_text,
    compiled_pattern,
    offsets_by_partition,
    partition_list,
    shown_argument,
    subscribed_topics,
)
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.consumer.calls import Calls
from pykclient.consumer.closing import Closing
from pykclient.consumer.fetch.buffer import NOT_BEGUN
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.consumer.poll import PollLoop
from pykclient.consumer.record import ConsumerRecord
from pykclient.consumer.subscription import OffsetReset
from pykclient.consumer.wiring import Wiring
from pykclient.errors import UsageError
from pykclient.network.drive import drive, now_ms, wall_ms
from pykclient.network.interrupts import interrupt_count, leaves_whole
from pykclient.network.io.canonical import with_canonical_names
from pykclient.network.io.secured import secured
from pykclient.network.io.selector import SelectorPort
from pykclient.network.live_client import LiveClient, describe_client, explain_keywords
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.history import Rebalance
    from pykclient.consumer.heartbeat_thread import Heartbeats
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.metrics import MetricName
    from pykclient.network.drive import Decisions
    from pykclient.network.io.port import Port
    from pykclient.types import GroupMetadata

CLOSE_TIMEOUT_MS: Final = 30_000
"""Default time of `close`, as in Java."""

MEMBERSHIP_AT_CLOSE: Final = ("default", "leave_group", "remain_in_group")

ConsumerT = TypeVar("ConsumerT", bound="ConsumerCore")
P = ParamSpec("P")
T = TypeVar("T")


def _close_after_heartbeats(heartbeats: weakref.ref[Heartbeats], close: Callable[[], None]) -> None:
    """Close the sockets of a dropped consumer after its heartbeat thread has ended."""
    kept = heartbeats()
    if kept is None:
        close()  # the thread holds a reference only while it makes a step
    else:
        kept.abandon(close)


def public_call(
    method: Callable[Concatenate[ConsumerT, P], T],
) -> Callable[Concatenate[ConsumerT, P], T]:
    """Allow interrupts anywhere in a method, and refuse to call it on top of another call."""

    @wraps(method)
    def call(self: ConsumerT, /, *args: P.args, **keywords: P.kwargs) -> T:
        wiring = self._wiring
        guard, buffer, waiting = wiring.guard, wiring.buffer, wiring.waiting
        me = get_ident()
        if guard.inside == me:
            raise guard.refused(f"{method.__name__}()")
        is_inside = False
        try:
            with guard:
                guard.inside = me
                is_inside = True
                try:
                    if guard.is_torn or buffer.begun or waiting.close_request:
                        wiring.make_good()
                    guard.is_torn = True
                    result = method(self, *args, **keywords)
                    guard.is_torn = False
                except BaseException as error:
                    if leaves_whole(error):
                        guard.is_torn = False
                    raise
            if waiting.close_request:
                waiting.raise_if_closed()
        except BaseException as error:
            if is_inside:
                guard.inside = None  # before any call, since an interrupt may come with one
                if waiting.close_request and isinstance(error, Exception):
                    self._end(*waiting.close_request, has_finished=True)
            explain_keywords(error, keywords)
            raise
        buffer.begun = NOT_BEGUN
        guard.inside = None
        return result

    return call


class ConsumerCore(LiveClient):
    """A consumer's state, and every method that needs no broker.

    `port` does all I/O; None opens sockets when they are needed.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        port: Port | None = None,
        wall_clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        sockets = None
        if port is None:
            config = with_canonical_names(config)
            sockets = SelectorPort.from_config(config)
        try:
            if sockets is not None:
                port = secured(sockets, config)
            assert port is not None
            self._wiring = Wiring(config, port, wall_clock_ms=wall_clock_ms)
        except BaseException:
            if sockets is not None:
                sockets.shutdown()
            raise
        self._calls = Calls(self._wiring)
        self._closing = Closing(self._wiring)
        self._poll_loop = PollLoop(self._wiring)
        if sockets is not None:
            group = f", a member of group {config.group_id!r}," if config.group_id else ""
            sockets.warn_if_dropped(
                self,
                f"{self!r}{group} was not closed: nothing was committed at its end, and its group "
                f"waits for it until the session ends. Use it in a with block, or call close()",
                partial(_close_after_heartbeats, weakref.ref(self._wiring.heartbeats)),
            )

    def __repr__(self) -> str:
        if not hasattr(self, "_wiring"):  # the settings were invalid
            return object.__repr__(self)
        config = self._wiring.config
        group_id = config.group_id
        about = "" if group_id is None else f", group {group_id!r}"
        group = self._wiring.group
        if group is not None and config.group_protocol == "auto":
            about = f"{about}, {group.protocol or 'no'} protocol"
        state = "closed" if self._wiring.guard.is_closed else "open"
        return describe_client(self, config, state, about)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # After an exception the application has not finished with the last returned records.
        self._end(None, "default", has_finished=kind is None)

    def close(self, timeout: float | None = None, *, group_membership: str = "default") -> None:
        """Commit as configured, leave the group, and close all connections.

        Calling it again has no effect. With `enable_auto_commit` everything returned is committed,
        except from the record in hand on if a loop was left or is under way. `timeout` is in
        seconds, None is 30; steps that are not done by then are skipped, and logged.
        `group_membership` (KIP-1092) is `leave_group`, `remain_in_group` (until the session ends),
        or `default`: static members remain, others leave.

        While an exception is being handled or raised (in a `finally` or `except`, at the end of a
        ``with`` block or of `contextlib.closing`), the last returned records are not committed,
        except records of a loop before the one in hand: the application has not finished with
        them. Call `commit()` before, if it has.

        After two seconds a WARNING says what it waits for. A Ctrl-C ends the wait, and skips the
        remaining steps.

        If a signal handler calls this on top of another call, that call ends, the consumer is
        closed, and the call raises `ClosedError`. In a child process it has no effect.

        Raises:
            ConcurrentModificationError: another thread is using the consumer.
            UsageError: `group_membership` is none of the three.
            RebalanceListenerError: the listener failed. The consumer is closed nevertheless.
        """
        if group_membership not in MEMBERSHIP_AT_CLOSE:
            raise UsageError(
                f"close(group_membership={shown_argument(group_membership)}): use one of "
                f"{', '.join(MEMBERSHIP_AT_CLOSE)}"
            )
        self._end(timeout, group_membership, has_finished=sys.exception() is None)

    def _end(self, timeout: float | None, group_membership: str, *, has_finished: bool) -> None:
        """Close now, or when the call under way has ended; no effect if closed."""
        guard, closing = self._wiring.guard, self._closing
        if guard.is_in_child or closing.is_shut_down:
            return
        if guard.is_in_call:
            if not closing.is_closing:
                self._wiring.waiting.request_close(timeout, group_membership)
            return
        self._wiring.waiting.close_request = None
        if guard.is_closed:
            closing.shut_down()  # the first attempt was interrupted
            return
        closing.is_closing = True
        try:
            self._close(timeout, group_membership, has_finished=has_finished)
        finally:
            closing.is_closing = False

    @public_call
    def _close(self, timeout: float | None, group_membership: str, *, has_finished: bool) -> None:
        wait_ms = milliseconds(timeout, CLOSE_TIMEOUT_MS)
        if interrupt_count(sys.exception()) > 1:
            wait_ms = 0
        deadline_ms = now_ms() + wait_ms
        self._drive(self._closing.close(deadline_ms, group_membership, has_finished=has_finished))

    def _drive(self, decisions: Decisions[T]) -> T:
        return drive(self._wiring.engine, self._wiring.port, decisions)

    # The assignment.

    @public_call
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; none for an empty list.

        A partition that was assigned before keeps its position and its buffered records. Others
        begin at the group's committed offset, or as set by `seek` or `auto_offset_reset`. A
        partition that does not exist is reported by `poll`.

        With `enable_auto_commit`, processed records are committed first if the interval is over.
        Nothing is committed later for dropped partitions: call `commit` before, if it matters.

        Raises:
            UsageError: an item is not a `TopicPartition` with a number from 0.
        """
        wanted = partition_list(partitions, "assign")
        wiring = self._wiring
        if wanted and wiring.commits is not None and not wiring.subscription.is_by_group:
            self._drive(self._calls.commit_if_due(wiring.commits))
        kept = wiring.subscription.partitions
        for dropped in wiring.subscription.assign(wanted):
            wiring.buffer.drop(dropped)
        for assigned in wiring.subscription:
            if assigned.partition not in kept:
                self._await_serving(assigned)
        if wanted and wiring.group is not None:
            wiring.group.on_assigned_by_hand()
        wiring.topics.follow()

    @public_call
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._wiring.subscription.partitions

    @public_call
    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics together with the other members of the group, which share the partitions.

        Pass `topics`, or a `pattern`: a Python regular expression that must match whole names,
        including those of topics created later. With `group_protocol=consumer` brokers match a
        pattern given as a string, in RE2 syntax (KIP-848); a compiled one is matched by the client.
        With `group_protocol=auto` the client matches every pattern, whichever protocol is chosen.

        A new subscription replaces the last one, and `listener` the last listener. The next `poll`
        joins the group; until then, and for a moment after, the former assignment stays.

        Raises:
            UsageError: there is no `group_id`; both or neither of topics and pattern are given; one
                of them is malformed; or partitions were assigned: call `unsubscribe` first.
        """
        group = self._wiring.require_group("subscribe")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise UsageError(
                f"subscribe: listener is {shown_argument(listener)}; make a RebalanceListener "
                f"of functions"
            )
        if (pattern is None) == (not topics):
            raise UsageError(
                "subscribe takes either topics or a pattern; call unsubscribe() to end it"
            )
        if pattern is None:
            self._wiring.subscription.subscribe(subscribed_topics(topics))
        elif isinstance(pattern, str) and self._wiring.config.group_protocol == "consumer":
            check_text(pattern, "pattern", "subscribe")
            self._wiring.subscription.subscribe_broker_pattern(pattern)
        else:
            self._wiring.subscription.subscribe_pattern(compiled_pattern(pattern))
        group.on_subscribed(listener)
        self._wiring.topics.follow()

    @public_call
    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; for a pattern those that match so far.

        For a pattern that brokers match (KIP-848), the client knows only topics of which it has
        partitions; these are returned.
        """
        return self._wiring.subscription.subscribed_topics

    @public_call
    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Trigger a rebalance, which the next `poll` begins (KIP-568).

        Useful for assignors that depend on something that has changed. `reason` appears in the
        coordinator's log (KIP-800).

        Raises:
            UsageError: there is no subscription, or `reason` is invalid.
        """
        if self._wiring.group is None or not self._wiring.subscription.is_by_group:
            raise UsageError("enforce_rebalance() needs a subscription: call subscribe() first")
        if not isinstance(reason, str):
            raise UsageError(f"enforce_rebalance: reason is {shown_argument(reason)}; pass a str")
        check_text(reason, "reason", "enforce_rebalance")
        self._wiring.group.enforce_rebalance(reason)

    @public_call
    def group_metadata(self) -> GroupMetadata:
        """Return the group member that read the records returned so far (KIP-447).

        That is the member, with its generation, of the last rebalance that was completed in a
        `poll`. It stays the same after the group has removed the member, for example after
        `max_poll_interval_ms`: brokers then refuse offsets that a transaction commits in its name.
        The generation is -1 before the first rebalance, and after `assign`. `topic_ids` are those
        of the records that the last polls returned.

        Raises:
            UsageError: there is no `group_id`.
        """
        identity = self._wiring.require_group("group_metadata").identity
        commits = self._wiring.require_commits("group_metadata")
        return identity._replace(
            topic_ids=commits.returned_topics(),
            commits_automatically=self._wiring.config.enable_auto_commit,
        )

    @public_call
    def group_history(self) -> tuple[Rebalance, ...]:
        """Return the latest rebalances of this consumer, oldest first, with times and reasons.

        Each item prints as one line.

        Raises:
            UsageError: there is no `group_id`.
        """
        history = self._wiring.require_group("group_history").history
        return history.rebalances(now_ms(), datetime.fromtimestamp(wall_ms() / 1_000, UTC))

    # Positions.

    @public_call
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue reading a partition from this offset. Drops records fetched from elsewhere.

        If the offset is out of range, `auto_offset_reset` applies in the next `poll`. With
        `enable_auto_offset_store` off, commits continue from the new position, and returned records
        that are not stored are no longer tracked. They stay tracked if the seek only skips a bad
        record, which was raised at the position or passed to `on_record_error`.

        Raises:
            UsageError: the partition is not assigned, or the offset is not an integer from 0.
        """
        self._wiring.batch_guard.check_seek("seek")
        check_partition(partition, "seek")
        assigned = self._wiring.subscription.require(partition)
        leader_epoch = None
        if isinstance(offset, OffsetAndMetadata):
            leader_epoch = offset.leader_epoch
            offset = offset.offset
        check_offset(offset, f"seek({partition}): offset")
        self._seek(assigned, offset, leader_epoch)

    def _seek(self, assigned: AssignedPartition, offset: int, leader_epoch: int | None) -> None:
        is_past_bad = self._wiring.records.leads_past_bad(assigned, offset)
        self._wiring.unprocessed.forget(assigned, keeps_unstored=is_past_bad)
        if leader_epoch is None and self._wiring.buffer.can_skip_to(assigned, offset):
            # Past a bad record, for example: the records after it need not be fetched again.
            self._wiring.subscription.skip_to(assigned, offset)
            self._wiring.buffer.forgive(assigned)
        else:
            self._wiring.buffer.drop(assigned)
            self._wiring.subscription.seek(assigned, offset, leader_epoch)
            self._await_serving(assigned)

    def _await_serving(self, assigned: AssignedPartition) -> None:
        """Report the change of position, since the metadata may have a former id of the topic."""
        version = self._wiring.metadata.cluster.version
        self._wiring.subscription.await_serving(assigned, version)

    @public_call
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Seek to the beginning of the log; None is all assigned partitions.

        With a subscription there are none before the group has assigned them: poll first, seek in
        `on_assigned` of a listener, or set ``auto_offset_reset=earliest``. The next `poll` or
        `position` looks up the offset.

        Raises:
            UsageError: a partition is not assigned.
        """
        self._reset(partitions, OffsetReset.EARLIEST, "seek_to_beginning")

    @public_call
    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Seek to the end of the log; None is all assigned partitions, as in `seek_to_beginning`.

        The next `poll` or `position` looks up the offset: with `read_committed` the last stable
        offset, otherwise the high watermark.

        Raises:
            UsageError: a partition is not assigned.
        """
        self._reset(partitions, OffsetReset.LATEST, "seek_to_end")

    def _reset(
        self, partitions: Iterable[TopicPartition] | None, reset_to: OffsetReset, call: str
    ) -> None:
        self._wiring.batch_guard.check_seek(call)
        listed = None if partitions is None else partition_list(partitions, call)
        chosen = self._wiring.subscription.require_all(listed)
        for assigned in chosen:
            self._wiring.unprocessed.forget(assigned)
            self._wiring.buffer.drop(assigned)
            self._wiring.subscription.await_reset(assigned, reset_to)
            self._await_serving(assigned)

    @public_call
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`.

        Their buffered records are kept, up to `fetch_max_bytes` in total; others are dropped and
        fetched again later.

        Raises:
            UsageError: a partition is not assigned.
        """
        for assigned in self._wiring.subscription.require_all(partition_list(partitions, "pause")):
            self._wiring.subscription.pause(assigned)
            self._wiring.buffer.refresh(assigned)

    @public_call
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`; no effect on partitions that are not paused.

        Raises:
            UsageError: a partition is not assigned.
        """
        for assigned in self._wiring.subscription.require_all(partition_list(partitions, "resume")):
            self._wiring.subscription.resume(assigned)
            self._wiring.buffer.refresh(assigned)

    @public_call
    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(a.partition for a in self._wiring.subscription if a.is_paused)

    @public_call
    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the end, as last reported.

        None before the first Fetch response. The end is that of `seek_to_end`. Sends no request.

        Raises:
            UsageError: the partition is not assigned.
        """
        check_partition(partition, "current_lag")
        assigned = self._wiring.subscription.require(partition)
        return assigned.lag(self._wiring.config.isolation_level)

    # Any thread.

    def wakeup(self) -> None:
        """Make the waiting call, or else the next call that may wait, raise `WakeupError`.

        Any thread may call it. A `poll` that has already found records returns them, and the next
        one raises before it takes any, so none is lost. `assign`, `commit_async`, `unsubscribe` and
        `close` are not interrupted.

        Raises:
            ForkedClientError: this is a child process; the parent's call is not woken.
        """
        self._wiring.guard.check_process()
        self._wiring.waiting.wakeup()

    def store_offset(
        self,
        record: ConsumerRecord[object, object] | Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Mark a record as processed, in any order.

        With `enable_auto_offset_store` off, automatic commits and `commit` without offsets go up to
        the first returned record that is not stored. A record of a partition that was revoked since
        does not count, as its next owner reads it again. Any thread may call it; it sends no
        request.

        A mapping has offsets of the next record to read, as in `commit`: all records returned
        before them are stored. `commit` with offsets or records also stores these. (Metadata in the
        mapping is not committed.)

        Raises:
            UsageError: there is no `group_id`, `enable_auto_offset_store` is on, or the argument is
                neither a record nor a mapping of offsets.
            ForkedClientError: this is a child process.
        """
        self._wiring.guard.check_process()
        commits = self._wiring.require_commits("store_offset")
        if commits.stored is None:
            raise UsageError(
                "store_offset() is for consumers with enable_auto_offset_store=False; this one "
                "counts records as processed when the next poll begins"
            )
        if isinstance(record, ConsumerRecord):
            commits.stored.note(record.topic_partition, record.offset, record.offset + 1)
        else:
            commits.note_finished(offsets_by_partition(record, "store_offset"))

    def metrics(self) -> dict[MetricName, float]:
        """Return the consumer's metrics by name; lag also by partition, traffic by broker.

        `docs/metrics.md` lists names, units and meanings. A metric without a value is left out. Any
        thread may call it; it sends no request.

        Raises:
            ForkedClientError: this is a child process.
        """
        self._wiring.guard.check_process()
        time_ms = now_ms()
        return self._wiring.metrics.snapshot(time_ms) | self._wiring.client.metrics(time_ms)
