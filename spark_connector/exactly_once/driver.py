"""SinkDriver: the driver's part of a sink, in whatever process of Spark's driver runs it.

Spark plans the write of each batch in one Python process and commits it in another, and ends both
when they had nothing to do for a minute. So what counts is in Kafka. A process keeps clients, and
the turn that it has taken, for the next batch; one that has none takes the next turn, which costs
some requests, and the ids that tasks have made.

Owner: the process, in which Spark runs one such call at a time.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pykclient.admin.config import AdminConfig
from spark_connector.exactly_once.cluster import SinkCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_connector.client_settings import ClientSettings
    from spark_connector.exactly_once.delivery import ExactDelivery
    from spark_connector.exactly_once.protocol import Report, Steps, View

DRIVERS_MAX: Final = 4
"""Sinks whose clients a process keeps. More belong to queries that have ended."""


class SinkDriver:
    """One sink, in one process."""

    def __init__(self, delivery: ExactDelivery, client: ClientSettings) -> None:
        self._protocol = delivery.protocol
        self._turn: int | None = None
        self._cluster = SinkCluster(
            delivery.sink_id,
            delivery.topic,
            producer_settings=client.of_sink_driver(),
            admin_settings=client.of(AdminConfig),
        )

    def view(self) -> View:
        """What tasks of the next batch need of the record; the sink is this driver's then.

        Raises: `KafkaError` where it cannot be claimed.
        """
        record = self._cluster.run(self._protocol.look(self._turn))
        self._turn = record.turn
        return self._protocol.view(record)

    def view_again(self, view: View) -> View:
        """What the record says now to an attempt that is not the first of its task.

        Raises: `SinkTakenOverError` where another driver has the sink.
        """
        return self._cluster.run(self._protocol.look_again(view))

    def commit(self, batch: int, reports: Sequence[Report]) -> None:
        """Decide a batch and commit it. Raises: what `SinkProtocol.commit` raises."""
        self._run(self._protocol.commit(batch, reports))

    def abort(self, batch: int, reports: Sequence[Report]) -> None:
        """Abort what attempts have written, unless it is decided."""
        self._run(self._protocol.abort(batch, reports))

    def close(self) -> None:
        """Close the clients."""
        self._cluster.close()

    def _run(self, steps: Steps[None]) -> None:
        self._cluster.run(steps)


_drivers: dict[tuple[int, ExactDelivery, frozenset[tuple[str, object]]], SinkDriver] = {}


def driver_of(delivery: ExactDelivery, client: ClientSettings) -> SinkDriver:
    """The driver's part of a sink, as this process keeps it."""
    delivery = replace(delivery, batch=None)
    key = (os.getpid(), delivery, frozenset(client.given.items()))
    found = _drivers.pop(key, None) or SinkDriver(delivery, client)
    _drivers[key] = found
    for other in [other for other in _drivers if other[0] == key[0]][:-DRIVERS_MAX]:
        _drivers.pop(other).close()
    return found


def close_drivers() -> None:
    """Close the clients that this process keeps."""
    for key in [key for key in _drivers if key[0] == os.getpid()]:
        _drivers.pop(key).close()
