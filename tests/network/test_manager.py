"""What managers and the engine exchange: an operation ends once, a response fits its request."""

from __future__ import annotations

import pytest

from pykclient.errors import DecodeError, KafkaTimeoutError
from pykclient.network.manager import Operation, check_answered


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


ASKED = [("t", 0), ("t", 1)]


@pytest.mark.parametrize("answered", [ASKED, ASKED[::-1]])
def test_an_answer_to_all_is_taken_in_any_order(answered: list[tuple[str, int]]) -> None:
    check_answered("Fetch", ASKED, answered)


@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ([("t", 5)], "names t-5, which was not asked for"),
        ([("t", 0), ("t", 0)], "names t-0, which was not asked for, or twice"),
        ([("", 0)], "names -0, which was not asked for"),
        ([("t", 1)], "says nothing of t-0"),
        ([], "says nothing of t-0"),
    ],
)
def test_any_other_answer_is_refused(answered: list[tuple[str, int]], said: str) -> None:
    with pytest.raises(DecodeError) as raised:
        check_answered("Fetch", ASKED, answered)

    assert str(raised.value).startswith(f"the response to Fetch {said}")


def test_partitions_may_be_left_out_where_that_is_allowed_but_not_added() -> None:
    check_answered("Fetch", ASKED, [("t", 1)], needs_all=False)

    with pytest.raises(DecodeError, match="t-2"):
        check_answered("Fetch", ASKED, [("t", 1), ("t", 2)], needs_all=False)
