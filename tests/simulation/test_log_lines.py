"""How much a member says in the log while its coordinator cannot be reached."""

from __future__ import annotations

import logging
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from pykclient.network.repeated_log import REPEAT_MS
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from tests.simulation.simulated_member import SimulatedMember
from tests.simulation.simulated_network import SimulatedNetwork

if TYPE_CHECKING:
    from pykclient.testing.fake.cluster import Broker

GROUP = "g"
STEP_MS = 50
JOIN_MS = 10_000
TROUBLE_MS = 2 * REPEAT_MS
ALIKE_MAX = 2 * (1 + TROUBLE_MS // REPEAT_MS)
"""Of one line; who is found is said again after each time that it was said to be gone, of which
there are two reasons."""


class Scene:
    """A member that commits each second, and a network that may refuse the way to one broker."""

    def __init__(self, protocol: str) -> None:
        self.clock = ManualClock(1_000)
        self.cluster = FakeCluster(3, min_insync_replicas=1, now_ms=self.clock.now_ms)
        self.cluster.create_topic("t", 3)
        self.network = SimulatedNetwork(self.cluster, self.clock, Random(1))
        self.member = SimulatedMember(
            self.network,
            1,
            Random(2),
            bootstrap_servers=",".join(
                f"{each.host}:{each.port}" for each in self.cluster.brokers.values()
            ),
            group_id=GROUP,
            group_protocol=protocol,
            auto_commit_interval_ms=1_000,
        )
        self.member.subscribe(["t"], listener=self.member.listener)

    @property
    def coordinator(self) -> Broker:
        """The group's."""
        broker = self.cluster.coordinator(0, GROUP)
        assert broker is not None
        return broker

    def run(self, for_ms: int) -> None:
        """Let the member live for a while."""
        end_ms = self.clock.now_ms + for_ms
        while self.clock.now_ms < end_ms:
            self.cluster.advance(self.clock.now_ms)
            self.network.deliver()
            due_ms = self.member.turn(self.clock.now_ms)
            latest_ms = self.clock.now_ms + STEP_MS
            self.clock.move_to(min(max(due_ms, self.clock.now_ms + 1), latest_ms))

    def refuse_coordinator(self) -> None:
        """Cut the ways to the coordinator; the other brokers know nothing of that."""
        self.network.refused.add(self.coordinator.id)
        for link in self.network.links:
            if link.broker_id == self.coordinator.id and not link.is_closed:
                link.cut()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("has_joined", [True, False])
def test_a_coordinator_out_of_reach_is_told_now_and_then(
    protocol: str, has_joined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(protocol)
    if has_joined:
        scene.run(JOIN_MS)
        assert scene.member._subscription.partitions
    caplog.clear()
    caplog.set_level(logging.INFO, "pykclient")
    scene.refuse_coordinator()
    scene.run(TROUBLE_MS)
    told = Counter(record.msg for record in caplog.records)
    assert any("lost the connection" in each for each in told)
    assert any("is not asked any more" in each for each in told)
    assert {each: count for each, count in told.items() if count > ALIKE_MAX} == {}
    brief = [record for record in caplog.records if "times since" in record.getMessage()]
    assert brief, "that it goes on is told, too"
