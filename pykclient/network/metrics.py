"""NetworkMetrics: what a client has measured of its connections and requests, by broker too.

Owner: the driver of the engine, for measuring. Any thread may take a snapshot: what it reads are
numbers, which may be a measurement older or newer than each other.
Source: Java classes ``Selector.SelectorMetrics``, ``Sender.SenderMetrics``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pykclient.metrics import WINDOWS, Counted, Recent, named
from pykclient.network.cluster.node import COORDINATOR_ID_BASE, is_coordinator

if TYPE_CHECKING:
    from pykclient.metrics import MetricName, Windows

GROUP_PREFIXES: Final = {"admin": "admin-client"}
"""How metrics call a client, where that is not as settings do."""


class _Traffic:
    """Requests and responses: of one broker, or of all together."""

    __slots__ = ("latency_ms", "received_bytes", "sent_bytes")

    def __init__(self, windows: Windows) -> None:
        self.sent_bytes = Counted(windows)
        self.received_bytes = Counted(windows)
        self.latency_ms = Recent(windows)

    def snapshot(self, now_ms: int) -> dict[str, float | None]:
        return {
            "request-total": self.sent_bytes.count,
            "request-rate": self.sent_bytes.frequency(now_ms),
            "request-size-avg": self.sent_bytes.average(now_ms),
            "request-size-max": self.sent_bytes.maximum(now_ms),
            "outgoing-byte-total": self.sent_bytes.total,
            "outgoing-byte-rate": self.sent_bytes.rate(now_ms),
            "response-total": self.received_bytes.count,
            "response-rate": self.received_bytes.frequency(now_ms),
            "incoming-byte-total": self.received_bytes.total,
            "incoming-byte-rate": self.received_bytes.rate(now_ms),
            "request-latency-avg": self.latency_ms.average(now_ms),
            "request-latency-max": self.latency_ms.maximum(now_ms),
        }


class NetworkMetrics:
    """See the module. `client` is producer, consumer or admin."""

    def __init__(self, client: str, windows: Windows = WINDOWS) -> None:
        prefix = GROUP_PREFIXES.get(client, client)
        self._group = f"{prefix}-metrics"
        self._node_group = f"{prefix}-node-metrics"
        self._windows = windows
        self._all = _Traffic(windows)
        self._by_node: dict[int, _Traffic] = {}
        self._opened = Counted(windows)
        self._closed = Counted(windows)
        self._authenticated = Counted(windows)
        self._refused = Counted(windows)

    # Measuring.

    def on_sent(self, node_id: int, size_bytes: int, now_ms: int) -> None:
        self._all.sent_bytes.add(size_bytes, now_ms)
        self._of_node(node_id).sent_bytes.add(size_bytes, now_ms)

    def on_received(self, node_id: int, size_bytes: int, now_ms: int) -> None:
        self._all.received_bytes.add(size_bytes, now_ms)
        self._of_node(node_id).received_bytes.add(size_bytes, now_ms)

    def on_responded(self, node_id: int, latency_ms: int, now_ms: int) -> None:
        """Note how long a response took, but for those of the handshake."""
        self._all.latency_ms.add(latency_ms, now_ms)
        self._of_node(node_id).latency_ms.add(latency_ms, now_ms)

    def on_opened(self, now_ms: int) -> None:
        """Count a connection that a broker has accepted."""
        self._opened.add(1, now_ms)

    def on_closed(self, now_ms: int) -> None:
        """Count the end of such a connection, whoever ended it."""
        self._closed.add(1, now_ms)

    def on_authenticated(self, now_ms: int) -> None:
        self._authenticated.add(1, now_ms)

    def on_refused(self, now_ms: int) -> None:
        """Count an authentication that a broker has refused, of TLS or SASL."""
        self._refused.add(1, now_ms)

    def _of_node(self, node_id: int) -> _Traffic:
        found = self._by_node.get(node_id)
        if found is None:
            found = self._by_node[node_id] = _Traffic(self._windows)
        return found

    # Reporting.

    def snapshot(
        self, now_ms: int, *, connection_count: int, in_flight_count: int
    ) -> dict[MetricName, float]:
        """Return what is known now; a metric of which nothing is known is left out."""
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
                **self._all.snapshot(now_ms),
            },
        )
        for node_id, traffic in tuple(self._by_node.items()):
            tags = (("node-id", _name_of(node_id)),)
            metrics.update(named(self._node_group, traffic.snapshot(now_ms), tags))
        return metrics


def _name_of(node_id: int) -> str:
    """Return what to call a connection: that to a broker as coordinator is another one."""
    if is_coordinator(node_id):
        return f"coordinator-{node_id - COORDINATOR_ID_BASE}"
    return f"node-{node_id}"
