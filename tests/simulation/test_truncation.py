"""A consumer of a log that loses its end: it raises an error or goes back, and skips nothing."""

from __future__ import annotations

from random import Random

import pytest

from pykclient.errors import LogTruncationError
from pykclient.testing.clock import ManualClock
from pykclient.testing.fake.cluster import FakeCluster
from pykclient.types import TopicPartition
from tests.consumer.fetched_records import batch
from tests.simulation.simulated_clients import SimulatedConsumer
from tests.simulation.simulated_world import SimulatedWorld

P = TopicPartition("t", 0)
STEP_COUNT_MAX = 2_000


class Scene(SimulatedWorld):
    """A partition on three brokers, and a consumer that reads it."""

    def __init__(self, reset: str) -> None:
        clock = ManualClock(1_000)
        super().__init__(Random(1), clock, FakeCluster(3, now_ms=clock.now_ms))
        self.cluster.create_topic("t", 1)
        self.consumer = SimulatedConsumer(
            self.network, 1, [P], bootstrap_servers=self.bootstrap, auto_offset_reset=reset
        )
        self.consumer.seek(P, 0)

    def write(self, *values: int) -> None:
        """Append records one by one, each in its own batch."""
        partition = self.cluster.partition(P)
        for value in values:
            partition.log.append(
                batch([value]),
                leader_epoch=partition.leader_epoch,
                now_ms=self.cluster.wall_ms,
            )
            self.cluster.replication.on_append(partition, self.clock.now_ms)

    def lose_what_follows(self) -> int:
        """Stall a replica and return it; what is written from now on can be lost."""
        partition = self.cluster.partition(P)
        other = next(each for each in partition.replicas if each != partition.leader_id)
        for each in partition.replicas:
            if each != partition.leader_id:
                self.cluster.stall_replicas(each)
                self.cluster.shrink_isr(P, each)
        return other

    def values(self) -> list[object]:
        return [record.value for record in self.consumer.read[P]]

    def run_until(self, count: int = 0, *, errors: int = 0) -> None:
        for _ in range(STEP_COUNT_MAX):
            if len(self.values()) >= count and len(self.consumer.errors) >= errors:
                return
            self._step([self.consumer.turn])
        raise AssertionError(f"got {self.values()} and {self.consumer.errors}")


def cut(scene: Scene) -> None:
    """Read five records of which the last two are lost, and write others in their place."""
    scene.write(0, 1, 2)
    scene.run_until(3)
    other = scene.lose_what_follows()
    scene.write(3, 4)
    scene.run_until(5)
    scene.cluster.move_leader(P, other)
    scene.write(13, 14, 15, 16)


@pytest.mark.promise("lost records of a log are detected, and reported or reread with their place")
def test_what_stands_in_the_place_of_lost_records_is_read() -> None:
    scene = Scene("earliest")
    cut(scene)
    scene.run_until(9)
    assert scene.values() == [b"value %d" % n for n in (0, 1, 2, 3, 4, 13, 14, 15, 16)]
    assert [record.offset for record in scene.consumer.read[P]] == [0, 1, 2, 3, 4, 3, 4, 5, 6]
    assert scene.consumer.errors == []


@pytest.mark.promise("lost records of a log are detected, and reported or reread with their place")
def test_without_a_reset_the_loss_is_raised_and_nothing_is_skipped() -> None:
    scene = Scene("none")
    cut(scene)
    scene.run_until(5, errors=1)
    (error,) = scene.consumer.errors
    assert isinstance(error, LogTruncationError)
    assert (error.topic, error.partition, error.offset, error.diverging_offset) == ("t", 0, 5, 3)
    assert len(scene.values()) == 5
    scene.consumer.seek(P, 3)
    scene.run_until(9)
    assert scene.values()[5:] == [b"value %d" % n for n in (13, 14, 15, 16)]


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_clean_change_of_leaders_changes_nothing(reset: str) -> None:
    scene = Scene(reset)
    scene.write(0, 1, 2)
    scene.run_until(3)
    for number in range(3, 9):
        scene.cluster.move_leader(P)
        scene.write(number)
        scene.run_until(number + 1)
    assert scene.values() == [b"value %d" % number for number in range(9)]
    assert scene.consumer.errors == []
