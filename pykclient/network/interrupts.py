"""Interrupts: a Ctrl-C that comes in the midst of a step is raised at its end.

A step takes well under a millisecond and changes much that belongs together: a request that is
noted as sent and never was would be waited for until its time is up. Waiting is no step, nor is
user code that is lent, and both are interrupted at once. An assignor is part of a step; a second
Ctrl-C interrupts a step as well.

Owner: the main thread, in which alone signals are handled.
Source: trio's and asyncio's handling of KeyboardInterrupt.
"""

from __future__ import annotations

# Without the enumerations that `signal` makes of what these take and return: 3 us instead of 40.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["call_whole"]

P = ParamSpec("P")
T = TypeVar("T")


def call_whole(function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T:
    """Call `function`; the handler of SIGINT, if it has to run meanwhile, runs after that."""
    handler = getsignal(SIGINT)
    if not callable(handler):
        return function(*args, **keywords)  # nothing of Python's would run
    noted: list[FrameType | None] = []

    def note(number: int, frame: FrameType | None) -> None:
        if noted:
            handler(number, frame)
        noted.append(frame)

    try:
        signal(SIGINT, note)
    except ValueError:
        return function(*args, **keywords)  # not the main thread
    try:
        return function(*args, **keywords)
    finally:
        if getsignal(SIGINT) is note:
            signal(SIGINT, handler)
        if noted:
            handler(SIGINT, noted[0])
