"""RebalanceListener, Intent and Reconciliation: how partitions are revoked and assigned.

A membership returns an `Intent`; `Reconciliation` carries it out, one step after the other. What is
revoked is *held* first (poll returns no more of it), then committed, then passed to the listener,
then dropped; what is assigned is taken, then passed to the listener. A new intent replaces one that
has not ended. The listener is called by the driver, which finds a `UserCall`.

Owner: the core lock; a listener belongs to the application.
Source: Java interface ``ConsumerRebalanceListener``, KIP-429; ``onJoinPrepare``,
``onJoinComplete``, ``onLeavePrepare`` of Java's ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pykclient.errors import RebalanceListenerError, WakeupError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog
from pykclient.network.manager import NEVER_MS, Operation, UserCall
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pykclient.consumer.group.history import GroupHistory
    from pykclient.consumer.group.wiring import GroupWiring
    from pykclient.errors import KafkaError

__all__ = [
    "Intent",
    "LoseAll",
    "PartitionCallback",
    "RebalanceListener",
    "Reconciliation",
    "RevokeAll",
]

PartitionCallback = Callable[[Sequence[TopicPartition]], object]
"""Is called with partitions, sorted."""


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """What an application wants called when partitions come and go.

    Each function is called on the thread that uses the consumer, inside `poll`, `unsubscribe` or
    `close`, and may call the consumer: commit in `on_revoked`, say, or seek in `on_assigned`. What
    one raises is raised by that call as `RebalanceListenerError`, after the rebalance went on.

    `on_assigned` is called after each rebalance, with what was added, which may be nothing.
    `on_revoked` is called with what is given up, while it can still be committed. `on_lost` is
    called with what other members may have by now, so that it cannot be; None stands for
    `on_revoked`.
    """

    on_assigned: PartitionCallback | None = None
    on_revoked: PartitionCallback | None = None
    on_lost: PartitionCallback | None = None


class Intent(Operation[None]):
    """What a membership wants done with partitions. It ends when that is done, or cannot be."""

    is_cancelled = False
    rejoin_reason: str | None = None
    """Why to join again when it is done; None if there is no need to."""

    def cancel(self) -> None:
        """Leave undone what is not done of it by now."""
        self.is_cancelled = True


class RevokeAll(Intent):
    """Give up everything, which can still be committed: this member leaves."""


class LoseAll(Intent):
    """Give up everything: other members may have it by now."""


Step = Callable[[], "Operation[None] | None"]
"""One step; what it returns, if anything, is waited for."""


class Reconciliation:
    """Carries out one intent at a time, and has `listener` called."""

    def __init__(self, wiring: GroupWiring, history: GroupHistory, client_id: str) -> None:
        self.listener = RebalanceListener()
        self._log = ClientLog("pykclient.consumer", client_id)
        self._wiring = wiring
        self._history = history
        self._error: KafkaError | None = None
        self._now_ms = 0
        self._steps: deque[Step] = deque()
        self._intent = Intent()
        self._awaited: Operation[None] | None = None
        self._reported: set[TopicPartition] = set()
        """What the listener was called with as assigned, and not as revoked since: each move is
        passed to it once, however often an intent is replaced."""
        self.deadline_ms = NEVER_MS
        """Until when a commit is waited for."""

    def begin(self, intent: Intent, now_ms: int) -> None:
        """Begin with an intent, to which the next calls add steps; `go` runs them."""
        self._now_ms = now_ms
        self._intent = intent
        self._steps.clear()
        self._awaited, self.deadline_ms = None, NEVER_MS

    def revoke(self, partitions: Sequence[TopicPartition], *, deadline_ms: int) -> None:
        """Give up partitions that can still be committed, until `deadline_ms`."""
        self._steps += (
            partial(self._hold, partitions),
            partial(self._commit, deadline_ms),
            partial(self._report_revoked, partitions),
            partial(self._drop, partitions),
        )

    def lose(self, partitions: Sequence[TopicPartition]) -> None:
        """Give up partitions that other members may have by now."""
        self._steps += (partial(self._report_lost, partitions), partial(self._drop, partitions))

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Have exactly `partitions`."""
        self._steps += (
            partial(self._take, partitions),
            partial(self._report_assigned, partitions),
        )

    def restart(self) -> None:
        """Drop the intent under way, wherever it stands; nothing waits for it any more."""
        self.begin(Intent(), self._now_ms)

    def go(self) -> None:
        """Take the steps, up to one that has to be waited for."""
        while self._steps and not self._intent.is_cancelled:
            awaited = self._steps.popleft()()
            if awaited is not None and not awaited.is_done:
                self._awaited = awaited
                awaited.on_done(self._on_awaited)
                return
        self._intent.succeed(None)

    def expire(self, now_ms: int) -> None:
        """Go on without a commit that takes too long."""
        self._now_ms = now_ms
        if now_ms < self.deadline_ms:
            return
        if not self._intent.is_cancelled:
            self._log.error("the commit before partitions are revoked takes too long; going on")
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
        # Of an intent that another one has replaced nothing is waited for.
        if self._awaited is operation:
            self._awaited, self.deadline_ms = None, NEVER_MS
            self.go()

    # Steps.

    def _hold(self, partitions: Sequence[TopicPartition]) -> None:
        for assigned in self._wiring.subscription.hold(partitions):
            self._wiring.refresh(assigned)

    def _commit(self, deadline_ms: int) -> Operation[None]:
        operation = self._wiring.commit(deadline_ms)
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
        """The partitions of which the listener does not know yet that they go."""
        return [partition for partition in partitions if partition in self._reported]

    def _report_assigned(self, partitions: Collection[TopicPartition]) -> Operation[None] | None:
        added = sorted(set(partitions) - self._reported)
        self._history.note_assigned(added, self._now_ms)
        called = self._call(self.listener.on_assigned, "assigned", added)
        self._reported.update(added)
        return called

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        gone = frozenset(partitions)
        assigned = (each.partition for each in self._wiring.subscription)
        self._take([partition for partition in assigned if partition not in gone])

    def _take(self, partitions: Iterable[TopicPartition]) -> None:
        for dropped in self._wiring.subscription.assign_from_group(partitions):
            self._wiring.drop(dropped)

    def _call(
        self, callback: PartitionCallback | None, verb: str, partitions: Sequence[TopicPartition]
    ) -> Operation[None] | None:
        self._log.info("%s: %s", verb, ", ".join(map(str, partitions)) or "nothing")
        if callback is None:
            return None
        called: Operation[None] = Operation()
        on_done = partial(self._on_called, called, verb)
        self._wiring.user_calls.append(UserCall(callback, (tuple(partitions),), on_done))
        return called

    def _on_called(self, called: Operation[None], verb: str, raised: BaseException | None) -> None:
        try:
            if raised is not None:
                raise_of_signal_handler(raised)
            # An interrupt or exit comes out of this call; no later one is to raise it again.
            if isinstance(raised, Exception) and self._error is None:
                self._error = _wrapped(raised, verb)
        finally:
            called.succeed(None)


def _wrapped(raised: Exception, verb: str) -> KafkaError:
    if isinstance(raised, WakeupError):
        return raised  # a call of the listener's own was woken, as any call may be
    error = RebalanceListenerError(f"the rebalance listener's on_{verb} failed: {raised!r}")
    error.__cause__ = raised
    return error
