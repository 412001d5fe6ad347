"""ProducerInterceptors: the chain of user objects that see each record, and what became of it.

One that fails is logged and skipped; it never stops a record.

Owner: `on_send` runs in the application's thread, `on_acknowledgement` in the sender thread, or in
the application's when `send` itself raised.
Source: Java class ``ProducerInterceptors``; KIP-42.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from pykclient.config.setting import resolve_class_setting
from pykclient.errors import ConfigError
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog
from pykclient.producer.record import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from pykclient.accel.abc import OnDelivery
    from pykclient.producer.record import RecordMetadata

__all__ = ["ProducerInterceptor", "ProducerInterceptors"]

log = ClientLog("pykclient.producer", "")


class ProducerInterceptor(Protocol):
    """What an interceptor has to have. A `close()`, where it has one, is called at the end."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: the one given, before serialization, or another."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Hear what became of a record. On failure `error` tells, and there is no offset."""
        ...


class ProducerInterceptors:
    """Calls the interceptors in the order in which they were configured."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    @classmethod
    def from_setting(cls, configured: Sequence[object]) -> Self:
        """Make the interceptors of the setting.

        Raises:
            ConfigError: one cannot be imported, or lacks a method.
        """
        made = [resolve_class_setting("interceptor.classes", entry) for entry in configured]
        for interceptor in made:
            for name in ("on_send", "on_acknowledgement"):
                if not callable(getattr(interceptor, name, None)):
                    raise ConfigError(
                        f"interceptor.classes has {interceptor!r:.100}, which has no method {name}"
                    )
        return cls([cast("ProducerInterceptor", interceptor) for interceptor in made])

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all of them; one that fails leaves it as it was."""
        for interceptor in self._interceptors:
            try:
                seen: object = interceptor.on_send(record)
            except Exception as error:  # the application's code; the record goes its way
                raise_of_signal_handler(error)
                log.warning("interceptor %r failed; it is skipped", interceptor, exc_info=True)
                continue
            if isinstance(seen, ProducerRecord):
                record = seen
            else:
                # Its type alone: the value may be what the topic alone is to have.
                name = type(seen).__name__
                log.warning("interceptor %r returned a %s; it is skipped", interceptor, name)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Call all of them with what became of a record, whatever one raises.

        What is no `Exception`, an exit or an interrupt, is raised at the end.
        """
        exit_error: BaseException | None = None
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException as raised:
                log.warning("interceptor %r failed; it is skipped", interceptor, exc_info=True)
                if not isinstance(raised, Exception):
                    exit_error = raised
        if exit_error is not None:
            raise exit_error

    def before(self, on_delivery: OnDelivery[RecordMetadata] | None) -> OnDelivery[RecordMetadata]:
        """Return a delivery callback that tells the interceptors first, then `on_delivery`."""
        if on_delivery is None:
            return self.on_acknowledgement

        def tell_all(metadata: RecordMetadata, error: Exception | None) -> None:
            try:
                self.on_acknowledgement(metadata, error)
            finally:
                on_delivery(metadata, error)

        return tell_all

    def close(self) -> None:
        """Close those that want it. Sender thread."""
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if not callable(close):
                continue
            try:
                close()
            except BaseException:  # the application's code; the others still close
                log.warning("interceptor %r failed to close", interceptor, exc_info=True)
