"""Raises in the n-th place of the client's code at which Python would call a signal handler.

That is after a call into C, at a function's beginning and at a loop's end; nowhere else does the
interpreter look. Places in destructors are left out, which swallow what is raised in them.

Owner: the thread that calls `interrupted_at`.
"""

from __future__ import annotations

import dis
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pykclient

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from _typeshed import TraceFunction

__all__ = ["interrupted_at"]

ROOT = str(Path(pykclient.__file__).parent)
LOOKS_AFTER = {"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD", "CALL_KW"}


class _Injector:
    def __init__(self, number: int) -> None:
        self._left = number
        self._codes: dict[CodeType, bytes] = {}
        self._last: dict[FrameType, str] = {}
        self.has_raised = False

    def on_call(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        code = frame.f_code
        if not code.co_filename.startswith(ROOT) or code.co_name == "__del__":
            return None
        self._last[frame] = "RESUME"
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, argument: object) -> TraceFunction:
        if event == "return":
            self._last.pop(frame, None)
            if frame.f_back is not None:
                self._last[frame.f_back] = ""  # at a return it does not look
        elif event == "opcode":
            last = self._last.get(frame, "")
            code = self._codes.setdefault(frame.f_code, frame.f_code.co_code)
            self._last[frame] = dis.opname[code[frame.f_lasti]]
            if last in LOOKS_AFTER:
                self._left -= 1
                if self._left < 0:
                    self.has_raised = True
                    raise KeyboardInterrupt
        return self._on_event


def interrupted_at(number: int, function: Callable[[], object]) -> bool:
    """Call a function, and raise at the place; return whether it has come so far."""
    injector = _Injector(number)
    previous = sys.gettrace()
    try:
        sys.settrace(injector.on_call)
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(previous)
    return injector.has_raised
