"""What is particular to an admin client's settings."""

from __future__ import annotations

from pykclient.admin.config import AdminConfig
from pykclient.consumer.config import ConsumerConfig


def test_idle_connections_close_sooner_than_those_of_other_clients() -> None:
    admin = AdminConfig.from_settings(bootstrap_servers="h1:9092")
    consumer = ConsumerConfig.from_settings(bootstrap_servers="h1:9092")
    assert admin.connections_max_idle_ms == 300_000
    assert consumer.connections_max_idle_ms == 540_000


def test_retries_and_the_timeout_of_a_call_can_be_set() -> None:
    admin = AdminConfig.from_settings(
        {"bootstrap.servers": "h1:9092", "retries": "3"}, default_api_timeout_ms=1_000
    )
    assert (admin.retries, admin.default_api_timeout_ms) == (3, 1_000)
