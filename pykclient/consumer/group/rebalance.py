"""Reconciliation: revokes and assigns partitions, and calls the application's listener.

*Commits*: with auto-commit, a rebalance commits the processed records of all assigned partitions,
not only of revoked ones, in the steps of `_before_join`, `_change_to` and `_give_up`. Nothing is
committed for lost partitions. `Commits.commit_before_revocation` (`consumer/offsets/commit.py`)
commits; the rebalance waits for it until `Intent.commit_deadline_ms`, and continues whatever its
result is. The membership (`classic/membership.py`, `kip848/membership.py`) returns an `Intent` when
it is due: a classic member before it joins again (but not before it repeats a failed join), and
when its assignment takes partitions away; a KIP-848 member only in the latter case, before it
acknowledges. Leaving revokes everything, except for a member that is joining: its partitions are
lost.

The steps of an intent are, in order: *hold* (stop reading), *commit*, *report* to the listener,
*drop*, then *take* and *report*. A new intent replaces an unfinished one.

Owner: the core lock.
Source: Java interface ``ConsumerRebalanceListener``, KIP-429; ``onJoinPrepare``,
``onJoinComplete``, ``onLeavePrepare`` of Java's ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.consumer.group.assignors import RebalanceProtocol
from pykclient.errors import RebalanceListenerError, UsageError, WakeupError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Operation, UserCall
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError
    from pykclient.network.cluster.metadata import Metadata
    from pykclient.network.coordinators import CoordinatorLookup
    from pykclient.network.retry import Backoff

READ_AGAIN: Final = "their next owner reads the records since the last commit again"
PartitionCallback = Callable[[Sequence[TopicPartition]], object]
"""Function called with sorted partitions."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """Functions to call when partitions are assigned or revoked.

    Each is called on the thread that uses the consumer, inside `poll`, `unsubscribe` or `close`,
    and may call the consumer, for example to commit in `on_revoked` or to seek in `on_assigned`.
    An exception is raised by that call as `RebalanceListenerError`, after the rebalance has
    continued.

    `on_assigned` is called after each rebalance with the added partitions, maybe none. `on_revoked`
    is called with partitions that can still be committed. `on_lost` is called with partitions that
    other members may already have, which cannot be committed; None calls `on_revoked` instead.
    """

    on_assigned: PartitionCallback | None = None
    on_revoked: PartitionCallback | None = None
    on_lost: PartitionCallback | None = None

    def __init_subclass__(cls) -> None:
        """Raise: a subclass with methods, like other clients' listeners, would never be called.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"class {cls.__name__}: a RebalanceListener is made of functions, not derived from: "
            f"RebalanceListener(on_assigned=..., on_revoked=..., on_lost=...)"
        )


class GroupContext(NamedTuple):
    """The parts of a consumer that its group uses."""

    subscription: SubscriptionState
    metadata: Metadata
    coordinator: CoordinatorLookup
    retry_backoff: Backoff
    user_calls: deque[UserCall]
    drop: Callable[[AssignedPartition], None]
    """Drops the buffered records of a partition."""
    refresh: Callable[[AssignedPartition], None]
    """Updates whether buffered records of a partition may be returned."""
    commit: Callable[[int], Operation[None]]
    """Commits before a revocation, until a deadline."""
    why_late: Callable[[], str]
    """Describes what a commit under way waits for."""
    follow_topics: Callable[[], None]
    """Requests metadata of topics that are subscribed, assigned, or in `ConsumerGroup.topics`."""


class Intent(Operation[None]):
    """A change of partitions that a membership wants. It ends when that is done or stopped."""

    is_cancelled = False
    rejoin_reason: str | None = None
    """Reason to join again afterwards; None if there is none."""
    commit_deadline_ms: int | None = None
    """Deadline of the wait for its commit; None for `max_poll_interval_ms`."""

    def cancel(self) -> None:
        """Skip the steps that are not done yet."""
        self.is_cancelled = True


class RevokeAll(Intent):
    """Revoke everything, which can still be committed: this member leaves."""


class LoseAll(Intent):
    """Lose everything: other members may have it by now."""


class RevokeToJoin(Intent):
    """Revoke what must not be kept while joining, and can still be committed."""

    def __init__(self, protocol: RebalanceProtocol) -> None:
        super().__init__()
        self.protocol = protocol


class Assign(Intent):
    """Own exactly the partitions that the leader or the coordinator has assigned."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        super().__init__()
        self.partitions = partitions


Step = Callable[[], "Operation[None] | None"]
"""One step; if it returns an operation, the next step waits for that."""


class Reconciliation:
    """Carries out one intent at a time, and calls `listener`."""

    def __init__(
        self, config: ConsumerConfig, context: GroupContext, history: GroupHistory
    ) -> None:
        self.listener = RebalanceListener()
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._max_poll_interval_ms = config.max_poll_interval_ms
        self._subscription = context.subscription
        self._context = context
        self._history = history
        self._error: KafkaError | None = None
        self._now_ms = 0
        self._steps: deque[Step] = deque()
        self._intent = Intent()
        self._awaited: Operation[None] | None = None
        self._reported: set[TopicPartition] = set()
        """Partitions reported to the listener as assigned, and not yet as revoked: each move is
        reported once, however often an intent is replaced."""
        self.deadline_ms = NEVER_MS
        """Deadline of the wait for a commit."""

    def carry_out(self, intent: Intent, now_ms: int) -> None:
        """Carry out an intent instead of the previous one."""
        self._begin(intent, now_ms)
        if isinstance(intent, Assign):
            self._change_to(intent.partitions)
        elif isinstance(intent, RevokeToJoin):
            self._before_join(intent.protocol)
        else:
            self._give_up(can_commit=isinstance(intent, RevokeAll))
        self._go()

    def _give_up(self, *, can_commit: bool) -> None:
        owned = sorted(self._subscription.partitions)
        if owned and can_commit:
            self._steps += self._revoking(owned)
        elif owned:
            self._steps += (partial(self._report_lost, owned), partial(self._drop, owned))

    def _before_join(self, protocol: RebalanceProtocol) -> None:
        """Revoke what a classic member must not keep while it joins again.

        In an eager group that is everything, and the listener is called even if it is nothing; in a
        cooperative group it is topics no longer subscribed to. Everything is committed, kept
        partitions included: no commit is accepted before the next generation. Everything is held
        as well: otherwise a poll would return records, and the group would wait for the next poll.
        """
        is_eager, wanted = protocol is RebalanceProtocol.EAGER, self._subscription.wanted_topics
        owned = sorted(self._subscription.partitions)
        revoked = [each for each in owned if is_eager or each.topic not in wanted]
        if owned or is_eager:
            self._steps += (partial(self._hold, owned), self._commit)
        if revoked or is_eager:
            self._steps.append(partial(self._report_revoked, revoked))
        if owned:
            self._steps.append(partial(self._drop, revoked))

    def _change_to(self, assigned: Sequence[TopicPartition]) -> None:
        revoked = sorted(self._subscription.partitions.difference(assigned))
        if revoked:
            self._steps += self._revoking(revoked)
        self._steps += (partial(self._take, assigned), partial(self._report_assigned, assigned))

    def _begin(self, intent: Intent, now_ms: int) -> None:
        self._now_ms = now_ms
        self._intent = intent
        self._steps.clear()
        self._awaited, self.deadline_ms = None, NEVER_MS

    def _revoking(self, partitions: Sequence[TopicPartition]) -> Sequence[Step]:
        return (
            partial(self._hold, partitions),
            self._commit,
            partial(self._report_revoked, partitions),
            partial(self._drop, partitions),
        )

    def restart(self) -> None:
        """Drop the intent under way; nothing waits for it any more."""
        self._begin(Intent(), self._now_ms)

    def _go(self) -> None:
        while self._steps and not self._intent.is_cancelled:
            awaited = self._steps.popleft()()
            if awaited is not None and not awaited.is_done:
                self._awaited = awaited
                awaited.on_done(self._on_awaited)
                return
            self._log_failure(awaited)
        self._intent.succeed(None)

    def expire(self, now_ms: int) -> None:
        """Continue without a commit that takes too long."""
        self._now_ms = now_ms
        if now_ms < self.deadline_ms:
            return
        if not self._intent.is_cancelled:
            self._log.error(
                "the commit before partitions are revoked has not ended in time, so records since "
                "the last one may be read again; continuing: %s",
                self._context.why_late(),
            )
        self._awaited, self.deadline_ms = None, NEVER_MS
        self._go()

    @property
    def has_error(self) -> bool:
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Remove and return the first error of a listener."""
        error, self._error = self._error, None
        return error

    def _on_awaited(self, operation: Operation[None]) -> None:
        # An operation of a replaced intent is ignored.
        if self._awaited is operation:
            self._awaited, self.deadline_ms = None, NEVER_MS
            self._log_failure(operation)
            self._go()

    def _log_failure(self, operation: Operation[None] | None) -> None:
        if operation is not None and operation.error is not None:
            self._log.error(
                "the commit before partitions are revoked has failed, so records since the last "
                "one may be read again: %s",
                operation.error,
            )

    # Steps.

    def _hold(self, partitions: Sequence[TopicPartition]) -> None:
        for assigned in self._subscription.hold(partitions):
            self._context.refresh(assigned)

    def _commit(self) -> Operation[None]:
        deadline_ms = self._intent.commit_deadline_ms
        if deadline_ms is None:
            deadline_ms = self._now_ms + self._max_poll_interval_ms
        operation = self._context.commit(deadline_ms)
        if not operation.is_done:
            self.deadline_ms = deadline_ms
        return operation

    def _report_revoked(self, partitions: Sequence[TopicPartition]) -> Operation[None] | None:
        unreported = self._unreported(partitions)
        if partitions and not unreported:
            return None
        self._history.note_revoked(unreported, self._now_ms)
        called = self._call(self.listener.on_revoked, "revoked", unreported)
        self._reported.difference_update(unreported)
        return called

    def _report_lost(self, partitions: Sequence[TopicPartition]) -> Operation[None] | None:
        unreported = self._unreported(partitions)
        if not unreported:
            return None
        self._history.note_lost(unreported, self._now_ms)
        callback = self.listener.on_lost or self.listener.on_revoked
        called = self._call(callback, "lost", unreported)
        self._reported.difference_update(unreported)
        return called

    def _unreported(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Return the revoked partitions not yet reported to the listener."""
        return [partition for partition in partitions if partition in self._reported]

    def _report_assigned(self, partitions: Collection[TopicPartition]) -> Operation[None] | None:
        added = sorted(set(partitions) - self._reported)
        self._history.note_assigned(added, self._now_ms)
        called = self._call(self.listener.on_assigned, "assigned", added)
        self._reported.update(added)
        return called

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        gone = frozenset(partitions)
        assigned = (each.partition for each in self._subscription)
        self._take([partition for partition in assigned if partition not in gone])

    def _take(self, partitions: Iterable[TopicPartition]) -> None:
        for dropped in self._subscription.assign_from_group(partitions):
            self._context.drop(dropped)
        for kept in self._subscription:
            self._context.refresh(kept)  # it may have been held

    def _call(
        self, callback: PartitionCallback | None, verb: str, partitions: Sequence[TopicPartition]
    ) -> Operation[None] | None:
        named = ", ".join(map(str, partitions)) or "nothing"
        if verb == "lost":  # unlike the others it has a cost
            self._log.warning("lost: %s; %s", named, READ_AGAIN)
        else:
            self._log.info("%s: %s", verb, named)
        if callback is None:
            return None
        called: Operation[None] = Operation()
        on_done = partial(self._on_called, called, verb)
        self._context.user_calls.append(UserCall(callback, (tuple(partitions),), on_done))
        return called

    def _on_called(self, called: Operation[None], verb: str, raised: BaseException | None) -> None:
        try:
            if raised is not None:
                raise_of_signal_handler(raised)
            # An interrupt or exit is raised by this call; no later call may raise it again.
            if isinstance(raised, Exception) and self._error is None:
                self._error = _wrapped(raised, verb)
        finally:
            called.succeed(None)


def _wrapped(raised: Exception, verb: str) -> KafkaError:
    if isinstance(raised, WakeupError):
        return raised  # the listener's own call was woken, as any call may be
    error = RebalanceListenerError(f"the rebalance listener's on_{verb} failed: {raised!r}")
    error.__cause__ = raised
    return error
