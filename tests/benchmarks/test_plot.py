"""The plot of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from matplotlib.patches import Rectangle

from measuring.plot import figure_of, write_plot
from tests.benchmarks.runs import LARGE, measured, run_of

if TYPE_CHECKING:
    from pathlib import Path

RUN = run_of(
    measured(LARGE, "pykclient", "records_per_second", 2_000_000),
    measured(LARGE, "confluent-kafka", "records_per_second", 1_000_000),
)


@pytest.mark.promise("the plot has titles, and axes with units")
def test_every_panel_has_a_title_and_axes_with_units() -> None:
    panels = figure_of(RUN).axes
    assert [axes.get_title() for axes in panels] == [
        "Produce: records/s",
        "Produce: client CPU s per million",
        "Consume: records/s",
        "Consume: client CPU s per million",
    ]
    assert {axes.get_xlabel() for axes in panels} == {
        "records/s (logarithmic)",
        "client CPU, seconds per million records (logarithmic)",
    }
    assert {axes.get_ylabel() for axes in panels} == {"client"}


def test_a_bar_stands_for_each_client_and_what_is_missing_is_said() -> None:
    produced, _, consumed, _ = figure_of(RUN).axes
    assert [bar.get_width() for bar in produced.patches if isinstance(bar, Rectangle)] == [
        1_000_000,
        2_000_000,
    ]
    assert [text.get_text() for text in consumed.texts] == ["not measured"]


def test_what_was_too_short_to_be_measured_has_no_bar() -> None:
    figures = [measured(LARGE, "Java", "cpu_s_per_million", value) for value in (-0.5, 0.0)]
    _, cpu, _, _ = figure_of(run_of(*figures)).axes
    assert [text.get_text() for text in cpu.texts] == ["not measured"]


def test_the_file_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "clients.png"
    write_plot(path, RUN)
    assert path.read_bytes().startswith(b"\x89PNG")
