"""Runs made up for tests: known figures, in the places where the targets look."""

from __future__ import annotations

from measuring.measurement import Measurement, Run

LARGE = ("produce", "batch size 1,000,000")
SMALL = ("produce", "batch size 16,384")


def measured(place: tuple[str, str], client: str, name: str, *values: float) -> list[Measurement]:
    """One measurement per value."""
    return [Measurement(*place, client, {name: value}) for value in values]


def run_of(*measurements: list[Measurement]) -> Run:
    """A run that measured these."""
    return Run(
        "python benchmarks/suite.py",
        "2026-01-02 03:04 UTC",
        {"cores": "2"},
        [measurement for some in measurements for measurement in some],
    )
