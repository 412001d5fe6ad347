"""A consumer waits for a nonexistent partition with few metadata requests."""

from __future__ import annotations

from random import Random

import pytest

from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.types import TopicPartition
from tests.simulation.simulated_clients import SimulatedConsumer
from tests.simulation.simulated_world import SimulatedWorld

MISSING = TopicPartition("t", 7)
TIME_MS = 30_000
UPDATE_COUNT_MAX = 40
"""One a second, with faster ones at the beginning and jitter."""


class CountingConsumer(SimulatedConsumer):
    """A consumer that counts its metadata responses."""

    @property
    def update_count(self) -> int:
        return self._wiring.metadata.cluster.version


@pytest.mark.parametrize("is_sought", [False, True], ids=["lookup", "fetch"])
def test_metadata_is_requested_less_and_less_often(is_sought: bool) -> None:
    """Each response is complete, and unchanged."""
    clock = ManualClock(1_000)
    world = SimulatedWorld(Random(1), clock, FakeCluster(1, now_ms=clock.now_ms))
    world.cluster.create_topic(MISSING.topic, 1)
    consumer = CountingConsumer(
        world.network,
        1,
        [MISSING],
        bootstrap_servers=world.bootstrap,
        auto_offset_reset="earliest",
    )
    if is_sought:
        consumer.seek(MISSING, 5)
    while clock.now_ms < TIME_MS:
        world._step([consumer.turn])
    assert 10 < consumer.update_count < UPDATE_COUNT_MAX
