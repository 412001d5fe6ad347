"""The thread that computes: who is missing or failed ends the benchmark."""

from __future__ import annotations

import time

import pytest

from contestants.busy_loop import PAUSE_S, BusyLoop


def test_each_acknowledgement_has_its_latency() -> None:
    loop = BusyLoop(2)
    slices: list[None] = []
    for on_delivery in loop.turns(between=lambda: slices.append(None)):
        on_delivery("metadata", None)
    assert len(loop.latencies_s()) == 2
    assert slices


def test_it_tells_from_when_until_when_it_computed() -> None:
    before_s = time.monotonic()
    figures = BusyLoop(2).compute()
    after_s = time.monotonic()
    from_s, until_s = figures["computing_from_s"], figures["computing_until_s"]
    assert before_s <= from_s < from_s + 2 * PAUSE_S <= until_s <= after_s


def test_a_missing_acknowledgement_is_an_error() -> None:
    loop = BusyLoop(1)
    list(loop.turns())
    with pytest.raises(RuntimeError, match="0 of 1 acknowledged"):
        loop.latencies_s()


def test_a_record_that_failed_is_an_error() -> None:
    loop = BusyLoop(1)
    (on_delivery,) = loop.turns()
    with pytest.raises(TimeoutError, match="too late"):
        on_delivery(None, TimeoutError("too late"))
