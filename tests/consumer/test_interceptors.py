"""ConsumerInterceptors: each gets the result of the previous one; one that fails is skipped."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from pykclient.consumer.interceptors import ConsumerInterceptors
from pykclient.consumer.record import ConsumerRecords
from pykclient.errors import ConfigError
from tests.consumer.fetched_records import A, span

RECORDS = ConsumerRecords([span(A, [1, 2])])
FEWER = ConsumerRecords([span(A, [1])])


class Returning:
    """An interceptor that returns the object it was created with, and records its arguments."""

    def __init__(self, result: ConsumerRecords) -> None:
        self.result = result
        self.seen: list[ConsumerRecords] = []

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        self.seen.append(records)
        return self.result


class Failing:
    """An interceptor that fails in every method."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        raise ZeroDivisionError


class WithoutClose:
    """An interceptor with only the required method."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        return records


def test_each_gets_what_the_one_before_returned() -> None:
    first, second = Returning(FEWER), Returning(RECORDS)
    assert ConsumerInterceptors([first, second], clock_ms=int).on_consume(RECORDS) is RECORDS
    assert first.seen == [RECORDS]
    assert second.seen == [FEWER]


def test_one_that_fails_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    last = Returning(FEWER)
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        result = ConsumerInterceptors([Failing(), last], clock_ms=int).on_consume(RECORDS)
    assert result is FEWER
    assert last.seen == [RECORDS]
    assert "Failing" in caplog.text
    assert "ZeroDivisionError" in caplog.text


class Forgetful(WithoutClose):
    """An interceptor that returns nothing or something else than records."""

    def __init__(self, result: object = None) -> None:
        self.result = result

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        return cast("ConsumerRecords", self.result)


@pytest.mark.parametrize(
    ("result", "kind"), [(None, "NoneType"), (["a secret"], "list")], ids=["nothing", "a list"]
)
def test_one_that_returns_no_records_is_logged_and_skipped(
    result: object, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    last = Returning(FEWER)
    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        assert (
            ConsumerInterceptors([Forgetful(result), last], clock_ms=int).on_consume(RECORDS)
            is FEWER
        )
        assert last.seen == [RECORDS]
        assert (
            ConsumerInterceptors([Forgetful(result)], clock_ms=int).on_consume(RECORDS) is RECORDS
        )
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2  # one for each call
    assert all("Forgetful" in message for message in messages)
    assert all(
        f"on_consume returned a {kind} instead of a ConsumerRecords" in message
        for message in messages
    )
    assert "secret" not in caplog.text


def test_what_cannot_intercept_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"interceptor.classes.*on_consume"):
        ConsumerInterceptors.from_setting([object()], clock_ms=int)


def test_those_with_on_commit_get_commits_also_after_one_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted: list[object] = []

    class WithOnCommit(WithoutClose):
        def on_commit(self, offsets: object) -> None:
            noted.append(offsets)
            raise ZeroDivisionError

    with caplog.at_level(logging.WARNING, "pykclient.consumer"):
        ConsumerInterceptors(
            [WithOnCommit(), WithoutClose(), WithOnCommit()], clock_ms=int
        ).on_commit({})
    assert noted == [{}, {}]
    assert caplog.text.count("on_commit raised ZeroDivisionError") == 2
