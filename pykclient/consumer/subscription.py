"""SubscriptionState: which partitions the consumer has, and where it stands in each.

A partition's position is *initializing* (nothing known), *awaiting reset* (a broker is to be asked
where to begin) or *fetching* (the offset of the next record is known). A partition may be paused
in any of them. It asks no broker: `PositionManager` does, and `Fetcher` reads.

Owner: the core lock, which is the thread guard's while there are no groups; under asyncio the loop.
Source: Java class ``SubscriptionState``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pykclient.errors import KafkaError
    from pykclient.types import TopicPartition

__all__ = ["NEXT", "AssignedPartition", "OffsetReset", "PositionState", "SubscriptionState"]


class PositionState(Enum):
    """How much is known about where a partition is to be read."""

    INITIALIZING = "initializing"
    AWAITING_RESET = "awaiting_reset"
    FETCHING = "fetching"


NEXT: Final[dict[PositionState, frozenset[PositionState]]] = {
    PositionState.INITIALIZING: frozenset({PositionState.AWAITING_RESET, PositionState.FETCHING}),
    PositionState.AWAITING_RESET: frozenset({PositionState.AWAITING_RESET, PositionState.FETCHING}),
    PositionState.FETCHING: frozenset({PositionState.AWAITING_RESET, PositionState.FETCHING}),
}


class OffsetReset(Enum):
    """Where a partition without a usable position is read from; the values of auto_offset_reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class AssignedPartition:
    """One assigned partition. Compares and hashes by identity.

    An answer that was asked for before a seek or an unassign belongs to another `epoch`, or to
    another object: it must not be used. Only `SubscriptionState` changes the state; the buffer and
    the fetcher move `offset` and note what answers tell about the log.
    """

    __slots__ = (
        "epoch",
        "failure_count",
        "high_watermark",
        "is_assigned",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "limit",
        "log_start_offset",
        "lost_offset",
        "offset",
        "partition",
        "read_replica_expires_ms",
        "read_replica_id",
        "reset_to",
        "retry_at_ms",
        "state",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.state = PositionState.INITIALIZING
        self.is_assigned = True
        self.is_paused = False
        self.epoch = 0
        """Counts seeks and resets."""
        self.offset = 0
        """Of the next record to hand out. Means something in state FETCHING only."""
        self.leader_epoch: int | None = None
        """The leader epoch of the record before `offset` (KIP-320); None if not known."""
        self.reset_to: OffsetReset | None = None
        self.lost_offset: int | None = None
        """The position that turned out to be outside the log, while its reset is under way."""
        self.limit: int | None = None
        """Records from this offset on are not wanted at present; None = all are."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.read_replica_id: int | None = None
        """The replica that the leader told us to read from (KIP-392); None = the leader."""
        self.read_replica_expires_ms = 0
        self.retry_at_ms = 0
        self.failure_count = 0

    @property
    def has_position(self) -> bool:
        """Whether `offset` means something."""
        return self.state is PositionState.FETCHING

    @property
    def is_fetching(self) -> bool:
        """Whether it is assigned, has a position and is not paused."""
        return self.state is PositionState.FETCHING and self.is_assigned and not self.is_paused

    @property
    def has_reached_limit(self) -> bool:
        """Whether no further record is wanted at present."""
        return (
            self.limit is not None
            and self.state is PositionState.FETCHING
            and self.offset >= self.limit
        )

    def __repr__(self) -> str:
        return f"<{self.partition} {self.state.value} {self.offset}>"


class SubscriptionState:
    """The assignment, in the order given, with a position each."""

    def __init__(self) -> None:
        self.version = 0
        """Grows whenever another set of partitions may be fetched."""
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self._without_position: dict[AssignedPartition, None] = {}
        self._limits: Mapping[TopicPartition, int] | None = {}
        """What `set_limits` was given last; None when it does not hold for the assignment."""
        self._errors: dict[AssignedPartition, KafkaError] = {}

    def __len__(self) -> int:
        return len(self._assigned)

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._assigned.values())

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is assigned."""
        return frozenset(self._assigned)

    @property
    def topics(self) -> frozenset[str]:
        """The topics of what is assigned."""
        return frozenset(partition.topic for partition in self._assigned)

    @property
    def without_position(self) -> tuple[AssignedPartition, ...]:
        """The partitions that cannot be read before they get a position."""
        return tuple(self._without_position)

    def find(self, partition: TopicPartition) -> AssignedPartition | None:
        """Return an assigned partition, or None."""
        return self._assigned.get(partition)

    def require(self, partition: TopicPartition) -> AssignedPartition:
        """Return an assigned partition.

        Raises:
            UsageError: it is not assigned.
        """
        assigned = self._assigned.get(partition)
        if assigned is None:
            raise UsageError(
                f"{partition} is not assigned to this consumer; call assign() with it first"
            )
        return assigned

    def require_all(self, partitions: Iterable[TopicPartition] | None) -> list[AssignedPartition]:
        """Return assigned partitions, all of them for None. Raises `UsageError` as `require`."""
        if partitions is None:
            return list(self._assigned.values())
        return [self.require(partition) for partition in partitions]

    def assign(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Replace the assignment; return what was dropped.

        A partition that stays keeps its position.
        """
        wanted = dict.fromkeys(partitions)
        dropped = [a for partition, a in self._assigned.items() if partition not in wanted]
        for assigned in dropped:
            assigned.is_assigned = False
            self._without_position.pop(assigned, None)
            self._errors.pop(assigned, None)
        before = self._assigned
        self._assigned = {p: before.get(p) or AssignedPartition(p) for p in wanted}
        for partition, assigned in self._assigned.items():
            if partition not in before:
                self._without_position[assigned] = None
        self._limits = None
        self.version += 1
        return dropped

    def set_limits(self, limits: Mapping[TopicPartition, int]) -> list[AssignedPartition]:
        """Replace all limits; return the partitions whose limit is another one now.

        Raises:
            UsageError: a limit is for a partition that is not assigned.
        """
        if limits == self._limits:
            return []  # as in nearly every poll, which must not cost more with more partitions
        for partition in limits:
            self.require(partition)
        self._limits = dict(limits)
        changed = []
        for partition, assigned in self._assigned.items():
            limit = limits.get(partition)
            if assigned.limit != limit:
                assigned.limit = limit
                changed.append(assigned)
        if changed:
            self.version += 1
        return changed

    # Positions.

    def seek(
        self, assigned: AssignedPartition, offset: int, leader_epoch: int | None = None
    ) -> None:
        """Take a position from the user. Answers asked for before are void."""
        self._begin_epoch(assigned)
        self._to_fetching(assigned, offset, leader_epoch)

    def skip_to(self, assigned: AssignedPartition, offset: int) -> None:
        """Move a position ahead. Answers asked for before stay good."""
        assert assigned.state is PositionState.FETCHING, assigned
        assigned.offset = offset
        self._errors.pop(assigned, None)

    def await_reset(self, assigned: AssignedPartition, reset_to: OffsetReset) -> None:
        """Have a broker asked for the position. Answers asked for before are void."""
        self._begin_epoch(assigned)
        self._to(assigned, PositionState.AWAITING_RESET)
        assigned.reset_to = reset_to
        self._without_position[assigned] = None

    def lose_position(self, assigned: AssignedPartition, reset_to: OffsetReset) -> None:
        """Have a position replaced that is outside the log; remember it for the report."""
        lost_offset = assigned.offset
        self.await_reset(assigned, reset_to)
        assigned.lost_offset = lost_offset

    def complete_reset(
        self, assigned: AssignedPartition, offset: int, leader_epoch: int | None
    ) -> None:
        """Take a position from a broker. Requires that the partition awaits it."""
        assert assigned.state is PositionState.AWAITING_RESET, assigned
        self._to_fetching(assigned, offset, leader_epoch)

    def pause(self, assigned: AssignedPartition) -> None:
        """Stop handing out records of a partition. Its position stays."""
        assigned.is_paused = True
        self.version += 1

    def resume(self, assigned: AssignedPartition) -> None:
        """Undo `pause`."""
        assigned.is_paused = False
        self.version += 1

    # Errors for the user.

    def fail(self, assigned: AssignedPartition, error: KafkaError) -> None:
        """Have an error raised to the user. A later one of the same partition replaces it."""
        if assigned.is_assigned:
            self._errors[assigned] = error

    def take_error(self) -> KafkaError | None:
        """Return the oldest error that the user has not seen, and forget it; None if none."""
        if not self._errors:
            return None
        return self._errors.pop(next(iter(self._errors)))

    def error_of(self, assigned: AssignedPartition) -> KafkaError | None:
        """Return the error of one partition that the user has not seen; None if none."""
        return self._errors.get(assigned)

    def take_error_of(self, assigned: AssignedPartition) -> KafkaError:
        """Return the error of a partition that has one, and forget it."""
        return self._errors.pop(assigned)

    @property
    def has_error(self) -> bool:
        """Whether `take_error` would return one."""
        return bool(self._errors)

    def _begin_epoch(self, assigned: AssignedPartition) -> None:
        assigned.epoch += 1
        assigned.lost_offset = None
        assigned.read_replica_id = None
        assigned.retry_at_ms = 0
        assigned.failure_count = 0
        self._errors.pop(assigned, None)

    def _to_fetching(
        self, assigned: AssignedPartition, offset: int, leader_epoch: int | None
    ) -> None:
        self._to(assigned, PositionState.FETCHING)
        assigned.offset = offset
        assigned.leader_epoch = leader_epoch
        assigned.reset_to = None
        assigned.lost_offset = None
        self._without_position.pop(assigned, None)

    def _to(self, assigned: AssignedPartition, state: PositionState) -> None:
        assert state in NEXT[assigned.state], f"{assigned}: {assigned.state} -> {state}"
        assigned.state = state
        self.version += 1
