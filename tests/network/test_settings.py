"""The network's settings are those of the client's configuration."""

from __future__ import annotations

import pytest

from pykclient.network.settings import NetworkSettings
from pykclient.producer.config import ProducerConfig


def test_each_setting_is_taken() -> None:
    config = ProducerConfig.from_settings(
        bootstrap_servers="a:1",
        client_id="me",
        request_timeout_ms=1,
        connections_max_idle_ms=2,
        receive_max_bytes=3_000,
        reconnect_backoff_ms=4,
        reconnect_backoff_max_ms=5,
        socket_connection_setup_timeout_ms=6,
        socket_connection_setup_timeout_max_ms=7,
    )
    settings = NetworkSettings.from_config(config, 8)
    assert settings.client_id == "me"
    assert settings.request_timeout_ms == 1
    assert settings.connections_max_idle_ms == 2
    assert settings.receive_max_bytes == 3_000
    assert settings.max_in_flight_requests_per_connection == 8
    backoff, setup = settings.reconnect_backoff, settings.setup_backoff
    assert (backoff.initial_ms, backoff.max_ms) == (4, 5)
    assert (setup.initial_ms, setup.max_ms) == (6, 7)


@pytest.mark.parametrize(("strategy", "falls_back"), [("rebootstrap", True), ("none", False)])
def test_the_recovery_strategy_decides_on_the_bootstrap_addresses(
    strategy: str, falls_back: bool
) -> None:
    config = ProducerConfig.from_settings(
        bootstrap_servers="a:1", metadata_recovery_strategy=strategy
    )
    assert NetworkSettings.from_config(config, 1).falls_back_to_bootstrap is falls_back
