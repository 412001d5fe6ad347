"""The chain of interceptors around a producer: each sees every record, and what became of it.

An interceptor that fails is logged and skipped; it never stops a record.

Owner: `on_send` runs in the application's thread, `on_acknowledgement` in the sender thread, or in
the application's when `send` itself raised.
Source: Java class ``ProducerInterceptors``; KIP-42.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pykclient.accel.abc import OnDelivery
    from pykclient.producer.record import ProducerRecord, RecordMetadata

__all__ = ["Interceptors", "ProducerInterceptor"]

log = logging.getLogger("pykclient.producer")


class ProducerInterceptor(Protocol):
    """What an interceptor has to have."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: the one given, before serialization, or another."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Hear what became of a record. On failure `error` tells, and there is no offset."""
        ...


class Interceptors:
    """Calls the interceptors in the order in which they were configured."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all of them; one that fails leaves it as it was."""
        for interceptor in self._interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:  # noqa: BLE001 - the application's code; a record goes its way
                self._log_failure(interceptor.on_send)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Tell all of them what became of a record."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:  # noqa: BLE001 - the application's code; the others still hear
                self._log_failure(interceptor.on_acknowledgement)

    def before(self, on_delivery: OnDelivery[RecordMetadata] | None) -> OnDelivery[RecordMetadata]:
        """Return a delivery callback that tells the interceptors first, then `on_delivery`."""
        if on_delivery is None:
            return self.on_acknowledgement

        def tell_all(metadata: RecordMetadata, error: Exception | None) -> None:
            self.on_acknowledgement(metadata, error)
            on_delivery(metadata, error)

        return tell_all

    @staticmethod
    def _log_failure(method: Callable[..., object]) -> None:
        log.warning("interceptor %r failed; it is skipped", method, exc_info=True)
