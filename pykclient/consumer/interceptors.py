"""ConsumerInterceptors: user objects that see records before the application does.

Owner: the thread that polls.
Source: KIP-42; Java class ``ConsumerInterceptors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.consumer.record import ConsumerRecords
from pykclient.interceptors import InterceptorChain
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.type_parameters import K, V

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pykclient.types import OffsetAndMetadata, TopicPartition


class ConsumerInterceptor(Protocol[K, V]):
    """Interface of the objects in the consumer setting `interceptors` (KIP-42).

    Any object with this method will do; a class may also inherit from this one. Two optional
    methods are called if they exist: `on_commit(offsets)` with committed offsets by
    `TopicPartition`, and `close()` once, when the consumer is closed.

    K and V are the types of the records' keys and values; any type if they are not given.

    All are called in the thread that polls. An exception in a method is logged, and the records are
    processed as if the interceptor were absent.
    """

    def on_consume(self, records: ConsumerRecords[K, V]) -> ConsumerRecords[K, V]:
        """Return the records for the application: `records` itself, or others.

        Called once for each poll that found records, after deserialization.
        """
        return records


class ConsumerInterceptors(InterceptorChain["ConsumerInterceptor[Any, Any]"]):
    """Calls the interceptors in the order in which they were configured."""

    logger = "pykclient.consumer"
    required = ("on_consume(records)",)

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        return self.pass_through(
            "on_consume",
            lambda interceptor, given: interceptor.on_consume(given),
            records,
            ConsumerRecords,
        )

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report committed offsets to interceptors with an `on_commit` method."""
        for interceptor in self._interceptors:
            on_commit = getattr(interceptor, "on_commit", None)
            if not callable(on_commit):
                continue
            try:
                on_commit(offsets)
            except Exception as error:  # noqa: BLE001  # user code; it is logged
                raise_of_signal_handler(error)
                self.on_failure(interceptor, "on_commit", error)
