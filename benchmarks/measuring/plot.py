"""The plot: records a second, and CPU for a million of them, for each client.

Owner: the calling thread.
"""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from measuring.figures import FIGURES
from measuring.measurement import grouped

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from measuring.measurement import Run

PANELS = {
    "Produce": (("produce", "batch size 1,000,000"), ("arrow", "out")),
    "Consume": (("consume", "record objects"), ("arrow", "in")),
}
"""Title -> where its bars are from; of a client that is in both, the first counts."""
AXES = {
    "records_per_second": "records/s (logarithmic)",
    "cpu_s_per_million": "client CPU, seconds per million records (logarithmic)",
}
INCHES = (11.0, 7.0)
LABEL_ROOM = 8.0
"""Length of the axis as a multiple of the longest bar, with room for its number."""
OURS, THEIRS, FLOOR = "#c0392b", "#7f8c8d", "#d5dbdb"


def write_plot(path: Path, run: Run) -> None:
    """Write the plot of a run as PNG."""
    # Without a date or a version in the file, the same run gives the same bytes.
    with mpl.rc_context({"savefig.dpi": 110}):
        figure_of(run).savefig(path, format="png", metadata={"Software": None})


def figure_of(run: Run) -> Figure:
    """Return the figure: produce above, consume below; records/s on the left, CPU on the right."""
    figure = Figure(figsize=INCHES, layout="constrained")
    figure.suptitle("Kafka clients side by side: 100-byte records, 6 partitions, medians")
    panels = figure.subplots(len(PANELS), len(AXES), squeeze=False)
    for row, title in zip(panels, PANELS, strict=True):
        for axes, (name, label) in zip(row, AXES.items(), strict=True):
            _draw(axes, _medians(run, title, name), FIGURES[name].number_format)
            axes.set_title(f"{title}: {FIGURES[name].heading}")
            axes.set_xlabel(label)
            axes.set_ylabel("client")
    return figure


def _medians(run: Run, title: str, name: str) -> dict[str, float]:
    """Return the median of each client, smallest first, without values too short to measure."""
    groups = grouped(run.measurements)
    medians: dict[str, float] = {}
    for place in PANELS[title]:
        for (benchmark, case, client), figures in groups.items():
            if (benchmark, case) == place and name in figures:
                medians.setdefault(client, figures[name].median)
    return {
        client: median
        for client, median in sorted(medians.items(), key=lambda item: item[1])
        if median > 0
    }


def _draw(axes: Axes, medians: dict[str, float], number_format: str) -> None:
    if not medians:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
        return
    bars = axes.barh(list(medians), list(medians.values()), color=[*map(_color, medians)])
    axes.bar_label(bars, labels=[format(value, number_format) for value in medians.values()])
    axes.set_xscale("log")
    axes.set_xlim(_decade_below(min(medians.values())), LABEL_ROOM * max(medians.values()))


def _decade_below(value: float) -> float:
    """Return the power of ten at or below; a bar that short can still be seen."""
    return float(10 ** floor(log10(value / 2)))


def _color(client: str) -> str:
    if client.startswith("raw socket"):
        return FLOOR
    return OURS if client.startswith("pykclient") else THEIRS
