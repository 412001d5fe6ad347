"""HeartbeatThread: drives the group while the application is outside the consumer.

Once started it *runs* until it is closed, the consumer is gone, or a step fails. Every now and then
it tries the core lock. If the lock is free, it makes one step of the background managers, without
waiting for I/O. If not, a call of the application drives the engine and sends the heartbeats. It
never waits for the lock, calls no user code and commits nothing. `ConsumerGroup.poll_in_background`
(group/group.py) decides in such a step whether a member is late.

Owner: itself; `close` and `failure` are for the thread that uses the consumer.
Source: Java class ``HeartbeatThread`` of ``AbstractCoordinator``; KIP-62.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

from pykclient.accel import Gate
from pykclient.network.drive import now_ms
from pykclient.network.interrupts import call_masked
from pykclient.network.log import ClientLog, keep_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.consumer.config import ConsumerConfig
    from pykclient.consumer.thread_guard import BackgroundLock, ThreadGuard

TURNS_PER_INTERVAL: Final = 4
"""Steps per heartbeat interval: a heartbeat is late by a fraction of the interval at most."""

JOIN_MIN_MS: Final = 100
"""Minimum time that `close` waits for the thread's end, even after its deadline."""


class HeartbeatThread:
    """The thread. `step(now_ms)` makes one step and returns the time of the next.

    It holds a weak reference to the consumer: an unclosed one can be collected, which ends it.
    """

    def __init__(
        self, step: Callable[[int], int], core_lock: BackgroundLock, config: ConsumerConfig
    ) -> None:
        self.failure: Exception | None = None
        """Exception of a step, which is a bug; it has ended the thread."""
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
        """Function to call after the last step."""

    def start(self) -> None:
        """Start it. If no thread can be started, only polls send heartbeats."""
        try:
            call_masked(self._thread.start)
        except RuntimeError as error:
            self._log.warning("only poll() sends heartbeats, until a thread can start: %s", error)
            return
        self.is_started = True

    def stop(self) -> None:
        """Request its end, without waiting."""
        self._closing.open()

    def abandon(self, at_end: Callable[[], None]) -> None:
        """End the thread, and call `at_end` after its last step. Does not wait.

        `at_end` may be called twice, and by the thread itself: this is for a finalizer, which the
        garbage collector may run anywhere, also in the middle of a step.
        """
        self._at_end = at_end  # set before checking whether the thread has ended
        self.stop()
        if self._has_ended or self._thread.ident is None:
            at_end()

    def close(self, timeout_s: float) -> None:
        """End it, and wait at most `timeout_s` for that.

        The caller must not hold the core lock.
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
            with keep_messages():  # a log handler that blocks must not hold up the core lock
                pause_ms = self._turn()
        self._has_ended = True  # set before checking whether it was abandoned
        if self._at_end is not None:
            self._at_end()

    def _turn(self) -> int | None:
        """Make a step if the lock is free; return the time until the next, None to end."""
        if not self._core_lock.acquire(blocking=False):
            return self._pause_max_ms
        try:
            step = self._step()
            if step is None:
                return None
            started_ms = now_ms()
            return max(1, min(step(started_ms) - started_ms, self._pause_max_ms))
        except Exception as error:  # noqa: BLE001  # the next poll raises it in its own thread
            self._log.exception("heartbeats have stopped; the next poll raises this error")
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
        """Start the heartbeat thread if it does not run; raise its failure if it has one."""
        thread = self.thread
        if thread is not None and thread.failure is not None:
            raise thread.failure
        if thread is not None and thread.is_started:
            return
        if thread is not None:
            thread.stop()  # its start was interrupted: it may be running or not
        # Stored before it is started, so that no running thread is unknown.
        thread = self.thread = HeartbeatThread(self._step, self._guard.background, self._config)
        thread.start()

    def stop(self) -> None:
        if self.thread is not None:
            self.thread.stop()

    def abandon(self, at_end: Callable[[], None]) -> None:
        """End the thread without waiting, and call `at_end` after its last step."""
        if self.thread is None:
            at_end()
        else:
            self.thread.abandon(at_end)

    def end(self, deadline_ms: int) -> None:
        """End the thread and wait for it. Requires the core lock, and releases it meanwhile."""
        if self.thread is not None:
            # At least for a moment, or a thread that is just ending would be reported as late.
            timeout_s = max(JOIN_MIN_MS, deadline_ms - now_ms()) / 1_000
            self._guard.call_unlocked(self.thread.close, timeout_s)
            self.thread = None
