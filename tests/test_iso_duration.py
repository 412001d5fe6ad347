"""Durations in the form of ISO 8601, as Java reads them."""

from __future__ import annotations

import pytest

from pykclient.iso_duration import duration_ms

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("PT0S", 0),
        ("PT0.5S", 500),
        ("PT0,25S", 250),
        ("PT1.0019S", 1_001),
        ("PT15M", 15 * MINUTE_MS),
        ("pt15m", 15 * MINUTE_MS),
        (" PT36H ", 36 * HOUR_MS),
        ("P2D", 48 * HOUR_MS),
        ("P1DT12H30M5S", 36 * HOUR_MS + 30 * MINUTE_MS + 5_000),
    ],
)
def test_a_duration_is_read(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1", "1H", "PT1", "P1DT", "PT-1S", "-PT1S", "P1M", "P1Y", "PT1S1M"),
        *("PT.5S", f"PT{'9' * 400}S", "PT\u0661S"),
    ],
)
def test_what_is_none_is_refused_with_the_form_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="PT1H30M"):
        duration_ms(text)
