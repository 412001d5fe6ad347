"""InterceptorChain: user objects called one after the other, as they were configured.

One that fails, or returns what it must not, is logged and skipped: it never stops a record.

Owner: whoever calls it.
Source: KIP-42; Java classes ``ProducerInterceptors`` and ``ConsumerInterceptors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from pykclient.config.setting import resolve_class_setting
from pykclient.errors import ConfigError
from pykclient.network.interrupts import raise_of_signal_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from pykclient.network.log import ClientLog

Interceptor = TypeVar("Interceptor")
T = TypeVar("T")


class InterceptorChain(Generic[Interceptor]):
    """What the chains of a producer and of a consumer share."""

    log: ClassVar[ClientLog]
    required: ClassVar[tuple[str, ...]]
    """The methods that an interceptor must have, with their parameters."""
    close_errors: ClassVar[type[BaseException]] = Exception
    """What an interceptor may raise in `close` without keeping the others from it."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = tuple(interceptors)

    @classmethod
    def from_setting(cls, configured: Sequence[object]) -> Self:
        """Make the interceptors of the setting.

        Raises:
            ConfigError: one cannot be imported, or lacks a method.
        """
        made = [resolve_class_setting("interceptor.classes", entry) for entry in configured]
        for interceptor in made:
            for method in cls.required:
                if not callable(getattr(interceptor, method.partition("(")[0], None)):
                    raise ConfigError(
                        f"interceptor.classes has {interceptor!r:.100}, which has no method "
                        f"{method}"
                    )
        return cls(cast("list[Interceptor]", made))

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def pass_through(self, call: Callable[[Interceptor, T], object], given: T, kind: type[T]) -> T:
        """Have each interceptor return what the next one gets; one that fails leaves it as it was.

        So does one that returns anything but a `kind`, as one that forgets to return anything does:
        Java would hand its null on.
        """
        for interceptor in self._interceptors:
            try:
                returned = call(interceptor, given)
            except Exception as error:  # noqa: BLE001  # user code; it is logged
                raise_of_signal_handler(error)
                self.on_failure(interceptor)
                continue
            if isinstance(returned, kind):
                given = returned
            else:
                # Its type alone: the value may be what the topic alone is to have.
                name = type(returned).__name__
                self.log.warning("interceptor %r returned a %s; it is skipped", interceptor, name)
        return given

    def on_failure(self, interceptor: Interceptor) -> None:
        """Log what is being handled: the failure of an interceptor."""
        self.log.warning("interceptor %r failed; it is skipped", interceptor, exc_info=True)

    def close(self) -> None:
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if not callable(close):
                continue
            try:
                close()
            except self.close_errors:  # the application's code; the others still close
                self.log.warning("interceptor %r failed to close", interceptor, exc_info=True)
