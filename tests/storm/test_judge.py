"""The judge finds each violation, in journals that show it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.storm.judge import Event, Journal, Sending, violations

if TYPE_CHECKING:
    from pathlib import Path

LOG = {0: [1, 3], 1: [5]}
SENDINGS = [
    Sending(1, 0, returned=2, partition=0, offset=0),
    Sending(3, 0, returned=4, partition=0, offset=1),
    Sending(5, 1, returned=6, partition=1, offset=0),
]
READ_ALL: list[Event] = [
    ["opened"],
    ["moved", [0, 1]],
    ["returned", [[0, [0, 1]], [1, [0]]]],
    ["finished"],
    ["committed", [[0, 2], [1, 1]]],
]


def judge(
    sendings: list[Sending] = SENDINGS,
    events: list[Event] = READ_ALL,
    log: dict[int, list[int]] = LOG,
    **notes: list[int],
) -> list[str]:
    return violations(
        Journal(sendings=sendings, events=events, cut_producers=notes.get("cut", [])), log
    )


def test_what_is_written_read_and_committed_is_well() -> None:
    assert judge() == []


def test_an_interrupted_send_may_be_written_or_not() -> None:
    assert judge([*SENDINGS, Sending(7, 1)]) == []
    assert judge([*SENDINGS[:2], Sending(5, 1)]) == []


def test_a_producer_that_was_cut_short_may_fail_records() -> None:
    failed = [*SENDINGS, Sending(7, 2, returned=8, error="ClosedError")]
    assert judge(failed, cut=[2]) == []
    assert judge(failed) == [f"{failed[-1]} is lost"]
    # Even then each delivery must end.
    without_end = [*SENDINGS, Sending(7, 2, returned=8)]
    assert judge(without_end, cut=[2]) == [f"{without_end[-1]} is lost"]


@pytest.mark.promise(
    "whatever interrupts a call, nothing hangs, is lost or doubled, or is committed unprocessed"
)
@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ({0: [1, 3, 3], 1: [5]}, "record 3 is written 2 times"),
        ({0: [1, 3, 9], 1: [5]}, "record 9 is in the log and was never sent"),
        ({0: [1], 1: [5]}, "is not where its delivery says"),
        ({0: [3, 1], 1: [5]}, "sent earlier"),
    ],
)
def test_a_wrong_log_is_seen(log: dict[int, list[int]], expected: str) -> None:
    assert any(expected in line for line in judge(log=log))


def test_sends_that_overlapped_may_stand_in_any_order() -> None:
    overlapping = [
        Sending(1, 0, returned=4, partition=0, offset=1),
        Sending(2, 0, returned=3, partition=0, offset=0),
    ]
    assert judge(overlapping, [["returned", [[0, [0, 1]]]]], {0: [2, 1]}) == []


@pytest.mark.promise(
    "whatever interrupts a call, nothing hangs, is lost or doubled, or is committed unprocessed"
)
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([["returned", [[0, [1]]]], READ_ALL[2]], "begins at 1, and was read up to 0"),
        ([["returned", [[0, [0]]]], READ_ALL[2]], "0 came where 1 was next"),
        ([["returned", [[0, [0]]]], ["opened"], *READ_ALL[2:]], None),
        ([["returned", [[0, [0]]]], ["moved", [0]], *READ_ALL[2:]], None),
        ([["returned", [[0, [0]]]], ["moved", [1]], READ_ALL[2]], "0 came where 1 was next"),
        ([["returned", [[0, [0, 2]], [1, [0]]]]], "a poll returned [0, 2]"),
        ([["returned", [[0, [0]], [1, [0]]]]], "partition 0 is read up to 1 of 2"),
        ([READ_ALL[2], ["committed", [[0, 1]]]], "1 is committed, 0 was processed"),
        ([READ_ALL[2], ["returned", []], ["committed", [[0, 1]]]], None),
        ([["lost"], *READ_ALL], "unknown event"),
    ],
)
def test_wrong_reading_is_seen(events: list[Event], expected: str | None) -> None:
    found = judge(events=events)
    assert found == [] if expected is None else any(expected in line for line in found)


def test_what_the_program_saw_itself_counts() -> None:
    journal = Journal(SENDINGS, READ_ALL, faults=["close took 9 s"])
    assert violations(journal, LOG) == ["close took 9 s"]


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(SENDINGS, READ_ALL, [7], {"exit": 1}, ["fault"])
    journal.write(tmp_path / "journal")
    assert dataclasses.asdict(Journal.read(tmp_path / "journal")) == dataclasses.asdict(journal)
