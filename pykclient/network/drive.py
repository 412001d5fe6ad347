"""The synchronous drive: step the engine, wait and call user code until a condition holds.

Owner: the thread that calls it, which drives the engine meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.engine import Engine
    from pykclient.network.io.port import Port

T = TypeVar("T")


class Until(NamedTuple):
    """A condition that decisions wait for, and its deadline.

    After the deadline, `drive` still processes what has already arrived.
    """

    condition: Callable[[], bool]
    deadline_ms: int


Decisions = Generator[Until, bool, T]
"""A public call that may wait. Each `yield` returns True if the condition held, False if it was
late."""


def now_ms() -> int:
    """Return the monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def now_ns() -> int:
    """Return the monotonic clock in nanoseconds."""
    return time.monotonic_ns()


def wall_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def drive(engine: Engine, port: Port, decisions: Decisions[T]) -> T:
    try:
        wait = next(decisions)
        while True:
            try:
                is_held = drive_until(
                    engine, port, until=wait.condition, deadline_ms=wait.deadline_ms
                )
            except BaseException as error:  # noqa: BLE001  # the decisions handle it, or raise it
                wait = decisions.throw(error)
            else:
                wait = decisions.send(is_held)
    except StopIteration as end:
        result: T = end.value
        return result
    except BaseException:
        decisions.close()  # an interrupt came between two lines of this function
        raise


def drive_until(engine: Engine, port: Port, *, until: Callable[[], bool], deadline_ms: int) -> bool:
    """Run the engine until `until()` holds or the deadline passes; return whether it held.

    Once the deadline has passed, this still processes what has already arrived.
    """
    while True:
        started_ms = now_ms()
        next_ms = min(engine.step(started_ms), deadline_ms)
        if until():
            return True
        port.wait(max(0, next_ms - started_ms))
        ended_ms = now_ms()
        engine.complete(ended_ms)
        run_user_calls(engine)
        if until():
            return True
        if ended_ms >= deadline_ms:
            return False


def run_user_calls(engine: Engine) -> None:
    """Make the pending calls of user code and report how they ended.

    Calls that result from these wait for the next turn. A call may drive the engine itself and so
    make the calls behind it.
    """
    for _ in range(len(engine.user_calls)):
        if not engine.user_calls:
            return
        call = engine.taken_call = engine.user_calls[0]
        engine.user_calls.popleft()
        try:
            engine.call_unlocked(call.make)
        except BaseException as error:
            if not call.is_begun:
                engine.user_calls.appendleft(call)
                raise
            call.on_done(error)
            if not isinstance(error, Exception):
                raise  # an interrupt or exit is the application's own
        else:
            call.on_done(None)
