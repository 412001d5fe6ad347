"""Back-off grows and has jitter; an attempt ends in success or a final error."""

from __future__ import annotations

from random import Random
from traceback import walk_tb
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.errors import (
    AuthenticationError,
    ClusterMismatchError,
    DecodeError,
    DisconnectedError,
    KafkaError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from pykclient.errors.tracebacks import renewed
from pykclient.network.manager import NEVER_MS
from pykclient.network.retry import Attempt, Backoff


class Extreme(Random):
    """A random source that always returns one end of the range."""

    def __init__(self, *, is_high: bool) -> None:
        super().__init__(0)
        self._is_high = is_high

    def uniform(self, a: float, b: float) -> float:
        return b if self._is_high else a


@pytest.mark.promise("reconnects back off, exponentially and with jitter")
def test_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff(50, 1_000, jitter=0)
    delays_ms = [backoff.delay_ms(attempt) for attempt in range(7)]
    assert delays_ms == [50, 100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.promise("reconnects back off, exponentially and with jitter")
def test_jitter_spreads_by_a_fifth_to_either_side() -> None:
    low = Backoff(100, 10_000, random=Extreme(is_high=False))
    high = Backoff(100, 10_000, random=Extreme(is_high=True))
    assert [low.delay_ms(attempt) for attempt in range(3)] == [80, 160, 320]
    assert [high.delay_ms(attempt) for attempt in range(3)] == [120, 240, 480]


def test_the_maximum_holds_with_jitter() -> None:
    assert Backoff(100, 1_000, random=Extreme(is_high=True)).delay_ms(60) == 1_000


def test_a_maximum_below_the_initial_delay_is_the_delay() -> None:
    assert Backoff(1_000, 100, jitter=0).delay_ms(0) == 100


@given(
    initial_ms=st.integers(0, 2**40),
    max_ms=st.integers(0, 2**40),
    attempt=st.integers(0, 10**9),
    seed=st.integers(),
)
def test_a_delay_is_never_negative_nor_above_the_maximum(
    initial_ms: int, max_ms: int, attempt: int, seed: int
) -> None:
    assert 0 <= Backoff(initial_ms, max_ms, random=Random(seed)).delay_ms(attempt) <= max_ms


def new_attempt() -> Attempt:
    return Attempt(Backoff(100, 1_000, jitter=0))


def unreadable() -> KafkaError:
    """Return the error of a request on a connection that was closed for malformed bytes."""
    error = DisconnectedError("the connection was given up")
    error.__cause__ = DecodeError("a flipped bit")
    return error


def test_in_flight_it_is_not_due_and_nothing_is_to_be_waited_for() -> None:
    attempt = new_attempt()
    attempt.sent()
    assert attempt.is_in_flight
    assert not attempt.is_due(10**9)
    assert attempt.next_ms == NEVER_MS


def test_after_each_failure_the_pause_grows() -> None:
    attempt = new_attempt()
    due_ms = []
    for _ in range(3):
        attempt.sent()
        assert attempt.failed(NotCoordinatorError("it moved"), 5_000) is None
        due_ms.append(attempt.next_ms)
    assert due_ms == [5_100, 5_200, 5_400]
    assert not attempt.is_due(5_399)
    assert attempt.is_due(5_400)
    assert isinstance(attempt.last_error, NotCoordinatorError)


def test_the_first_failures_may_be_followed_at_once_but_not_all() -> None:
    attempt = new_attempt()
    due_ms = []
    for _ in range(6):
        attempt.back_off(UnknownMemberIdError("removed"), 5_000, at_once_count=3)
        due_ms.append(attempt.due_ms)
    assert due_ms == [5_000, 5_000, 5_000, 5_100, 5_200, 5_400]


def test_after_a_success_failures_count_anew() -> None:
    attempt = new_attempt()
    for _ in range(3):
        attempt.failed(NotCoordinatorError("it moved"), 0)
    attempt.sent()
    attempt.succeeded()
    assert attempt.is_due(0)
    assert attempt.last_error is None
    attempt.failed(NotCoordinatorError("it moved"), 0)
    assert attempt.due_ms == 100


def test_an_error_that_is_not_retriable_is_final() -> None:
    attempt = new_attempt()
    attempt.sent()
    error = TopicAuthorizationFailedError("not yours")
    assert attempt.failed(error, 0) is error
    assert attempt.last_error is error
    assert not attempt.is_in_flight


def test_a_response_that_cannot_be_read_is_final_the_second_time_in_a_row() -> None:
    attempt = new_attempt()
    first, second = unreadable(), unreadable()
    assert attempt.failed(first, 0) is None
    assert attempt.last_error is first.__cause__
    assert attempt.failed(second, 100) is second.__cause__


@pytest.mark.parametrize("succeeds", [False, True])
def test_another_failure_or_a_success_between_two_such_responses_counts_anew(
    succeeds: bool,
) -> None:
    attempt = new_attempt()
    attempt.failed(unreadable(), 0)
    if succeeds:
        attempt.succeeded()
    else:
        attempt.failed(DisconnectedError("it hung up"), 100)
    assert attempt.failed(unreadable(), 300) is None


def test_one_whose_response_is_lost_is_due_at_once_and_no_failure() -> None:
    attempt = new_attempt()
    attempt.sent()
    attempt.lost()
    assert attempt.is_due(0)
    assert attempt.failure_count == 0


def test_an_error_that_is_kept_keeps_nothing_of_the_call_in_which_it_was_raised() -> None:
    """Its traceback would hold the frames of the application, and the iterators in them."""

    class Iterator:
        pass

    attempt = Attempt(Backoff(100, 1_000))

    def work() -> ref[Iterator]:
        iterator = Iterator()
        try:
            try:
                raise DecodeError("bytes")
            except DecodeError as cause:
                raise DisconnectedError("gone") from cause
        except DisconnectedError as error:
            attempt.back_off(error, 0)
        return ref(iterator)

    assert work()() is None
    assert str(attempt.last_error) == "gone"
    assert attempt.last_error is not None
    assert isinstance(attempt.last_error.__cause__, DecodeError)


def test_the_cause_of_a_refused_login_keeps_its_place_as_text_and_no_frames() -> None:
    """Goal: a provider of tokens is user code; its frames lead to those of the application."""

    class Iterator:
        pass

    attempt = Attempt(Backoff(100, 1_000))

    def provide() -> None:
        raise LookupError("no token")

    def work() -> ref[Iterator]:
        iterator = Iterator()
        try:
            try:
                provide()
            except LookupError as cause:
                raise AuthenticationError("no") from cause
        except AuthenticationError as error:
            attempt.back_off(error, 0)
            attempt.back_off(error, 0)
        return ref(iterator)

    assert work()() is None
    assert attempt.last_error is not None
    cause = attempt.last_error.__cause__
    assert isinstance(cause, LookupError)
    assert cause.__traceback__ is None
    (note,) = cause.__notes__
    assert "in provide" in note


def test_a_kept_error_that_is_raised_again_and_again_keeps_no_frames() -> None:
    kept = ClusterMismatchError("other", expected_cluster_id="own")
    kept.__cause__ = DisconnectedError("gone")
    for _ in range(2):
        with pytest.raises(ClusterMismatchError, match="other") as caught:
            raise renewed(kept)
        assert caught.value.expected_cluster_id == "own"
        assert caught.value.__cause__ is kept.__cause__
        assert len(list(walk_tb(caught.value.__traceback__))) == 1
    assert kept.__traceback__ is None
