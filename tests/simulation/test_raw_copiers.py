"""Copiers that make the calls of a transaction themselves and stall between them: many seeds.

`raw_copier_simulation` describes a run, and `exactly_once_judge` its invariants. A failing seed is
the bug report, because it repeats its run to the byte.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient.consumer.group.group import ConsumerGroup
from tests.simulation.raw_copier_simulation import (
    GAPS,
    Kip848RawCopySimulation,
    RawCopier,
    RawCopySimulation,
)
from tests.soak import seeds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.types import GroupMetadata

SEED_COUNT = 2
SOAK_SEED_COUNT = 300
SEEDS_PER_TEST = 2
MET_SEED_COUNT = 30
"""Number of seeds that together meet everything."""

SEEDS_UNTIL_NOTICED = 100

PROMISE = pytest.mark.promise(
    "an application that stalls between the calls of a transaction loses and doubles nothing"
)
each_protocol = pytest.mark.parametrize(
    "simulation_class",
    [RawCopySimulation, Kip848RawCopySimulation],
    ids=["classic", "kip848"],
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the clients: logging so many failures takes too long."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@PROMISE
@each_protocol
@pytest.mark.parametrize(
    "first", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT, step=SEEDS_PER_TEST)
)
def test_copiers_that_stall_between_their_calls_copy_each_record_once(
    simulation_class: type[RawCopySimulation], first: int
) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        simulation_class(seed).run()


@PROMISE
@pytest.mark.soak
@each_protocol
def test_the_first_seeds_stall_in_each_gap_and_are_refused(
    simulation_class: type[RawCopySimulation],
) -> None:
    """A run proves something only with stalls beyond the membership and refused members."""
    met: Counter[str] = Counter()
    for seed in range(MET_SEED_COUNT):
        simulation = simulation_class(seed)
        simulation.run()
        met += simulation.met
    expected = {f"stall {gap}" for gap in GAPS}
    expected |= {"stop of a process", "stop of a thread", "stop beyond the poll interval"}
    expected |= {"stop beyond the session", "stop beyond the transaction's time"}
    expected |= {"offsets refused", "fenced", "abort", "rewind", "aborted", "revoked", "lost"}
    expected |= {"transaction version 1", "transaction version 2"}
    assert expected - met.keys() == set()
    assert met["copied"] > 500


# Planted defects.


def forgets_its_generation(group: ConsumerGroup) -> GroupMetadata:
    """Return the current identity: after its removal a member has no generation."""
    return group._membership.member


def aborts_without_rewind(*_: object) -> None:
    """Leave the positions after the records of the aborted transaction."""


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
    "the group's metadata forgets its generation": Defect(
        ConsumerGroup, "identity", property(forgets_its_generation), "committed twice", (18, 92)
    ),
    "no rewind after an abort": Defect(
        RawCopier,
        "_rewind",
        aborts_without_rewind,
        "committed too far|does not come to its end",
        (1, 2),
    ),
}


@PROMISE
@each_protocol
@pytest.mark.parametrize("what", DEFECTS)
def test_the_simulation_notices(
    monkeypatch: pytest.MonkeyPatch, simulation_class: type[RawCopySimulation], what: str
) -> None:
    defect = DEFECTS[what]
    monkeypatch.setattr(defect.where, defect.name, defect.value)
    first = defect.first_seeds[simulation_class is Kip848RawCopySimulation]
    for seed in range(first, first + SEEDS_UNTIL_NOTICED):
        try:
            simulation_class(seed).run()
        except AssertionError as error:
            if re.search(defect.complaint, str(error)):
                return  # otherwise the client has noticed it itself
    pytest.fail("no seed has noticed it")
