"""When a member that was refused may try again, in numbers."""

from __future__ import annotations

import pytest

from pykclient.consumer.group.retries import AT_ONCE_COUNT, Retries
from pykclient.network.retry import Backoff

START_MS = 1_000
RETRY_MS = 100
RETRY_MAX_MS = 400


@pytest.fixture
def retries() -> Retries:
    return Retries(Backoff(RETRY_MS, RETRY_MAX_MS, jitter=0.0))


def test_what_time_cures_is_tried_ever_later(retries: Retries) -> None:
    delays_ms = []
    for _ in range(4):
        retries.later(START_MS)
        delays_ms.append(retries.at_ms - START_MS)
    assert delays_ms == [RETRY_MS, 2 * RETRY_MS, RETRY_MAX_MS, RETRY_MAX_MS]


@pytest.mark.promise("joins that are refused again and again back off, and are reported")
def test_what_another_attempt_cures_is_tried_at_once_but_not_for_ever(retries: Retries) -> None:
    delays_ms = []
    for _ in range(AT_ONCE_COUNT + 4):
        retries.soon(START_MS)
        delays_ms.append(retries.at_ms - START_MS)
    assert delays_ms[:AT_ONCE_COUNT] == [0] * AT_ONCE_COUNT
    assert delays_ms[AT_ONCE_COUNT:] == [RETRY_MS, 2 * RETRY_MS, RETRY_MAX_MS, RETRY_MAX_MS]


def test_a_success_begins_anew(retries: Retries) -> None:
    for _ in range(AT_ONCE_COUNT):
        retries.soon(START_MS)
    had_failed = retries.has_failed
    retries.succeed()
    assert (had_failed, retries.has_failed) == (True, False)
    retries.soon(START_MS)
    assert retries.at_ms == START_MS
