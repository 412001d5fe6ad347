"""Measurement: what one client did once, and the medians of many; as JSON and back.

Owner: none; measurements are immutable.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of one client in one case of a benchmark, by name with unit."""

    benchmark: str
    case: str
    client: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """All that one call of a benchmark measured: on what machine, by what command, and when."""

    command: str
    date: str
    machine: Mapping[str, str]
    measurements: Sequence[Measurement]


class Series:
    """The values of one figure over the turns of one client in one case."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    @property
    def median(self) -> float:
        """The value in the middle."""
        return median(self.values)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest."""
        return min(self.values), max(self.values)


Key = tuple[str, str, str]
"""Benchmark, case, client."""


def grouped(measurements: Iterable[Measurement]) -> dict[Key, dict[str, Series]]:
    """Return the series of each figure, in the order in which they first came."""
    values: dict[Key, dict[str, list[float]]] = {}
    for measurement in measurements:
        key = (measurement.benchmark, measurement.case, measurement.client)
        for name, value in measurement.figures.items():
            values.setdefault(key, {}).setdefault(name, []).append(value)
    return {
        key: {name: Series(of_name) for name, of_name in figures.items()}
        for key, figures in values.items()
    }


def write_run(path: Path, run: Run) -> None:
    """Write a run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")


def read_run(path: Path) -> Run:
    """Read a file of `write_run`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    measurements = [Measurement(**measurement) for measurement in content.pop("measurements")]
    return Run(**content, measurements=measurements)
