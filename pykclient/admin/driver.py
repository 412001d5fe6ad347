"""AdminDriver: how a call of an admin client is made to its end, whatever it is about.

It is *open*, then *closed*. Calls from several threads queue.

Owner: the admin lock, which a call holds from start to end.
Source: Java class ``KafkaAdminClient``.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, TypeVar

from pykclient.admin.config import AdminConfig
from pykclient.admin.core import AdminCore
from pykclient.arguments import timeout_ms as milliseconds
from pykclient.errors import ClosedError, ForkedClientError, KafkaTimeoutError, UsageError
from pykclient.network.drive import drive_until, now_ms
from pykclient.network.interrupts import leaves_whole
from pykclient.network.io.selector import SelectorPort
from pykclient.network.live_client import LiveClient, describe_client

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from pykclient.admin.call import AdminCall, AdminHandler

__all__ = ["AdminDriver"]

KeyT = TypeVar("KeyT", bound="Hashable")
ValueT = TypeVar("ValueT")


class AdminDriver(AdminCore, LiveClient):
    """Opens, closes, and drives the engine for one call after the other."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `AdminConfig`, as a mapping, as keywords, or both.

        Nothing is connected before the first call.

        Raises:
            ConfigError: a setting is unknown, malformed or not built yet.
        """
        config = AdminConfig.from_settings(settings, **keywords).named()
        port = SelectorPort.from_config(config)
        try:
            super().__init__(config, port)
        except BaseException:
            port.shutdown()
            raise
        self._lock = threading.RLock()  # one that knows its owner; it is never taken twice
        self._is_shut_down = False
        self._is_torn = False
        """Whether a call was interrupted and left the state half changed."""
        self._is_close_requested = False
        self._process_id = os.getpid()
        port.warn_if_dropped(
            self, f"{self!r} was not closed. Use it in a with block, or call close()"
        )

    def __repr__(self) -> str:
        return describe_client(self, self._config, "closed" if self._is_shut_down else "open")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Close all connections, once the call under way has ended. Again it does nothing.

        A signal handler that calls this on top of a call of the same thread has that call raise
        `ClosedError`. In a child process it does nothing.

        Raises:
            KafkaTimeoutError: that call did not end within `timeout` seconds.
        """
        if self._is_shut_down or os.getpid() != self._process_id:
            return
        if _is_owned(self._lock):
            self._is_close_requested = True
            self._client.wakeup()
            return
        try:
            with self._entered(self._timeout_ms(timeout)):
                self._shut_down()
        except ClosedError:
            return  # another thread closed it while this one waited

    def _shut_down(self) -> None:
        """Let go of everything. It may be interrupted, and called again."""
        self._client.is_closed = True
        self._port.shutdown()
        self._is_shut_down = True

    def _run(
        self,
        handler: AdminHandler[KeyT, ValueT],
        keys: Iterable[KeyT],
        what: str,
        timeout: float | None,
    ) -> dict[KeyT, ValueT]:
        """Make one call, and return what came of each key."""
        deadline_ms, timeout_ms = self._deadline(timeout)
        with self._entered(timeout_ms):
            call = self._call(handler, keys, deadline_ms)
            self._drive(call, deadline_ms)
            return self._result(call, what, timeout_ms)

    def _timeout_ms(self, timeout: float | None) -> int:
        return milliseconds(timeout, self._config.default_api_timeout_ms)

    def _deadline(self, timeout: float | None) -> tuple[int, int]:
        """Return when a call's time is up, and the milliseconds until then."""
        timeout_ms = self._timeout_ms(timeout)
        return now_ms() + timeout_ms, timeout_ms

    def _entered(self, timeout_ms: int) -> _Entry:
        """Return a block in which this thread alone is; it waits for the calls before this one.

        Their time counts as ours.
        """
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
        if not self._is_shut_down and self._is_close_requested:
            self._shut_down()
        if self._is_shut_down:
            raise ClosedError("this admin client is closed; make a new one")

    def _drive(self, call: AdminCall[KeyT, ValueT], deadline_ms: int) -> None:
        """Run the engine until the call is done or its time is up. Raises what is fatal.

        Before it, what an interrupted call has left behind is dropped, with all connections.
        """
        if self._is_torn:
            self._engine.restart()
            self._metadata.restart(now_ms())
        self._is_torn = True
        try:
            self._drive_to_end(call, deadline_ms)
        except BaseException as error:
            if leaves_whole(error):
                self._is_torn = False
            raise
        self._is_torn = False
        self._check_open()

    def _is_over(self, call: AdminCall[KeyT, ValueT]) -> bool:
        is_ended = self._is_close_requested or self._metadata.fatal_error is not None
        return call.is_done or is_ended

    def _drive_to_end(self, call: AdminCall[KeyT, ValueT], deadline_ms: int) -> None:
        self._metadata.take_fatal_error()  # of the last call: this one tries anew
        self._calls.start(call)
        started_ms = now_ms()
        wait = self._waits.begin(call.name, lambda: self._why_unfinished(call), started_ms)
        try:
            for until_ms in dict.fromkeys((wait.until_ms(deadline_ms), deadline_ms)):
                is_over = drive_until(
                    self._engine,
                    self._port,
                    until=lambda: self._is_over(call),
                    deadline_ms=until_ms,
                )
                if is_over:
                    break
                wait.look(now_ms())
        finally:
            self._calls.end()
        fatal_error = self._metadata.take_fatal_error()
        if not call.is_done and fatal_error is not None:
            raise fatal_error


class _Entry:
    """A block in which one thread is, the one that has `lock`."""

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
        """What ends the block: a call into C, which no interrupt comes before."""
        return self._lock.__exit__


def _is_owned(lock: threading.RLock) -> bool:
    """Return whether the thread that asks has the lock."""
    # As `threading.Condition` asks it.
    is_owned: bool = lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
    return is_owned
