"""Durations: which texts are one, and how long they are."""

from __future__ import annotations

import pytest

from pykclient.consumer.config import duration_ms

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
DAY = 24 * HOUR


@pytest.mark.promise("offsets by time, lag, and reset by duration work")
@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P1D", DAY),
        ("PT12H", 12 * HOUR),
        ("PT90M", 90 * MINUTE),
        ("PT5S", 5 * SECOND),
        ("PT1.5S", 1_500),
        ("PT0.0019S", 1),
        ("PT0S", 0),
        ("P2DT3H4M5.006S", 2 * DAY + 3 * HOUR + 4 * MINUTE + 5_006),
        ("pt1h", HOUR),
    ],
)
def test_a_duration_has_its_length(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.promise("offsets by time, lag, and reset by duration work")
@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1", "1D", "P1H", "PT1D", "P-1D", "-P1D", "P1DT", "PT1S1H", "PT.5S", "P1W",
     "P1Y", "PT\uff11H", "P1D ", "PT1.1234567890S"],
)  # fmt: skip
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration; write"):
        duration_ms(text)


def test_a_duration_beyond_any_log_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        duration_ms("P" + "9" * 5_000 + "D")
