"""The synchronous loop: step, wait, complete, run the user's calls, until ready or too late.

With `pykclient.aio.drive`, to come, the only loop that blocks.

Owner: the thread that calls it, which drives the engine meanwhile.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.network.engine import Engine
    from pykclient.network.io.port import Port

__all__ = ["drive", "now_ms", "run_user_calls", "wall_ms"]


def now_ms() -> int:
    """Return the monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def drive(engine: Engine, port: Port, *, until: Callable[[], bool], deadline_ms: int) -> bool:
    """Run the engine until `until()` holds or the deadline has passed; return which.

    At least one turn is made, so a deadline of now still takes what has arrived.
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
    """Make the calls of user code that have come up, and tell the core how they ended.

    Only those of now: calls that they lead to wait for the next turn. A call may drive the engine
    itself, and make those behind it.
    """
    for _ in range(len(engine.user_calls)):
        if not engine.user_calls:
            return
        call = engine.taken_call = engine.user_calls[0]
        engine.user_calls.popleft()
        try:
            engine.lend(call.make)
        except BaseException as error:
            if not call.is_begun:
                engine.user_calls.appendleft(call)
                raise
            call.on_done(error)
            if not isinstance(error, Exception):
                raise  # an interrupt or exit is the application's own
        else:
            call.on_done(None)
