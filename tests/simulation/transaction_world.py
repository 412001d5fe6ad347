"""TransactionWorld: brokers with transaction coordinators, and failures one after another.

Owner: the simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from pykclient.errors.broker import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from tests.simulation.simulated_world import SimulatedWorld

if TYPE_CHECKING:
    from random import Random

    from pykclient.testing.clock import ManualClock
    from pykclient.testing.fake.cluster import FakeCluster
    from pykclient.testing.fake.transactions.metadata import TransactionMetadata

REQUEST_TIMEOUT_MS: Final = 2_000

COORDINATOR_ERRORS: Final = (
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
    NotCoordinatorError,
)


class TransactionWorld(SimulatedWorld):
    """The brokers. `is_faulty` until they are healed."""

    delays_ms: ClassVar[tuple[int, ...]] = (5, 500, 3_000)

    def __init__(self, random: Random, clock: ManualClock, cluster: FakeCluster) -> None:
        super().__init__(random, clock, cluster)
        self.is_faulty = True
        self._note_time_outs()

    def chance(self, probability: float) -> bool:
        """Return True with this probability, while the world is faulty."""
        return self.is_faulty and self.random.random() < probability

    def heal(self) -> None:
        """Repair everything."""
        self.is_faulty = False
        self._heal()
        self.cluster.resume_markers()

    def on_time_out(self, metadata: TransactionMetadata) -> None:
        """Handle a transaction's timeout, before the transaction is aborted."""
        raise NotImplementedError

    def _note_time_outs(self) -> None:
        transactions = self.cluster.transactions
        on_time_out = transactions._on_time_out

        def noted(metadata: TransactionMetadata, now_ms: int) -> None:
            self.on_time_out(metadata)
            on_time_out(metadata, now_ms)

        transactions._on_time_out = noted  # type: ignore[method-assign]

    def _hold_back(self) -> None:
        """Delay what a client sends or receives until it no longer expects it."""
        links = [link for link in self.network.links if not link.is_closed]
        if links:
            direction = self.random.choice(("up", "down"))
            self.met[f"late {direction}"] += 1
            late_ms = self.random.choice((REQUEST_TIMEOUT_MS + 500, 10_000))
            self.random.choice(links).hold(direction, self.clock.now_ms + late_ms)
