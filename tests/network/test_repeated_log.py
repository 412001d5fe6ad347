"""What goes wrong again and again is said once, and then now and then."""

from __future__ import annotations

import logging

import pytest

from pykclient.network.log import KEYS_MAX, REPEAT_MS, ClientLog, RateLimitedLog

START_MS = 5_000
TRY_MS = 100


@pytest.fixture
def repeated() -> RateLimitedLog:
    return RateLimitedLog(ClientLog("pykclient.network", ""))


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What was said at a level."""
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def lose(repeated: RateLimitedLog, now_ms: int, why: str = "refused") -> bool:
    """Say that a broker was lost."""
    return repeated.log(logging.WARNING, now_ms, ("n1", why), "lost %s: %s", "n1", why)


@pytest.mark.promise("repeated failures are logged once for each reason, then now and then")
def test_one_line_stands_for_all_that_are_alike(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = [lose(repeated, START_MS + n * TRY_MS) for n in range(REPEAT_MS // TRY_MS)]
    assert lines(caplog) == ["lost n1: refused"]
    assert said == [True, *[False] * (len(said) - 1)]
    assert len(lines(caplog, logging.DEBUG)) == len(said) - 1


@pytest.mark.promise("repeated failures are logged once for each reason, then now and then")
def test_after_a_while_it_is_said_again_with_how_often(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(2 * REPEAT_MS // TRY_MS):
        lose(repeated, START_MS + n * TRY_MS)
    again = f"lost n1: refused ({REPEAT_MS // TRY_MS - 1} times since it was last told)"
    assert lines(caplog) == ["lost n1: refused", again]


def test_what_happens_rarely_is_said_each_time_as_it_is(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(3):
        assert lose(repeated, START_MS + n * REPEAT_MS)
    assert lines(caplog) == ["lost n1: refused"] * 3


def test_another_reason_is_said_at_once_and_two_that_alternate_are_said_once_each(
    repeated: RateLimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(10):
        lose(repeated, START_MS + n, ("refused", "timed out")[n % 2])
    assert lines(caplog) == ["lost n1: refused", "lost n1: timed out"]


def test_it_remembers_no_more_than_so_many(repeated: RateLimitedLog) -> None:
    for n in range(KEYS_MAX + 1):
        assert lose(repeated, START_MS, str(n))
    assert not lose(repeated, START_MS, str(KEYS_MAX))
    assert lose(repeated, START_MS, "0"), "the oldest was forgotten"
