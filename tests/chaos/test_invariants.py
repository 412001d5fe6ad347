"""The judge finds each violation, in journals of members that committed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pykclient import TopicPartition
from tests.chaos.invariants import CommittedSample, Invariants, Journal

PLACE = TopicPartition("t", 0)
STALL_MS_MAX = 100
CLOSE_MS_MAX = 50

Event = Mapping[str, Any]


def event(timestamp_ms: int, name: str, **fields: object) -> Event:
    return {"timestamp": timestamp_ms, "name": name, **fields}


def assigned(timestamp_ms: int) -> Event:
    return event(timestamp_ms, "partitions_assigned", partitions=[PLACE._asdict()])


def revoked(timestamp_ms: int) -> Event:
    return event(timestamp_ms, "partitions_revoked", partitions=[PLACE._asdict()])


def in_generation(timestamp_ms: int, generation: int) -> Event:
    return event(timestamp_ms, "membership", generation=generation)


def consumed(timestamp_ms: int, first: int, end: int) -> Event:
    part = {**PLACE._asdict(), "count": end - first, "minOffset": first, "maxOffset": end - 1}
    return event(timestamp_ms, "records_consumed", count=end - first, partitions=[part])


def committed(timestamp_ms: int, offset: int) -> Event:
    parts = [{**PLACE._asdict(), "offset": offset}]
    return event(timestamp_ms, "offsets_committed", offsets=parts, success=True)


A_WELL = (assigned(0), in_generation(5, 1), consumed(5, 0, 10), committed(6, 10), revoked(7))
B_WELL = (assigned(8), in_generation(9, 2), consumed(9, 10, 20), committed(10, 20))


def judge(
    *journals: tuple[Event, ...],
    acknowledged_ms: int = 0,
    samples: tuple[CommittedSample, ...] = (),
    status: int | None = None,
) -> Invariants:
    return Invariants(
        [
            Journal(f"member {number}", events, status, "why")
            for number, events in enumerate(journals)
        ],
        {PLACE: dict.fromkeys(range(20), acknowledged_ms)},
        samples,
        stall_ms_max=STALL_MS_MAX,
        close_ms_max=CLOSE_MS_MAX,
    )


def test_a_handover_after_a_commit_is_well() -> None:
    judged = judge(A_WELL, B_WELL, samples=(CommittedSample(6, {PLACE: 10}),))
    assert judged.violations == []
    assert (judged.record_count, judged.processed_count) == (20, 20)
    assert judged.generations == {1, 2}
    assert judged.stall_ms == 9


def test_what_was_not_committed_may_be_processed_again() -> None:
    judged = judge(A_WELL[:3], (assigned(8), in_generation(9, 2), consumed(9, 0, 20)))
    assert judged.violations == []
    assert (judged.record_count, judged.processed_count) == (20, 30)


@pytest.mark.parametrize(
    ("journals", "violation"),
    [
        pytest.param(
            (A_WELL, (assigned(8), in_generation(9, 1), consumed(9, 10, 20))),
            "is owned by member 0 and member 1 in generation 1",
            id="two owners",
        ),
        pytest.param(
            (A_WELL, (in_generation(9, 2), consumed(9, 10, 20))), "does not own", id="no owner"
        ),
        pytest.param(
            (A_WELL, (*B_WELL, revoked(11), consumed(12, 20, 21))),
            "does not own",
            id="a former owner",
        ),
        pytest.param(
            (A_WELL, (assigned(8), consumed(9, 10, 15), consumed(9, 16, 20), consumed(9, 15, 16))),
            "jumps from 15 to 16",
            id="a jump",
        ),
        pytest.param(
            (A_WELL, (assigned(8), consumed(9, 11, 20), consumed(9, 20, 21))),
            "begins t-0 at 11",
            id="a record skipped at the beginning",
        ),
        pytest.param(
            (A_WELL, (assigned(8), consumed(9, 5, 20))), "committed were 10", id="a step back"
        ),
        pytest.param(
            (A_WELL, (assigned(8), consumed(9, 10, 20), committed(10, 21))),
            "up to 21 and has processed to 20",
            id="a commit beyond",
        ),
        pytest.param((A_WELL, B_WELL[:2]), "10 records were not processed", id="a loss"),
        pytest.param(
            (A_WELL, (assigned(8), consumed(STALL_MS_MAX + 1, 10, 20))),
            f"{STALL_MS_MAX + 1} ms late",
            id="a stall",
        ),
        pytest.param(
            (A_WELL, (*B_WELL, event(20, "shutdown_requested"), event(71, "shutdown_complete"))),
            "took 51 ms to leave",
            id="a long good-bye",
        ),
    ],
)
def test_what_must_not_be_is_reported(
    journals: tuple[tuple[Event, ...], ...], violation: str
) -> None:
    violations = judge(*journals).violations
    assert any(violation in found for found in violations), violations


def test_a_commit_that_the_coordinator_had_too_early_is_reported() -> None:
    sample = CommittedSample(4, {PLACE: 10})
    assert any("processed to 0" in each for each in judge(A_WELL, samples=(sample,)).violations)


def test_a_member_that_ends_by_an_error_is_reported() -> None:
    assert any("ended with 1: why" in each for each in judge(A_WELL, B_WELL, status=1).violations)


def test_a_member_that_does_not_report_how_it_left_is_reported() -> None:
    left = event(20, "shutdown_requested"), event(21, "shutdown_complete")
    assert judge((*A_WELL, *left), (*B_WELL, *left), status=0).violations == []
    violations = judge((*A_WELL, *left), B_WELL, status=0).violations
    assert violations == ["member 1 ended without reporting how it left"]


def test_holes_in_a_batch_are_reported() -> None:
    part = {**PLACE._asdict(), "count": 19, "minOffset": 0, "maxOffset": 19}
    batch = event(5, "records_consumed", count=19, partitions=[part])
    assert any("reads 19 records" in each for each in judge((assigned(0), batch)).violations)
