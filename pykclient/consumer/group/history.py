"""GroupHistory: the latest rebalances of one consumer, for people to read.

A rebalance is *open* until this consumer has its partitions, or it fails.

Owner: the core lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pykclient.consumer.subscription import describe_partitions
from pykclient.types import NO_GENERATION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.types import GroupMetadata, TopicPartition

REBALANCES_MAX: Final = 100
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LEAVING: Final = "this consumer leaves"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance as this consumer saw it.

    `duration_ms` is None while it is running. `assigned`, `revoked` and `lost` are the partitions
    that the listener is called with. `error` is the reason if it failed. `protocol` is the group's,
    `classic` or `consumer`, and empty until this consumer has joined.
    """

    started_at: datetime
    reason: str
    duration_ms: int | None = None
    generation: int = NO_GENERATION
    member_id: str = ""
    assignor: str = ""
    protocol: str = ""
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


class GroupHistory:
    """The latest rebalances of one consumer; `started_at` counts from `EPOCH` by its clock."""

    def __init__(self) -> None:
        self._rebalances: deque[Rebalance] = deque(maxlen=REBALANCES_MAX)

    def begin(self, reason: str, now_ms: int) -> None:
        """Open a rebalance; it replaces one that is open."""
        if self._is_open:
            self.fail("replaced by the next one", now_ms)
        self._rebalances.append(Rebalance(EPOCH + timedelta(milliseconds=now_ms), reason))

    def begin_once(self, reason: str, now_ms: int) -> None:
        if not self._is_open:
            self.begin(reason, now_ms)

    def note_generation(self, member: GroupMetadata, assignor: str, protocol: str) -> None:
        if self._is_open:
            self._change(
                generation=member.generation,
                member_id=member.member_id,
                assignor=assignor,
                protocol=protocol,
            )

    def note_assigned(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        self.begin_once(LEAVING, now_ms)
        self._change(assigned=(*self._rebalances[-1].assigned, *partitions))

    def note_revoked(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        self.begin_once(LEAVING, now_ms)
        self._change(revoked=(*self._rebalances[-1].revoked, *partitions))

    def note_lost(self, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        self.begin_once(LEAVING, now_ms)
        self._change(lost=(*self._rebalances[-1].lost, *partitions))

    def end(self, now_ms: int) -> None:
        """Close the open rebalance as completed."""
        if self._is_open:
            took = EPOCH + timedelta(milliseconds=now_ms) - self._rebalances[-1].started_at
            self._change(duration_ms=took // timedelta(milliseconds=1))

    def fail(self, error: str, now_ms: int) -> None:
        """Close the open rebalance as failed, or record a failure outside of one."""
        self.begin_once(error, now_ms)
        self._change(error=error)
        self.end(now_ms)

    def rebalances(self, now_ms: int, now: datetime) -> tuple[Rebalance, ...]:
        """Return the rebalances, oldest first. `now` is the wall-clock time at `now_ms`."""
        shift = now - timedelta(milliseconds=now_ms) - EPOCH
        return tuple(replace(each, started_at=each.started_at + shift) for each in self._rebalances)

    @property
    def _is_open(self) -> bool:
        return bool(self._rebalances) and self._rebalances[-1].duration_ms is None

    def _change(self, **changes: Any) -> None:
        self._rebalances[-1] = replace(self._rebalances[-1], **changes)
