"""LongClose logs once, when due, what a close waits for, why, and for how long at most."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from pykclient.network.interrupts import interrupt_count
from pykclient.network.log import ClientLog
from pykclient.network.long_close import NOTICE_MS, LongClose

if TYPE_CHECKING:
    from collections.abc import Iterator

START_MS = 1_000
DEADLINE_MS = START_MS + 30_000
SAID = (
    "close: still waiting for the delivery of 3 records, 28 s more at most: connection refused; "
    "Ctrl-C ends the wait: they are lost"
)


@pytest.fixture(autouse=True)
def python_handles_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def long_close(deadline_ms: int = DEADLINE_MS) -> LongClose:
    return LongClose(
        ClientLog("pykclient.producer", ""),
        "close",
        what=lambda: "the delivery of 3 records",
        why=lambda: "connection refused",
        cost="they are lost",
        started_ms=START_MS,
        deadline_ms=deadline_ms,
    )


def test_it_is_logged_once_when_it_is_due(caplog: pytest.LogCaptureFixture) -> None:
    notice = long_close()
    assert notice.until_ms(DEADLINE_MS) == START_MS + NOTICE_MS
    notice.look(START_MS + NOTICE_MS - 1)
    assert caplog.records == []
    for _ in range(3):
        notice.look(START_MS + NOTICE_MS)
    assert notice.is_logged
    assert notice.until_ms(DEADLINE_MS) == DEADLINE_MS
    assert [(line.levelno, line.getMessage()) for line in caplog.records] == [
        (logging.WARNING, SAID)
    ]


def test_a_wait_that_is_over_before_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    notice = long_close(deadline_ms=START_MS + 100)
    assert notice.until_ms(START_MS + 100) == START_MS + 100
    notice.look(START_MS + NOTICE_MS)
    assert caplog.records == []


def test_ctrl_c_is_named_only_where_it_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    thread = threading.Thread(target=long_close().look, args=[START_MS + NOTICE_MS])
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, lambda *_: None)
    long_close().look(START_MS + NOTICE_MS)
    assert len(caplog.records) == 2
    assert "Ctrl-C" not in caplog.text


def test_an_interrupt_that_is_raised_again_is_the_same_one() -> None:
    def raise_on_top(first: BaseException, *, is_raised_again: bool) -> None:
        try:
            raise first
        except BaseException as error:
            if is_raised_again:
                raise KeyboardInterrupt("3 records were sent") from error
            raise KeyboardInterrupt from None

    counts = []
    for first in (KeyboardInterrupt(), ValueError()):
        for is_raised_again in (False, True):
            with pytest.raises(KeyboardInterrupt) as caught:
                raise_on_top(first, is_raised_again=is_raised_again)
            counts.append(interrupt_count(caught.value))
    assert counts == [2, 1, 1, 1]
    assert interrupt_count(None) == 0
