"""Groups of real consumers on a fake cluster: many seeds, each of which breaks other things.

Both protocols; a failing seed is the bug report, since it repeats its run to the byte.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.consumer import Consumer
from pykclient.consumer.group.rebalance import Reconciliation
from pykclient.consumer.subscription import SubscriptionState
from pykclient.consumer.wiring import Wiring
from pykclient.network.coordinators import Coordinators
from pykclient.types import TopicPartition
from tests.simulation.group_simulation import GroupSimulation
from tests.simulation.kip848_group_simulation import Kip848GroupSimulation
from tests.simulation.living_group import JOIN_MS, LivingGroup
from tests.simulation.simulated_member import POLL_MS, SimulatedConsumer, SimulatedMember
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.record import ConsumerRecord
    from pykclient.consumer.subscription import AssignedPartition

SEED_COUNT = 40
SOAK_SEED_COUNT = 500
MILD_SEED_COUNT = 20
SOAK_MILD_SEED_COUNT = 60
SEEDS_PER_TEST = 20
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


@pytest.mark.promise("without failures no record is read twice, though members come and go")
@each_protocol
@pytest.mark.parametrize(
    "first", seeds(MILD_SEED_COUNT, soak_count=SOAK_MILD_SEED_COUNT, step=SEEDS_PER_TEST)
)
def test_where_nothing_breaks_nothing_is_read_twice(
    simulation_class: type[GroupSimulation], first: int
) -> None:
    held_count = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        simulation = simulation_class(seed, is_mild=True)
        simulation.run()
        held_count += not simulation.has_lost
    assert held_count > SEEDS_PER_TEST / 2, "in too few runs has no member lost anything"


@pytest.mark.promise("500 seeds of KIP-848 groups keep every invariant")
@pytest.mark.promise(
    "500 seeds of classic groups keep every invariant, at rest within a session and 5 s"
)
@each_protocol
def test_the_simulation_meets_every_fault_and_most_rebalances_come_to_something(
    simulation_class: type[GroupSimulation],
) -> None:
    """The first seeds. A run without faults, or one without a member, would prove nothing."""
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
    expected |= {"cut", "growth", "error", "delay", "drop", "lost answer", "disconnect"}
    expected |= {"poll", "iterate", "automatically", "sync", "async", "static", "pattern"}
    expected |= {"commit", "commit_async", "commit before a revocation"}
    expected |= {"pause partitions", "seek", "unsubscribe"}
    assert expected | {"assigned", "revoked", "lost"} <= (+met).keys()
    assert met["processed"] > 400


# What is wrong on purpose.

assign_from_group = SubscriptionState.assign_from_group


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def keeps_everything(
    subscription: SubscriptionState, partitions: Iterable[TopicPartition]
) -> list[AssignedPartition]:
    return assign_from_group(subscription, {*partitions, *subscription.partitions})


def loses_a_record(consumer: SimulatedConsumer, timeout: float) -> list[ConsumerRecord]:
    return list(Consumer.poll(consumer, timeout))[1:]


def commits_beside_the_application(wiring: Wiring, now_ms: int) -> int:
    assert wiring.commits is not None
    wiring.commits.begin_poll(now_ms)
    return wiring.engine.step(now_ms)


def closes_late(
    consumer: SimulatedConsumer, timeout: float | None = None, *, group_membership: str = ""
) -> None:
    del timeout, group_membership
    consumer._wiring.port.wait(30_000)


@pytest.mark.promise("500 seeds of KIP-848 groups keep every invariant")
@pytest.mark.promise(
    "500 seeds of classic groups keep every invariant, at rest within a session and 5 s"
)
@each_protocol
@pytest.mark.parametrize(
    ("where", "name", "defect", "told"),
    [
        (SimulatedMember, "_finish", nothing, "committed too far"),
        (
            Wiring,
            "step_in_background",
            commits_beside_the_application,
            "committed too far",
        ),
        (
            SubscriptionState,
            "assign_from_group",
            keeps_everything,
            "two owners|not owned|found something wrong",
        ),
        (SimulatedConsumer, "poll", loses_a_record, "jumped|began|committed too far"),
        (
            Reconciliation,
            "_report_revoked",
            nothing,
            "assigned twice|not owned|found something wrong",
        ),
        (Coordinators, "mark_unknown", nothing, "does not come to rest"),
        (SimulatedConsumer, "close", closes_late, "a call took"),
    ],
)
def test_the_simulation_notices(
    monkeypatch: pytest.MonkeyPatch,
    simulation_class: type[GroupSimulation],
    where: type,
    name: str,
    defect: object,
    told: str,
) -> None:
    monkeypatch.setattr(where, name, defect)
    with pytest.raises(AssertionError, match=told):
        run_until_noticed(simulation_class, is_mild=False)


@pytest.mark.promise("without failures no record is read twice, though members come and go")
@each_protocol
def test_the_simulation_notices_records_that_are_handed_out_after_their_commit(
    monkeypatch: pytest.MonkeyPatch, simulation_class: type[GroupSimulation]
) -> None:
    monkeypatch.setattr(Reconciliation, "_hold", nothing)
    with pytest.raises(AssertionError, match="read twice"):
        run_until_noticed(simulation_class, is_mild=True)


def run_until_noticed(simulation_class: type[GroupSimulation], *, is_mild: bool) -> None:
    for seed in range(SEEDS_UNTIL_NOTICED):
        simulation_class(seed, is_mild=is_mild).run()


@pytest.mark.promise(
    "what was revoked before it was taken is acknowledged; an old coordinator fences no member"
)
def test_what_was_taken_back_from_one_who_is_away_is_read_by_another_at_once() -> None:
    """One at work hears that it shall have more, and then that it shall not.

    Until it acknowledges that, the coordinator gives it to nobody: for max_poll_interval_ms, if it
    waited for the application.
    """
    with LivingGroup("consumer") as group:
        group.run(JOIN_MS)
        second = group.join()
        group.run(2 * JOIN_MS)
        assert second.owned
        group.member.busy_until_ms = group.now_ms + MAX_POLL_INTERVAL_MS
        group.run(POLL_MS)
        second.is_leaving = True
        group.run(JOIN_MS)
        third = group.join()
        group.run(2 * JOIN_MS)
        assert group.member.busy_until_ms > group.now_ms
        assert third.owned
        assert third.owned | group.member.owned == {TopicPartition("t", n) for n in range(3)}
