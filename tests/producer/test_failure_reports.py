"""FailureReports: one line for similar failures, without record data, and without raising."""

from __future__ import annotations

import logging
from functools import partial
from typing import NoReturn

import pytest

from pykclient.errors import ClosedError, DeliveryTimeoutError
from pykclient.network.log import REPEAT_MS
from pykclient.producer.failure_reports import FailureReports


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def failing(record: bytes) -> NoReturn:
    raise SystemExit


def fail(reports: FailureReports, where: str = "t-0") -> None:
    function = partial(partial(failing), b"secret")
    try:
        function()
    except SystemExit:
        reports.on_callback_error("a delivery callback", where, function)


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == level]


def test_callbacks_that_fail_are_counted_named_and_logged_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    reports = FailureReports("", clock)
    for _ in range(100):
        fail(reports)
    assert reports.callback_error_count == 100
    assert lines(caplog, logging.ERROR) == ["a delivery callback for t-0 failed: failing"]
    assert "secret" not in caplog.text
    clock.now_ms += REPEAT_MS
    fail(reports)
    assert "99 times" in lines(caplog, logging.ERROR)[-1]


def test_a_callback_that_fails_in_many_partitions_is_one_line_and_its_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = FailureReports("", Clock())
    for number in range(3_000):
        fail(reports, f"t-{number % 100}")
    assert len(lines(caplog, logging.ERROR)) == 1
    reports.end()
    assert "2999 times" in lines(caplog, logging.ERROR)[-1]


def test_unseen_failures_are_one_warning_for_each_partition_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = FailureReports("", Clock())
    for _ in range(3):
        reports.unseen("t-0", 10, DeliveryTimeoutError("too late"))
    reports.unseen("t-1", 5, DeliveryTimeoutError("too late"))
    reports.unseen("t-1", 5, ClosedError("which close() has said"))
    seen = reports.unseen("t-1", 5, DeliveryTimeoutError("too late"))
    assert seen is not None
    seen.see()
    del seen
    reports.log_unseen()
    reports.log_unseen()
    first, second = lines(caplog, logging.WARNING)
    assert first.startswith("30 records for t-0 were not delivered")
    assert first.endswith("DeliveryTimeoutError: too late")
    assert second.startswith("5 records for t-1")


def test_a_logging_filter_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(record: object) -> NoReturn:
        raise ZeroDivisionError

    monkeypatch.setattr(logging.getLogger("pykclient.producer"), "filters", [fails])
    reports = FailureReports("", Clock())
    fail(reports)
    assert reports.callback_error_count == 1


def test_what_goes_on_failing_is_counted_and_reported_now_and_then_and_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    reports = FailureReports("", clock)
    for now_ms in (0, 1, 2, REPEAT_MS, REPEAT_MS + 1):
        clock.now_ms = now_ms
        reports.unseen("t-0", 10, DeliveryTimeoutError(f"too late by {now_ms}"))
        reports.log_unseen()
    reports.end()
    found = [line.partition(" records")[0] for line in lines(caplog, logging.WARNING)]
    assert found == ["10", "30", "10"]


@pytest.mark.parametrize("is_over", [False, True])
def test_what_is_held_at_the_end_of_the_program_is_one_warning(
    caplog: pytest.LogCaptureFixture, is_over: bool
) -> None:
    reports = FailureReports("", Clock())
    held = [reports.unseen("t-0", 10, DeliveryTimeoutError("too late")) for _ in range(3)]
    if is_over:
        reports.end()
    assert lines(caplog, logging.WARNING) == []
    reports.end_program()
    held.clear()
    reports.end_program()
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith("30 records for t-0 were not delivered")


def test_what_a_child_process_drops_is_its_parents_to_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = FailureReports("", Clock())
    held = [reports.unseen("t-0", 10, DeliveryTimeoutError("too late"))]
    reports.end()
    reports.on_fork()
    held.clear()
    reports.end_program()
    assert lines(caplog, logging.WARNING) == []
