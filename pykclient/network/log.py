"""ClientLog: a package's logger, whose messages begin with the client's id.

Where several clients run in one process, the id tells them apart. It is also the attribute
`client_id` of each log record, for filters and formatters.

What a filter or handler raises stays here: it is no reason for a client to stop, or to leave half
done what it was logging about. It is written to stderr, as `logging` itself does with what a
handler's `emit` raises (unless `logging.raiseExceptions` is off), the first time and then after
ten, a hundred ... times as many.

A thread that has a lock may keep its messages until it has given that back (`keep_messages`): a
handler may also block.

Owner: none, it never changes; `failure_count` is the process's, what is kept, and the logger that a
thread is in, its thread's own.
Source: the `logging` cookbook, "Adding contextual information".
"""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, ClassVar

from pykclient.network.interrupts import raise_of_signal_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping

__all__ = ["ClientLog", "keep_messages", "waits_for_handler_of_caller"]

_kept: ContextVar[list[Callable[[], None]] | None] = ContextVar("kept", default=None)
"""What this thread has to log when it has no lock any more; None while it may log at once."""


@contextmanager
def keep_messages() -> Iterator[None]:
    """Have what this thread logs inside the block handled at the end of it."""
    messages: list[Callable[[], None]] = []
    token = _kept.set(messages)
    try:
        yield
    finally:
        _kept.reset(token)
        for log in messages:
            log()


_logging: dict[int, logging.Logger] = {}
"""Which logger a thread is in, by the thread's identifier."""


def waits_for_handler_of_caller(thread_id: int) -> bool:
    """Return whether that thread logs what goes through a handler in which the caller is.

    It cannot go on before the caller has left the handler, which holds its lock meanwhile.
    """
    logger = _logging.get(thread_id)
    while logger is not None:
        # As `threading.Condition` asks it; a handler may have a lock of its own kind, or none.
        if any(getattr(h.lock, "_is_owned", bool)() for h in list(logger.handlers)):
            return True
        logger = logger.parent if logger.propagate else None
    return False


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """The logger `name`, used by the client `client_id`; empty stands for none."""

    failure_count: ClassVar[int] = 0
    """How often a filter or handler has raised, in all clients."""

    def __init__(self, name: str, client_id: str) -> None:
        super().__init__(logging.getLogger(name), {"client_id": client_id})
        # The logger formats messages that have arguments and no others, so that a percent sign
        # can stand in none; the attribute has it.
        self._prefix = f"[{client_id}] ".replace("%", "") if client_id else ""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the id in front of a message."""
        kwargs["extra"] = self.extra
        return f"{self._prefix}{msg}", kwargs

    def isEnabledFor(self, level: int) -> bool:
        """Return whether a message of this level is handled, without the lock of `logging`.

        An exception of a signal handler leaves that lock taken for good where it interrupts a
        thread right after it took it; every other thread that looks for a level would then wait.
        """
        logger = self.logger
        if logger.disabled or logger.manager.disable >= level:
            return False
        return level >= logger.getEffectiveLevel()

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; what filters and handlers raise is written to stderr."""
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
            # `log` would take that lock as well. Two frames up is the call of the log, whose place
            # a formatter shows.
            self.logger._log(level, message, args, stacklevel=2, **keywords)  # noqa: SLF001
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
                f"the client goes on:\n"
            )
            traceback.print_exc()
