"""Real consumers as members of a group whose coordinator may become unreachable.

Owner: the test that created it.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Self

from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from tests.simulation.simulated_member import Habits, ProcessedRecords, SimulatedMember
from tests.simulation.simulated_world import SimulatedTime, SimulatedWorld

if TYPE_CHECKING:
    from pykclient.errors import KafkaError
    from pykclient.testing.fake.state import Broker

GROUP = "g"
STEP_MS = 50
JOIN_MS = 10_000
"""Time within which a single member has joined."""


class LivingGroup(SimulatedWorld):
    """Members that commit every second, at first one, and a network that may refuse a broker.

    A context manager, which kills the members at its end.
    """

    def __init__(self, protocol: str) -> None:
        clock = ManualClock(1_000)
        cluster = FakeCluster(3, min_insync_replicas=1, now_ms=clock.now_ms)
        super().__init__(Random(1), clock, cluster)
        cluster.create_topic("t", 3)
        self.members: list[SimulatedMember] = []
        self._protocol = protocol
        self.member = self.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()

    def join(self) -> SimulatedMember:
        """Add a member that subscribes and polls."""
        member = SimulatedMember(
            self.network,
            len(self.members) + 1,
            Random(2),
            ProcessedRecords(),
            topic="t",
            habits=Habits(),
            bootstrap_servers=self.bootstrap,
            group_id=GROUP,
            group_protocol=self._protocol,
            auto_commit_interval_ms=1_000,
        )
        member.be_calm()
        self.members.append(member)
        return member

    @property
    def now_ms(self) -> int:
        """Current time."""
        return self.clock.now_ms

    @property
    def coordinator(self) -> Broker:
        """Coordinator of the group."""
        broker = self.cluster.coordinator(0, GROUP)
        assert broker is not None
        return broker

    def run(self, for_ms: int) -> None:
        """Run the members for a while."""
        end_ms = self.clock.now_ms + for_ms
        with SimulatedTime(self.clock, self.cluster).installed():
            while self.clock.now_ms < end_ms:
                self.cluster.advance(self.clock.now_ms)
                self.network.deliver()
                due_ms = min(member.turn(self.clock.now_ms) for member in self.members)
                latest_ms = self.clock.now_ms + STEP_MS
                self.clock.move_to(min(max(due_ms, self.clock.now_ms + 1), latest_ms))

    def errors_of_polls(self, for_ms: int) -> list[KafkaError]:
        """Run for a while and return the errors of the first member's polls."""
        error_count = len(self.member.errors)
        self.run(for_ms)
        return self.member.errors[error_count:]

    def let_through(self) -> None:
        """Make all brokers reachable again."""
        self.network.refused.clear()

    def refuse_coordinator(self) -> None:
        """Make the coordinator unreachable; other brokers are not affected."""
        self.network.refused.add(self.coordinator.id)
        for link in self.network.links:
            if link.broker_id == self.coordinator.id and not link.is_closed:
                link.cut()
