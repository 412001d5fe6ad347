"""The loop steps, waits, completes and runs the user's calls until done or timed out."""

from __future__ import annotations

import inspect
import operator
import sys
from collections import deque
from typing import TYPE_CHECKING

import pytest

from pykclient.network import drive as module
from pykclient.network.drive import Decisions, Until, drive, drive_until, run_user_calls
from pykclient.network.manager import NEVER_MS, UserCall
from tests.network.scripted_port import ScriptedPort
from tests.signal_at_line import Alarm, SignalAtLine

if TYPE_CHECKING:
    from collections.abc import Callable


class ScriptedEngine:
    """An engine whose steps return deadlines set by the test."""

    def __init__(self, events: list[str], deadlines_ms: list[int]) -> None:
        self.user_calls: deque[UserCall] = deque()
        self.call_unlocked = operator.call
        self._events = events
        self._deadlines_ms = deque(deadlines_ms)

    def step(self, now_ms: int) -> int:
        self._events.append(f"step {now_ms}")
        return self._deadlines_ms.popleft() if self._deadlines_ms else NEVER_MS

    def complete(self, now_ms: int) -> None:
        self._events.append(f"complete {now_ms}")


class Clock:
    """A clock that advances by the port's waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, events: list[str]) -> None:
        self.now_ms = 1_000
        self.port = ScriptedPort()
        self._events = events
        monkeypatch.setattr(module, "now_ms", lambda: self.now_ms)
        monkeypatch.setattr(self.port, "wait", self._wait)

    def _wait(self, timeout_ms: int) -> None:
        self._events.append(f"wait {timeout_ms}")
        self.now_ms += timeout_ms


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, events: list[str]) -> Clock:
    return Clock(monkeypatch, events)


def run(clock: Clock, engine: ScriptedEngine, until: Callable[[], bool], deadline_ms: int) -> bool:
    return drive_until(engine, clock.port, until=until, deadline_ms=deadline_ms)  # type: ignore[arg-type]


def test_decisions_are_sent_whether_what_they_wait_for_has_come(
    clock: Clock, events: list[str]
) -> None:
    def decide() -> Decisions[tuple[bool, bool]]:
        is_late = yield Until(lambda: False, 1_200)
        is_there = yield Until(lambda: clock.now_ms == 1_300, 9_000)
        return is_late, is_there

    engine = ScriptedEngine(events, [9_000, 1_300])
    assert drive(engine, clock.port, decide()) == (False, True)  # type: ignore[arg-type]
    waits = [entry for entry in events if entry.startswith("wait")]
    assert waits == ["wait 200", "wait 100"]


def test_decisions_that_wait_for_nothing_make_no_step(clock: Clock, events: list[str]) -> None:
    def decide(is_at_hand: bool) -> Decisions[str]:
        if not is_at_hand:
            yield Until(lambda: True, 9_000)
        return "at hand"

    engine = ScriptedEngine(events, [])
    assert drive(engine, clock.port, decide(is_at_hand=True)) == "at hand"  # type: ignore[arg-type]
    assert events == []


def test_what_is_raised_in_a_wait_comes_out_of_the_yield(clock: Clock, events: list[str]) -> None:
    engine = ScriptedEngine(events, [])

    def fail() -> bool:
        raise ValueError("in the wait")

    def decide() -> Decisions[str]:
        try:
            yield Until(fail, 9_000)
        except ValueError as error:
            events.append(str(error))
        yield Until(lambda: True, 9_000)
        return "goes on"

    assert drive(engine, clock.port, decide()) == "goes on"  # type: ignore[arg-type]
    assert events == ["step 1000", "in the wait", "step 1000"]


def test_what_is_raised_in_decisions_comes_out_of_the_drive(
    clock: Clock, events: list[str]
) -> None:
    def decide() -> Decisions[None]:
        yield Until(lambda: True, 9_000)
        raise ValueError("their own")

    with pytest.raises(ValueError, match="their own"):
        drive(ScriptedEngine(events, []), clock.port, decide())  # type: ignore[arg-type]


def test_an_interrupt_in_any_line_of_the_drive_ends_the_decisions(
    clock: Clock, events: list[str]
) -> None:
    engine = ScriptedEngine(events, [])
    ends: list[int] = []

    def decide(number: int) -> Decisions[None]:
        try:
            for _ in range(3):
                yield Until(lambda: True, 9_000)
        finally:
            ends.append(number)

    numbers = range(1, 200)
    for number in numbers:
        decisions = decide(number)
        at = SignalAtLine(number, Alarm())
        try:
            with at:
                drive(engine, clock.port, decisions)  # type: ignore[arg-type]
                sys.settrace(None)
        except Alarm:
            # Now, and not when the exception and its frames are freed.
            assert inspect.getgeneratorstate(decisions) in ("GEN_CREATED", "GEN_CLOSED"), at.place
        if at.place is None:
            break
    assert at.place is None
    assert number > 20
    assert len(ends) > 20


TURN = ["step 1000", "wait 300", "complete 1300"]
ONE_TURN = ["step 1000", "wait 0", "complete 1000"]


@pytest.mark.promise("the core does no I/O; one loop drives it")
@pytest.mark.parametrize(
    ("engine_ms", "done_after", "deadline_ms", "done"),
    [
        (1_300, "", 1_500, [*TURN, "step 1300", "wait 200", "complete 1500"]),
        (1_300, "step 1000", 9_000, ["step 1000"]),
        (1_300, "complete 1300", 9_000, TURN),
        (1_300, "", 1_000, ONE_TURN),
        (1_300, "", 0, ONE_TURN),
        (400, "wait 0", 9_000, ONE_TURN),
    ],
    ids=["late", "after a step", "by a response", "a deadline of now", "long past", "engine late"],
)
def test_it_waits_until_the_engines_deadline_and_goes_on_until_it_is_done_or_late(
    clock: Clock,
    events: list[str],
    engine_ms: int,
    done_after: str,
    deadline_ms: int,
    done: list[str],
) -> None:
    engine = ScriptedEngine(events, [engine_ms])
    assert run(clock, engine, lambda: done_after in events, deadline_ms) is bool(done_after)
    assert events == done


def test_the_users_calls_are_made_before_it_looks_whether_it_is_done(
    clock: Clock, events: list[str]
) -> None:
    engine = ScriptedEngine(events, [1_000])
    engine.user_calls.append(UserCall(events.append, ("called",), lambda _: None))
    assert run(clock, engine, lambda: "called" in events, 9_000) is True
    assert events == ["step 1000", "wait 0", "complete 1000", "called"]


def test_calls_are_made_without_the_locks_of_the_driver(events: list[str]) -> None:
    engine = ScriptedEngine(events, [])
    unlocked: list[object] = []
    engine.call_unlocked = unlocked.append  # type: ignore[assignment]
    call = UserCall(len, ("ab",), lambda _: None)
    engine.user_calls.append(call)
    run_user_calls(engine)  # type: ignore[arg-type]
    assert unlocked == [call.make]


def test_it_is_reported_how_each_call_ended_and_an_interrupt_is_raised(events: list[str]) -> None:
    engine = ScriptedEngine(events, [])
    ends: list[BaseException | None] = []
    error, interrupt = ValueError("the user's own"), KeyboardInterrupt()

    def fail(error: BaseException) -> None:
        raise error

    engine.user_calls += [
        UserCall(fail, (error,), ends.append),
        UserCall(len, ("ab",), ends.append),
        UserCall(fail, (interrupt,), ends.append),
    ]
    with pytest.raises(KeyboardInterrupt):
        run_user_calls(engine)  # type: ignore[arg-type]
    assert ends == [error, None, interrupt]


def test_calls_that_a_call_leads_to_wait_for_the_next_turn(events: list[str]) -> None:
    engine = ScriptedEngine(events, [])

    def call_again() -> None:
        events.append("called")
        engine.user_calls.append(UserCall(call_again, (), lambda _: None))

    engine.user_calls.append(UserCall(call_again, (), lambda _: None))
    run_user_calls(engine)  # type: ignore[arg-type]
    assert events == ["called"]
    assert len(engine.user_calls) == 1
