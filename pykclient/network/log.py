"""Logging of clients: `ClientLog`, and `RateLimitedLog` and `LongWaits`, which limit its volume.

An exception raised by a filter or handler is written to stderr, as `logging` does with errors of
`emit` (unless `logging.raiseExceptions` is off): the 1st, 10th, 100th ... time. A thread that holds
a lock may keep its messages until it has released the lock (`keep_messages`), since a handler may
block.

Owner: any thread may use all of it. Two threads that log the same thing at the same moment may both
do so, and a `RateLimitedLog` may then miss one in its count.
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pykclient.network.interrupts import raise_of_signal_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

REPEAT_MS: Final = 30_000
"""Time during which equal lines are logged once."""

KEYS_MAX: Final = 1_000
"""Maximum number of lines remembered; the oldest is forgotten first.

A program that logs more different lines within `REPEAT_MS` may repeat them sooner.
"""

ARGUMENT_LENGTH_MAX: Final = 10_000
"""Maximum length of one argument of a line; the rest is cut off. A name from a broker may be as
long as a response."""

LONG_WAIT_MS: Final = 5_000

REMEMBERED_MAX: Final = 64
"""Maximum number of waits remembered. Beyond it all are forgotten and may be logged again."""

_kept: ContextVar[list[Callable[[], None]] | None] = ContextVar("kept", default=None)
"""Messages that this thread logs when it has released its lock; None if it logs at once."""


@contextmanager
def keep_messages() -> Iterator[None]:
    """Keep what this thread logs inside the block, and log it at the end."""
    messages: list[Callable[[], None]] = []
    token = _kept.set(messages)
    try:
        yield
    finally:
        _kept.reset(token)
        for log in messages:
            log()


_LOGGERS: Final = {
    name: logging.getLogger(name)
    for name in (
        *("pykclient.admin", "pykclient.consumer", "pykclient.network", "pykclient.producer"),
        "pykclient.security",
    )
}
"""Loggers, looked up at import. `getLogger` takes the lock of `logging`, which an exception of a
signal handler may leave taken for good (see `ClientLog.isEnabledFor`)."""

_logging: dict[int, logging.Logger] = {}
"""The logger that a thread is inside of, by the thread's identifier."""


def waits_for_handler_of_caller(thread_id: int) -> bool:
    """Return whether a thread is logging through a handler that the caller is inside of.

    Such a thread waits for the handler's lock until the caller has left the handler.
    """
    logger = _logging.get(thread_id)
    while logger is not None:
        # `threading.Condition` asks the same way. A handler may have another kind of lock, or none.
        if any(getattr(h.lock, "_is_owned", bool)() for h in list(logger.handlers)):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _cut(argument: object) -> object:
    """Return an argument of a line, shortened to a text if it is too long."""
    if isinstance(argument, (int, float)) or argument is None:
        return argument
    text = str(argument)
    if len(text) <= ARGUMENT_LENGTH_MAX:
        return argument
    return f"{text[:ARGUMENT_LENGTH_MAX]}... ({len(text)} characters)"


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """The logger `name` as used by the client `client_id` (empty: none)."""

    failure_count: ClassVar[int] = 0
    """Number of times a filter or handler has raised, in all clients."""

    def __init__(self, name: str, client_id: str) -> None:
        super().__init__(_LOGGERS.get(name) or logging.getLogger(name), {"client_id": client_id})
        # The logger formats only messages with arguments, so the prefix must not contain a percent
        # sign. The `client_id` attribute keeps it.
        self._prefix = f"[{client_id}] ".replace("%", "") if client_id else ""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = self.extra
        return f"{self._prefix}{msg}", kwargs

    def isEnabledFor(self, level: int) -> bool:
        """Return whether a message of this level is handled, without the lock of `logging`.

        If an exception of a signal handler interrupts a thread right after it took that lock, the
        lock stays taken, and every other thread that looks up a level would wait for it.
        """
        logger = self.logger
        if logger.disabled or logger.manager.disable >= level:
            return False
        return level >= logger.getEffectiveLevel()

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message. Errors raised by filters and handlers are written to stderr."""
        if not self.isEnabledFor(level):
            return
        kept = _kept.get()
        if kept is not None:
            if kwargs.get("exc_info") is True:
                kwargs["exc_info"] = sys.exc_info()
            kept.append(partial(self.log, level, msg, *args, **kwargs))
            return
        message, keywords = self.process(msg, kwargs)
        me = get_ident()
        outer = _logging.get(me)
        try:
            _logging[me] = self.logger
            # `log` would take that lock as well. The caller, which a formatter shows, is two frames
            # up.
            shown = tuple(map(_cut, args))
            self.logger._log(level, message, shown, stacklevel=2, **keywords)  # noqa: SLF001
        except Exception as error:  # noqa: BLE001 (user code)
            raise_of_signal_handler(error)
            self._on_failure()
        finally:
            if outer is None:
                _logging.pop(me, None)
            else:
                _logging[me] = outer

    def _on_failure(self) -> None:
        ClientLog.failure_count += 1
        count = ClientLog.failure_count
        # Powers of ten: a handler that always raises must not fill the disk.
        if (
            logging.raiseExceptions
            and sys.stderr is not None
            and count == 10 ** (len(str(count)) - 1)
        ):
            sys.stderr.write(
                f"A filter or handler of logger {self.logger.name!r} raised, {count} times by now; "
                f"the client continues:\n"
            )
            traceback.print_exc()


@dataclass(slots=True)
class _Logged:
    time_ms: int
    level: int
    text: str
    """The formatted line. Its arguments are not kept, since they may hold large objects."""
    repeat_count: int = 0
    """Number of repetitions since."""


class RateLimitedLog:
    """Logs the same thing at most once every `REPEAT_MS`, and at DEBUG in between.

    A key defines what counts as the same: the subject and the reason, without numbers that change.
    The next line says how often it has happened meanwhile. Java's client logs every repetition.
    """

    def __init__(self, log: ClientLog) -> None:
        self._log = log
        self._logged: dict[tuple[object, ...], _Logged] = {}

    def is_due(self, now_ms: int, key: tuple[object, ...]) -> bool:
        logged = self._logged.get(key)
        return logged is None or now_ms - logged.time_ms >= REPEAT_MS

    def log(
        self,
        level: int,
        now_ms: int,
        key: tuple[object, ...],
        message: str,
        *args: object,
        exc_info: bool = False,
    ) -> bool:
        """Log a message with %-arguments; return whether it was logged at `level` and not at DEBUG.

        With `exc_info`, the traceback of the exception being handled is logged too.
        """
        logged = self._logged.get(key)
        if logged is not None and not self.is_due(now_ms, key):
            logged.repeat_count += 1
            self._log.debug(message, *args, exc_info=exc_info)
            return False
        self._logged.pop(key, None)
        if len(self._logged) >= KEYS_MAX:
            self._logged.pop(next(iter(list(self._logged))), None)
        self._logged[key] = _Logged(now_ms, level, _formatted(message, args))
        if logged is not None and logged.repeat_count:
            message = f"{message} (%d times since it was last logged)"
            args = (*args, logged.repeat_count)
        self._log.log(level, message, *args, exc_info=exc_info)
        return True

    def log_rest(self) -> None:
        """Log how often each line has repeated since it was last logged, and forget all lines."""
        for key in list(self._logged):
            logged = self._logged.pop(key, None)
            if logged is not None and logged.repeat_count:
                self._log.log(
                    logged.level,
                    "%s (%d times since it was last logged)",
                    logged.text,
                    logged.repeat_count,
                )


def _formatted(message: str, args: tuple[object, ...]) -> str:
    try:
        return message % args
    except Exception as error:  # noqa: BLE001 (user code: the repr of an argument)
        raise_of_signal_handler(error)
        return message


class LongWait:
    """One wait for `what`. `why` is called when the wait gets long; it returns "" if unknown."""

    __slots__ = ("_due_ms", "_waits", "_what", "_why")

    def __init__(self, waits: LongWaits, what: str, why: Callable[[], str], now_ms: int) -> None:
        self._waits = waits
        self._what = what
        self._why = why
        self._due_ms: int | None = now_ms + LONG_WAIT_MS

    def until_ms(self, deadline_ms: int) -> int:
        """Return the time of the next `look`, at most the deadline."""
        return deadline_ms if self._due_ms is None else min(self._due_ms, deadline_ms)

    def look(self, now_ms: int) -> None:
        if self._due_ms is not None and self._due_ms <= now_ms:
            self._due_ms = None
            self._waits.warn(self._what, self._why, now_ms)


class LongWaits:
    """Logs what a client's calls wait for when the wait is long.

    A call that waits up to a minute without logging looks as if it hung. It therefore logs a
    WARNING after `LONG_WAIT_MS`, at most once every `REPEAT_MS` for the same thing, however many
    calls and threads wait for it.
    """

    def __init__(self, log: ClientLog) -> None:
        self._log = log
        self._logged_ms: dict[str, int] = {}

    def begin(self, what: str, why: Callable[[], str], now_ms: int) -> LongWait:
        return LongWait(self, what, why, now_ms)

    def warn(self, what: str, why: Callable[[], str], now_ms: int) -> None:
        """Log that a call is still waiting, unless that was logged recently."""
        logged_ms = self._logged_ms.get(what)
        if logged_ms is not None and now_ms - logged_ms < REPEAT_MS:
            return
        if len(self._logged_ms) >= REMEMBERED_MAX:
            self._logged_ms = {}
        self._logged_ms[what] = now_ms
        self._log.warning(
            "still waiting for %s after %d ms: %s",
            what,
            LONG_WAIT_MS,
            why() or "no response has come yet",
        )
