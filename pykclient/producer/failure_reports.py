"""FailureReports: logs failures that nothing else would report.

These are exceptions of the application's callbacks, and records that failed without a callback and
without a read of their delivery: one line for all of the same kind, with their number. Nothing here
raises: a logging handler or filter that fails must not end the sender thread.

Owner: the sender thread; an `UnseenFailure` may end in any thread at any time.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import ClosedError, PurgedError
from pykclient.network.log import ClientLog, RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.errors import KafkaError

UNSEEN_MAX: Final = 10_000
"""Maximum number of failed batches that are remembered until the sender thread logs them."""

UNSEEN: Final = (
    "%d records for %s were not delivered, and no callback and no result() has seen it: %s"
)


class UnseenFailure:
    """A failure of records, which is reported if it is dropped before code has read it.

    Only failures have one: a destructor swallows a Ctrl-C that comes while it runs.
    """

    __slots__ = ("_note", "_reports")

    def __init__(self, reports: FailureReports, note: _Note) -> None:
        self._reports = reports
        self._note = note

    def see(self, record_count: int | None = None) -> None:
        """Count `record_count` records (None: all) whose error the application has read."""
        note = self._note
        note.record_count = 0 if record_count is None else note.record_count - record_count
        if note.record_count <= 0:
            self._reports.on_dropped(note)

    def __del__(self) -> None:
        self._reports.on_dropped(self._note)


class _Note:
    __slots__ = ("error", "record_count", "what")

    def __init__(self, what: str, record_count: int, error: KafkaError) -> None:
        self.what = what
        self.record_count = record_count
        self.error = error


class _Unreported(NamedTuple):
    record_count: int
    reason: str


class FailureReports:
    """See the module. `clock_ms` is the monotonic clock."""

    def __init__(self, client_id: str, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._plain_log = ClientLog("pykclient.producer", client_id)
        self._log = RateLimitedLog(self._plain_log)
        self._held: dict[_Note, bool] = {}
        """Failures that the application may still read. Others are not reported."""
        self._noted: deque[_Note] = deque(maxlen=UNSEEN_MAX)
        self._unreported: dict[tuple[str, str], _Unreported] = {}
        """Noted failures, by place and kind of error."""
        self._is_over = False
        self.callback_error_count = 0
        """Number of callbacks of the application that have raised."""

    def on_callback_error(self, kind: str, where: str, function: Callable[..., object]) -> None:
        """Log the current exception, which a function of the application raised.

        One line covers all failures of the function in the same `kind` of callback, whatever
        `where` is: a topic may have many partitions.
        """
        self.callback_error_count += 1
        name = _name_of(function)
        self._say(
            logging.ERROR, (kind, name), "%s for %s failed: %s", kind, where, name, exc_info=True
        )

    def unseen(self, what: str, record_count: int, error: KafkaError) -> UnseenFailure | None:
        """Return an object that reports a failure when dropped; None after `close` or `purge`."""
        if isinstance(error, ClosedError | PurgedError):
            return None
        note = _Note(what, record_count, error)
        self._held[note] = True
        return UnseenFailure(self, note)

    def on_dropped(self, note: _Note) -> None:
        """Keep a failure that no delivery can read for the log.

        Any thread; only `UnseenFailure` calls it.
        """
        if not self._held.pop(note, False):
            return
        if note.record_count > 0:
            self._noted.append(note)
        if self._is_over and not self._held:
            self._log_rest()

    def log_unseen(self) -> None:
        """Log noted failures, one line per place and kind of error.

        A line that was logged a short while ago is counted, and logged later.
        """
        if not self._noted:
            return
        now_ms = self._clock_ms()
        for what, kind in self._count():
            key = ("unseen", what, kind)
            if self._log.is_due(now_ms, key):
                unreported = self._unreported.pop((what, kind), None)
                if unreported is not None:  # else it was logged at the end of the program
                    count, reason = unreported
                    self._say(logging.WARNING, key, UNSEEN, count, what, reason)

    def end(self) -> None:
        """Log the remaining failures. From now on they are logged as they are dropped."""
        self._is_over = True
        self._log_rest()
        self._log.log_rest()

    def end_program(self) -> None:
        """Log the remaining failures, also those that could still be read. Any thread."""
        for note in list(self._held):
            self.on_dropped(note)
        self._log_rest()

    def on_fork(self) -> None:
        """Forget everything in a child process: the parent reports it."""
        self._held.clear()
        self._noted.clear()
        self._unreported.clear()

    def _count(self) -> dict[tuple[str, str], None]:
        changed: dict[tuple[str, str], None] = {}
        while self._noted:
            try:
                note = self._noted.popleft()
            except IndexError:  # another thread was faster, after the producer's end
                break
            if note.record_count <= 0:
                continue
            key = (note.what, type(note.error).__name__)
            known = self._unreported.get(key)
            reason = known.reason if known else f"{key[1]}: {note.error}"
            count = (known.record_count if known else 0) + note.record_count
            self._unreported[key] = _Unreported(count, reason)
            changed[key] = None
        return changed

    def _log_rest(self) -> None:
        """Log all noted failures, in any thread. Nothing after it could repeat them."""
        self._count()
        for key in list(self._unreported):
            unreported = self._unreported.pop(key, None)
            if unreported is not None:
                self._plain_log.warning(UNSEEN, unreported.record_count, key[0], unreported.reason)

    def _say(
        self,
        level: int,
        key: tuple[object, ...],
        message: str,
        *args: object,
        exc_info: bool = False,
    ) -> None:
        self._log.log(level, self._clock_ms(), key, message, *args, exc_info=exc_info)


def _name_of(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__
