"""AdminDriver: how a call of an admin client is made to its end, whatever it is about.

It is *open*, then *closed*. Calls from several threads queue.

Owner: the admin lock, which a call holds from start to end.
Source: Java class ``KafkaAdminClient``.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from pykclient.admin.config import AdminConfig
from pykclient.admin.core import AdminCore
from pykclient.errors import ClosedError, ForkedClientError, KafkaTimeoutError
from pykclient.network.call_timeout import timeout_ms as milliseconds
from pykclient.network.drive import drive, now_ms
from pykclient.network.selector import SelectorPort

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from pykclient.admin.call import AdminCall, AdminHandler

__all__ = ["AdminDriver"]

KeyT = TypeVar("KeyT", bound="Hashable")
ValueT = TypeVar("ValueT")


class AdminDriver(AdminCore):
    """Opens, closes, and drives the engine for one call after the other."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        """Take the settings of `AdminConfig`, as a mapping, as keywords, or both.

        Nothing is connected before the first call.

        Raises:
            ConfigError: a setting is unknown, malformed or not built yet.
        """
        config = AdminConfig.from_settings(settings, **keywords)
        super().__init__(config, SelectorPort.from_config(config))
        self._lock = threading.Lock()
        self._is_closed = False
        self._process_id = os.getpid()

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

        Raises:
            KafkaTimeoutError: that call did not end within `timeout` seconds.
        """
        if self._is_closed:
            return
        try:
            with self._entered(self._timeout_ms(timeout)):
                self._is_closed = True
                self._client.close()
                self._port.shutdown()
        except ClosedError:
            return  # another thread closed it while this one waited

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

    @contextmanager
    def _entered(self, timeout_ms: int) -> Iterator[None]:
        """Wait for the calls before this one. Their time counts as ours."""
        if os.getpid() != self._process_id:
            raise ForkedClientError(
                f"this admin client was made in process {self._process_id}, and this is process "
                f"{os.getpid()}; make a new one after a fork"
            )
        if not self._lock.acquire(timeout=min(timeout_ms / 1000, threading.TIMEOUT_MAX)):
            raise KafkaTimeoutError(
                f"waited {timeout_ms} ms for a call that another thread makes with this admin "
                f"client"
            )
        try:
            if self._is_closed:
                raise ClosedError("this admin client is closed; make a new one")
            yield
        finally:
            self._lock.release()

    def _drive(self, call: AdminCall[KeyT, ValueT], deadline_ms: int) -> None:
        """Run the engine until the call is done or its time is up. Raises what is fatal."""
        self._calls.start(call)
        try:
            drive(
                self._engine,
                self._port,
                until=lambda: call.is_done or self._metadata.fatal_error is not None,
                deadline_ms=deadline_ms,
            )
        finally:
            self._calls.end(call)
        if not call.is_done and self._metadata.fatal_error is not None:
            raise self._metadata.fatal_error
