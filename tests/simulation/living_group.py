"""Real consumers as members of a group, whose coordinator the network may cut off.

Owner: the test that made it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from tests.simulation.simulated_member import SimulatedMember
from tests.simulation.simulated_network import SimulatedNetwork

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.testing.fake.cluster import Broker

__all__ = ["GROUP", "JOIN_MS", "LivingGroup"]

GROUP = "g"
STEP_MS = 50
JOIN_MS = 10_000
"""In which a member alone has joined."""


class LivingGroup:
    """Members that commit each second, one at first, and a network that may refuse one broker."""

    def __init__(self, protocol: str) -> None:
        self.clock = ManualClock(1_000)
        self.cluster = FakeCluster(3, min_insync_replicas=1, now_ms=self.clock.now_ms)
        self.cluster.create_topic("t", 3)
        self.network = SimulatedNetwork(self.cluster, self.clock, Random(1))
        self.members: list[SimulatedMember] = []
        self._protocol = protocol
        self.member = self.join()

    def join(self) -> SimulatedMember:
        """Have one more subscribe."""
        member = SimulatedMember(
            self.network,
            len(self.members) + 1,
            Random(2),
            bootstrap_servers=",".join(
                f"{each.host}:{each.port}" for each in self.cluster.brokers.values()
            ),
            group_id=GROUP,
            group_protocol=self._protocol,
            auto_commit_interval_ms=1_000,
        )
        self.members.append(member)
        member.subscribe(["t"], listener=member.listener)
        return member

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.clock.now_ms

    @property
    def coordinator(self) -> Broker:
        """The group's."""
        broker = self.cluster.coordinator(0, GROUP)
        assert broker is not None
        return broker

    def run(self, for_ms: int) -> None:
        """Let the members live for a while."""
        end_ms = self.clock.now_ms + for_ms
        while self.clock.now_ms < end_ms:
            self.cluster.advance(self.clock.now_ms)
            self.network.deliver()
            due_ms = min(member.turn(self.clock.now_ms) for member in self.members)
            latest_ms = self.clock.now_ms + STEP_MS
            self.clock.move_to(min(max(due_ms, self.clock.now_ms + 1), latest_ms))

    def told_by_polls(self, for_ms: int) -> list[KafkaError]:
        """What polls of the first member, a step each, which find nothing, raise in that time."""
        end_ms = self.now_ms + for_ms
        told = []
        while self.now_ms < end_ms:
            started_ms = self.now_ms
            self.run(STEP_MS)
            error = self.member._silence.reason(started_ms, self.now_ms)
            if error is not None:
                told.append(error)
        return told

    def let_through(self) -> None:
        """Open the ways again."""
        self.network.refused.clear()

    def refuse_coordinator(self) -> None:
        """Cut the ways to the coordinator; the other brokers know nothing of that."""
        self.network.refused.add(self.coordinator.id)
        for link in self.network.links:
            if link.broker_id == self.coordinator.id and not link.is_closed:
                link.cut()
