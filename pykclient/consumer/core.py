"""ConsumerCore: a consumer's life, and every call that needs no broker; `Consumer` adds the others.

`public_call` is what every public method does before and after its own work. It *enters* the thread
guard, *makes good* what a call that did not end has left behind, marks the state as torn, makes the
call, and marks it as whole. What a call has taken for the application counts as returned when the
call returns, not before.

CPython looks for signals at the start of a function, at a jump back and after a call into C. So
plain stores that follow each other, and a `return` after them, are one: a handler spans before all
of them or after.

Owner: the thread guard, which each public method takes; `wakeup`, `store_offset` and `metrics`
alone do not.
Source: Java class ``KafkaConsumer``; of `public_call` ours, see `network.interrupts`.
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
"""How long `close` may take where nothing is said; Java's."""

MEMBERSHIP_AT_CLOSE: Final = ("default", "leave_group", "remain_in_group")

ConsumerT = TypeVar("ConsumerT", bound="ConsumerCore")
P = ParamSpec("P")
T = TypeVar("T")


def _close_after_heartbeats(heartbeats: weakref.ref[Heartbeats], close: Callable[[], None]) -> None:
    """Close the sockets of a consumer that was dropped, when its heartbeat thread has ended."""
    kept = heartbeats()
    if kept is None:
        close()  # the thread keeps them while it makes a step
    else:
        kept.abandon(close)


def public_call(
    method: Callable[Concatenate[ConsumerT, P], T],
) -> Callable[Concatenate[ConsumerT, P], T]:
    """Make a method one that may be interrupted anywhere, and refuses to be called on top."""

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
                guard.inside = None  # before any call: an interrupt comes in with one
                if waiting.close_request and isinstance(error, Exception):
                    self._end(*waiting.close_request, has_finished=True)
            explain_keywords(error, keywords)
            raise
        buffer.begun = NOT_BEGUN
        guard.inside = None
        return result

    return call


class ConsumerCore(LiveClient):
    """A consumer's state and every method that needs no broker.

    `port` is where I/O passes; None opens sockets when they are needed.
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
        if not hasattr(self, "_wiring"):  # its settings were refused
            return object.__repr__(self)
        config = self._wiring.config
        group_id = config.group_id
        about = "" if group_id is None else f", group {group_id!r}"
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
        # After an exception the application has not finished with what was returned last.
        self._end(None, "default", has_finished=kind is None)

    def close(self, timeout: float | None = None, *, group_membership: str = "default") -> None:
        """Commit as configured, leave the group, close all connections.

        Calling it again does nothing. With `enable_auto_commit` everything that was returned is
        committed, up to the record in hand of a loop that was left, or is under way. `timeout` is
        in seconds, None means 30; what could not be done by then is left undone, and logged.
        `group_membership` (KIP-1092) is `leave_group`, `remain_in_group` (until the session ends),
        or `default`: static members remain, others leave.

        While an exception is on its way (in a `finally`, at the end of a ``with`` block or of
        `contextlib.closing`, in an `except`), what was returned last is not committed, but for the
        records of a loop before the one in hand: the application has not finished with it.
        `commit()` it before, if it has.

        A WARNING after two seconds says what it waits for. A Ctrl-C ends the wait, and what was not
        done by then is left undone.

        A signal handler that calls this on top of another call has that call end, close, and raise
        `ClosedError`. In a child process it does nothing.

        Raises:
            ConcurrentModificationError: another thread is using the consumer.
            UsageError: `group_membership` is none of the three.
            RebalanceListenerError: the listener failed. The consumer is closed all the same.
        """
        if group_membership not in MEMBERSHIP_AT_CLOSE:
            raise UsageError(
                f"close(group_membership={shown_argument(group_membership)}): give "
                f"{', '.join(MEMBERSHIP_AT_CLOSE)}"
            )
        self._end(timeout, group_membership, has_finished=sys.exception() is None)

    def _end(self, timeout: float | None, group_membership: str, *, has_finished: bool) -> None:
        """Close, now or when the call under way has ended; again it does nothing."""
        guard, closing = self._wiring.guard, self._closing
        if guard.is_in_child or closing.is_shut_down:
            return
        if guard.is_in_call:
            if not closing.is_closing:
                self._wiring.waiting.request_close(timeout, group_membership)
            return
        self._wiring.waiting.close_request = None
        if guard.is_closed:
            closing.shut_down()  # an interrupt has ended the first attempt
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
        """Read exactly these partitions; none at all for an empty list.

        A partition that was assigned before keeps its position and what is buffered of it. The
        others begin where the group has committed, or as `seek` or `auto_offset_reset` say. Whether
        they exist shows in `poll`.

        With `enable_auto_commit`, what you have finished with is committed first if the interval is
        over. Of what is dropped nothing is committed later: `commit` it before, if it matters.

        Raises:
            UsageError: something is not a `TopicPartition` with a number from 0.
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

        Give `topics`, or a `pattern`: a regular expression of Python that whole names match, held
        against topics that appear later, too. With `group_protocol=consumer` the brokers match a
        pattern that is a string, as RE2 does (KIP-848), and only a compiled one is matched here.

        A new subscription takes the place of the last one, and `listener` of the last listener. The
        group is joined by the next `poll`; until then, and for a moment after, what was assigned
        stays.

        Raises:
            UsageError: there is no `group_id`, both or neither of topics and pattern are given, one
                is malformed, or partitions were given to `assign`; call `unsubscribe` first.
        """
        group = self._wiring.require_group("subscribe")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise UsageError(
                f"subscribe: listener is {shown_argument(listener)}; make a RebalanceListener "
                f"of functions"
            )
        if (pattern is None) == (not topics):
            raise UsageError(
                "subscribe takes topics or a pattern, one of the two; unsubscribe() ends it"
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
        """Return the topics that are subscribed to; of a pattern those that match by now.

        Of a pattern that brokers match (KIP-848) the client knows only the topics of which it has
        partitions; these are returned.
        """
        return self._wiring.subscription.subscribed_topics

    @public_call
    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Have the group share its partitions out anew; the next `poll` begins it (KIP-568).

        For assignors that look at something which has changed. `reason` is shown by the
        coordinator (KIP-800).

        Raises:
            UsageError: nothing is subscribed to, or `reason` cannot be sent.
        """
        if self._wiring.group is None or not self._wiring.subscription.is_by_group:
            raise UsageError("enforce_rebalance() needs a subscription: call subscribe() first")
        if not isinstance(reason, str):
            raise UsageError(f"enforce_rebalance: reason is {shown_argument(reason)}; give text")
        check_text(reason, "reason", "enforce_rebalance")
        self._wiring.group.enforce_rebalance(reason)

    @public_call
    def group_metadata(self) -> GroupMetadata:
        """Return the member of the group that read what this consumer has returned (KIP-447).

        That is the member, and its generation, of the last rebalance that was completed in a
        `poll`. It stays the same when the group has removed the member since, as after
        `max_poll_interval_ms`: brokers then refuse the offsets that a transaction commits in its
        name. The generation is -1 before the first rebalance, and after `assign`. `topic_ids` are
        those of the records that the last polls have returned.

        Raises:
            UsageError: there is no `group_id`.
        """
        identity = self._wiring.require_group("group_metadata").identity
        commits = self._wiring.require_commits("group_metadata")
        return identity._replace(topic_ids=commits.returned_topics())

    @public_call
    def group_history(self) -> tuple[Rebalance, ...]:
        """Return the last rebalances of this consumer, the oldest first: when, why, what moved.

        Each prints as one line.

        Raises:
            UsageError: there is no `group_id`.
        """
        history = self._wiring.require_group("group_history").history
        return history.rebalances(now_ms(), datetime.fromtimestamp(wall_ms() / 1_000, UTC))

    # Positions.

    @public_call
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read a partition from this offset on. Nothing fetched from elsewhere is returned.

        Whether the log has the offset shows in `poll`: if it has not, `auto_offset_reset` applies.
        With `enable_auto_offset_store` off, commits go on from the new position: what was returned
        before and is not stored is given up. It is kept where a bad record was raised at the
        position, or given to `on_record_error`, and the offset is behind it.

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
            # Past a bad record, say: what is behind it need not be fetched again.
            self._wiring.subscription.skip_to(assigned, offset)
            self._wiring.buffer.forgive(assigned)
        else:
            self._wiring.buffer.drop(assigned)
            self._wiring.subscription.seek(assigned, offset, leader_epoch)
            self._await_serving(assigned)

    def _await_serving(self, assigned: AssignedPartition) -> None:
        """Take the topic for the present one, of which the metadata may have a former id."""
        version = self._wiring.metadata.cluster.version
        self._wiring.subscription.await_serving(assigned, version)

    @public_call
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read from the first offset of the log; None means all that are assigned.

        With a subscription that is nothing before the group has assigned partitions: poll first,
        seek in `on_assigned` of a listener, or set ``auto_offset_reset=earliest``.
        The offset is looked up by the next `poll` or `position`.

        Raises:
            UsageError: a partition is not assigned.
        """
        self._reset(partitions, OffsetReset.EARLIEST, "seek_to_beginning")

    @public_call
    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read what comes from now on; None means all that are assigned, as `seek_to_beginning`.

        The offset is looked up by the next `poll` or `position`: with `read_committed` it is the
        last stable offset, else the high watermark.

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
        """Return no records of these partitions until `resume`. What is buffered is kept.

        Of all that is paused up to `fetch_max_bytes`, that is: more is dropped, and fetched anew.

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
        """Return the partitions that are paused."""
        return frozenset(a.partition for a in self._wiring.subscription if a.is_paused)

    @public_call
    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end, as last reported.

        None before the first Fetch response. The end is that of `seek_to_end`. It sends no request.

        Raises:
            UsageError: the partition is not assigned.
        """
        check_partition(partition, "current_lag")
        assigned = self._wiring.subscription.require(partition)
        return assigned.lag(self._wiring.config.isolation_level)

    # From any thread.

    def wakeup(self) -> None:
        """Make the call that waits now, or else the next one that may wait, raise `WakeupError`.

        The one method for other threads. A `poll` that has found records by then returns them, and
        the next one raises, before it takes any: none is lost. `assign`, `commit_async`,
        `unsubscribe` and `close` are not interrupted.

        Raises:
            ForkedClientError: this is a child process; the parent's call is not woken.
        """
        self._wiring.guard.check_process()
        self._wiring.waiting.wakeup()

    def store_offset(
        self,
        record: ConsumerRecord[object, object] | Mapping[TopicPartition, OffsetAndMetadata | int],
    ) -> None:
        """Note that the application has finished with a record, in whatever order it does.

        With `enable_auto_offset_store` off, automatic commits and `commit` without offsets go up to
        the first record that was returned and is not stored. A record of a partition that was given
        up since does not count, as its next owner reads it again. This may be called from any
        thread, and sends no request.

        A mapping has offsets as `commit` takes them, those of the next record to read: all that was
        returned before them is stored. So does `commit` with offsets or records. (The metadata of
        these is not committed.)

        Raises:
            UsageError: there is no `group_id`, `enable_auto_offset_store` is on, or it is neither a
                record nor a mapping of offsets.
            ForkedClientError: this is a child process.
        """
        self._wiring.guard.check_process()
        commits = self._wiring.require_commits("store_offset")
        if commits.stored is None:
            raise UsageError(
                "store_offset() is for consumers with enable_auto_offset_store=False: this one "
                "counts as finished what came before the latest poll"
            )
        if isinstance(record, ConsumerRecord):
            commits.stored.note(record.topic_partition, record.offset, record.offset + 1)
        else:
            commits.note_finished(offsets_by_partition(record, "store_offset"))

    def metrics(self) -> dict[MetricName, float]:
        """Return what the consumer has measured, by name; lag by partition, traffic by broker.

        Names, units and meanings are those of `docs/metrics.md`. What nothing is known of is left
        out. It may be called from any thread, and sends no request.

        Raises:
            ForkedClientError: this is a child process.
        """
        self._wiring.guard.check_process()
        time_ms = now_ms()
        return self._wiring.metrics.snapshot(time_ms) | self._wiring.client.metrics(time_ms)
