"""SignalAtLine: a real signal that comes when a chosen line of this package is run.

A trace function counts lines; then one that is written in C sends the signal, so that no other code
of Python's runs before the interpreter looks for signals next. The handler then runs where it could
run for any program, not merely wherever a line begins.

Owner: the main thread, inside the `with` block.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pykclient

if TYPE_CHECKING:
    from types import FrameType

PACKAGE_PATH = str(Path(pykclient.__file__).parent)
SIGNAL = signal.SIGUSR1


class Alarm(Exception):
    """The exception that a signal handler raises, as those of task queues and test timeouts do."""


def _in_c(name: str, *arguments: int) -> Any:
    """Return a function of the C library that takes what a trace function does, and ignores it."""
    function = ctypes.PyDLL(None)[name]
    function.argtypes = [ctypes.c_int] * len(arguments) + [ctypes.py_object] * 3
    function.restype = None
    return partial(function, *arguments)


_send_signal = _in_c("raise", int(SIGNAL))
_do_nothing = _in_c("getpid")


def _is_in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


class SignalAtLine:
    """Raises `raised` at the `number`-th line; `place` is where that was, None if not at all."""

    def __init__(self, number: int, raised: BaseException) -> None:
        self.place: tuple[str, int] | None = None
        self._left_count = number
        self._raised = raised
        self._handler: Any = None

    @property
    def left_count(self) -> int:
        """The number of lines left before it raises; 0 afterwards."""
        return self._left_count

    def __enter__(self) -> Self:
        self._handler = signal.signal(SIGNAL, self._handle)
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        signal.signal(SIGNAL, self._handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        sys.settrace(None)
        raise self._raised

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        is_ours = frame.f_code.co_filename.startswith(PACKAGE_PATH)
        return self._on_line if is_ours and self._left_count > 0 else None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        del argument
        if event != "line":
            return self._on_line
        self._left_count -= 1
        if self._left_count > 0:
            return self._on_line
        if _is_in_finalizer(frame):  # Python drops what is raised there: the next line will do
            self._left_count = 1
            return self._on_line
        self.place = (Path(frame.f_code.co_filename).name, frame.f_lineno)
        sys.settrace(_do_nothing)
        outer = frame.f_back
        while outer is not None:
            outer.f_trace = None
            outer = outer.f_back
        return _send_signal
