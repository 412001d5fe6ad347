"""SubscriptionState: the subscription, the assignment, and each partition's position.

A position is *initializing* (unknown), *awaiting reset* (a broker must tell where to begin),
*fetching* (the offset of the next record is known) or *awaiting validation* (a new leader must
tell whether its log still has the records that were read). A partition may be paused or held in
any of these states. This class sends no requests: `PositionManager` and `PositionValidator` do, and
`Fetcher` reads.

Owner: the core lock.
Source: Java class ``SubscriptionState``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from pykclient.errors import UsageError
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.types import IsolationLevel

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping

    from pykclient.errors import KafkaError
    from pykclient.network.cluster.cluster import Cluster
    from pykclient.network.retry import Backoff
    from pykclient.types import TopicPartition


class SubscriptionMode(Enum):
    """Origin of the assignment: none yet, the group (by topics or a pattern), or `assign`."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    BROKER_PATTERN = "broker_pattern"
    """A pattern that brokers match (KIP-848)."""
    ASSIGNED = "assigned"


PATTERN_MODES: Final = frozenset({SubscriptionMode.PATTERN, SubscriptionMode.BROKER_PATTERN})
GROUP_MODES: Final = PATTERN_MODES | {SubscriptionMode.TOPICS}

PARTITIONS_SHOWN_MAX: Final = 8


class PositionState(Enum):
    """State of a partition's position."""

    INITIALIZING = "initializing"
    AWAITING_RESET = "awaiting_reset"
    AWAITING_VALIDATION = "awaiting_validation"
    FETCHING = "fetching"


NEXT: Final[dict[PositionState, frozenset[PositionState]]] = {
    PositionState.INITIALIZING: frozenset({PositionState.AWAITING_RESET, PositionState.FETCHING}),
    PositionState.AWAITING_RESET: frozenset({PositionState.AWAITING_RESET, PositionState.FETCHING}),
    PositionState.FETCHING: frozenset(
        {
            PositionState.AWAITING_RESET,
            PositionState.AWAITING_VALIDATION,
            PositionState.FETCHING,
        }
    ),
    PositionState.AWAITING_VALIDATION: frozenset(
        {PositionState.AWAITING_RESET, PositionState.FETCHING}
    ),
}

UNCHECKED: Final = -1
"""Stands for no leader epoch: a position with its own leader epoch is validated first."""


class OffsetReset(Enum):
    """Policy for a partition without a usable position; the values of auto_offset_reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"
    NONE = "none"


class AssignedPartition:
    """One assigned partition. Compares and hashes by identity.

    A response requested before a seek or an unassignment belongs to another `epoch`, or to another
    object, and must not be used. Only `SubscriptionState` changes the state. The buffer and the
    fetcher move `offset`, and note what responses report about the log.
    """

    __slots__ = (
        "committed_offset",
        "epoch",
        "failure_count",
        "fetch_epoch",
        "high_watermark",
        "is_assigned",
        "is_held",
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
        "returned_id",
        "skip_count",
        "state",
        "topic_id",
        "validated_epoch",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.state = PositionState.INITIALIZING
        self.is_assigned = True
        self.is_paused = False
        self.is_held = False
        """True if it is about to be revoked: no more records are returned."""
        self.epoch = 0
        """Number of seeks and resets."""
        self.skip_count = 0
        """Number of moves ahead within fetched data, which keep responses valid."""
        self.fetch_epoch = 0
        """Number of changes that make Fetch responses invalid: seeks, resets, validations."""
        self.offset = 0
        """Offset of the next record to return. Valid if `has_offset` is true."""
        self.leader_epoch: int | None = None
        """Leader epoch of the record before `offset` (KIP-320); None if unknown."""
        self.validated_epoch: int | None = None
        """Epoch of the leader whose log has the position; None for the leader when it is first
        checked."""
        self.topic_id = NO_TOPIC_ID
        """Id of the topic whose log has the position; zeros while it is unknown."""
        self.returned_id = NO_TOPIC_ID
        """Id of the topic whose records were returned last; zeros since the user's last seek."""
        self.committed_offset: int | None = None
        """Offset that this consumer has committed, or begun at, last; None if unknown."""
        self.reset_to: OffsetReset | None = None
        self.lost_offset: int | None = None
        """The position that was out of range, while its reset is under way."""
        self.limit: int | None = None
        """Offset up to which records are wanted at present, exclusive; None for all."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.read_replica_id: int | None = None
        """Replica that the leader named for reading (KIP-392); None for the leader."""
        self.read_replica_expires_ms = 0
        self.retry_at_ms = 0
        self.failure_count = 0

    @property
    def has_position(self) -> bool:
        """True if `offset` is known to be in the log."""
        return self.state is PositionState.FETCHING

    @property
    def has_offset(self) -> bool:
        """True if `offset` is valid, though a new leader may not have confirmed it yet."""
        return self.has_position or self.state is PositionState.AWAITING_VALIDATION

    @property
    def is_fetching(self) -> bool:
        """True if it is assigned, has a position, and is neither paused nor held."""
        return (
            self.state is PositionState.FETCHING
            and self.is_assigned
            and not self.is_paused
            and not self.is_held
        )

    @property
    def moves(self) -> tuple[int, int]:
        """Numbers that differ once the position was set, if only to where it was."""
        return self.epoch, self.skip_count

    @property
    def lead(self) -> int | None:
        """Number of offsets from the log's start to the position; None if unknown."""
        if self.log_start_offset is None or not self.has_offset:
            return None
        return max(0, self.offset - self.log_start_offset)

    def end(self, isolation_level: IsolationLevel) -> int | None:
        """Return the end of the log for a reader, as last reported; None if unknown."""
        is_committed = isolation_level is IsolationLevel.READ_COMMITTED
        return self.last_stable_offset if is_committed else self.high_watermark

    def lag(self, isolation_level: IsolationLevel) -> int | None:
        """Return the number of offsets from the position to that end; None if unknown."""
        end = self.end(isolation_level)
        return None if end is None or not self.has_offset else max(0, end - self.offset)

    def back_off(self, backoff: Backoff, now_ms: int) -> None:
        """Delay requests for it; the delay grows with each failure in a row."""
        self.retry_at_ms = now_ms + backoff.delay_ms(self.failure_count)
        self.failure_count += 1

    @property
    def has_reached_limit(self) -> bool:
        """True if no further records are wanted at present."""
        return (
            self.limit is not None
            and self.state is PositionState.FETCHING
            and self.offset >= self.limit
        )

    def __repr__(self) -> str:
        return f"<{self.partition} {self.state.value} {self.offset}>"


class SubscriptionState:
    """The subscription, and the assigned partitions with their positions, in the given order."""

    def __init__(self) -> None:
        self.mode = SubscriptionMode.NONE
        self.wanted_topics: frozenset[str] = frozenset()
        """Subscribed topics; for a pattern those that it matches so far."""
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern: str | None = None
        self.version = 0
        """Grows whenever the set of partitions that may be fetched changes, or a user seeks."""
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self._without_position: dict[AssignedPartition, None] = {}
        self._unvalidated: dict[AssignedPartition, None] = {}
        self._sought: dict[AssignedPartition, int] = {}
        """See `sought`."""
        self._limits: Mapping[TopicPartition, int] | None = {}
        """Last argument of `set_limits`; None if the assignment has changed since."""
        self._errors: dict[AssignedPartition, KafkaError] = {}

    def __len__(self) -> int:
        return len(self._assigned)

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._assigned.values())

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(partition.topic for partition in self._assigned)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """Subscribed topics; for a broker pattern those that the client knows."""
        is_matched_elsewhere = self.mode is SubscriptionMode.BROKER_PATTERN
        return self.topics if is_matched_elsewhere else self.wanted_topics

    @property
    def without_position(self) -> tuple[AssignedPartition, ...]:
        """Partitions that cannot be read before they get a position."""
        return tuple(self._without_position)

    @property
    def awaiting_validation(self) -> tuple[AssignedPartition, ...]:
        """Partitions to be validated with new leaders."""
        return tuple(self._unvalidated)

    @property
    def sought(self) -> Mapping[AssignedPartition, int]:
        """Partitions that the user has assigned or sought in, and that no broker has served since.

        The number is the version of the cluster at that time: the user may know of a topic that is
        newer.
        """
        return self._sought

    @property
    def is_by_pattern(self) -> bool:
        """True if topics that are created later may be included."""
        return self.mode in PATTERN_MODES

    @property
    def is_by_group(self) -> bool:
        return self.mode in GROUP_MODES

    def find(self, partition: TopicPartition) -> AssignedPartition | None:
        return self._assigned.get(partition)

    def require(self, partition: TopicPartition) -> AssignedPartition:
        """Return an assigned partition.

        Raises:
            UsageError: it is not assigned.
        """
        assigned = self._assigned.get(partition)
        if assigned is None:
            cure = "call assign() with it first"
            if self.is_by_group:
                cure = "poll until the group has assigned it, or use it in on_assigned"
            raise UsageError(f"{partition} is not assigned to this consumer; {cure}")
        return assigned

    def require_all(self, partitions: Iterable[TopicPartition] | None) -> list[AssignedPartition]:
        """Return assigned partitions, all of them for None. Raises as `require`."""
        if partitions is None:
            return list(self._assigned.values())
        return [self.require(partition) for partition in partitions]

    # Subscribing.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics instead of the previous ones."""
        self._choose(SubscriptionMode.TOPICS)
        self.wanted_topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to topics whose whole names match, instead of the previous ones."""
        self._choose(SubscriptionMode.PATTERN)
        self.pattern = pattern
        self.wanted_topics = frozenset()

    def subscribe_broker_pattern(self, pattern: str) -> None:
        """Subscribe to topics that brokers match with an RE2 expression."""
        self._choose(SubscriptionMode.BROKER_PATTERN)
        self.broker_pattern = pattern
        self.wanted_topics = frozenset()

    def match(self, cluster: Cluster, *, exclude_internal: bool) -> None:
        """Match the pattern against all topics."""
        assert self.pattern is not None
        self.wanted_topics = frozenset(
            topic.name
            for topic in cluster.topics.values()
            if self.pattern.fullmatch(topic.name) and not (topic.is_internal and exclude_internal)
        )

    def unsubscribe(self) -> list[AssignedPartition]:
        """End the subscription and the assignment; return the dropped partitions."""
        self.mode = SubscriptionMode.NONE
        self.wanted_topics, self.pattern, self.broker_pattern = frozenset(), None, None
        return self.assign_from_group(())

    def _choose(self, mode: SubscriptionMode) -> None:
        if self.mode not in (SubscriptionMode.NONE, mode):
            raise UsageError(
                f"topics, a pattern and partitions exclude each other, and this consumer already "
                f"has {self.mode.value}; call unsubscribe() first"
            )
        self.mode = mode

    # The assignment.

    def assign(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Replace the assignment by the user's; return the dropped partitions.

        A partition that stays keeps its position. An empty assignment leaves the mode open.
        """
        wanted = list(partitions)
        self._choose(SubscriptionMode.ASSIGNED)
        if not wanted:
            self.mode = SubscriptionMode.NONE
        return self.assign_from_group(wanted)

    def hold(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Return no more records of partitions that are about to be revoked; return those."""
        held = [self._assigned[p] for p in partitions if p in self._assigned]
        for assigned in held:
            assigned.is_held = True
        self.version += 1
        return held

    def assign_from_group(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Replace the assignment; return the dropped partitions. Others keep their position."""
        wanted = dict.fromkeys(partitions)
        dropped = [a for partition, a in self._assigned.items() if partition not in wanted]
        for assigned in dropped:
            assigned.is_assigned = False
            self._without_position.pop(assigned, None)
            self._unvalidated.pop(assigned, None)
            self._sought.pop(assigned, None)
            self._errors.pop(assigned, None)
        before = self._assigned
        self._assigned = {p: before.get(p) or AssignedPartition(p) for p in wanted}
        for partition, assigned in self._assigned.items():
            assigned.is_held = False
            if partition not in before:
                self._without_position[assigned] = None
        self._limits = None
        self.version += 1
        return dropped

    def set_limits(self, limits: Mapping[TopicPartition, int]) -> list[AssignedPartition]:
        """Replace all limits; return the partitions whose limit has changed."""
        if limits == self._limits:
            return []  # the case of nearly every poll; its cost must not grow with the partitions
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

    def restart(self) -> None:
        """Repair what an interrupt may have left half done, from the assignment alone."""
        self._limits = None
        self._without_position.clear()
        self._unvalidated.clear()
        for assigned in self._assigned.values():
            assigned.is_assigned = True
            assigned.is_held = False
            assigned.retry_at_ms = 0
            if assigned.state is PositionState.AWAITING_VALIDATION:
                self._unvalidated[assigned] = None
            elif assigned.state is not PositionState.FETCHING:
                self._without_position[assigned] = None
        for failed in [each for each in self._errors if not each.is_assigned]:
            del self._errors[failed]
        for dropped in [each for each in self._sought if not each.is_assigned]:
            del self._sought[dropped]
        self.version += 1

    # Positions.

    def seek(
        self, assigned: AssignedPartition, offset: int, leader_epoch: int | None = None
    ) -> None:
        """Set a known position. Responses requested before become invalid.

        It refers to the topic that has the name now, whatever was read before.
        """
        self._begin_epoch(assigned)
        assigned.topic_id = NO_TOPIC_ID
        self._to_fetching(assigned, offset, leader_epoch)
        assigned.validated_epoch = None if leader_epoch is None else UNCHECKED

    def await_serving(self, assigned: AssignedPartition, cluster_version: int) -> None:
        """Handle an assignment or a seek by the user, at this version of the cluster.

        The user may know about a recreated topic before the metadata do. The position then belongs
        to the topic that a broker serves first.
        """
        assigned.topic_id = NO_TOPIC_ID
        self._sought[assigned] = cluster_version

    def accept_topic(self, assigned: AssignedPartition, topic_id: bytes) -> None:
        """Set the topic of the position that the user has given."""
        assigned.topic_id = topic_id
        del self._sought[assigned]

    def skip_to(self, assigned: AssignedPartition, offset: int) -> None:
        """Move a position ahead. Responses requested before stay valid.

        The leader epoch of the record before the new offset is unknown.
        """
        assert assigned.state is PositionState.FETCHING, assigned
        assigned.skip_count += 1
        self.version += 1
        if offset != assigned.offset:
            # In this order, in case of an interrupt: no offset gets another one's epoch.
            assigned.leader_epoch = None
            assigned.offset = offset
        self._errors.pop(assigned, None)

    def await_reset(self, assigned: AssignedPartition, reset_to: OffsetReset) -> None:
        """Request a lookup of the position. Responses requested before become invalid."""
        self._begin_epoch(assigned)
        assigned.reset_to = reset_to
        self._without_position[assigned] = None
        self._to(assigned, PositionState.AWAITING_RESET)

    def lose_position(self, assigned: AssignedPartition, reset_to: OffsetReset) -> None:
        """Reset a position that is out of range; keep the offset for the report."""
        lost_offset = assigned.offset
        self.await_reset(assigned, reset_to)
        assigned.lost_offset = lost_offset

    def complete_reset(self, assigned: AssignedPartition, offset: int) -> None:
        """Set a position that was looked up. Requires that the partition awaits it.

        It has no leader epoch: a broker reports the epoch of the record at the offset, or its own
        epoch (in which it may never write anything), and not that of the record before.
        """
        assert assigned.state is PositionState.AWAITING_RESET, assigned
        self._to_fetching(assigned, offset, None)
        assigned.validated_epoch = None

    def accept_leader(self, assigned: AssignedPartition, leader_epoch: int) -> None:
        """Continue at a new leader without validation, as the position has no epoch.

        Fetch responses of the former leader become invalid.
        """
        if assigned.validated_epoch is not None:
            self._void_fetches(assigned)
        assigned.validated_epoch = leader_epoch

    def await_validation(self, assigned: AssignedPartition) -> None:
        """Request validation by a new leader. Earlier Fetch responses become invalid."""
        self._void_fetches(assigned)
        self._to(assigned, PositionState.AWAITING_VALIDATION)
        self._unvalidated[assigned] = None

    def complete_validation(
        self, assigned: AssignedPartition, offset: int, leader_epoch: int | None, validated_in: int
    ) -> None:
        """Continue at the position, or at an earlier offset to which the log was truncated.

        `leader_epoch` is that of the record before, `validated_in` that of the new leader.
        """
        assert assigned.state is PositionState.AWAITING_VALIDATION, assigned
        if offset != assigned.offset:
            self._begin_epoch(assigned)
        self._to_fetching(assigned, offset, leader_epoch)
        assigned.validated_epoch = validated_in

    def pause(self, assigned: AssignedPartition) -> None:
        """Return no records of a partition. Its position stays."""
        assigned.is_paused = True
        self.version += 1

    def resume(self, assigned: AssignedPartition) -> None:
        assigned.is_paused = False
        self.version += 1

    # Errors for the user.

    def fail(self, assigned: AssignedPartition, error: KafkaError) -> None:
        """Set an error for the user; it replaces an earlier one of the same partition."""
        if assigned.is_assigned:
            self._errors[assigned] = error

    def take_error(self) -> KafkaError | None:
        """Remove and return the oldest error for the user; None if there is none."""
        if not self._errors:
            return None
        return self._errors.pop(next(iter(self._errors)))

    def error_of(self, assigned: AssignedPartition) -> KafkaError | None:
        """Return the error of one partition for the user; None if there is none."""
        return self._errors.get(assigned)

    def take_error_of(self, assigned: AssignedPartition) -> KafkaError:
        """Remove and return the error of a partition that has one."""
        return self._errors.pop(assigned)

    @property
    def has_error(self) -> bool:
        return bool(self._errors)

    def _begin_epoch(self, assigned: AssignedPartition) -> None:
        assigned.epoch += 1
        assigned.lost_offset = assigned.committed_offset = None
        self._void_fetches(assigned)
        self._errors.pop(assigned, None)

    def _void_fetches(self, assigned: AssignedPartition) -> None:
        assigned.fetch_epoch += 1
        assigned.read_replica_id = None
        assigned.retry_at_ms = 0
        assigned.failure_count = 0

    def _to_fetching(
        self, assigned: AssignedPartition, offset: int, leader_epoch: int | None
    ) -> None:
        # Each prefix of these steps is valid, in case of an interrupt: no offset gets another
        # one's epoch, and a partition has no position before it is the right one.
        assigned.leader_epoch = None
        assigned.offset = offset
        assigned.leader_epoch = leader_epoch
        self._to(assigned, PositionState.FETCHING)
        assigned.reset_to = None
        assigned.lost_offset = None
        self._without_position.pop(assigned, None)

    def _to(self, assigned: AssignedPartition, state: PositionState) -> None:
        assert state in NEXT[assigned.state], f"{assigned}: {assigned.state} -> {state}"
        assigned.state = state
        self._unvalidated.pop(assigned, None)
        self.version += 1


def describe_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for a message: the first few, in order, and how many more."""
    names = sorted(partitions)
    shown = ", ".join(map(str, names[:PARTITIONS_SHOWN_MAX]))
    more_count = len(names) - PARTITIONS_SHOWN_MAX
    return f"{shown} and {more_count} more" if more_count > 0 else shown
