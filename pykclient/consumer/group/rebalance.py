"""RebalanceListener, and Handover: partitions change hands, one step after the other.

What is given up is *held* first (nothing more is handed out of it), then committed, then told to
the listener, then dropped; what comes is taken and told. Each handover is an `Operation`. A new one
takes the place of one that has not ended. It never calls the listener: it leaves a `UserCall` to
the driver.

Owner: the core lock; a listener belongs to the application.
Source: Java interface ``ConsumerRebalanceListener``, KIP-429; ``onJoinPrepare``,
``onJoinComplete``, ``onLeavePrepare`` of Java's ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pykclient.errors import RebalanceListenerError, WakeupError
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Operation, UserCall
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.subscription import AssignedPartition, SubscriptionState
    from pykclient.errors import KafkaError

__all__ = ["Buffered", "Handover", "PartitionCallback", "RebalanceListener"]

PartitionCallback = Callable[[Sequence[TopicPartition]], object]
"""Is called with partitions, sorted."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """What an application wants to hear of partitions that come and go.

    Each is called on the thread that uses the consumer, from inside `poll`, `unsubscribe` or
    `close`, and may call the consumer: commit in `on_revoked`, say, or seek in `on_assigned`. What
    one raises is raised by that call as `RebalanceListenerError`, after the rebalance went on.

    `on_assigned` hears what came, after each rebalance, nothing perhaps. `on_revoked` hears what
    is given up, while it can still be committed. `on_lost` hears what others may have by now, so
    that it cannot be; None stands for `on_revoked`.
    """

    on_assigned: PartitionCallback | None = None
    on_revoked: PartitionCallback | None = None
    on_lost: PartitionCallback | None = None


class Buffered(Protocol):
    """What is fetched and not handed out yet."""

    def drop(self, assigned: AssignedPartition) -> None:
        """Forget what is there of a partition."""
        ...

    def refresh(self, assigned: AssignedPartition) -> None:
        """Look again whether records of it may be handed out."""
        ...


Step = Callable[[], "Operation[None] | None"]
"""One step; what it returns, if anything, is waited for."""


class Handover:
    """Makes partitions change hands, and tells `listener`."""

    def __init__(
        self,
        subscription: SubscriptionState,
        buffer: Buffered,
        user_calls: deque[UserCall],
        history: GroupHistory,
        *,
        commit: Callable[[int], Operation[None]],
        client_id: str = "",
    ) -> None:
        self.listener = RebalanceListener()
        self._log = ClientLog("pykclient.consumer", client_id)
        self._subscription = subscription
        self._buffer = buffer
        self._user_calls = user_calls
        self._history = history
        self._commit = commit
        self._error: KafkaError | None = None
        self._now_ms = 0
        self._steps: deque[Step] = deque()
        self._operation: Operation[None] = Operation()
        self._awaited: Operation[None] | None = None
        self._known: set[TopicPartition] = set()
        """What the listener was told to have, and not to lose since: whatever a handover is begun
        anew for, it hears of each move once."""
        self.deadline_ms = NEVER_MS
        """Until when a commit is waited for."""

    def begin(self, now_ms: int) -> Operation[None]:
        """Begin a new one, to which the next calls add steps; `go` runs them."""
        self._now_ms = now_ms
        self._steps.clear()
        self._awaited, self.deadline_ms = None, NEVER_MS
        self._operation = Operation()
        return self._operation

    def revoke(self, partitions: Sequence[TopicPartition], *, deadline_ms: int) -> None:
        """Give partitions up that can still be committed, until `deadline_ms`."""
        self._steps += (
            partial(self._hold, partitions),
            partial(self._commit_first, deadline_ms),
            partial(self._tell_revoked, partitions),
            partial(self._drop, partitions),
        )

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Give partitions up that others may have by now."""
        self._steps += (partial(self._tell_lost, partitions), partial(self._drop, partitions))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Have exactly `partitions`."""
        self._steps += (partial(self._take, partitions), partial(self._tell_assigned, partitions))

    def restart(self) -> None:
        """Let go of what is under way, wherever it stands; nobody waits for it any more."""
        self._steps.clear()
        self._awaited, self.deadline_ms = None, NEVER_MS
        self._operation = Operation()

    def go(self) -> None:
        """Take the steps, up to one that has to be waited for."""
        while self._steps:
            awaited = self._steps.popleft()()
            if awaited is not None and not awaited.is_done:
                self._awaited = awaited
                awaited.on_done(self._on_awaited)
                return
        self._operation.succeed(None)

    def expire(self, now_ms: int) -> None:
        """Go on without a commit that takes too long."""
        self._now_ms = now_ms
        if now_ms >= self.deadline_ms:
            self._log.error("the commit before partitions are given up takes too long; going on")
            self._awaited, self.deadline_ms = None, NEVER_MS
            self.go()

    @property
    def has_error(self) -> bool:
        """Whether a listener has failed."""
        return self._error is not None

    def take_error(self) -> KafkaError | None:
        """Return what the first failure of a listener was, and forget it."""
        error, self._error = self._error, None
        return error

    def _on_awaited(self, operation: Operation[None]) -> None:
        # Of a handover that another one has replaced nothing is waited for.
        if self._awaited is operation:
            self._awaited, self.deadline_ms = None, NEVER_MS
            self.go()

    # Steps.

    def _hold(self, partitions: Sequence[TopicPartition]) -> None:
        for assigned in self._subscription.hold(partitions):
            self._buffer.refresh(assigned)

    def _commit_first(self, deadline_ms: int) -> Operation[None]:
        operation = self._commit(deadline_ms)
        if not operation.is_done:
            self.deadline_ms = deadline_ms
        return operation

    def _tell_revoked(self, partitions: Sequence[TopicPartition]) -> Operation[None] | None:
        untold = self._untold(partitions)
        if partitions and not untold:
            return None
        self._history.note_revoked(untold, self._now_ms)
        called = self._tell(self.listener.on_revoked, "revoked", untold)
        self._known.difference_update(untold)
        return called

    def _tell_lost(self, partitions: Sequence[TopicPartition]) -> Operation[None] | None:
        untold = self._untold(partitions)
        if not untold:
            return None
        self._history.note_lost(untold, self._now_ms)
        callback = self.listener.on_lost or self.listener.on_revoked
        called = self._tell(callback, "lost", untold)
        self._known.difference_update(untold)
        return called

    def _untold(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        return [partition for partition in partitions if partition in self._known]

    def _tell_assigned(self, partitions: Collection[TopicPartition]) -> Operation[None] | None:
        added = sorted(set(partitions) - self._known)
        self._history.note_assigned(added, self._now_ms)
        called = self._tell(self.listener.on_assigned, "assigned", added)
        self._known.update(added)
        return called

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        gone = frozenset(partitions)
        self._take([a.partition for a in self._subscription if a.partition not in gone])

    def _take(self, partitions: Iterable[TopicPartition]) -> None:
        for dropped in self._subscription.assign_from_group(partitions):
            self._buffer.drop(dropped)

    def _tell(
        self, callback: PartitionCallback | None, verb: str, partitions: Sequence[TopicPartition]
    ) -> Operation[None] | None:
        self._log.info("%s: %s", verb, ", ".join(map(str, partitions)) or "nothing")
        if callback is None:
            return None
        called: Operation[None] = Operation()
        on_done = partial(self._on_told, called, verb)
        self._user_calls.append(UserCall(callback, (tuple(partitions),), on_done))
        return called

    def _on_told(self, called: Operation[None], verb: str, raised: BaseException | None) -> None:
        if raised is not None and self._error is None:
            self._error = _wrapped(raised, verb)
        called.succeed(None)


def _wrapped(raised: BaseException, verb: str) -> KafkaError:
    if isinstance(raised, WakeupError):
        return raised  # a call of the listener's own was woken, as any call may be
    error = RebalanceListenerError(f"the rebalance listener's on_{verb} failed: {raised!r}")
    error.__cause__ = raised
    return error
