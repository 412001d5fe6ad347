"""Unprocessed: the records of each partition that the application may still be processing.

Records that a poll returned are unprocessed until the next poll begins. If their last iteration was
left early by then, the record in hand and the rest stay unprocessed, and positions *go back* to
them. If it is still under way, it becomes an *outer* one (`outer.py`), and positions stay. A loop
over the consumer itself has one record in hand, the one before the position. Records that the
application commits or stores are processed, wherever an iteration is.

Owner: the core lock.
Source: our own; ``docs/decisions/0024-left-in-the-middle-of-a-batch.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import ref

from pykclient.consumer.offsets.outer import Loop, OuterBatch, OuterLoop, is_alive, left_in
from pykclient.consumer.subscription import describe_partitions
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pykclient.consumer.fetch.buffer import Start
    from pykclient.consumer.iteration import Iteration, Progress
    from pykclient.consumer.offsets.stored import StoredOffsets
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.network.log import ClientLog

    Offsets = dict[TopicPartition, OffsetAndMetadata]


AGAIN_COUNT_WARNED: Final = 10
"""Number of consecutive returns of the same records at which a WARNING is logged."""


class _Returned(NamedTuple):
    first_offset: int
    leader_epoch: int | None
    """Epoch of the record before `first_offset`; None if the position has moved."""
    epoch: int


class Unprocessed:
    """Records of the last poll. `drop` drops the buffered data of a partition.

    `stored` has the stored offsets; None if the application does not store offsets.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        drop: Callable[[AssignedPartition], None],
        log: ClientLog,
        stored: StoredOffsets | None = None,
    ) -> None:
        self.stored = stored
        self._subscription = subscription
        self._drop = drop
        self._log = log
        self._has_logged = False
        self._again: dict[AssignedPartition, int] = {}
        """Offsets to which positions went back last."""
        self._again_count = 0
        """Number of consecutive times that they went back to these."""
        self._returned: dict[AssignedPartition, _Returned] = {}
        self._progress: Progress | None = None
        """Progress in the last returned batch; None if no iteration is tracked."""
        self._starts: dict[AssignedPartition, Start] = {}
        """Position of each partition at which that batch began."""
        self._loop: ref[Loop] | None = None
        """The loop over the consumer that has the last record; None if there is none."""
        self._in_loop: AssignedPartition | None = None
        self._finished: dict[AssignedPartition, OffsetAndMetadata] = {}
        """Offsets that the application has committed since."""
        self._outer: list[OuterBatch | OuterLoop] = []
        """Iterations under way around the last poll, in the order of their polls."""

    def clear(self) -> None:
        """Mark everything returned as processed, except records of outer iterations."""
        self._returned.clear()
        self._progress = self._loop = self._in_loop = None
        self._starts = {}
        self._finished = {}

    def forget(self, assigned: AssignedPartition, *, keeps_unstored: bool = False) -> None:
        """Forget returned records, since the user sets the position.

        With `keeps_unstored`, keep them if the application stores offsets.
        """
        assigned.returned_id = NO_TOPIC_ID
        self._returned.pop(assigned, None)
        self._starts.pop(assigned, None)
        if self._in_loop is assigned:
            self._loop = self._in_loop = None
        for outer in self._outer:
            outer.forget(assigned)
        if self.stored is not None:
            # No record from the position on is in hand, even if a loop that was left took some.
            self.stored.forget(assigned, from_offset=assigned.offset if keeps_unstored else 0)

    # Returning records.

    def add(self, assigned: AssignedPartition, first_offset: int) -> None:
        """Add the records of a poll, from an offset up to the position."""
        for outer in self._outer:
            outer.pass_over(assigned)
        if assigned not in self._returned:
            self._returned[assigned] = _returned(assigned, first_offset)

    def add_span(self, span: RecordSpan) -> None:
        """Add a span that a poll returns."""
        assigned = self._subscription.find(span.partition)
        if assigned is not None:
            assigned.returned_id = assigned.topic_id
            self.add(assigned, span.columns.first_offset)
            if self.stored is not None:
                self.stored.add(assigned, span)

    def add_to_loop(self, assigned: AssignedPartition, span: RecordSpan, loop: Loop) -> None:
        """Add a span that a loop over the consumer yields; each record moves the position.

        It costs nothing per record: the record in hand is the one before the position.
        """
        assigned.returned_id = assigned.topic_id
        for outer in self._outer:
            outer.pass_over(assigned)
        self._returned[assigned] = _returned(assigned, span.columns.first_offset)
        self._loop, self._in_loop, self._finished = ref(loop), assigned, {}
        if self.stored is not None:
            self.stored.add(assigned, span)

    def hand_over(self, begun: Mapping[AssignedPartition, Start], progress: Progress) -> None:
        """Add the batch that a poll returns, with its start and the progress of its iterations."""
        self._starts = {each: start for each, start in begun.items() if start.is_of_now(each)}
        self._progress, self._finished = progress, {}

    # Processed records.

    def finish(self, offsets: Offsets) -> None:
        """Mark the records before these offsets as processed."""
        for partition, finished in offsets.items():
            assigned = self._subscription.find(partition)
            if assigned is not None:
                for each in (self._finished, *(outer.finished for outer in self._outer)):
                    each[assigned] = max(each.get(assigned, finished), finished, key=_offset)

    @property
    def is_left_early(self) -> bool:
        """True if the last iteration of a batch has records left, also if polls began inside it.

        An iteration of another thread counts as work in progress.
        """
        iterations = [each.iteration for each in self._outer if isinstance(each, OuterBatch)]
        last = self._iteration()
        return any(each.is_left for each in (*iterations, *([] if last is None else [last])))

    def processed(self, assigned: AssignedPartition) -> OffsetAndMetadata:
        """Return the offset after the processed records. There must be a position."""
        return self._processed(assigned, self._left(counts_in_hand=False))

    def all_processed(self) -> Offsets:
        """Return the same for all partitions that have a position."""
        left = self._left(counts_in_hand=False)
        return {
            assigned.partition: self._processed(assigned, left)
            for assigned in self._subscription
            if assigned.has_offset
        }

    def all_consumed(self) -> Offsets:
        """Return the offsets that a commit without offsets covers.

        These cover everything returned, iterated or not. But inside an iteration they end after the
        record in hand, and after an iteration that was left they end before that record.
        """
        iteration = self._iteration()
        is_inside = iteration is not None and iteration.is_alive
        left = self._left(counts_in_hand=is_inside) or {}
        consumed: Offsets = {}
        for assigned in self._subscription:
            if not assigned.has_offset:
                continue
            offset = position_of(assigned)
            if self._in_loop is assigned and self._loop is not None and not is_alive(self._loop):
                offset = self._before_position(assigned)
            elif assigned in left:
                offset = min(left[assigned], offset, key=_offset)
            offset = _with_finished(assigned, offset, self._finished)
            consumed[assigned.partition] = self._in_outer(assigned, offset, is_call=True)
        return consumed

    def go_back(self, loop: Loop | None = None, *, ends: bool = False) -> None:
        """Move positions back to unprocessed records, if an iteration was left.

        An iteration under way in this thread becomes an outer one; with `ends` it counts as left.
        `loop` is taking its next record, so it was not left. The call may be interrupted, and
        repeated.
        """
        last = self._last(loop)
        if last is None and not self._outer:
            return
        under_way: list[OuterBatch | OuterLoop] = []
        moved: list[AssignedPartition] = []
        for each in (*self._outer, last):
            if each is None or each.is_over(loop):
                continue
            left = each.left(counts_record_in_hand=False)
            if each.is_alive and not ends:
                under_way.append(each)
                continue
            moved += [
                assigned
                for assigned, first in left.items()
                if self._move_back(assigned, _with_finished(assigned, first, each.finished))
            ]
        for each in under_way:
            each.come_again(moved)
        if moved:
            self._log_again({assigned: assigned.offset for assigned in moved})
        self._outer = under_way
        if last is not None:
            self.clear()

    def _log_again(self, places: dict[AssignedPartition, int]) -> None:
        self._again_count = self._again_count + 1 if places == self._again else 1
        self._again = places
        partitions = describe_partitions(assigned.partition for assigned in places)
        if not self._has_logged:
            self._has_logged = True
            self._log.info(
                "a loop over records was left before its end: the record in hand and the rest are "
                "not committed, and are returned again (%s; this is logged once). Commit inside "
                "the loop if the record in hand was processed",
                partitions,
            )
        if self._again_count == AGAIN_COUNT_WARNED:
            self._log.warning(
                "a loop over records was left %d times with the same record in hand, which is "
                "returned again each time, and nothing after it is processed (%s, offset %d). If "
                "it was processed, commit it before the loop is left: `return record`, "
                "next(iter(records)), islice and zip leave a loop, too. records[0] does not",
                self._again_count,
                partitions,
                next(iter(places.values())),
            )

    def _move_back(self, assigned: AssignedPartition, first: OffsetAndMetadata) -> bool:
        """Move a position back for the next poll; return whether it moved.

        A position is never moved ahead. Unassigned partitions stay as they are.
        """
        if not assigned.is_assigned or not assigned.has_offset or _is_in_another_log(assigned):
            return False
        if self.stored is not None:
            self.stored.update()
            first = self.stored.first_missing(assigned, first)
        if first.offset >= assigned.offset:
            return False
        self._drop(assigned)
        if self.stored is not None:
            self.stored.forget(assigned, from_offset=first.offset)
        assigned.offset = first.offset
        # A position under validation needs a leader epoch.
        if first.leader_epoch is not None or assigned.has_position:
            assigned.leader_epoch = first.leader_epoch
        return True

    def _iteration(self) -> Iteration | None:
        """Return the last iteration of the last batch, if it has not ended."""
        iteration = None if self._progress is None else self._progress.iteration
        return None if iteration is None or iteration.is_ended else iteration

    def _left(self, *, counts_in_hand: bool) -> dict[AssignedPartition, OffsetAndMetadata] | None:
        """Return each partition's first record that an iteration has left; None without one."""
        iteration = self._iteration()
        if iteration is None:
            return None
        return left_in(self._starts, iteration, counts_record_in_hand=counts_in_hand)

    def _last(self, loop: Loop | None) -> OuterBatch | OuterLoop | None:
        """Return the last batch, if its iteration is under way in this thread, or was left."""
        iteration = self._iteration()
        if iteration is not None and iteration.is_left:
            return OuterBatch(self._starts, iteration, self._finished)
        assigned = self._in_loop
        if assigned is None or self._loop is None or (loop is not None and self._loop() is loop):
            return None
        return OuterLoop(self._loop, assigned, self._before_position(assigned), self._finished)

    def _processed(
        self,
        assigned: AssignedPartition,
        left: Mapping[AssignedPartition, OffsetAndMetadata] | None,
    ) -> OffsetAndMetadata:
        first = position_of(assigned)
        returned = self._returned.get(assigned)
        if returned is not None and returned.epoch == assigned.epoch:
            if self._in_loop is assigned:
                place = self._before_position(assigned)
            elif left is None:
                place = OffsetAndMetadata(returned.first_offset, leader_epoch=returned.leader_epoch)
            else:
                place = left.get(assigned, first)
            first = _with_finished(assigned, min(place, first, key=_offset), self._finished)
        return self._in_outer(assigned, first)

    def _in_outer(
        self, assigned: AssignedPartition, first: OffsetAndMetadata, *, is_call: bool = False
    ) -> OffsetAndMetadata:
        """Return `first`, or the first record that an outer iteration has not processed.

        For a call of the application the record in hand counts as processed.
        """
        for outer in self._outer:
            if outer.is_over(None):
                continue
            left = outer.left(counts_record_in_hand=is_call and outer.is_alive)
            if assigned in left:
                place = _with_finished(assigned, left[assigned], outer.finished)
                first = min(place, first, key=_offset)
        return first

    def _before_position(self, assigned: AssignedPartition) -> OffsetAndMetadata:
        """Return the record that a loop over the consumer has in hand."""
        returned = self._returned.get(assigned)
        if returned is None or returned.epoch != assigned.epoch:
            return position_of(assigned)
        offset = assigned.offset - 1
        if offset <= returned.first_offset:
            return OffsetAndMetadata(returned.first_offset, leader_epoch=returned.leader_epoch)
        return OffsetAndMetadata(offset, leader_epoch=assigned.leader_epoch)


def _with_finished(
    assigned: AssignedPartition,
    first: OffsetAndMetadata,
    finished: Mapping[AssignedPartition, OffsetAndMetadata],
) -> OffsetAndMetadata:
    """Return `first`, or the offset up to which the application has committed since."""
    place = finished.get(assigned)
    if place is None or place.offset <= first.offset:
        return first
    if place.offset >= assigned.offset:
        return position_of(assigned)
    return OffsetAndMetadata(place.offset, leader_epoch=place.leader_epoch)


def _offset(each: OffsetAndMetadata) -> int:
    return each.offset


def _is_in_another_log(assigned: AssignedPartition) -> bool:
    """Return True if the topic was recreated: the position is in another log than the records."""
    ids = (assigned.returned_id, assigned.topic_id)
    return NO_TOPIC_ID not in ids and ids[0] != ids[1]


def _returned(assigned: AssignedPartition, first_offset: int) -> _Returned:
    is_at_first = assigned.offset <= first_offset
    leader_epoch = assigned.leader_epoch if is_at_first else None
    return _Returned(first_offset, leader_epoch, assigned.epoch)


def position_of(assigned: AssignedPartition) -> OffsetAndMetadata:
    """Return a partition's position, for a commit. It must have one."""
    return OffsetAndMetadata(assigned.offset, leader_epoch=assigned.leader_epoch)
