"""GroupHistory: the rebalances of one consumer, to be read by people.

It keeps the last ones. A rebalance is *open* from the moment in which it begins to concern this
consumer, until it has its partitions, or fails.

Owner: the core lock.
Source: the log lines of Java's ``ConsumerCoordinator``, as data.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pykclient.consumer.group.metadata import NO_GENERATION
from pykclient.consumer.subscription import describe_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from pykclient.consumer.group.metadata import GroupMetadata
    from pykclient.types import TopicPartition

__all__ = ["GroupHistory", "Rebalance"]

REBALANCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance as this consumer saw it.

    `duration_ms` is None while it goes on. `assigned`, `revoked` and `lost` are what the listener
    is called with; `error` says why it came to nothing, None if it did not.
    """

    started_at: datetime
    reason: str
    duration_ms: int | None = None
    generation: int = NO_GENERATION
    member_id: str = ""
    assignor: str = ""
    assigned: tuple[TopicPartition, ...] = ()
    revoked: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        """Return one line for a log or a terminal."""
        moves = [
            f"{verb} {describe_partitions(partitions)}"
            for verb, partitions in (
                ("revoked", self.revoked),
                ("lost", self.lost),
                ("assigned", self.assigned),
            )
            if partitions
        ]
        ended = "goes on" if self.duration_ms is None else f"took {self.duration_ms} ms"
        if self.error is not None:
            ended = f"{ended}, failed: {self.error}"
        generation = "" if self.generation == NO_GENERATION else f" generation {self.generation}"
        time = self.started_at.isoformat(timespec="milliseconds")
        return f"{time}{generation}: {self.reason}; {', '.join(moves) or 'no move'}; {ended}"


@dataclass(slots=True)
class _Entry:
    """A rebalance by the monotonic clock."""

    started_ms: int
    reason: str
    ended_ms: int | None = None
    member: GroupMetadata | None = None
    assignor: str = ""
    assigned: tuple[TopicPartition, ...] = ()
    revoked: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    error: str | None = None


class GroupHistory:
    """The last rebalances of one consumer."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque(maxlen=REBALANCES_MAX)

    def begin(self, reason: str, now_ms: int) -> None:
        """Open a rebalance; one that is open was overtaken by this one."""
        if self._is_open:
            self.fail("overtaken by the next one", now_ms)
        self._entries.append(_Entry(now_ms, reason))

    def begin_once(self, reason: str, now_ms: int) -> None:
        """Open a rebalance, unless one is open."""
        if not self._is_open:
            self.begin(reason, now_ms)

    def note_generation(self, member: GroupMetadata, assignor: str) -> None:
        """Note the member of the open rebalance, and what assigns."""
        if self._is_open:
            self._entries[-1].member, self._entries[-1].assignor = member, assignor

    def note_assigned(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Note what came."""
        self._entry(now_ms).assigned += tuple(partitions)

    def note_revoked(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Note what was given up."""
        self._entry(now_ms).revoked += tuple(partitions)

    def note_lost(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Note what was taken away."""
        self._entry(now_ms).lost += tuple(partitions)

    def end(self, now_ms: int) -> None:
        """Close the open rebalance, which came to its end."""
        if self._is_open:
            self._entries[-1].ended_ms = now_ms

    def fail(self, error: str, now_ms: int) -> None:
        """Close the open rebalance, which came to nothing; or note what happened outside one."""
        entry = self._entry(now_ms, error)
        entry.error, entry.ended_ms = error, now_ms

    def rebalances(self, now_ms: int, now: datetime) -> tuple[Rebalance, ...]:
        """Return them, the oldest first. `now` is the time for people at `now_ms`."""
        return tuple(_told(entry, now - timedelta(milliseconds=now_ms)) for entry in self._entries)

    @property
    def _is_open(self) -> bool:
        return bool(self._entries) and self._entries[-1].ended_ms is None

    def _entry(self, now_ms: int, reason: str = "this consumer leaves") -> _Entry:
        if not self._is_open:
            self._entries.append(_Entry(now_ms, reason))
        return self._entries[-1]


def _told(entry: _Entry, epoch: datetime) -> Rebalance:
    member = entry.member
    return Rebalance(
        started_at=epoch + timedelta(milliseconds=entry.started_ms),
        reason=entry.reason,
        duration_ms=None if entry.ended_ms is None else entry.ended_ms - entry.started_ms,
        generation=NO_GENERATION if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        assignor=entry.assignor,
        assigned=entry.assigned,
        revoked=entry.revoked,
        lost=entry.lost,
        error=entry.error,
    )
