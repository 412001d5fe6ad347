"""An operation ends once and tells one listener."""

from __future__ import annotations

import pytest

from pykclient.errors import KafkaTimeoutError
from pykclient.network.manager import Operation


def test_an_operation_under_way_has_neither_value_nor_error() -> None:
    operation: Operation[int] = Operation()
    assert not operation.is_done
    assert operation.error is None
    with pytest.raises(AssertionError):
        operation.result()


def test_a_value_is_returned_and_an_error_raised() -> None:
    good, bad = Operation[int](), Operation[int]()
    error = KafkaTimeoutError("late")
    good.succeed(5)
    bad.fail(error)
    assert good.result() == 5
    assert bad.error is error
    with pytest.raises(KafkaTimeoutError, match="late"):
        bad.result()


def test_the_first_ending_counts() -> None:
    operation: Operation[int] = Operation()
    heard: list[bool] = []
    operation.on_done(lambda done: heard.append(done.is_done))
    operation.fail(KafkaTimeoutError("late"))
    operation.succeed(5)
    assert operation.error is not None
    assert heard == [True]


def test_who_comes_after_the_end_hears_at_once() -> None:
    operation: Operation[int] = Operation()
    operation.succeed(5)
    heard: list[int] = []
    operation.on_done(lambda done: heard.append(done.result()))
    assert heard == [5]


def test_an_operation_has_one_listener() -> None:
    operation: Operation[int] = Operation()
    operation.on_done(lambda _: None)
    with pytest.raises(AssertionError):
        operation.on_done(lambda _: None)
