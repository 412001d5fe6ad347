"""The tables of runs."""

from __future__ import annotations

from measuring.tables import figures_rows, markdown, target_rows
from tests.benchmarks.runs import LARGE, SMALL, measured, run_of

RATE = "records_per_second"


def test_the_values_of_several_runs_stand_beside_each_other() -> None:
    runs = [
        run_of(
            measured(LARGE, "pykclient", RATE, ours), measured(LARGE, "confluent-kafka", RATE, 100)
        )
        for ours in (200, 120)
    ]
    row = target_rows(runs)[0]
    assert row.what == "produce, batch size 1,000,000, records/s"
    assert (row.ours, row.theirs, row.result) == ("200; 120", "100; 100", "2.00x; 1.20x")
    assert (row.wanted, row.verdict) == (">= 1.5x confluent-kafka", "met; missed")


def test_a_target_that_no_run_measured_stays_in_the_table() -> None:
    assert {row.verdict for row in target_rows([run_of()])} == {"not measured"}


def test_a_questions_rows_are_its_cases_and_clients() -> None:
    run = run_of(measured(LARGE, "pykclient", RATE, 3, 1_000, 20), measured(SMALL, "Java", RATE, 7))
    headings, *rows = figures_rows("produce", run.measurements)
    assert headings == ["case", "client", "records/s", "runs"]
    assert rows == [
        ["batch size 1,000,000", "pykclient", "20 (3 to 1,000)", "3"],
        ["batch size 16,384", "Java", "7 (7 to 7)", "1"],
    ]
    assert figures_rows("consume", run.measurements)[1:] == []


def test_a_document_gets_a_table() -> None:
    lines = list(markdown(["a", "b"], [["1", "2"]]))
    assert lines == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
