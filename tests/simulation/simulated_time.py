"""The module `time` as the driver sees it, while calls that wait are simulated.

Owner: the simulation.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from pykclient.network import drive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.clock import ManualClock
    from pykclient.testing.fake.cluster import FakeCluster

__all__ = ["SimulatedTime"]

NS_PER_MS = 1_000_000


class SimulatedTime:
    """The clocks of one run."""

    def __init__(self, clock: ManualClock, cluster: FakeCluster) -> None:
        self._clock = clock
        self._cluster = cluster

    def monotonic_ns(self) -> int:
        """Return the run's clock."""
        return self._clock.now_ms * NS_PER_MS

    def time_ns(self) -> int:
        """Return the cluster's wall clock."""
        return self._cluster.wall_ms * NS_PER_MS

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the driver, which alone knows the real time, go by this one."""
        with patch.object(drive, "time", self):
            yield
