"""OuterBatch, OuterLoop: iterations inside of which a later poll has begun.

An application polls inside a loop to stay a member of its group during long work (`pause`,
`poll(0)`, `resume`), or to read other partitions meanwhile. The loop continues after that poll.
While its iterator is alive, the record in hand and the rest are neither processed nor returned
again. When it has ended they are processed; if it is dropped before, positions go back.

Owner: the core lock.
Source: our own; ``docs/decisions/0024-left-in-the-middle-of-a-batch.md``.
"""

from __future__ import annotations

from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING

from pykclient.types import OffsetAndMetadata

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from weakref import ref

    from pykclient.consumer.fetch.buffer import Start
    from pykclient.consumer.iteration import Iteration
    from pykclient.consumer.subscription import AssignedPartition

    Places = dict[AssignedPartition, OffsetAndMetadata]


class Loop:
    """A loop over the consumer itself. Its generator holds it."""

    __slots__ = ("__weakref__", "source")

    def __init__(self) -> None:
        self.source: ref[Generator[object, None, None]] | None = None
        """The generator; None before it exists."""

    @property
    def is_alive(self) -> bool:
        """True if the application holds the generator, and it has not ended.

        The traceback of an error that ended it may hold its frame, and so this loop.
        """
        generator = None if self.source is None else self.source()
        return generator is not None and getgeneratorstate(generator) != GEN_CLOSED


class OuterBatch:
    """An iteration over a result of `poll`; the batch began at `starts`."""

    def __init__(
        self, starts: Mapping[AssignedPartition, Start], iteration: Iteration, finished: Places
    ) -> None:
        self.iteration = iteration
        self.finished = finished
        """Offsets that the application has committed since the batch was returned."""
        self._starts = dict(starts)

    def is_over(self, loop: Loop | None) -> bool:
        """Return True if all its records are processed."""
        return self.iteration.is_ended or not self._starts

    @property
    def is_alive(self) -> bool:
        return self.iteration.is_alive

    def left(self, *, counts_record_in_hand: bool) -> Places:
        """Return the first unprocessed record of each partition."""
        left = left_in(self._starts, self.iteration, counts_record_in_hand=counts_record_in_hand)
        return {
            assigned: place
            for assigned, place in left.items()
            if self._starts[assigned].epoch == assigned.epoch
        }

    def forget(self, assigned: AssignedPartition) -> None:
        self._starts.pop(assigned, None)

    def come_again(self, moved: Iterable[AssignedPartition]) -> None:
        """Drop partitions whose positions went back: their records are returned again anyway."""
        left = self.left(counts_record_in_hand=False)
        for assigned in moved:
            if assigned in left and left[assigned].offset >= assigned.offset:
                self.forget(assigned)

    def pass_over(self, assigned: AssignedPartition) -> None:
        """Handle a later poll that returns records of a partition; no effect here."""


class OuterLoop:
    """A loop over the consumer itself, with a record of one partition in hand.

    That is the record before the position, until a later poll has moved the position past it.
    """

    def __init__(
        self,
        loop: ref[Loop],
        assigned: AssignedPartition,
        in_hand: OffsetAndMetadata,
        finished: Places,
    ) -> None:
        self.loop = loop
        self.finished = finished
        self._in_hand = in_hand
        self._epoch = assigned.epoch
        self._assigned: AssignedPartition | None = assigned
        """None if the user has set the position since."""
        self._follows = True

    def is_over(self, loop: Loop | None) -> bool:
        """Return True if the record in hand is processed; `loop` is taking its next one."""
        return self._assigned is None or (loop is not None and self.loop() is loop)

    @property
    def is_alive(self) -> bool:
        return is_alive(self.loop)

    def left(self, *, counts_record_in_hand: bool) -> Places:
        assigned = self._assigned
        if assigned is None or assigned.epoch != self._epoch:
            return {}
        if self._follows and assigned.offset - 1 > self._in_hand.offset:
            offset = assigned.offset - 1
            self._in_hand = OffsetAndMetadata(offset, leader_epoch=assigned.leader_epoch)
        if counts_record_in_hand:
            return {assigned: OffsetAndMetadata(self._in_hand.offset + 1)}
        return {assigned: self._in_hand}

    def forget(self, assigned: AssignedPartition) -> None:
        if assigned is self._assigned:
            self._assigned = None

    def come_again(self, moved: Iterable[AssignedPartition]) -> None:
        for assigned in moved:
            if self._in_hand.offset >= assigned.offset:
                self.forget(assigned)

    def pass_over(self, assigned: AssignedPartition) -> None:
        if assigned is self._assigned:
            self._follows = False


def is_alive(loop: ref[Loop]) -> bool:
    """Return True if a loop may take more records."""
    found = loop()
    return found is not None and found.is_alive


def left_in(
    starts: Mapping[AssignedPartition, Start], iteration: Iteration, *, counts_record_in_hand: bool
) -> Places:
    """Return the first record of each partition of a batch that an iteration has left."""
    left: Places = {}
    found = iteration.left(counts_record_in_hand=counts_record_in_hand)
    for assigned, start in starts.items():
        if assigned.partition in found:
            first = found[assigned.partition]
            # An interceptor may have inserted a record from before the batch.
            if first is None or first.offset <= start.offset:
                first = OffsetAndMetadata(start.offset, leader_epoch=start.leader_epoch)
            left[assigned] = first
    return left
