"""ConsumerInterceptors: the user objects that see records before the application does.

Owner: the thread that polls.
Source: KIP-42; Java class ``ConsumerInterceptors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pykclient.consumer.record import ConsumerRecords
from pykclient.interceptors import InterceptorChain
from pykclient.network.interrupts import raise_of_signal_handler
from pykclient.network.log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pykclient.types import OffsetAndMetadata, TopicPartition


class ConsumerInterceptor(Protocol):
    """What an interceptor has to have.

    An `on_commit(offsets)`, where it has one, is called with offsets that were committed, and a
    `close()` at the end.
    """

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return the records for the application: those given, or others."""
        ...


class ConsumerInterceptors(InterceptorChain[ConsumerInterceptor]):
    log = ClientLog("pykclient.consumer", "")
    required = ("on_consume(records)",)

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        return self.pass_through(
            lambda interceptor, given: interceptor.on_consume(given), records, ConsumerRecords
        )

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report committed offsets to those that have an `on_commit`."""
        for interceptor in self._interceptors:
            on_commit = getattr(interceptor, "on_commit", None)
            if not callable(on_commit):
                continue
            try:
                on_commit(offsets)
            except Exception as error:  # noqa: BLE001  # user code; it is logged
                raise_of_signal_handler(error)
                self.on_failure(interceptor)
