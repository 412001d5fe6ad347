"""LongClose: one log line for a client that takes long to close.

A program that ends while no broker is reachable waits up to `delivery_timeout_ms`, which looks like
a hang. After `NOTICE_MS` a WARNING says what it waits for, for how long at most, why, and how to
end the wait: with Ctrl-C, if that raises `KeyboardInterrupt` in the waiting thread.

Owner: the thread that waits.
Source: ours; Java's producer drops its records when a thread that closes it is interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.network.interrupts import receives_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.log import ClientLog

NOTICE_MS: Final = 2_000
"""Time that a close may take before the line is logged."""


class LongClose:
    """One wait of `call`, which closes a client or flushes it.

    `what` returns what the call waits for, and `why` returns the reason (empty if unknown); both
    are called when the line is logged. `cost` says what happens to the rest after a Ctrl-C.
    """

    def __init__(
        self,
        log: ClientLog,
        call: str,
        *,
        what: Callable[[], str],
        why: Callable[[], str],
        cost: str,
        started_ms: int,
        deadline_ms: int,
    ) -> None:
        self.is_logged = False
        self._log = log
        self._call = call
        self._what = what
        self._why = why
        self._cost = cost
        self._due_ms = started_ms + NOTICE_MS
        self._deadline_ms = deadline_ms

    def until_ms(self, deadline_ms: int) -> int:
        """Return the time of the next `look`, at most the deadline."""
        return deadline_ms if self.is_logged else min(self._due_ms, deadline_ms)

    def look(self, now_ms: int) -> None:
        """Log the line once, when it is due."""
        if self.is_logged or now_ms < self._due_ms or self._deadline_ms <= now_ms:
            return
        self.is_logged = True
        hint = f"; Ctrl-C ends the wait: {self._cost}" if receives_interrupts() else ""
        self._log.warning(
            "%s: still waiting for %s, %d s more at most: %s%s",
            self._call,
            self._what(),
            (self._deadline_ms - now_ms + 999) // 1_000,
            self._why() or "no response has come yet",
            hint,
        )
