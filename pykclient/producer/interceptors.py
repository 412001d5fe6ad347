"""ProducerInterceptors: user objects that see each record and its result.

Owner: `on_send` runs in the application's thread, `on_acknowledgement` in the sender thread, or in
the application's when `send` itself raised.
Source: Java class ``ProducerInterceptors``; KIP-42.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.interceptors import InterceptorChain
from pykclient.producer.record import ProducerRecord, RecordMetadata
from pykclient.type_parameters import K, V

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pykclient.accel.abc import OnDelivery
    from pykclient.errors import KafkaError


class ProducerInterceptor(Protocol[K, V]):
    """Interface of the objects in the producer setting `interceptors` (KIP-42).

    Any object with these two methods will do; a class may also inherit from this one and override
    only the methods that it needs. An optional method `close()` is called once, in the sender
    thread, when the producer has ended.

    K and V are the key and value types that `send` takes; any type if they are not given.

    An exception in a method is logged, and the record is processed as if the interceptor were
    absent.
    """

    def on_send(self, record: ProducerRecord[K, V]) -> ProducerRecord[K, V]:
        """Return the record to send: `record` itself, or another one.

        `record` has the arguments of `send`, before serialization and partitioning. Called in the
        thread that calls `send`, also for rows of `send_batch` and `send_arrow`.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Receive a record's result; `error` is None if it was delivered.

        After a failure `metadata` has no offset. Called before the record's own `on_delivery`, in
        the sender thread, so it must not wait. If `send` itself failed, it is called in the
        caller's thread.
        """


class ProducerInterceptors(InterceptorChain["ProducerInterceptor[Any, Any]"]):
    """Calls the interceptors in the order in which they were configured."""

    logger = "pykclient.producer"
    required = ("on_send(record)", "on_acknowledgement(metadata, error)")
    # The sender thread closes them last; no caller could catch an exception.
    close_errors = BaseException

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        return self.pass_through(
            "on_send", lambda interceptor, given: interceptor.on_send(given), record, ProducerRecord
        )

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Call all interceptors with a record's result, whatever one raises.

        An exception that is no `Exception`, such as an exit or an interrupt, is raised at the end.
        """
        exit_error: BaseException | None = None
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException as raised:  # noqa: BLE001  # user code; an exit is raised below
                self.on_failure(interceptor, "on_acknowledgement", raised)
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
