"""The catalogue: `docs/metrics.md` says what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykclient.metrics.catalogue import CATALOGUE

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.mark.promise("metrics, lag by partition among them, are what `docs/metrics.md` says")
def test_the_document_lists_every_metric_as_the_catalogue_does() -> None:
    rows = [
        f"| {group} | `{name}` | {unit} | {meaning} |"
        for (group, name), (unit, meaning) in CATALOGUE.items()
    ]
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index("| --- | --- | --- | --- |") + 1
    assert lines[start:] == rows
