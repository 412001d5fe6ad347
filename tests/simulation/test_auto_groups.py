"""Groups with ``group_protocol=auto`` while their cluster is up- and downgraded: many seeds.

Brokers get or lose KIP-848 one by one, the coordinator moves among them, and the cluster's feature
is switched on and off. A failing seed is the bug report: it repeats its run to the byte.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from pykclient.consumer.group.auto import AutoMembership
from pykclient.consumer.group.rebalance import Reconciliation
from tests.simulation.group_simulation import AutoGroupSimulation
from tests.soak import seeds

SEED_COUNT = 10
SOAK_SEED_COUNT = 500
MILD_SEED_COUNT = 4
SOAK_MILD_SEED_COUNT = 64
SEEDS_UNTIL_NOTICED = 60


@pytest.mark.promise("`group_protocol=auto` loses no record while a cluster is upgraded")
@pytest.mark.parametrize(
    "first", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT, step=SEED_COUNT)[1:]
)
def test_a_group_that_chooses_its_protocol_loses_nothing_in_an_upgrade(first: int) -> None:
    for seed in range(first, first + SEED_COUNT):
        AutoGroupSimulation(seed).run()


@pytest.mark.promise("`group_protocol=auto` loses no record while a cluster is upgraded")
def test_the_first_seeds_meet_every_way_from_one_protocol_to_the_other() -> None:
    met: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        simulation = AutoGroupSimulation(seed)
        simulation.run()
        met.update(simulation.met)
        met["processed"] += simulation.processed.count
        for member in simulation.members:
            protocols = [each.protocol for each in member.history if each.protocol]
            met.update(protocols)
            met.update(f"{one} to {other}" for one, other in pairwise(protocols))
    expected = {"upgrade", "downgrade", "feature", "coordinator move", "static", "pattern"}
    expected |= {"removal", "classic", "consumer", "consumer to classic", "classic to consumer"}
    assert expected <= (+met).keys()
    assert met["processed"] > 200


@pytest.mark.parametrize(
    "first", seeds(MILD_SEED_COUNT, soak_count=SOAK_MILD_SEED_COUNT, step=MILD_SEED_COUNT)
)
def test_in_a_mixed_cluster_where_nothing_breaks_nothing_is_read_twice(first: int) -> None:
    held_count = 0
    for seed in range(first, first + MILD_SEED_COUNT):
        simulation = AutoGroupSimulation(seed, is_mild=True)
        simulation.run()
        held_count += not simulation.has_lost
    assert held_count > MILD_SEED_COUNT / 2, "members lost partitions in too many runs"


# Planted defects.


def keeps_all(reconciliation: Reconciliation, *, can_commit: bool) -> None:
    del reconciliation, can_commit


@pytest.mark.parametrize(
    ("where", "name", "defect", "complaint"),
    [
        (AutoMembership, "_must_enter_classic", property(lambda _: False), "come to rest"),
        (
            Reconciliation,
            "_give_up",
            keeps_all,
            "two owners|not owned|not all partitions were revoked",
        ),
    ],
)
def test_the_simulation_notices(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, defect: object, complaint: str
) -> None:
    monkeypatch.setattr(where, name, defect)
    with pytest.raises(AssertionError, match=complaint):
        run_until_noticed()


def run_until_noticed() -> None:
    for seed in range(SEEDS_UNTIL_NOTICED):
        AutoGroupSimulation(seed).run()
