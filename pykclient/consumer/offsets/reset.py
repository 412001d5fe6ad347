"""PositionManager: finds a position for each partition that has none.

A partition continues at the group's committed offset; without one `auto_offset_reset` applies. A
known position is never moved. A reset that skips offsets is logged.

Owner: the driver of the engine.
Source: Java classes ``ConsumerCoordinator`` (``initWithCommittedOffsetsIfNeeded``) and
``OffsetFetcher`` (``resetPositionsIfNeeded``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.offsets.list_offsets import EARLIEST, LATEST
from pykclient.consumer.subscription import OffsetReset, PositionState
from pykclient.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from pykclient.network.log import ClientLog
from pykclient.network.manager import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.offsets.committed import CommittedLookup, CommittedOffsets
    from pykclient.consumer.offsets.list_offsets import OffsetLookup, OffsetLookups
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation, PollResult
    from pykclient.network.retry import Backoff
    from pykclient.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

TIMESTAMPS: Final = {
    OffsetReset.EARLIEST: (EARLIEST,),
    OffsetReset.LATEST: (LATEST,),
    OffsetReset.BY_DURATION: (LATEST,),
    OffsetReset.NONE: (EARLIEST, LATEST),
}
"""Timestamps to look up for a reset. By duration, a time comes first, and the end applies if no
record is that young. For none, it is the whole range, for the error."""


class _Reset(NamedTuple):
    epoch: int
    lookups: list[OffsetLookup]


class PositionManager:
    """Handles `subscription.without_position`. Comes before its lookups in the engine.

    `committed` is None without a group. `reset_from_ms` returns the time, in ms since 1970, of the
    first record to read after a reset by duration.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        lookups: OffsetLookups,
        *,
        auto_offset_reset: OffsetReset,
        retry_backoff: Backoff,
        committed: CommittedOffsets | None = None,
        reset_from_ms: Callable[[], int] | None = None,
        client_id: str = "",
    ) -> None:
        self._log = ClientLog("pykclient.consumer", client_id)
        self._subscription = subscription
        self._lookups = lookups
        self._auto_offset_reset = auto_offset_reset
        self._retry_backoff = retry_backoff
        self._resets: dict[AssignedPartition, _Reset] = {}
        self._reset_from_ms = reset_from_ms
        self._committed = committed
        self._lookup: CommittedLookup | None = None
        """The lookup of committed offsets under way."""
        self._now_ms = 0

    def poll(self, now_ms: int) -> PollResult:
        """Start lookups; `lookups` sends them in the same step."""
        self._now_ms = now_ms
        self._forget_stale()
        new = [
            assigned
            for assigned in self._subscription.without_position
            if assigned.state is PositionState.INITIALIZING
        ]
        if self._committed is not None:
            self._look_up_committed(self._committed, new)
        else:
            for assigned in new:
                self._begin(assigned)
        for assigned in self._subscription.without_position:
            if assigned.state is PositionState.AWAITING_RESET and assigned not in self._resets:
                self._look_up(assigned)
        return IDLE

    def restart(self, now_ms: int) -> None:
        del now_ms
        for reset in self._resets.values():
            for lookup in reset.lookups:
                self._lookups.cancel(lookup)
        self._resets.clear()
        if self._lookup is not None and self._committed is not None:
            self._committed.cancel(self._lookup)
        self._lookup = None

    def last_error(self, assigned: AssignedPartition) -> KafkaError | None:
        """Return why a partition has no position yet, None if unknown."""
        reset = self._resets.get(assigned)
        errors = [] if reset is None else [lookup.attempt.last_error for lookup in reset.lookups]
        if self._lookup is not None and assigned.state is PositionState.INITIALIZING:
            errors.append(self._lookup.attempt.last_error)
        return next((error for error in errors if error is not None), None)

    def _look_up_committed(self, committed: CommittedOffsets, new: list[AssignedPartition]) -> None:
        # A partition with an error for the user is looked up again after that.
        wanted = {a.partition for a in new if self._subscription.error_of(a) is None}
        if self._lookup is not None and not wanted <= self._lookup.partitions:
            committed.cancel(self._lookup)
            self._lookup = None
        if wanted and self._lookup is None:
            lookup = self._lookup = committed.start(wanted)
            lookup.operation.on_done(partial(self._on_committed, lookup))

    def _on_committed(
        self,
        lookup: CommittedLookup,
        operation: Operation[dict[TopicPartition, OffsetAndMetadata | None]],
    ) -> None:
        if lookup is not self._lookup:
            return
        self._lookup = None
        new = [
            assigned
            for assigned in self._subscription.without_position
            if assigned.state is PositionState.INITIALIZING
            and assigned.partition in lookup.partitions
        ]
        if operation.error is not None:
            for assigned in new[:1]:  # one error for all; they are looked up again together
                self._subscription.fail(assigned, operation.error)
            return
        found = operation.result()
        for assigned in new:
            committed = found[assigned.partition]
            if committed is None:
                self._begin(assigned)
            else:
                self._log.info(
                    "%s: continuing at the committed offset %d",
                    assigned.partition,
                    committed.offset,
                )
                self._subscription.seek(assigned, committed.offset, committed.leader_epoch)
                assigned.committed_offset = committed.offset

    def _begin(self, assigned: AssignedPartition) -> None:
        if self._auto_offset_reset is OffsetReset.NONE:
            self._subscription.fail(
                assigned,
                NoOffsetForPartitionError(
                    f"{assigned.partition} has no position, and auto_offset_reset is none: seek() "
                    f"to an offset, or set auto_offset_reset to earliest or latest"
                ),
            )
        else:
            self._subscription.await_reset(assigned, self._auto_offset_reset)

    def _look_up(self, assigned: AssignedPartition) -> None:
        assert assigned.reset_to is not None
        timestamps = TIMESTAMPS[assigned.reset_to]
        if assigned.reset_to is OffsetReset.BY_DURATION:
            assert self._reset_from_ms is not None
            timestamps = (max(0, self._reset_from_ms()), *timestamps)
        lookups = [self._lookups.start(assigned.partition, each) for each in timestamps]
        self._resets[assigned] = _Reset(assigned.epoch, lookups)
        for lookup in lookups:
            lookup.operation.on_done(partial(self._on_done, assigned))

    def _forget_stale(self) -> None:
        stale = [
            assigned
            for assigned, reset in self._resets.items()
            if not assigned.is_assigned or assigned.epoch != reset.epoch
        ]
        for assigned in stale:
            for lookup in self._resets.pop(assigned).lookups:
                self._lookups.cancel(lookup)

    def _on_done(
        self, assigned: AssignedPartition, _: Operation[OffsetAndTimestamp | None]
    ) -> None:
        reset = self._resets.get(assigned)
        if reset is None or not all(lookup.operation.is_done for lookup in reset.lookups):
            return
        del self._resets[assigned]
        if not assigned.is_assigned or assigned.epoch != reset.epoch:
            return
        for lookup in reset.lookups:
            if lookup.operation.error is not None:
                # It keeps having no position, so that the next poll looks it up again.
                self._subscription.fail(assigned, lookup.operation.error)
                return
        self._complete(assigned, [lookup.operation.result() for lookup in reset.lookups])

    def _complete(
        self, assigned: AssignedPartition, found: list[OffsetAndTimestamp | None]
    ) -> None:
        lost_offset, reset_to = assigned.lost_offset, assigned.reset_to
        if reset_to is OffsetReset.NONE:
            self._report_range(assigned, found)
            return
        first = found[0] or found[-1]
        assert first is not None, "the beginning and the end of a log always exist"
        assert reset_to is not None
        offset = first.offset
        self._subscription.complete_reset(assigned, offset)
        if lost_offset is None:
            self._log.info(
                "%s: starting at offset %d (%s)", assigned.partition, offset, reset_to.value
            )
        elif offset > lost_offset:
            self._log.warning(
                "%s: offset %d is not in the log any more; auto_offset_reset=%s continues at %d, "
                "%d offsets were skipped",
                assigned.partition,
                lost_offset,
                reset_to.value,
                offset,
                offset - lost_offset,
            )
        else:
            self._log.warning(
                "%s: offset %d is beyond the end of the log, which was truncated or recreated; "
                "auto_offset_reset=%s goes back to %d",
                assigned.partition,
                lost_offset,
                reset_to.value,
                offset,
            )

    def _report_range(
        self, assigned: AssignedPartition, found: list[OffsetAndTimestamp | None]
    ) -> None:
        first, end = found
        assert first is not None
        assert end is not None
        lost_offset = assigned.lost_offset
        assert lost_offset is not None, "only a lost position is looked up for the error"
        # The position stays, so that each poll raises the error again until the user seeks.
        self._subscription.complete_reset(assigned, lost_offset)
        assigned.retry_at_ms = self._now_ms + self._retry_backoff.delay_ms(0)
        self._subscription.fail(
            assigned,
            OffsetOutOfRangeError(
                f"{assigned.partition}: offset {lost_offset} is outside the log, which has "
                f"{first.offset} to {end.offset} (exclusive), and auto_offset_reset is none: "
                f"seek() to an offset inside, or set it to earliest or latest"
            ),
        )
