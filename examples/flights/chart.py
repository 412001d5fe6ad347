"""The chart of the demo: mean delay and number of flights per airline, as one PNG.

Owner: none; each call draws a figure of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flights.delays import AirlineDelay

DELAY_COLOUR, COUNT_COLOUR = "#c44e52", "#4c72b0"


def draw_delays(delays: Sequence[AirlineDelay], path: Path) -> None:
    """Write the chart to `path`, the latest airline on top."""
    ordered = sorted(delays, key=lambda delay: delay.mean_delay_minutes or 0.0)
    names = [f"{delay.airline} ({delay.carrier})" for delay in ordered]
    means = [delay.mean_delay_minutes or 0.0 for delay in ordered]
    figure = Figure(figsize=(12, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle("Flights from New York in 2013, read from Kafka by Spark through pykafka")
    late, flown = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))

    late.barh(names, means, color=DELAY_COLOUR)
    late.bar_label(late.containers[0], fmt="{:.1f}", padding=3)
    late.set_title("Mean departure delay")
    late.set_xlabel("mean departure delay (minutes)")
    late.set_ylabel("airline (carrier code)")

    flown.barh(names, [delay.flight_count for delay in ordered], color=COUNT_COLOUR)
    flown.bar_label(flown.containers[0], fmt="{:,.0f}", padding=3)
    flown.set_title("Flights")
    flown.set_xlabel("flights in 2013 (count)")
    flown.xaxis.set_major_locator(MaxNLocator(4))
    flown.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

    for axes in (late, flown):
        axes.margins(x=0.18, y=0.01)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=100)
