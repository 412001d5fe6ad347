"""A fake cluster with a network and a clock, and failures chosen by a seed.

Time jumps from event to event. The seed breaks one thing at a time; `_heal` repairs everything.
Subclasses add the clients.

Owner: the test that created it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar
from unittest.mock import patch

from pykclient.network import drive
from pykclient.network.manager import NEVER_MS
from pykclient.testing.fake import faults
from tests.simulation.simulated_network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from random import Random

    from pykclient.errors import BrokerError
    from pykclient.protocol.api_keys import ApiKey
    from pykclient.testing.clock import ManualClock
    from pykclient.testing.fake.cluster import FakeCluster

    ApiFaults = Mapping[ApiKey, tuple[type[BrokerError], ...]]

NS_PER_MS = 1_000_000
STALLED_STEP_MS = 1_000
"""Time step when no event is scheduled."""


class SimulatedTime:
    """Replaces the module `time` in the driver while blocking calls are simulated."""

    def __init__(self, clock: ManualClock, cluster: FakeCluster) -> None:
        self._clock = clock
        self._cluster = cluster

    def monotonic_ns(self) -> int:
        """Return the simulation's clock."""
        return self._clock.now_ms * NS_PER_MS

    def time_ns(self) -> int:
        """Return the cluster's wall clock."""
        return self._cluster.wall_ms * NS_PER_MS

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install it in the driver, the only reader of real time."""
        with patch.object(drive, "time", self):
            yield


class SimulatedWorld:
    """The world of a run. `met` counts the failures in it."""

    api_faults: ClassVar[ApiFaults] = {}
    """Errors with which requests may be refused."""
    delays_ms: ClassVar[tuple[int, ...]] = (5, 500, 5_000)
    """Delays of responses."""

    def __init__(self, random: Random, clock: ManualClock, cluster: FakeCluster) -> None:
        self.random = random
        self.clock = clock
        self.cluster = cluster
        self.network = SimulatedNetwork(cluster, clock, random)
        self.bootstrap = ",".join(f"{b.host}:{b.port}" for b in cluster.brokers.values())
        self.met: Counter[str] = Counter()

    def _step(self, turns: Iterable[Callable[[int], int]]) -> None:
        """Deliver due events, let the clients make their turns, and advance to the next event.

        A turn gets the time and returns when it should be called again.
        """
        now_ms = self.clock.now_ms
        self.cluster.advance(now_ms)
        self.network.deliver()
        deadlines = [
            *(turn(now_ms) for turn in turns),
            self.network.next_ms(),
            self.cluster.next_deadline_ms(),
        ]
        next_ms = min((d for d in deadlines if d is not None), default=NEVER_MS)
        # Bytes without a delay arrive in the next step, without moving the clock.
        self.clock.move_to(max(now_ms, min(next_ms, now_ms + STALLED_STEP_MS)))

    def _break_one(self, *actions: tuple[float, Callable[[], None]]) -> None:
        """Do one of these actions, or nothing; each has its limit for a random number."""
        drawn = self.random.random()
        for limit, action in actions:
            if drawn < limit:
                action()
                return

    def _stop_or_start(self) -> None:
        stopped = self.cluster.brokers.keys() - self.cluster.alive
        if stopped:
            self.cluster.start_broker(min(stopped))
        else:
            self.met["broker stop"] += 1
            self.cluster.stop_broker(self.random.randrange(len(self.cluster.brokers)))

    def _stall_or_resume(self) -> None:
        broker_id = self.random.randrange(len(self.cluster.brokers))
        if self.random.random() < 0.5:
            self.met["stall"] += 1
            self.cluster.stall_replicas(broker_id)
        else:
            self.cluster.resume_replicas(broker_id)

    def _cut(self) -> None:
        links = [link for link in self.network.links if not link.is_closed]
        if links:
            self.met["cut"] += 1
            self.random.choice(links).cut()

    def _add_fault(self) -> None:
        key = self.random.choice(list(self.api_faults))
        kind, fault = self.random.choice(
            (
                ("error", faults.fail_with(self.random.choice(self.api_faults[key]))),
                ("delay", faults.delay_response(self.random.choice(self.delays_ms))),
                ("drop", faults.drop()),
                ("lost response", faults.lose_response()),
                ("lost response", faults.lose_response(closes=True)),
                ("disconnect", faults.disconnect()),
            )
        )
        self.met[kind] += 1
        self.cluster.faults.add(fault, key)

    def _heal(self) -> None:
        self.cluster.faults.clear()
        for broker_id in self.cluster.brokers:
            if broker_id not in self.cluster.alive:
                self.cluster.start_broker(broker_id)
            self.cluster.resume_replicas(broker_id)
