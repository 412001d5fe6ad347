"""Copiers with ExactlyOnce in a group: many seeds, each with other failures.

`exactly_once_simulation` describes a run, and `exactly_once_judge` its invariants. A failing seed
is the bug report, because it repeats its run to the byte.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient.consumer.offsets import committed
from pykclient.exactly_once import _Loop
from pykclient.producer.accumulator.batch import BatchState
from pykclient.producer.producer import Producer
from pykclient.producer.sender.transactions import Transactions
from pykclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pykclient.records.control import AbortedTransactions
from tests.simulation.exactly_once_simulation import (
    ExactlyOnceSimulation,
    Kip848ExactlyOnceSimulation,
    StoppingProducer,
)
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from pykclient.types import OffsetAndMetadata, TopicPartition

SEED_COUNT = 10
SOAK_SEED_COUNT = 500
SEEDS_PER_TEST = 5
SEEDS_UNTIL_NOTICED = 200

each_protocol = pytest.mark.parametrize(
    "simulation_class",
    [ExactlyOnceSimulation, Kip848ExactlyOnceSimulation],
    ids=["classic", "kip848"],
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the clients: logging so many failures takes too long."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


MET: dict[tuple[type[ExactlyOnceSimulation], int], Counter[str]] = {}


def met_in(simulation_class: type[ExactlyOnceSimulation], seed: int) -> Counter[str]:
    """Run a seed, once for all tests, and return its counters."""
    if (simulation_class, seed) not in MET:
        simulation = simulation_class(seed)
        simulation.run()
        MET[simulation_class, seed] = simulation.met
    return MET[simulation_class, seed]


@pytest.mark.promise("500 seeds of ExactlyOnce with its group keep each record once and in order")
@each_protocol
@pytest.mark.parametrize(
    "first", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT, step=SEEDS_PER_TEST)
)
def test_copiers_copy_each_record_once_whatever_befalls_them(
    simulation_class: type[ExactlyOnceSimulation], first: int
) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        met_in(simulation_class, seed)


@pytest.mark.promise("500 seeds of ExactlyOnce with its group keep each record once and in order")
@each_protocol
def test_the_first_seeds_meet_every_fault_and_rebalances_take_partitions_away(
    simulation_class: type[ExactlyOnceSimulation],
) -> None:
    """A run without failures, or with a single copier, would prove nothing."""
    met: Counter[str] = Counter()
    for seed in range(SEED_COUNT):
        met += met_in(simulation_class, seed)
    expected = {"error", "delay", "drop", "lost response", "disconnect", "cut", "broker stop"}
    expected |= {"late up", "late down", "doubled", "markers delayed", "leader moved"}
    expected |= {"group coordinator moved", "transaction coordinator moved"}
    expected |= {"start", "leave", "kill", "replace", "stop of a process", "stop of a thread"}
    expected |= {"stop beyond the poll interval", "stop beyond the session"}
    expected |= {"stop beyond the transaction's time", "transaction timed out", "fenced"}
    expected |= {
        "batch left early",
        "block fails",
        "abort",
        "rewind",
        "aborted",
        "assigned",
        "revoked",
        "lost",
    }
    expected |= {"transaction version 1", "transaction version 2"}
    assert expected - met.keys() == set()
    assert met["copied"] > 1_000 * SEED_COUNT // 15
    assert met["assigned"] > 3 * SEED_COUNT


@pytest.mark.parametrize("seed", [161, 235])
def test_a_wakeup_during_the_rewind_of_a_block_that_failed_is_not_lost(seed: int) -> None:
    met_in(ExactlyOnceSimulation, seed)


# Planted defects.


def nothing(*_: object) -> None:
    """Do nothing."""


def commits_beside_the_transaction(
    producer: StoppingProducer, offsets: Mapping[TopicPartition, OffsetAndMetadata], _: object
) -> None:
    consumer = producer.copier.consumer
    assert consumer is not None
    commits = consumer._wiring.require_commits("commit")  # the public call refuses in a block
    consumer._drive(consumer._calls.commit(commits, dict(offsets), consumer._timeout_ms(None)))


send_offsets = Producer.send_offsets_to_transaction


def commits_as_the_member_of_now(
    producer: StoppingProducer, offsets: Mapping[TopicPartition, OffsetAndMetadata], _: object
) -> None:
    assert producer.copier.consumer is not None
    group = producer.copier.consumer._wiring.group
    assert group is not None
    send_offsets(producer, offsets, group._membership.member)


def counts_what_is_in_flight_as_done(transactions: Transactions) -> bool:
    batches = transactions._accumulator._incomplete
    return all(batch.state is BatchState.IN_FLIGHT for batch in batches)


def hides_nothing(_: AbortedTransactions, __: object) -> bool:
    return False


class UnstableOffsetFetch(OffsetFetchRequest):
    """A request that also returns offsets with an open transaction."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields | {"require_stable": False})


def committed_all_the_same(_: object) -> bool:
    return False


class Defect(NamedTuple):
    """A replaced part of the client, and the judge's complaint."""

    where: object
    name: str
    value: object
    complaint: str
    first_seeds: tuple[int, int]
    """First seeds that noticed it, with each protocol; others may after a change of the
    simulation."""


DEFECTS = {
    "offsets are committed beside the transaction": Defect(
        Producer,
        "send_offsets_to_transaction",
        commits_beside_the_transaction,
        "committed too far",
        (0, 0),
    ),
    "offsets are committed as the member that it is by then": Defect(
        Producer,
        "send_offsets_to_transaction",
        commits_as_the_member_of_now,
        "committed twice",
        (44, 220),
    ),
    "the transaction ends while records are in flight": Defect(
        Transactions,
        "_is_quiet",
        property(counts_what_is_in_flight_as_done),
        "committed too far",
        (2, 2),
    ),
    "no rewind after an abort": Defect(
        _Loop, "rewind", nothing, "committed too far|does not come to its end", (4, 7)
    ),
    "a batch that was left early is committed": Defect(
        _Loop, "is_left_early", committed_all_the_same, "committed too far", (3, 3)
    ),
    "offsets are fetched that are not stable": Defect(
        committed, "OffsetFetchRequest", UnstableOffsetFetch, "committed twice", (0, 17)
    ),
    "aborted records are read": Defect(
        AbortedTransactions, "hides", hides_nothing, "never committed", (0, 0)
    ),
}


@pytest.mark.promise("500 seeds of ExactlyOnce with its group keep each record once and in order")
@each_protocol
@pytest.mark.parametrize("what", DEFECTS)
def test_the_simulation_notices(
    monkeypatch: pytest.MonkeyPatch, simulation_class: type[ExactlyOnceSimulation], what: str
) -> None:
    defect = DEFECTS[what]
    monkeypatch.setattr(defect.where, defect.name, defect.value)
    first = defect.first_seeds[simulation_class is Kip848ExactlyOnceSimulation]
    for seed in range(first, first + SEEDS_UNTIL_NOTICED):
        try:
            simulation_class(seed).run()
        except AssertionError as error:
            if re.search(defect.complaint, str(error)):
                return  # otherwise the client has noticed it itself
    pytest.fail("no seed has noticed it")
