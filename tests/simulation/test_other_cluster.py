"""Another cluster temporarily takes over the addresses of brokers: no data is exchanged with it.

Method: the other cluster has the same broker ids and the same topic, with its own records. The seed
sometimes redirects a broker's address there and cuts its connections. With odd seeds the brokers
are older than Kafka 4.4, so that clients compare cluster ids, not broker ids (KIP-1242).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ClusterMismatchError
from pykclient.network.cluster.metadata import Metadata
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake.cluster import FakeCluster
from tests.simulation.simulation import BROKER_COUNT, PARTITIONS, TOPIC, Simulation
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SEED_COUNT = 6
SOAK_SEED_COUNT = 100


class TwoClusters(Simulation):
    """A run in which addresses sometimes lead to another cluster."""

    def __init__(self, seed: int, **producer_settings: object) -> None:
        super().__init__(seed, **producer_settings)
        self.other = FakeCluster(BROKER_COUNT, cluster_id="other", now_ms=self.clock.now_ms)
        self.other.create_topic(TOPIC, len(PARTITIONS))
        for broker_id, broker in self.other.brokers.items():
            broker.host, broker.port = self.cluster.brokers[broker_id].address(None)
        self.network.other = self.other
        if seed % 2:
            for cluster in (self.cluster, self.other):
                cluster.limit_versions({ApiKey.API_VERSIONS: (0, 4)})

    def _step(self, turns: Iterable[Callable[[int], int]]) -> None:
        self.other.advance(self.clock.now_ms)
        super()._step(turns)

    def _break_something(self) -> None:
        super()._break_something()
        ids = (self.producer.core.metadata.cluster_id, self.consumer.cluster_id)
        if None not in ids and self.random.random() < 0.1:
            self._redirect()

    def _redirect(self) -> None:
        """Redirect some addresses to the other cluster, and restore the rest."""
        count = self.random.choice((0, 1, 1, BROKER_COUNT))
        self.met["other cluster"] += count > 0
        self.network.redirected = set(self.random.sample(range(BROKER_COUNT), count))
        for link in self.network.links:
            if not link.is_closed:
                link.cut()

    def _heal(self) -> None:
        super()._heal()
        self.network.redirected = set()
        for link in self.network.links:
            if not link.is_closed:
                link.cut()

    def check_step(self) -> None:
        super().check_step()
        for name in PARTITIONS:
            assert self.other.partition(name).log.log_end_offset == 0, (
                "written to the other cluster"
            )

    def check_end(self) -> None:
        errors = self.consumer.errors
        errors[:] = [each for each in errors if not isinstance(each, ClusterMismatchError)]
        super().check_end()


@pytest.mark.promise("nothing is sent to another cluster that took over a broker's address")
@pytest.mark.parametrize("seed", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT))
def test_simulated_records_stay_in_their_cluster(seed: int) -> None:
    simulation = TwoClusters(seed)
    simulation.run()
    # Later seeds may happen not to redirect.
    assert simulation.met["other cluster"] or seed >= SEED_COUNT


def test_the_simulation_notices_clients_that_take_any_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compare = Metadata.is_of_cluster
    monkeypatch.setattr(Metadata, "is_of_cluster", lambda *given: [compare(*given)] != [])
    with pytest.raises(AssertionError, match=r"written to the other cluster|skipped|what is not"):
        run_seeds(20)


def run_seeds(count: int) -> None:
    for seed in range(count):
        TwoClusters(seed).run()
