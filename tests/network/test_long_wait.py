"""A call that waits long says once what it waits for."""

from __future__ import annotations

import pytest

from pykclient.network.log import LONG_WAIT_MS, REMEMBERED_MAX, REPEAT_MS, ClientLog, LongWaits

START_MS = 1_000


@pytest.fixture
def waits() -> LongWaits:
    return LongWaits(ClientLog("pykclient.network", "c1"))


def wait_long(waits: LongWaits, now_ms: int, what: str = "memory", why: str = "all taken") -> None:
    waits.begin(what, lambda: why, now_ms).look(now_ms + LONG_WAIT_MS)


def test_it_is_said_once_after_a_while(waits: LongWaits, caplog: pytest.LogCaptureFixture) -> None:
    wait = waits.begin("memory", lambda: "all taken", START_MS)
    deadline_ms = START_MS + 60_000
    assert wait.until_ms(deadline_ms) == START_MS + LONG_WAIT_MS
    assert wait.until_ms(START_MS + 1) == START_MS + 1
    wait.look(START_MS + LONG_WAIT_MS - 1)
    assert not caplog.records
    for late_ms in (0, 1, 100_000):
        wait.look(START_MS + LONG_WAIT_MS + late_ms)
    [record] = caplog.records
    assert record.getMessage() == "[c1] still waiting for memory after 5000 ms: all taken"
    assert record.levelname == "WARNING"
    assert wait.until_ms(deadline_ms) == deadline_ms


def test_many_that_wait_for_the_same_say_it_now_and_then(
    waits: LongWaits, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        wait_long(waits, START_MS)
    wait_long(waits, START_MS, "a commit", "")
    assert [record.getMessage() for record in caplog.records] == [
        "[c1] still waiting for memory after 5000 ms: all taken",
        "[c1] still waiting for a commit after 5000 ms: no response has come yet",
    ]
    wait_long(waits, START_MS + REPEAT_MS)
    assert len(caplog.records) == 3


def test_it_remembers_no_more_than_so_many(
    waits: LongWaits, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(REMEMBERED_MAX + 1):
        wait_long(waits, START_MS, str(number))
    wait_long(waits, START_MS, "0")
    assert len(caplog.records) == REMEMBERED_MAX + 2
