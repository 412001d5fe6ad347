"""ConsumerInterceptors: the chain of user objects that see records before the application does.

One that fails is logged and skipped: the records go on as they were before it.

Owner: the thread that polls.
Source: KIP-42; Java class ``ConsumerInterceptors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from pykclient.config.setting import resolve_class_setting
from pykclient.errors import ConfigError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from pykclient.consumer.record import ConsumerRecords
    from pykclient.types import OffsetAndMetadata, TopicPartition

__all__ = ["ConsumerInterceptor", "ConsumerInterceptors"]

log = ClientLog("pykclient.consumer", "")


class ConsumerInterceptor(Protocol):
    """What an interceptor has to have.

    An `on_commit(offsets)`, where it has one, is called with offsets that were committed, and a
    `close()` at the end.
    """

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Return the records to hand out: those given, or others."""
        ...


class ConsumerInterceptors:
    """Calls the interceptors in the order in which they were configured."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    @classmethod
    def from_setting(cls, configured: Sequence[object]) -> Self:
        """Make the interceptors of the setting.

        Raises:
            ConfigError: one cannot be imported, or lacks `on_consume`.
        """
        made = [resolve_class_setting("interceptor.classes", entry) for entry in configured]
        for interceptor in made:
            if not callable(getattr(interceptor, "on_consume", None)):
                raise ConfigError(
                    f"interceptor.classes has {interceptor!r:.100}, which has no method "
                    f"on_consume(records)"
                )
        return cls([cast("ConsumerInterceptor", interceptor) for interceptor in made])

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """Pass records through all of them."""
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception as error:  # the application's code; the records go their way
                raise_of_signal_handler(error)
                log.warning("interceptor %r failed; it is skipped", interceptor, exc_info=True)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Tell those that want it of offsets that were committed."""
        for interceptor in self._interceptors:
            on_commit = getattr(interceptor, "on_commit", None)
            if not callable(on_commit):
                continue
            try:
                on_commit(offsets)
            except Exception as error:  # the application's code; the offsets are committed
                raise_of_signal_handler(error)
                log.warning("interceptor %r failed; it is skipped", interceptor, exc_info=True)

    def close(self) -> None:
        """Close those that want it."""
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if not callable(close):
                continue
            try:
                close()
            except Exception:  # the application's code; the others still close
                log.warning("interceptor %r failed to close", interceptor, exc_info=True)
