"""Timers on a hierarchical timing wheel: adding and cancelling take constant time.

The slots of the lowest wheel are one tick long; each slot of the wheel above is as long as the
whole wheel below. A timer waits in the lowest wheel that reaches its deadline; when a slot of an
upper wheel is due, its timers move down. A heap holds the slots in use, so that a jump over hours
only visits those.

A timer is *waiting*, then *fired* or *cancelled*.

The purgatory holds operations that wait for an event or a timeout: a fetch waits for bytes, a
produce request for replicas. An operation is *waiting*, then *done*: completed, or timed out. It is
tried again whenever a key that it watches changes.

Serving one connection may unblock another, and so on. `Turns` runs them one after another, so that
they do not nest.

Owner: the cluster.
Source: Java classes ``TimingWheel``, ``SystemTimer``, ``DelayedOperationPurgatory``.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

TICK_MS = 1
SLOT_COUNT = 20


class Timer:
    """A pending call, created by `TimingWheel.add`."""

    __slots__ = ("callback", "deadline_ms", "sequence", "slot")

    def __init__(self, deadline_ms: int, sequence: int, callback: Callable[[int], None]) -> None:
        self.deadline_ms = deadline_ms
        self.sequence = sequence
        self.callback = callback
        self.slot: _Slot | None = None

    @property
    def is_waiting(self) -> bool:
        """True until it fires or is cancelled."""
        return self.slot is not None

    def cancel(self) -> None:
        """Cancel the timer; no effect once it has fired."""
        if self.slot is not None:
            del self.slot.timers[self.sequence]
            self.slot = None


class _Slot:
    """The timers in one slot of a wheel; `start_ms` is set while the slot is in the heap."""

    __slots__ = ("start_ms", "timers")

    def __init__(self) -> None:
        self.start_ms: int | None = None
        self.timers: dict[int, Timer] = {}


class _Wheel:
    """One level: slots of `tick_ms`, and a coarser wheel above once it is needed."""

    __slots__ = ("_above", "_now_ms", "_queue", "_slots", "_span_ms", "_tick_ms")

    def __init__(self, tick_ms: int, now_ms: int, queue: _SlotQueue) -> None:
        self._tick_ms = tick_ms
        self._span_ms = tick_ms * SLOT_COUNT
        self._now_ms = now_ms - now_ms % tick_ms
        self._slots = [_Slot() for _ in range(SLOT_COUNT)]
        self._queue = queue
        self._above: _Wheel | None = None

    def place(self, timer: Timer) -> bool:
        """Put the timer into its slot; return False if it is already due."""
        if timer.deadline_ms < self._now_ms + self._tick_ms:
            return False
        if timer.deadline_ms < self._now_ms + self._span_ms:
            number = timer.deadline_ms // self._tick_ms
            slot = self._slots[number % SLOT_COUNT]
            slot.timers[timer.sequence] = timer
            timer.slot = slot
            self._queue.put(slot, number * self._tick_ms)
            return True
        if self._above is None:
            self._above = _Wheel(self._span_ms, self._now_ms, self._queue)
        return self._above.place(timer)

    def turn(self, now_ms: int) -> None:
        if now_ms >= self._now_ms + self._tick_ms:
            self._now_ms = now_ms - now_ms % self._tick_ms
            if self._above is not None:
                self._above.turn(self._now_ms)


class _SlotQueue:
    """Slots in use, ordered by start."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Slot]] = []
        self._order = count()

    def put(self, slot: _Slot, start_ms: int) -> None:
        if slot.start_ms is None:
            slot.start_ms = start_ms
            heapq.heappush(self._heap, (start_ms, next(self._order), slot))

    def start_ms(self) -> int | None:
        """Return the start of the first slot with a timer, None without timers."""
        while self._heap and not self._heap[0][2].timers:
            self._pop()
        return self._heap[0][0] if self._heap else None

    def take(self) -> list[Timer]:
        """Empty the first slot and return its timers, in no order."""
        slot = self._pop()
        timers = list(slot.timers.values())
        slot.timers.clear()
        return timers

    def _pop(self) -> _Slot:
        slot = heapq.heappop(self._heap)[2]
        slot.start_ms = None
        return slot


class TimingWheel:
    """All timers of a cluster."""

    def __init__(self, now_ms: int = 0) -> None:
        self._queue = _SlotQueue()
        self._lowest = _Wheel(TICK_MS, now_ms, self._queue)
        self._sequences = count()
        self._due = _Slot()

    def add(self, deadline_ms: int, callback: Callable[[int], None]) -> Timer:
        """Schedule `callback(now_ms)` for the first `advance` that reaches the deadline.

        A deadline in the past fires at the next `advance`, never inside `add`.
        """
        timer = Timer(deadline_ms, next(self._sequences), callback)
        if not self._lowest.place(timer):
            timer.slot = self._due
            self._due.timers[timer.sequence] = timer
        return timer

    def next_deadline_ms(self) -> int | None:
        """Return when to advance next: at the first deadline or earlier, None without timers."""
        if self._due.timers:
            return min(timer.deadline_ms for timer in self._due.timers.values())
        return self._queue.start_ms()

    def advance(self, now_ms: int) -> None:
        """Fire due timers in order of their deadlines, none before its deadline."""
        self._fire_due(now_ms)
        while (start_ms := self._queue.start_ms()) is not None and start_ms <= now_ms:
            self._lowest.turn(start_ms)
            timers = self._queue.take()
            for timer in timers:
                if not self._lowest.place(timer):
                    timer.slot = self._due
                    self._due.timers[timer.sequence] = timer
            self._fire_due(start_ms)
        self._lowest.turn(now_ms)

    def _fire_due(self, now_ms: int) -> None:
        due = self._due.timers
        # Only those due now: a timer that adds another due timer must not loop endlessly.
        for timer in sorted(due.values(), key=attrgetter("deadline_ms", "sequence")):
            if timer.slot is not None:  # not cancelled by an earlier callback
                timer.cancel()
                timer.callback(max(now_ms, timer.deadline_ms))


class DelayedOperation:
    """An operation that waits for an event or a timeout.

    `try_complete(now_ms)` completes it if possible and returns whether it did; `expire(now_ms)`
    completes it in any case.
    """

    __slots__ = ("_try_complete", "expire", "is_done", "keys")

    def __init__(self, try_complete: Callable[[int], bool], expire: Callable[[int], None]) -> None:
        self._try_complete = try_complete
        self.expire = expire
        self.is_done = False
        self.keys: Collection[Hashable] = ()

    def attempt(self, now_ms: int) -> bool:
        """Try to complete the operation, and return whether that succeeded now.

        Completing may send a response, which may serve the connection's next request, which may
        change a watched key. The operation therefore counts as done while it completes.
        """
        if self.is_done:
            return False
        self.is_done = True
        self.is_done = self._try_complete(now_ms)
        return self.is_done


class Purgatory:
    """Waiting operations, with deadlines on the cluster's timing wheel."""

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
        """Complete the operation now, when one of `keys` changes, or at its deadline."""
        if operation.attempt(now_ms):
            return
        operation.keys = keys
        timer = self._timers.add(deadline_ms, lambda late_ms: self._expire(operation, late_ms))
        for key in keys:
            self._watchers.setdefault(key, {})[operation] = timer.cancel

    def check(self, key: Hashable, now_ms: int) -> None:
        """Retry the operations that watch `key`, because it has changed."""
        for operation, cancel_timer in list(self._watchers.get(key, {}).items()):
            if operation.attempt(now_ms):
                cancel_timer()
                self._end(operation)

    def waiting_count(self) -> int:
        """Return the number of waiting operations."""
        return len({operation for each in self._watchers.values() for operation in each})

    def _expire(self, operation: DelayedOperation, now_ms: int) -> None:
        if operation.is_done:  # it is completing now, and its response moved the clock
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


class Turns:
    """Queue of connections to serve, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[int], None]] = deque()
        self._is_serving = False

    def take(self, serve: Callable[[int], None], now_ms: int) -> None:
        """Call `serve(now_ms)` now, or after the calls before it have returned."""
        self._waiting.append(serve)
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting:
                self._waiting.popleft()(now_ms)
        finally:
            self._is_serving = False
