"""Operations and requests: an operation ends once, and a response must fit its request."""

from __future__ import annotations

import pytest

from pykclient.errors import DecodeError, KafkaTimeoutError
from pykclient.network.manager import Operation, check_partitions


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
    ends: list[bool] = []
    operation.on_done(lambda done: ends.append(done.is_done))
    operation.fail(KafkaTimeoutError("late"))
    operation.succeed(5)
    assert operation.error is not None
    assert ends == [True]


def test_a_callback_added_after_the_end_is_called_at_once() -> None:
    operation: Operation[int] = Operation()
    operation.succeed(5)
    ends: list[int] = []
    operation.on_done(lambda done: ends.append(done.result()))
    assert ends == [5]


REQUESTED = [("t", 0), ("t", 1)]


@pytest.mark.parametrize("in_response", [REQUESTED, REQUESTED[::-1]])
def test_a_response_to_all_is_taken_in_any_order(in_response: list[tuple[str, int]]) -> None:
    check_partitions("Fetch", REQUESTED, in_response)


@pytest.mark.parametrize(
    ("in_response", "text"),
    [
        ([("t", 5)], "names t-5 twice, or it was not requested"),
        ([("t", 0), ("t", 0)], "names t-0 twice, or it was not requested"),
        ([("", 0)], "names -0 twice, or it was not requested"),
        ([("t", 1)], "lacks t-0"),
        ([], "lacks t-0"),
    ],
)
def test_any_other_response_is_refused(in_response: list[tuple[str, int]], text: str) -> None:
    with pytest.raises(DecodeError) as raised:
        check_partitions("Fetch", REQUESTED, in_response)

    assert str(raised.value).startswith(f"the response to Fetch {text}")


def test_partitions_may_be_left_out_where_that_is_allowed_but_not_added() -> None:
    check_partitions("Fetch", REQUESTED, [("t", 1)], needs_all=False)

    with pytest.raises(DecodeError, match="t-2"):
        check_partitions("Fetch", REQUESTED, [("t", 1), ("t", 2)], needs_all=False)


def test_a_name_as_long_as_a_response_is_cut_in_errors() -> None:
    name = "\n" * 300_000
    with pytest.raises(DecodeError) as caught:
        check_partitions("Fetch", REQUESTED, [(name, 0)])
    assert "or it was not requested" in str(caught.value)
    for error in (caught.value, DecodeError(f"an error of {name}")):
        assert len(str(error)) < 3_100
        assert str(error).isprintable()
