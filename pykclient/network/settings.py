"""NetworkSettings: what the network client takes from a client's configuration.

Owner: none, it is immutable.
Source: the settings named alike; KIP-144, KIP-601 (back-off, set-up time-out), KIP-899 (fall-back).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from typing import Self

    from pykclient.config.client import ClientConfig

__all__ = ["NetworkSettings"]


class NetworkSettings(NamedTuple):
    """Times are milliseconds.

    `falls_back_to_bootstrap`: when no known broker can be reached, the bootstrap addresses are
    tried again.
    """

    client_id: str
    request_timeout_ms: int
    max_in_flight_requests_per_connection: int
    connections_max_idle_ms: int
    receive_max_bytes: int
    reconnect_backoff: Backoff
    setup_backoff: Backoff
    falls_back_to_bootstrap: bool = True

    @classmethod
    def from_config(cls, config: ClientConfig, max_in_flight_requests_per_connection: int) -> Self:
        """Take them from a client's configuration."""
        return cls(
            client_id=config.client_id,
            request_timeout_ms=config.request_timeout_ms,
            max_in_flight_requests_per_connection=max_in_flight_requests_per_connection,
            connections_max_idle_ms=config.connections_max_idle_ms,
            receive_max_bytes=config.receive_max_bytes,
            reconnect_backoff=Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            setup_backoff=Backoff(
                config.socket_connection_setup_timeout_ms,
                config.socket_connection_setup_timeout_max_ms,
            ),
            falls_back_to_bootstrap=config.metadata_recovery_strategy == "rebootstrap",
        )
