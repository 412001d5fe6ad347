"""InterceptorChain: calls the user's interceptors one after the other, in the setting's order.

An interceptor that fails, or returns an object of the wrong type, is skipped: it never blocks a
record. The first failure is logged with its traceback. Failures of the same type in the same method
are then counted, and logged every 30 seconds (`REPEAT_MS`) and at the end. The clock is read only
for failures.

Owner: the caller.
Source: KIP-42; Java classes ``ProducerInterceptors`` and ``ConsumerInterceptors``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from pykclient.config.setting import resolve_class_setting
from pykclient.errors import ConfigError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog, RateLimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self


Interceptor = TypeVar("Interceptor")
T = TypeVar("T")


class InterceptorChain(Generic[Interceptor]):
    """Base class of the chains of a producer and of a consumer.

    `clock_ms` is the monotonic clock.
    """

    logger: ClassVar[str]
    """Name of the client's logger."""
    required: ClassVar[tuple[str, ...]]
    """The methods that an interceptor must have, with their parameters."""
    close_errors: ClassVar[type[BaseException]] = Exception
    """Exceptions of `close` that are logged, so that the remaining interceptors are closed."""

    def __init__(
        self,
        interceptors: Sequence[Interceptor],
        *,
        clock_ms: Callable[[], int],
        client_id: str = "",
    ) -> None:
        self._interceptors = tuple(interceptors)
        self._clock_ms = clock_ms
        self._log = ClientLog(self.logger, client_id)
        self._repeated = RateLimitedLog(self._log)

    @classmethod
    def from_setting(
        cls, configured: Sequence[object], *, clock_ms: Callable[[], int], client_id: str = ""
    ) -> Self:
        """Create the chain from the setting.

        Raises:
            ConfigError: an interceptor cannot be imported, or lacks a method.
        """
        made = [resolve_class_setting("interceptor.classes", entry) for entry in configured]
        for interceptor in made:
            for method in cls.required:
                if not callable(getattr(interceptor, method.partition("(")[0], None)):
                    raise ConfigError(
                        f"interceptor.classes has {interceptor!r:.100}, which has no method "
                        f"{method}"
                    )
        chosen = cast("list[Interceptor]", made)
        return cls(chosen, clock_ms=clock_ms, client_id=client_id)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def pass_through(
        self, method: str, call: Callable[[Interceptor, T], object], given: T, kind: type[T]
    ) -> T:
        """Pass a value through all interceptors.

        An interceptor is skipped if it fails or returns anything but a `kind`, such as the None of
        a method without `return`: Java would pass the null on.
        """
        for interceptor in self._interceptors:
            try:
                returned = call(interceptor, given)
            except Exception as error:  # noqa: BLE001  # user code; it is logged
                raise_of_signal_handler(error)
                self.on_failure(interceptor, method, error)
                continue
            if isinstance(returned, kind):
                given = returned
            else:
                # Show only the type: the value may be a secret of the topic.
                name = type(returned).__name__
                self._repeated.log(
                    logging.WARNING,
                    self._clock_ms(),
                    (id(interceptor), method, "returned", name),
                    "interceptor %r: %s returned a %s instead of a %s; the interceptor is skipped",
                    interceptor,
                    method,
                    name,
                    kind.__name__,
                )
        return given

    def on_failure(self, interceptor: Interceptor, method: str, error: BaseException) -> None:
        """Log the failure being handled, or count it if the same was logged recently."""
        self._repeated.log(
            logging.WARNING,
            self._clock_ms(),
            (id(interceptor), method, type(error)),
            "interceptor %r: %s raised %s; the interceptor is skipped",
            interceptor,
            method,
            type(error).__name__,
            exc_info=True,
        )

    def close(self) -> None:
        """Close the interceptors that have a `close`, and log the counts of repeated failures."""
        self._repeated.log_rest()
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if not callable(close):
                continue
            try:
                close()
            except self.close_errors:  # the application's code; the others still close
                self._log.warning("interceptor %r failed to close", interceptor, exc_info=True)
