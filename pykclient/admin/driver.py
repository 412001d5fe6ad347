"""AdminDriver: runs the calls of an admin client one after the other.

Owner: the admin lock, which a call holds from start to end.
Source: Java class ``KafkaAdminClient``.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeVar

from pykclient.admin.core import TimeLimit
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.errors import ClosedError, ForkedClientError, KafkaTimeoutError, UsageError
from pykclient.network.drive import drive, now_ms
from pykclient.network.interrupts import leaves_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.admin.core import AdminCore
    from pykclient.network.drive import Decisions
    from pykclient.network.io.port import Port

T = TypeVar("T")


class AdminDriver:
    """Runs the decisions of one call after the other; *open*, then *closed*."""

    def __init__(self, core: AdminCore, port: Port) -> None:
        self.is_closed = False
        self._core = core
        self._port = port
        self._lock = threading.RLock()  # it knows its owner; it is never taken twice
        self._is_torn = False
        """True if a call was interrupted and left the state half changed."""
        self._process_id = os.getpid()

    def run(self, decisions: Callable[[TimeLimit], Decisions[T]], timeout: float | None) -> T:
        """Make one call in at most `timeout` seconds, including the wait for earlier calls."""
        timeout_ms = self._timeout_ms(timeout)
        limit = TimeLimit(now_ms() + timeout_ms, timeout_ms)
        with self._entered(timeout_ms):
            return self._drive(decisions(limit))

    def close(self, timeout: float | None) -> None:
        if self.is_closed or os.getpid() != self._process_id:
            return
        if _is_owned(self._lock):
            self._core.is_close_requested = True
            self._core.engine.client.wakeup()
            return
        try:
            with self._entered(self._timeout_ms(timeout)):
                self._shut_down()
        except ClosedError:
            return  # another thread closed it while this one waited

    def _drive(self, decisions: Decisions[T]) -> T:
        if self._is_torn:
            self._core.engine.restart()
            self._core.metadata.restart(now_ms())
        self._is_torn = True
        try:
            result = drive(self._core.engine, self._port, decisions)
        except BaseException as error:
            if leaves_whole(error):
                self._is_torn = False
            if isinstance(error, ClosedError) and not self.is_closed:
                self._shut_down()  # it was requested during this call
            raise
        self._is_torn = False
        return result

    def _shut_down(self) -> None:
        self._core.engine.client.is_closed = True
        self._port.shutdown()
        self.is_closed = True

    def _timeout_ms(self, timeout: float | None) -> int:
        return milliseconds(timeout, self._core.config.default_api_timeout_ms)

    def _entered(self, timeout_ms: int) -> _Entry:
        """Return a block that only this thread is in, after the earlier calls."""
        if os.getpid() != self._process_id:
            raise ForkedClientError(
                f"this admin client was made in process {self._process_id}, and this is process "
                f"{os.getpid()}; make a new one after a fork"
            )
        if _is_owned(self._lock):
            raise UsageError(
                "this admin client is in the middle of another call of this thread: a signal "
                "handler, a destructor or a handler of log records cannot make one on top of it"
            )
        return _Entry(self._lock, self._check_open, timeout_ms)

    def _check_open(self) -> None:
        if not self.is_closed and self._core.is_close_requested:
            self._shut_down()
        if self.is_closed:
            raise ClosedError("this admin client is closed; make a new one")


class _Entry:
    """A block for one thread, which holds `lock`."""

    def __init__(
        self, lock: threading.RLock, check_open: Callable[[], None], timeout_ms: int
    ) -> None:
        self._lock = lock
        self._check_open = check_open
        self._timeout_ms = timeout_ms

    def __enter__(self) -> None:
        try:
            if not self._lock.acquire(timeout=min(self._timeout_ms / 1000, threading.TIMEOUT_MAX)):
                raise KafkaTimeoutError(
                    f"waited {self._timeout_ms} ms for a call that another thread makes with this "
                    f"admin client"
                )
            self._check_open()
        except BaseException:
            if _is_owned(self._lock):
                self._lock.release()
            raise

    @property
    def __exit__(self) -> Callable[..., object]:
        """The function that ends the block. It is a C function, so no interrupt can precede it."""
        return self._lock.__exit__


def _is_owned(lock: threading.RLock) -> bool:
    # `threading.Condition` checks the same way.
    is_owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
    return is_owned
