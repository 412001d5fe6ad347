"""LongWaits: says of a client's calls what they wait for, when that takes long.

A call that waits up to a minute in silence looks like one that hangs. So it logs one WARNING after
`LONG_WAIT_MS`, with what it waits for and why; for the same thing not more than one every
`REPEAT_MS`, however many calls and threads wait for it.

Owner: none; any thread may use it. Two that come at the same moment may both log.
Source: ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.network.repeated_log import REPEAT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.client_log import ClientLog

__all__ = ["LONG_WAIT_MS", "LongWait", "LongWaits"]

LONG_WAIT_MS: Final = 5_000

REMEMBERED_MAX: Final = 64
"""Things waited for that are remembered; beyond that all are forgotten, and may be said again."""


class LongWait:
    """One wait for `what`. `why` is called when it has become long; empty if nobody knows."""

    __slots__ = ("_due_ms", "_waits", "_what", "_why")

    def __init__(self, waits: LongWaits, what: str, why: Callable[[], str], now_ms: int) -> None:
        self._waits = waits
        self._what = what
        self._why = why
        self._due_ms: int | None = now_ms + LONG_WAIT_MS

    def until_ms(self, deadline_ms: int) -> int:
        """Return until when to wait before the next `look`, at most until the deadline."""
        return deadline_ms if self._due_ms is None else min(self._due_ms, deadline_ms)

    def look(self, now_ms: int) -> None:
        """Log what is waited for, if that is due."""
        if self._due_ms is not None and self._due_ms <= now_ms:
            self._due_ms = None
            self._waits.tell(self._what, self._why, now_ms)


class LongWaits:
    """The waits of one client."""

    def __init__(self, log: ClientLog) -> None:
        self._log = log
        self._told_ms: dict[str, int] = {}

    def begin(self, what: str, why: Callable[[], str], now_ms: int) -> LongWait:
        """Note that a call begins to wait."""
        return LongWait(self, what, why, now_ms)

    def tell(self, what: str, why: Callable[[], str], now_ms: int) -> None:
        """Log that a call still waits, unless that was said not long ago."""
        told_ms = self._told_ms.get(what)
        if told_ms is not None and now_ms - told_ms < REPEAT_MS:
            return
        if len(self._told_ms) >= REMEMBERED_MAX:
            self._told_ms = {}
        self._told_ms[what] = now_ms
        self._log.warning(
            "still waiting for %s after %d ms: %s",
            what,
            LONG_WAIT_MS,
            why() or "no response has come yet",
        )
