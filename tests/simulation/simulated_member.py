"""A real consumer as a member of a group, without thread, socket and clock.

Its application polls, works for a while with what it got, and polls again; meanwhile the background
step runs, as the heartbeat thread has it. It may also be *paused* (its process does nothing at
all), leave, or be *gone* without a word.

Owner: the simulation.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.coordinator import ConsumerCoordinator
from pykclient.consumer.core import ConsumerCore
from pykclient.consumer.group.classic_state import ClassicState
from pykclient.consumer.rebalance import RebalanceListener
from pykclient.network.drive import run_user_calls
from tests.simulation.simulated_clients import TURN_COUNT_MAX, seed_all
from tests.simulation.simulated_network import SimulatedNetwork, SimulatedPort

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pykclient.consumer.group.history import Rebalance
    from pykclient.consumer.record import ConsumerRecord
    from pykclient.errors import KafkaError
    from pykclient.network.manager import Operation
    from pykclient.types import TopicPartition

__all__ = ["SimulatedMember"]

STALLED_MS = 1_000


class SimulatedMember(ConsumerCore):
    """One member. `processed` has what its application finished with, in order."""

    def __init__(
        self, network: SimulatedNetwork, seed: int, random: Random, **settings: object
    ) -> None:
        self.port = SimulatedPort(network)
        super().__init__(
            ConsumerConfig.from_settings(settings),
            self.port,
            wall_clock_ms=lambda: network.cluster.wall_ms,
        )
        seed_all(self, seed)
        self.processed: list[ConsumerRecord] = []
        self.errors: list[KafkaError] = []
        self.owned: set[TopicPartition] = set()
        """What the listener was told of."""
        self.is_paused = self.is_gone = False
        self.busy_until_ms = 0
        self._network = network
        self._random = random
        self._in_hand: list[ConsumerRecord] = []
        self._next_offset: dict[TopicPartition, int] = {}
        self._left: Operation[None] | None = None

    @property
    def listener(self) -> RebalanceListener:
        """One that checks what it is told."""
        return RebalanceListener(self._on_assigned, self._on_revoked, self._on_lost)

    @property
    def holds(self) -> frozenset[TopicPartition]:
        """What it reads in the generation that it is in; nothing while it is in between."""
        group = self._group
        assert isinstance(group, ConsumerCoordinator)
        is_settled = group._membership.state is ClassicState.STABLE
        return self._subscription.partitions if is_settled else frozenset()

    @property
    def history(self) -> tuple[Rebalance, ...]:
        """Its rebalances."""
        assert self._group is not None
        return self._group.history.rebalances(0, datetime.now(UTC))

    @property
    def generation(self) -> int:
        """The generation that it is in."""
        assert self._group is not None
        return self._group.identity.generation

    def turn(self, now_ms: int) -> int:
        """Let the application poll, or the background do its work; when to come back."""
        if self.is_gone:
            return now_ms + STALLED_MS
        if self.is_paused:
            return now_ms + STALLED_MS
        with self._guard:
            if self._left is not None:
                return self._go(now_ms)
            if now_ms >= self.busy_until_ms:
                return self._poll(now_ms)
            return min(self._step_in_background(now_ms), self.busy_until_ms)

    def leave(self, *, now_ms: int) -> None:
        """Begin to close."""
        assert self._group is not None
        with self._guard:
            self._finish()
            assert self._commits is not None
            self._commits.handed_out.clear()
            self._left = self._group.begin_leave(
                "closing", sends=True, now_ms=now_ms, commit_deadline_ms=now_ms + 5_000
            )

    def kill(self) -> None:
        """Be gone: the system closes its connections."""
        self.is_gone = True
        for link in self.port._links.values():
            if not link.is_closed:
                link.cut()

    def _poll(self, now_ms: int) -> int:
        assert self._commits is not None
        assert self._group is not None
        self._finish()
        self._commits.begin_poll(now_ms)
        self._group.begin_poll()
        try:
            for _ in range(TURN_COUNT_MAX):
                self.port.wait(0)
                self._engine.complete(now_ms)
                run_user_calls(self._engine)
                if self._take(now_ms):
                    break
                next_ms = self._engine.step(now_ms)
                if next_ms > now_ms and not self.port.has_news:
                    return next_ms
            else:
                raise AssertionError(f"a member is still busy after {TURN_COUNT_MAX} turns")
            self._group.end_poll()
            self._engine.step(now_ms)
        finally:
            self._group.end_poll()
            self._commits.end_poll()
        self.busy_until_ms = now_ms + self._random.choice((0, 1, 50, 1_000))
        return max(self.busy_until_ms, now_ms)

    def _go(self, now_ms: int) -> int:
        """Go on closing."""
        assert self._group is not None
        assert self._left is not None
        self._group.begin_poll()
        for _ in range(TURN_COUNT_MAX):
            self.port.wait(0)
            self._engine.complete(now_ms)
            run_user_calls(self._engine)
            if self._left.is_done:
                self.kill()
                return now_ms + STALLED_MS
            next_ms = self._engine.step(now_ms)
            if next_ms > now_ms and not self.port.has_news:
                return next_ms
        raise AssertionError(f"a member is still busy closing after {TURN_COUNT_MAX} turns")

    def _finish(self) -> None:
        """The application is done with what it has."""
        self.processed += self._in_hand
        self._in_hand = []

    def _take(self, now_ms: int) -> bool:
        if self._has_news:
            error = self._take_news()
            assert error is not None
            self.errors.append(error)
        runs = self._buffer.take(self._config.max_poll_records, now_ms)
        for run in runs:
            assert run.partition in self.owned, f"read {run.partition}, which is not owned"
            assigned = self._subscription.find(run.partition)
            assert assigned is not None
            assert self._commits is not None
            self._commits.handed_out.add(assigned, run.columns.first_offset)
            for record in run.records():
                expected = self._next_offset.get(run.partition, record.offset)
                assert record.offset == expected, f"jumped from {expected} to {record}"
                self._next_offset[run.partition] = record.offset + 1
                self._in_hand.append(record)
        return bool(runs)

    # What the listener is told.

    def _on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert not self.owned & set(partitions), "assigned twice"
        self.owned |= set(partitions)
        with self._guard:  # a listener may call the consumer
            assert self.owned == self._subscription.partitions

    def _on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._give_up(partitions)

    def _on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        assert partitions
        self._give_up(partitions)

    def _give_up(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned >= set(partitions), "gave up what was not owned"
        self.owned -= set(partitions)
        for partition in partitions:
            self._next_offset.pop(partition, None)
