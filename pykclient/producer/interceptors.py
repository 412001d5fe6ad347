"""ProducerInterceptors: the user objects that see each record, and its result.

Owner: `on_send` runs in the application's thread, `on_acknowledgement` in the sender thread, or in
the application's when `send` itself raised.
Source: Java class ``ProducerInterceptors``; KIP-42.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.interceptors import InterceptorChain
from pykclient.network.log import ClientLog
from pykclient.producer.record import ProducerRecord, RecordMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pykclient.accel.abc import OnDelivery
    from pykclient.errors import KafkaError


class ProducerInterceptor(Protocol):
    """What an interceptor has to have. A `close()`, where it has one, is called at the end."""

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record to send: the one given, before serialization, or another."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Take a record's result. On failure there is an `error`, and no offset."""
        ...


class ProducerInterceptors(InterceptorChain[ProducerInterceptor]):
    """Calls the interceptors in the order in which they were configured."""

    log = ClientLog("pykclient.producer", "")
    required = ("on_send(record)", "on_acknowledgement(metadata, error)")
    # The sender thread closes them as its last act, and no caller could catch anything.
    close_errors = BaseException

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return self.pass_through(
            lambda interceptor, given: interceptor.on_send(given), record, ProducerRecord
        )

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Call all of them with a record's result, whatever one raises.

        What is no `Exception`, an exit or an interrupt, is raised at the end.
        """
        exit_error: BaseException | None = None
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException as raised:  # noqa: BLE001  # user code; an exit is raised below
                self.on_failure(interceptor)
                if not isinstance(raised, Exception):
                    exit_error = raised
        if exit_error is not None:
            raise exit_error

    def on_not_sent(self, records: Iterable[ProducerRecord[Any, Any]], error: KafkaError) -> None:
        for record in records:
            partition = -1 if record.partition is None else record.partition
            metadata = RecordMetadata(record.topic, partition, None, record.timestamp_ms)
            self.on_acknowledgement(metadata, error)

    def before(self, on_delivery: OnDelivery[RecordMetadata] | None) -> OnDelivery[RecordMetadata]:
        """Return a delivery callback that calls the interceptors first, then `on_delivery`."""
        if on_delivery is None:
            return self.on_acknowledgement

        def call_all(metadata: RecordMetadata, error: KafkaError | None) -> None:
            try:
                self.on_acknowledgement(metadata, error)
            finally:
                on_delivery(metadata, error)

        return call_all
