"""Positions survive every change of a log that loses no visible record.

A failing seed is the bug report, because it repeats its run to the byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.fetch.buffer import FetchBuffer
from pykclient.consumer.offsets.reset import PositionManager
from pykclient.consumer.offsets.validate import PositionValidator
from pykclient.consumer.subscription import SubscriptionState
from tests.simulation.position_judge import P, Reader
from tests.simulation.position_simulation import PositionSimulation
from tests.soak import seeds

if TYPE_CHECKING:
    from pykclient.consumer.offsets.validate import _Validation
    from pykclient.consumer.record import RecordSpan
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.protocol.messages.offset_for_leader_epoch import EpochEndOffset
    from pykclient.types import OffsetAndTimestamp


Plant = Callable[[pytest.MonkeyPatch], None]

SEED_COUNT = 10
SOAK_SEED_COUNT = 200
SEEDS_PER_TEST = 10
SEEDS_UNTIL_NOTICED = 120


@pytest.mark.parametrize(
    "first", seeds(SEED_COUNT, soak_count=SOAK_SEED_COUNT, step=SEEDS_PER_TEST)[1:]
)
def test_no_record_is_skipped_or_read_again_without_a_cause(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        PositionSimulation(seed).run()


def test_the_simulation_meets_all_that_moves_positions_and_epochs() -> None:
    """A run without events, or without reads, would prove nothing."""
    met: Counter[str] = Counter()
    for seed in range(SEEDS_PER_TEST):
        simulation = PositionSimulation(seed)
        simulation.run()
        met.update(simulation.met)
        met["read"] += sum(len(reader.consumer.read[P]) for reader in simulation.readers)
    expected = {"leader move", "epoch without a write", "marker of a new leader", "compaction"}
    expected |= {"deletion", "seek", "seek to earliest", "seek to latest", "limit", "restart"}
    expected |= {"old commit", "broker stop", "stall", "cut", "error", "delay", "drop"}
    assert expected <= met.keys()
    assert met["read"] > 500


# Planted defects.

complete = PositionManager._complete
on_partition = PositionValidator._on_partition
settle = FetchBuffer._settle
skip_to = SubscriptionState.skip_to
accept_leader = SubscriptionState.accept_leader


def keep_the_epoch_of_a_lookup(patch: pytest.MonkeyPatch) -> None:
    """Return the leader's own epoch for the log's end, even if it wrote nothing in it."""

    def defect(
        manager: PositionManager,
        assigned: AssignedPartition,
        found: list[OffsetAndTimestamp | None],
    ) -> None:
        complete(manager, assigned, found)
        first = found[0]
        assert first is not None
        assigned.leader_epoch = first.leader_epoch

    patch.setattr(PositionManager, "_complete", defect)


def take_an_unknown_epoch_for_a_truncation(patch: pytest.MonkeyPatch) -> None:
    def defect(
        validator: PositionValidator, validation: _Validation, response: EpochEndOffset, now_ms: int
    ) -> None:
        if response.error_code == 0 and response.leader_epoch < validation.leader_epoch:
            reset = validator._auto_offset_reset
            validator._subscription.lose_position(validation.assigned, reset)
        else:
            on_partition(validator, validation, response, now_ms)

    patch.setattr(PositionValidator, "_on_partition", defect)


def keep_the_epoch_past_markers(patch: pytest.MonkeyPatch) -> None:
    def defect(buffer: FetchBuffer, assigned: AssignedPartition) -> None:
        leader_epoch = assigned.leader_epoch
        settle(buffer, assigned)
        assigned.leader_epoch = leader_epoch

    patch.setattr(FetchBuffer, "_settle", defect)


def keep_the_epoch_over_a_skip(patch: pytest.MonkeyPatch) -> None:
    def defect(subscription: SubscriptionState, assigned: AssignedPartition, offset: int) -> None:
        leader_epoch = assigned.leader_epoch
        skip_to(subscription, assigned, offset)
        assigned.leader_epoch = leader_epoch

    patch.setattr(SubscriptionState, "skip_to", defect)


def lose_a_span(patch: pytest.MonkeyPatch) -> None:
    def defect(buffer: FetchBuffer, count_max: int, now_ms: int) -> list[RecordSpan]:
        return take(buffer, count_max, now_ms)[1:]

    take = FetchBuffer.take
    patch.setattr(FetchBuffer, "take", defect)


def go_back_by_one(patch: pytest.MonkeyPatch) -> None:
    def defect(
        subscription: SubscriptionState, assigned: AssignedPartition, leader_epoch: int
    ) -> None:
        accept_leader(subscription, assigned, leader_epoch)
        assigned.offset = max(0, assigned.offset - 1)

    patch.setattr(SubscriptionState, "accept_leader", defect)


RULES: dict[str, tuple[Plant, str]] = {
    "a position that was looked up has no epoch": (keep_the_epoch_of_a_lookup, "wrote before it"),
    "what passes markers has their epoch": (keep_the_epoch_past_markers, "wrote before it"),
    "what skips ahead has no epoch": (
        keep_the_epoch_over_a_skip,
        "wrote before it|without a cause",
    ),
    "an unknown epoch is no truncation": (
        take_an_unknown_epoch_for_a_truncation,
        "without a cause",
    ),
}
"""Former defects and the complaints of the judge when it checks positions."""
FIRST_SEEDS = {"what skips ahead has no epoch": 177, "an unknown epoch is no truncation": 25}
"""First seed to try for each defect that earlier seeds do not notice."""


@pytest.mark.parametrize("rule", RULES)
def test_the_simulation_notices_a_rule_that_is_broken(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, message = RULES[rule]
    run_with(monkeypatch, [plant], message, first_seed=FIRST_SEEDS.get(rule, 0))


@pytest.mark.parametrize(
    ("plants", "message", "first_seed"),
    [
        (
            [keep_the_epoch_of_a_lookup, take_an_unknown_epoch_for_a_truncation],
            "without a cause",
            0,
        ),
        ([keep_the_epoch_past_markers], "without a cause|the log was truncated", 19),
        ([lose_a_span], "skipped|not all was read", 0),
        ([go_back_by_one], "again|began", 0),
    ],
)
def test_the_simulation_notices_what_becomes_of_records(
    plants: list[Plant], message: str, first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks only records, for which the epochs of positions exist."""
    monkeypatch.setattr(Reader, "looks_at_epochs", False)
    run_with(monkeypatch, plants, message, first_seed=first_seed)


def run_with(
    patch: pytest.MonkeyPatch, plants: list[Plant], message: str, *, first_seed: int = 0
) -> None:
    for plant in plants:
        plant(patch)
    with pytest.raises(AssertionError, match=message):
        run_until_noticed(first_seed)


def run_until_noticed(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_UNTIL_NOTICED):
        PositionSimulation(seed).run()
