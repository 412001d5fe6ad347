"""Operations that wait for something to happen, or for their time to run out.

An operation is *waiting*, then *done*: completed because it could be, or because its time ran out.
It is asked again whenever one of the things that it watches has changed. Fetches wait for bytes and
produce requests for replicas here.

Owner: the cluster.
Source: Java classes ``DelayedOperation`` and ``DelayedOperationPurgatory``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from pykclient.testing.fake.timers import TimingWheel

__all__ = ["DelayedOperation", "Purgatory"]


class DelayedOperation:
    """One operation; `try_complete(now_ms)` answers if it can and returns whether it did.

    `expire(now_ms)` answers in any case.
    """

    __slots__ = ("_try_complete", "expire", "is_done", "keys")

    def __init__(self, try_complete: Callable[[int], bool], expire: Callable[[int], None]) -> None:
        self._try_complete = try_complete
        self.expire = expire
        self.is_done = False
        self.keys: Collection[Hashable] = ()

    def attempt(self, now_ms: int) -> bool:
        """Complete it if it can be, and return whether that was now.

        An answer may make a connection serve its next request, which may change what this
        operation watches: it counts as done while it completes.
        """
        if self.is_done:
            return False
        self.is_done = True
        self.is_done = self._try_complete(now_ms)
        return self.is_done


class Purgatory:
    """Where operations wait; their deadlines are timers on the cluster's wheel."""

    def __init__(self, timers: TimingWheel) -> None:
        self._timers = timers
        self._watchers: dict[Hashable, dict[DelayedOperation, Callable[[], None]]] = {}

    def complete_or_watch(
        self,
        operation: DelayedOperation,
        keys: Collection[Hashable],
        *,
        deadline_ms: int,
        now_ms: int,
    ) -> None:
        """Complete the operation now, or when something of `keys` changes, or at its deadline."""
        if operation.attempt(now_ms):
            return
        operation.keys = keys
        timer = self._timers.add(deadline_ms, lambda late_ms: self._expire(operation, late_ms))
        for key in keys:
            self._watchers.setdefault(key, {})[operation] = timer.cancel

    def check(self, key: Hashable, now_ms: int) -> None:
        """Say that `key` has changed: the operations that watch it are asked again."""
        for operation, cancel_timer in list(self._watchers.get(key, {}).items()):
            if operation.attempt(now_ms):
                cancel_timer()
                self._end(operation)

    def waiting_count(self) -> int:
        """How many operations wait."""
        return len({operation for each in self._watchers.values() for operation in each})

    def _expire(self, operation: DelayedOperation, now_ms: int) -> None:
        if operation.is_done:  # it completes just now, and its answer has moved the clock
            return
        self._end(operation)
        operation.expire(now_ms)

    def _end(self, operation: DelayedOperation) -> None:
        operation.is_done = True
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
