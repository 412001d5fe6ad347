"""Groups of real consumers on a fake cluster: many seeds, each with other failures.

For both protocols; a failing seed is the bug report, because it repeats its run to the byte.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.consumer import Consumer
from pykclient.consumer.group.rebalance import Reconciliation
from pykclient.consumer.iteration import Iteration
from pykclient.consumer.offsets.outer import OuterBatch, OuterLoop
from pykclient.consumer.offsets.unprocessed import Unprocessed
from pykclient.consumer.subscription import SubscriptionState
from pykclient.consumer.wiring import Wiring
from pykclient.network.coordinators import CoordinatorLookup
from tests.simulation.group_simulation import GroupSimulation, Kip848GroupSimulation
from tests.simulation.simulated_member import SimulatedConsumer, SimulatedMember
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.record import ConsumerRecord
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.types import OffsetAndMetadata, TopicPartition

SEED_COUNT = 14
SOAK_SEED_COUNT = 500
MILD_SEED_COUNT = 4
INSIDE_SEED_COUNT = 5
SOAK_MILD_SEED_COUNT = 64
SEEDS_PER_TEST = 14
MILD_SEEDS_PER_TEST = 4
SEEDS_UNTIL_NOTICED = 60
MAX_POLL_INTERVAL_MS = 300_000

each_protocol = pytest.mark.parametrize(
    "simulation_class", [GroupSimulation, Kip848GroupSimulation], ids=["classic", "kip848"]
)


@pytest.mark.promise("500 seeds of KIP-848 groups keep every invariant")
@pytest.mark.promise(
    "500 seeds of classic groups keep every invariant, at rest within a session and 5 s"
)
@each_protocol
@pytest.mark.parametrize(
    "first", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT, step=SEEDS_PER_TEST)[1:]
)
def test_a_simulated_group_shares_its_partitions_and_loses_nothing(
    simulation_class: type[GroupSimulation], first: int
) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulation_class(seed).run()


@each_protocol
@pytest.mark.parametrize(
    "first", seeds(INSIDE_SEED_COUNT, soak_count=SOAK_SEED_COUNT, step=INSIDE_SEED_COUNT)
)
def test_polls_inside_loops_cost_no_record(
    simulation_class: type[GroupSimulation], first: int
) -> None:
    met: Counter[str] = Counter()
    for seed in range(first, first + INSIDE_SEED_COUNT):
        simulation = simulation_class(seed, polls_inside=True)
        simulation.run()
        for member in simulation.members:
            met.update(member.did)
    assert met["poll inside"] > INSIDE_SEED_COUNT / 2


@each_protocol
@pytest.mark.parametrize(
    "first", seeds(MILD_SEED_COUNT, soak_count=SOAK_MILD_SEED_COUNT, step=MILD_SEEDS_PER_TEST)
)
def test_where_nothing_breaks_nothing_is_read_twice(
    simulation_class: type[GroupSimulation], first: int
) -> None:
    held_count = 0
    for seed in range(first, first + MILD_SEEDS_PER_TEST):
        simulation = simulation_class(seed, is_mild=True)
        simulation.run()
        held_count += not simulation.has_lost
    assert held_count > MILD_SEEDS_PER_TEST / 2, "in too few runs has no member lost anything"


@pytest.mark.promise("500 seeds of KIP-848 groups keep every invariant")
@pytest.mark.promise(
    "500 seeds of classic groups keep every invariant, at rest within a session and 5 s"
)
@each_protocol
def test_the_simulation_meets_every_fault_and_most_rebalances_come_to_something(
    simulation_class: type[GroupSimulation],
) -> None:
    """A run without failures, or without members, would prove nothing."""
    met: Counter[str] = Counter()
    for seed in range(SEEDS_PER_TEST):
        simulation = simulation_class(seed)
        simulation.run()
        met.update(simulation.met)
        met["processed"] += simulation.processed.count
        for member in simulation.members:
            met.update(member.did)
            met.update(
                what
                for rebalance in member.history
                for what in ("assigned", "revoked", "lost")
                if getattr(rebalance, what)
            )
    expected = {"join", "leave", "kill", "pause", "long work", "coordinator move", "broker stop"}
    expected |= {"cut", "growth", "error", "delay", "drop", "lost response", "disconnect"}
    expected |= {"poll", "iterate", "automatically", "sync", "async", "static", "pattern"}
    expected |= {"commit", "commit_async", "commit before a revocation"}
    expected |= {"pause partitions", "seek", "unsubscribe", "leave a batch", "leave a loop"}
    assert expected | {"assigned", "revoked", "lost"} <= (+met).keys()
    assert met["processed"] > 400


# Planted defects.

assign_from_group = SubscriptionState.assign_from_group
left = Iteration.left


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def keeps_everything(
    subscription: SubscriptionState, partitions: Iterable[TopicPartition]
) -> list[AssignedPartition]:
    return assign_from_group(subscription, {*partitions, *subscription.partitions})


def loses_a_record(consumer: SimulatedConsumer, timeout: float) -> list[ConsumerRecord]:
    return list(Consumer.poll(consumer, timeout))[1:]


def leaves_out_the_record_in_hand(
    iteration: Iteration, *, counts_record_in_hand: bool
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    del counts_record_in_hand
    return left(iteration, counts_record_in_hand=True)


def commits_beside_the_application(wiring: Wiring, now_ms: int) -> int:
    assert wiring.commits is not None
    wiring.commits.begin_poll(now_ms)
    return wiring.engine.step(now_ms)


def closes_late(
    consumer: SimulatedConsumer, timeout: float | None = None, *, group_membership: str = ""
) -> None:
    del timeout, group_membership
    consumer._wiring.port.wait(30_000)


FIRST_SEEDS: dict[tuple[type[GroupSimulation], str], int] = {
    (GroupSimulation, "does not come to rest"): 64,
    (GroupSimulation, "a call took"): 51,
    (Kip848GroupSimulation, "does not come to rest"): 39,
    (Kip848GroupSimulation, "a call took"): 17,
}
"""First seed to try for each defect that earlier seeds do not notice."""


@pytest.mark.promise("500 seeds of KIP-848 groups keep every invariant")
@pytest.mark.promise(
    "500 seeds of classic groups keep every invariant, at rest within a session and 5 s"
)
@each_protocol
@pytest.mark.parametrize(
    ("where", "name", "defect", "complaint"),
    [
        (SimulatedMember, "_finish", nothing, "committed too far"),
        (
            Wiring,
            "step_in_background",
            commits_beside_the_application,
            "committed too far|jumped",
        ),
        (
            SubscriptionState,
            "assign_from_group",
            keeps_everything,
            "two owners|not owned|found something wrong",
        ),
        (Unprocessed, "go_back", nothing, "jumped|began|committed too far"),
        (Iteration, "left", leaves_out_the_record_in_hand, "jumped|began|committed too far"),
        (SimulatedConsumer, "poll", loses_a_record, "jumped|began|committed too far"),
        (
            Reconciliation,
            "_report_revoked",
            nothing,
            "assigned twice|not owned|found something wrong|not all partitions were revoked",
        ),
        (CoordinatorLookup, "mark_unknown", nothing, "does not come to rest"),
        (SimulatedConsumer, "close", closes_late, "a call took"),
    ],
)
def test_the_simulation_notices(
    monkeypatch: pytest.MonkeyPatch,
    simulation_class: type[GroupSimulation],
    where: type,
    name: str,
    defect: object,
    complaint: str,
) -> None:
    monkeypatch.setattr(where, name, defect)
    with pytest.raises(AssertionError, match=complaint):
        run_until_noticed(simulation_class, FIRST_SEEDS.get((simulation_class, complaint), 0))


@each_protocol
def test_the_simulation_notices_records_that_are_handed_out_after_their_commit(
    monkeypatch: pytest.MonkeyPatch, simulation_class: type[GroupSimulation]
) -> None:
    monkeypatch.setattr(Reconciliation, "_hold", nothing)
    with pytest.raises(AssertionError, match="read twice"):
        run_until_noticed(simulation_class, 5, is_mild=True)


@each_protocol
@pytest.mark.parametrize(
    ("name", "defect"),
    [("is_alive", property(lambda _: False)), ("left", lambda _, **__: {})],
    ids=["loop under way taken for left", "record in hand taken for processed"],
)
def test_the_simulation_notices_loops_that_a_poll_disturbs(
    monkeypatch: pytest.MonkeyPatch,
    simulation_class: type[GroupSimulation],
    name: str,
    defect: object,
) -> None:
    monkeypatch.setattr(OuterBatch, name, defect)
    monkeypatch.setattr(OuterLoop, name, defect)
    with pytest.raises(AssertionError, match=r"jumped|began|committed too far"):
        run_until_noticed(simulation_class, 0, polls_inside=True)


def run_until_noticed(
    simulation_class: type[GroupSimulation],
    first_seed: int,
    *,
    is_mild: bool = False,
    polls_inside: bool = False,
) -> None:
    for seed in range(first_seed, first_seed + SEEDS_UNTIL_NOTICED):
        simulation_class(seed, is_mild=is_mild, polls_inside=polls_inside).run()
