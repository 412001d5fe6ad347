"""A Ctrl-C in the midst of a step is raised at its end."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.network.interrupts import call_whole

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    """That of Python, whatever runs the tests; each test leaves it as it was."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    left = signal.signal(signal.SIGINT, before)
    assert left is signal.default_int_handler


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_what_is_called_gets_its_arguments_and_its_result_comes_back() -> None:
    assert call_whole(int, "11", base=2) == 3


def test_an_interrupt_is_raised_at_the_end() -> None:
    steps: list[int] = []

    def step() -> None:
        steps.append(1)
        interrupt()
        steps.append(2)

    with pytest.raises(KeyboardInterrupt):
        call_whole(step)
    assert steps == [1, 2]


def test_a_second_one_is_raised_at_once() -> None:
    steps: list[int] = []

    def step() -> None:
        interrupt()
        steps.append(1)
        interrupt()
        steps.append(2)

    with pytest.raises(KeyboardInterrupt):
        call_whole(step)
    assert steps == [1]


def test_what_the_step_raises_is_the_context_of_the_interrupt() -> None:
    def step() -> None:
        interrupt()
        raise ValueError("mine")

    with pytest.raises(KeyboardInterrupt) as raised:
        call_whole(step)
    assert isinstance(raised.value.__context__, ValueError)


def test_a_step_within_a_step_is_part_of_it() -> None:
    steps: list[int] = []

    def step() -> None:
        call_whole(interrupt)
        steps.append(1)

    with pytest.raises(KeyboardInterrupt):
        call_whole(step)
    assert steps == [1]


def test_a_handler_of_the_application_is_called_after_the_step() -> None:
    steps: list[object] = []

    def step() -> None:
        interrupt()
        steps.append("step")

    signal.signal(signal.SIGINT, lambda number, _: steps.append(number))
    try:
        call_whole(step)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert steps == ["step", signal.SIGINT]


def test_where_no_handler_of_python_is_nothing_is_put_in_its_place() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert call_whole(signal.getsignal, signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_another_thread_just_calls() -> None:
    with ThreadPoolExecutor(1) as other:
        found = other.submit(call_whole, signal.getsignal, signal.SIGINT).result()
    assert found is signal.default_int_handler
