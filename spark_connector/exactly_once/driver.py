"""SinkDriver: the driver's part of a sink, in whatever process of Spark's driver runs it.

Spark plans the write of each batch in one Python process and commits it in another, and ends both
when they had nothing to do for a minute. So what counts is in Kafka. A process keeps clients for
the next batch. The turn belongs to the application: a process that finds a turn of its own
application goes on with it. A new turn costs some requests, and the ids that tasks have made.

Owner: the process, in which Spark runs one such call at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pykclient.admin.config import AdminConfig
from spark_connector.application import application_name
from spark_connector.exactly_once.cluster import SinkCluster
from spark_connector.exactly_once.protocol import described_topic
from spark_connector.idle_clients import IdleClients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_connector.client_settings import ClientSettings
    from spark_connector.exactly_once.delivery import ExactDelivery
    from spark_connector.exactly_once.protocol import Report, View

_LOG = logging.getLogger(__name__)


class SinkDriver:
    """One sink, in one process. `application` is empty where it is not known."""

    def __init__(
        self, delivery: ExactDelivery, client: ClientSettings, application: str = ""
    ) -> None:
        self._protocol = delivery.protocol
        self._turn: int | None = None
        self._application = application
        self._cluster = SinkCluster(
            delivery.sink_id,
            delivery.record_topic,
            producer_settings=client.of_sink_driver(),
            admin_settings=client.of(AdminConfig),
        )

    def view(self, first_response_s: float | None = None) -> View:
        """Claim the sink for this driver and return the view that tasks of the next batch need.

        `first_response_s` limits the wait for the first response; None sets no limit of its own.

        Raises: `KafkaError` if the sink cannot be claimed.
        """
        if self._turn is None and first_response_s is not None:
            self._cluster.await_brokers(first_response_s)
        record = self._cluster.run(self._protocol.look(self._turn, self._application))
        self._turn = record.turn
        return self._protocol.view(record)

    def view_again(self, view: View) -> View:
        """Read the record again, for an attempt that is not the first of its task.

        Raises: `SinkTakenOverError` if another driver has taken the sink over.
        """
        return self._cluster.run(self._protocol.look_again(view))

    def commit(self, batch: int, reports: Sequence[Report]) -> None:
        """Decide a batch and commit it; warn of rows that were dropped.

        Raises: what `SinkProtocol.commit` raises.
        """
        skipped_count = self._cluster.run(self._protocol.commit(batch, reports))
        if skipped_count:
            _LOG.warning(
                "Sink %r: %d rows of batch %d for %s were skipped: the sink has written this batch "
                "already. Spark repeats a batch after a failure; if these are other rows, give "
                "this write another sinkId.",
                self._protocol.sink_id,
                skipped_count,
                batch,
                described_topic(self._protocol.topic),
            )

    def abort(self, batch: int, reports: Sequence[Report]) -> None:
        """Abort the rows of attempts unless their batch is decided."""
        self._cluster.run(self._protocol.abort(batch, reports))

    def close(self) -> None:
        """Close the clients."""
        self._cluster.close()


_drivers: Final = IdleClients(SinkDriver.close)


def driver_of(delivery: ExactDelivery, client: ClientSettings) -> SinkDriver:
    """Return the driver's part of a sink, as this process keeps it."""
    delivery = delivery.of_driver()
    key = (delivery, frozenset(client.given.items()))
    found = _drivers.take(key) or SinkDriver(delivery, client, application_name())
    _drivers.put(key, found)
    return found


def close_drivers() -> None:
    """Close the clients that this process keeps."""
    _drivers.close_all()
