"""HeartbeatThread: drives the group's business while the application is not in the consumer.

It *runs*, once it is started, until it is closed, or the consumer is gone, or a step failed. Now
and then it tries the core lock: if that is free, it makes one step of the background managers,
without waiting for any I/O; if not, the application drives, and sends the heartbeats itself.
It never waits for the lock, calls no user code and commits nothing. Whether a member is late is
decided in such a step, by `ConsumerGroup.poll_in_background` (group/group.py).

Owner: itself; `close` and `failure` are for the thread that uses the consumer.
Source: Java class ``HeartbeatThread`` of ``AbstractCoordinator``; KIP-62.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

from pykclient.network.drive import now_ms
from pykclient.network.gate import Gate
from pykclient.network.interrupts import call_masked
from pykclient.network.log import ClientLog, keep_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.thread_guard import BackgroundLock, ThreadGuard

TURNS_PER_INTERVAL: Final = 4
"""A heartbeat is late by a fraction of the interval at most, whenever the application went away."""

JOIN_MIN_MS: Final = 100
"""How long the thread has to end, though the time of `close` is up."""


class HeartbeatThread:
    """The thread. `step(now_ms)` makes one step and returns when the next one is due.

    It holds the consumer weakly: one that was not closed can be collected, and the thread ends.
    """

    def __init__(
        self, step: Callable[[int], int], core_lock: BackgroundLock, config: ConsumerConfig
    ) -> None:
        self.failure: Exception | None = None
        """What a step raised, by a mistake of ours; the thread has ended then."""
        self._log = ClientLog("pykclient.consumer", config.client_id)
        self._step = WeakMethod(step)
        self._core_lock = core_lock
        self._pause_max_ms = max(1, config.heartbeat_interval_ms // TURNS_PER_INTERVAL)
        self._closing = Gate()
        name = f"pykclient-heartbeat {config.client_id}".strip()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.is_started = False
        self._has_ended = False
        self._at_end: Callable[[], None] | None = None
        """Is called when no step follows any more."""

    def start(self) -> None:
        """Begin. Where there can be no more threads, polls alone send heartbeats."""
        try:
            call_masked(self._thread.start)
        except RuntimeError as error:
            self._log.warning("heartbeats are sent by poll() alone, until there is room: %s", error)
            return
        self.is_started = True

    def stop(self) -> None:
        """Have it end, without waiting for that."""
        self._closing.open()

    def abandon(self, at_end: Callable[[], None]) -> None:
        """End the thread, and call a function after its last step. Does not wait.

        The function may be called twice, and by the thread itself: this is for a finalizer, which
        the collector may run anywhere, also in the middle of a step.
        """
        self._at_end = at_end  # before it is looked whether the thread has ended
        self.stop()
        if self._has_ended or self._thread.ident is None:
            at_end()

    def close(self, timeout_s: float) -> None:
        """End it, and wait until it has; it is left alone if it does not in that time.

        Requires that the caller does not have the core lock.
        """
        self.stop()
        if not self.is_started or threading.current_thread() is self._thread:
            return
        self._thread.join(min(timeout_s, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            self._log.warning(
                "the heartbeat thread has not ended within %.1f s; does a log handler block it?",
                timeout_s,
            )

    def _run(self) -> None:
        pause_ms: int | None = 0
        while pause_ms is not None and not self._closing.wait(pause_ms / 1_000):
            with keep_messages():  # a log handler that blocks must not block with the core lock
                pause_ms = self._turn()
        self._has_ended = True  # before it is looked whether it was abandoned
        if self._at_end is not None:
            self._at_end()

    def _turn(self) -> int | None:
        """Make a step if the application makes none; return how long to pause, None for ever."""
        if not self._core_lock.acquire(blocking=False):
            return self._pause_max_ms
        try:
            step = self._step()
            if step is None:
                return None
            started_ms = now_ms()
            return max(1, min(step(started_ms) - started_ms, self._pause_max_ms))
        except Exception as error:  # noqa: BLE001  # the next poll raises it, in its own thread
            self._log.exception("heartbeats have stopped; the next poll raises why")
            self.failure = error
            return None
        finally:
            self._core_lock.release()


class Heartbeats:
    """The heartbeat thread of one consumer, from its first poll of a subscription on."""

    def __init__(
        self, step: Callable[[int], int], guard: ThreadGuard, config: ConsumerConfig
    ) -> None:
        self.thread: HeartbeatThread | None = None
        self._step = step
        self._guard = guard
        self._config = config

    def watch(self) -> None:
        """See that heartbeats are sent while the application is away. Raises why they are not."""
        thread = self.thread
        if thread is not None and thread.failure is not None:
            raise thread.failure
        if thread is not None and thread.is_started:
            return
        if thread is not None:
            thread.stop()  # an interrupt came while it was being started: it may run, or not
        # Noted before it is started, so that there is never one that is not known.
        thread = self.thread = HeartbeatThread(self._step, self._guard.background, self._config)
        thread.start()

    def stop(self) -> None:
        if self.thread is not None:
            self.thread.stop()

    def abandon(self, at_end: Callable[[], None]) -> None:
        """End the thread without waiting, and call a function when it makes no step any more."""
        if self.thread is None:
            at_end()
        else:
            self.thread.abandon(at_end)

    def end(self, deadline_ms: int) -> None:
        """End the thread and wait for that. Requires the core lock, which it gives up."""
        if self.thread is not None:
            # At least for a moment, or one that ends just now would be called late.
            timeout_s = max(JOIN_MIN_MS, deadline_ms - now_ms()) / 1_000
            self._guard.call_unlocked(self.thread.close, timeout_s)
            self.thread = None
