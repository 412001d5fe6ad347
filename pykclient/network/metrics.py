"""NetworkMetrics: measurements of a client's connections and requests, in total and by broker.

Owner: the driver of the engine measures. Any thread may take a snapshot; its numbers may be one
measurement apart.
Source: Java classes ``Selector.SelectorMetrics``, ``Sender.SenderMetrics``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.metrics import WINDOWS, Recent, Together, named
from pykclient.network.cluster.node import COORDINATOR_ID_BASE, is_coordinator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.metrics import MetricName, Windows

GROUP_PREFIXES: Final = {"admin": "admin-client"}
"""Prefixes of metric groups, where they differ from the client's name in settings."""


class Traffic:
    """Requests to one broker and its responses. Latencies exclude handshakes."""

    __slots__ = ("latency_ms", "received_bytes", "sent_bytes")

    def __init__(self, windows: Windows) -> None:
        self.sent_bytes = Recent(windows)
        self.received_bytes = Recent(windows)
        self.latency_ms = Recent(windows)


class NetworkMetrics:
    """The metrics of one client, which is "producer", "consumer" or "admin"."""

    def __init__(self, client: str, windows: Windows = WINDOWS) -> None:
        prefix = GROUP_PREFIXES.get(client, client)
        self._group = f"{prefix}-metrics"
        self._node_group = f"{prefix}-node-metrics"
        self._windows = windows
        self._by_node: dict[int, Traffic] = {}
        self._opened = Recent(windows)
        self._closed = Recent(windows)
        self._authenticated = Recent(windows)
        self._refused = Recent(windows)

    # Measuring.

    def traffic(self, node_id: int) -> Traffic:
        """Return the traffic counters of a broker, for a connection that has opened."""
        found = self._by_node.get(node_id)
        if found is None:
            found = self._by_node[node_id] = Traffic(self._windows)
        return found

    def on_opened(self, now_ms: int) -> None:
        """Count an accepted connection."""
        self._opened.add(1, now_ms)

    def on_closed(self, now_ms: int) -> None:
        """Count the end of an accepted connection, whichever side closed it."""
        self._closed.add(1, now_ms)

    def on_authenticated(self, now_ms: int) -> None:
        self._authenticated.add(1, now_ms)

    def on_refused(self, now_ms: int) -> None:
        """Count an authentication, by TLS or SASL, that a broker refused."""
        self._refused.add(1, now_ms)

    # Reporting.

    def snapshot(
        self, now_ms: int, *, connection_count: int, in_flight_count: int
    ) -> dict[MetricName, float]:
        """Return the current metrics, without those that have no measurement yet."""
        by_node = tuple(self._by_node.items())
        metrics = named(
            self._group,
            {
                "connection-count": connection_count,
                "connection-creation-total": self._opened.total,
                "connection-creation-rate": self._opened.rate(now_ms),
                "connection-close-total": self._closed.total,
                "connection-close-rate": self._closed.rate(now_ms),
                "successful-authentication-total": self._authenticated.total,
                "failed-authentication-total": self._refused.total,
                "requests-in-flight": in_flight_count,
                **_reported([traffic for _, traffic in by_node], now_ms),
            },
        )
        for node_id, traffic in by_node:
            tags = (("node-id", _name_of(node_id)),)
            metrics.update(named(self._node_group, _reported([traffic], now_ms), tags))
        return metrics


def _reported(traffic: Sequence[Traffic], now_ms: int) -> dict[str, float | None]:
    """Return the metrics of one broker, or of several together."""
    sent_bytes = Together([one.sent_bytes for one in traffic])
    received_bytes = Together([one.received_bytes for one in traffic])
    latency_ms = Together([one.latency_ms for one in traffic])
    return {
        "request-total": sent_bytes.count,
        "request-rate": sent_bytes.frequency(now_ms),
        "request-size-avg": sent_bytes.average(now_ms),
        "request-size-max": sent_bytes.maximum(now_ms),
        "outgoing-byte-total": sent_bytes.total,
        "outgoing-byte-rate": sent_bytes.rate(now_ms),
        "response-total": received_bytes.count,
        "response-rate": received_bytes.frequency(now_ms),
        "incoming-byte-total": received_bytes.total,
        "incoming-byte-rate": received_bytes.rate(now_ms),
        "request-latency-avg": latency_ms.average(now_ms),
        "request-latency-max": latency_ms.maximum(now_ms),
    }


def _name_of(node_id: int) -> str:
    """Return the name of a connection. The one to a coordinator differs from the broker's."""
    if is_coordinator(node_id):
        return f"coordinator-{node_id - COORDINATOR_ID_BASE}"
    return f"node-{node_id}"
