"""ConsumerCore: the consumer without the waiting.

Has every public method that does not wait. `Consumer` adds those that do; it reads and changes
nothing that is not here, or in `ConsumerParts`.

Owner: the thread guard, which each public method takes; `wakeup` alone does not.
Source: Java class ``KafkaConsumer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.arguments import (
    check_offset,
    check_partition,
    check_text,
    partition_list,
    shown_argument,
)
from pykclient.consumer.group.rebalance import RebalanceListener
from pykclient.consumer.public_call import CLOSED_BY_HANDLER, public_call
from pykclient.consumer.subscription import OffsetReset
from pykclient.consumer.subscription_input import checked_topics, compiled_pattern
from pykclient.consumer.wiring import ConsumerParts
from pykclient.errors import ClosedError, NotSubscribedError, UsageError, WakeupError
from pykclient.network.manager import NEVER_MS
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterable, Mapping

    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError

__all__ = ["NO_LIMITS", "ConsumerCore"]

NO_LIMITS: Final[Mapping[TopicPartition, int]] = {}


class ConsumerCore(ConsumerParts):
    """A consumer's state and every method that does not wait."""

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
        if wanted:
            self._commit_before_assigning()
        for dropped in self._subscription.assign(wanted):
            self._buffer.drop(dropped)
        self._follow_topics()

    @public_call
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads."""
        return self._subscription.partitions

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
        group = self._require_group("subscribe")
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
            self._subscription.subscribe(checked_topics(topics))
        elif isinstance(pattern, str) and self._config.group_protocol == "consumer":
            check_text(pattern, "pattern", "subscribe")
            self._subscription.subscribe_broker_pattern(pattern)
        else:
            self._subscription.subscribe_pattern(compiled_pattern(pattern))
        group.on_subscribed(listener)
        self._follow_topics()

    @public_call
    def subscription(self) -> frozenset[str]:
        """Return the topics that are subscribed to; of a pattern those that match by now."""
        return self._subscription.wanted_topics

    # Positions.

    @public_call
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read a partition from this offset on. Nothing fetched from elsewhere is handed out.

        Whether the log has the offset shows in `poll`: if it has not, `auto_offset_reset` applies.

        Raises:
            UsageError: the partition is not assigned, or the offset is not an integer from 0.
        """
        check_partition(partition, "seek")
        assigned = self._subscription.require(partition)
        leader_epoch = None
        if isinstance(offset, OffsetAndMetadata):
            leader_epoch = offset.leader_epoch
            offset = offset.offset
        check_offset(offset, f"seek({partition}): offset")
        if self._commits is not None:
            self._commits.unprocessed.forget(assigned)
        if leader_epoch is None and self._buffer.can_skip_to(assigned, offset):
            # Past a bad record, say: what is behind it need not be fetched again.
            self._subscription.skip_to(assigned, offset)
            self._buffer.forgive(assigned)
        else:
            self._buffer.drop(assigned)
            self._subscription.seek(assigned, offset, leader_epoch)

    @public_call
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read from the first offset of the log; None means all that are assigned.

        The offset is looked up by the next `poll` or `position`.

        Raises:
            UsageError: a partition is not assigned.
        """
        self._reset(partitions, OffsetReset.EARLIEST, "seek_to_beginning")

    @public_call
    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read what comes from now on; None means all that are assigned.

        The offset is looked up by the next `poll` or `position`: with `read_committed` it is the
        last stable offset, else the high watermark.

        Raises:
            UsageError: a partition is not assigned.
        """
        self._reset(partitions, OffsetReset.LATEST, "seek_to_end")

    @public_call
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no records of these partitions until `resume`. What is buffered is kept.

        Of all that is paused up to `fetch_max_bytes`, that is: more is dropped, and fetched anew.

        Raises:
            UsageError: a partition is not assigned.
        """
        for assigned in self._subscription.require_all(partition_list(partitions, "pause")):
            self._subscription.pause(assigned)
            self._buffer.refresh(assigned)

    @public_call
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`; no effect on partitions that are not paused.

        Raises:
            UsageError: a partition is not assigned.
        """
        for assigned in self._subscription.require_all(partition_list(partitions, "resume")):
            self._subscription.resume(assigned)
            self._buffer.refresh(assigned)

    @public_call
    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        return frozenset(a.partition for a in self._subscription if a.is_paused)

    @public_call
    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end, as last heard of it.

        None before the first fetch has told. The end is that of `seek_to_end`. No broker is asked.

        Raises:
            UsageError: the partition is not assigned.
        """
        check_partition(partition, "current_lag")
        assigned = self._subscription.require(partition)
        return assigned.lag(self._config.isolation_level)

    def wakeup(self) -> None:
        """Make the call that waits now, or else the next one that may wait, raise `WakeupError`.

        The one method for other threads. A `poll` that has found records by then returns them, and
        the next one raises, before it takes any: none is lost.

        Raises:
            ForkedClientError: this is a child process; the parent's call is not woken.
        """
        self._guard.check_process()
        self._is_woken = True
        self._client.wakeup()

    # For the front-end.

    def _close_as_requested(self) -> None:
        """Close, because `close` was called on top of the call that ends now."""

    def _commit_before_assigning(self) -> None:
        """Commit what may be dropped, where that is asked for."""

    def _step_in_background(self, now_ms: int) -> int:
        """Do what cannot wait for the application; return when to come again.

        Requires the core lock. Nothing is waited for: answers are looked for a moment later.
        """
        assert self._group is not None
        if self._guard.is_closed:
            return NEVER_MS
        if self._guard.is_torn:
            self._recover()
        self._guard.is_torn = True
        next_ms = self._engine.step_in_background(now_ms)
        self._port.wait(0)
        self._engine.complete(now_ms)
        if self._group.has_request_in_flight:
            next_ms = min(next_ms, now_ms + self._config.retry_backoff_ms)
        self._guard.is_torn = False
        return next_ms

    @property
    def _is_interrupted(self) -> bool:
        """Whether a wait must end, whatever it waits for."""
        return (
            self._is_woken
            or self._close_request is not None
            or self._metadata.fatal_error is not None
        )

    def _raise_interruption(self) -> None:
        """Raise what ended a wait; return when nothing did."""
        if self._close_request is not None:
            raise ClosedError(CLOSED_BY_HANDLER)
        fatal_error = self._metadata.take_fatal_error()
        if fatal_error is not None:
            raise fatal_error
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("Consumer.wakeup() was called")

    @property
    def _has_news(self) -> bool:
        """Whether there is an error that `poll` is to raise."""
        return (
            self._subscription.has_error
            or (self._commits is not None and self._commits.has_error)
            or (self._group is not None and self._group.has_error)
        )

    def _take_news(self) -> KafkaError | None:
        """Return the oldest error that `poll` is to raise, and forget it; None if none."""
        error = self._subscription.take_error()
        if error is None and self._commits is not None:
            error = self._commits.take_error()
        if error is None and self._group is not None:
            error = self._group.take_error()
        return error

    def _require_assignment(self) -> None:
        if not len(self._subscription) and not self._subscription.is_by_group:
            raise NotSubscribedError(
                "there is nothing to read: call subscribe() with topics, or assign() with "
                "partitions first"
            )

    def _set_limits(self, limits: Mapping[TopicPartition, int]) -> None:
        for assigned in self._subscription.set_limits(limits):
            self._buffer.refresh(assigned)

    def _have_all_reached_limits(self) -> bool:
        # A member that has got nothing yet waits for its share.
        return len(self._subscription) > 0 and all(
            assigned.has_reached_limit for assigned in self._subscription
        )

    def _reset(
        self, partitions: Iterable[TopicPartition] | None, reset_to: OffsetReset, call: str
    ) -> list[AssignedPartition]:
        listed = None if partitions is None else partition_list(partitions, call)
        chosen = self._subscription.require_all(listed)
        for assigned in chosen:
            self._buffer.drop(assigned)
            self._subscription.await_reset(assigned, reset_to)
        return chosen
