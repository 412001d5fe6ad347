"""RepeatedLog: says once what goes wrong again and again, and then now and then.

What was said less than `REPEAT_MS` ago is said at level DEBUG; then once more as it was, with how
often it has happened meanwhile. Whoever logs says by a key what counts as the same: what it is
about and why, without figures that differ each time.

Owner: whoever logs, under its lock.
Source: ours. Java's client repeats its lines as often as it tries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykclient.network.client_log import ClientLog

__all__ = ["REPEAT_MS", "RepeatedLog"]

REPEAT_MS: Final = 30_000
"""How long one line stands for all that are alike."""

KEYS_MAX: Final = 64
"""Lines remembered, the oldest forgotten first: a large cluster that is down has many."""


class _Said:
    __slots__ = ("since_count", "time_ms")

    def __init__(self, time_ms: int) -> None:
        self.time_ms = time_ms
        self.since_count = 0


class RepeatedLog:
    """Logs to `log`, the same thing every `REPEAT_MS` at most."""

    def __init__(self, log: ClientLog) -> None:
        self._log = log
        self._said: dict[tuple[object, ...], _Said] = {}

    def is_due(self, now_ms: int, key: tuple[object, ...]) -> bool:
        """Whether `log` would log at its level now."""
        said = self._said.get(key)
        return said is None or now_ms - said.time_ms >= REPEAT_MS

    def log(
        self,
        level: int,
        now_ms: int,
        key: tuple[object, ...],
        message: str,
        *args: object,
        exc_info: bool = False,
    ) -> bool:
        """Log a message with %-arguments; return whether at `level`, rather than at DEBUG.

        With `exc_info`, the exception that is being handled is logged with it.
        """
        said = self._said.get(key)
        if said is not None and not self.is_due(now_ms, key):
            said.since_count += 1
            self._log.debug(message, *args, exc_info=exc_info)
            return False
        self._said.pop(key, None)
        if len(self._said) >= KEYS_MAX:
            del self._said[next(iter(self._said))]
        self._said[key] = _Said(now_ms)
        if said is not None and said.since_count:
            message, args = (
                f"{message} (%d times since it was last told)",
                (*args, said.since_count),
            )
        self._log.log(level, message, *args, exc_info=exc_info)
        return True
