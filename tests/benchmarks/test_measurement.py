"""Medians of runs, and runs as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measuring.measurement import grouped, read_run, write_run
from tests.benchmarks.runs import LARGE, measured, run_of

if TYPE_CHECKING:
    from pathlib import Path


def test_each_figure_has_the_median_and_range_of_its_turns() -> None:
    groups = grouped(
        [
            *measured(LARGE, "a", "records_per_second", 9, 300, 200),
            *measured(LARGE, "b", "records_per_second", 1),
            *measured(LARGE, "a", "cpu_s_per_million", 5),
        ]
    )
    series = groups[*LARGE, "a"]["records_per_second"]
    assert (series.median, series.range) == (200, (9, 300))
    assert groups[*LARGE, "a"]["cpu_s_per_million"].median == 5
    assert groups[*LARGE, "b"]["records_per_second"].median == 1


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_of(measured(LARGE, "a", "records_per_second", 9.5, 300))
    path = tmp_path / "deep" / "run.json"
    write_run(path, run)
    assert read_run(path) == run
