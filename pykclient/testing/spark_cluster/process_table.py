"""The processes of this machine as a tree, to find those that Spark started by itself.

Executors are children of a worker. A Python daemon is a child of an executor, or of a driver, and
forks the Python workers; it makes a process group of its own.

Owner: none; each table is what was there when it was read.
Source: ps(1) of POSIX, and PySpark's ``daemon.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykclient.errors.base import KafkaTimeoutError
from pykclient.testing.clock import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COMMAND: Final = ("ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,args=")
_START_FIELD: Final = 19
"""Of the fields behind the command's name (proc(5))."""

KILL_TIMEOUT_S: Final = 15.0
LOOK_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A process that is no child of this one; `arguments` is its command line in one string.

    Those that have number and start in common are the same: a process gets another parent when its
    own ends, and other arguments when it executes a program.
    """

    pid: int
    started: str
    parent_pid: int = field(compare=False)
    arguments: str = field(compare=False)

    @property
    def is_alive(self) -> bool:
        """Whether it is still there, running or paused."""
        return ProcessTable().get(self.pid) == self

    def option(self, name: str) -> str:
        """What follows `name` in its command line; empty without it."""
        return self.arguments.partition(f" {name} ")[2].partition(" ")[0]

    def kill(self) -> None:
        """SIGKILL, running or paused, and wait for its end.

        Raises:
            KafkaTimeoutError: it was still there 15 s later.
        """
        kill_all([self])

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and sends nothing. One that has ended stays so."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed. One that has ended stays so."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)


class ProcessTable:
    """The processes that are alive now, by their number."""

    def __init__(self) -> None:
        listed = subprocess.run(_COMMAND, capture_output=True, text=True, check=True).stdout
        self._processes = {
            process.pid: process
            for pid, parent_pid, state, arguments in map(_fields, listed.splitlines())
            # One that has ended stays in the table until its parent takes note.
            if not state.startswith("Z")
            for process in [FoundProcess(int(pid), _started(pid), int(parent_pid), arguments)]
        }

    def __iter__(self) -> Iterator[FoundProcess]:
        return iter(self._processes.values())

    def get(self, pid: int) -> FoundProcess | None:
        """The process with this number; None without one."""
        return self._processes.get(pid)

    def children(self, pid: int) -> list[FoundProcess]:
        """The processes that this one started."""
        return [process for process in self if process.parent_pid == pid]

    def below(self, pid: int) -> list[FoundProcess]:
        """The processes that this one started, those that they started, and so on."""
        return [found for child in self.children(pid) for found in (child, *self.below(child.pid))]


def kill_all(processes: Iterable[FoundProcess]) -> None:
    """SIGKILL to each that is still there, and wait until all are gone.

    Raises:
        KafkaTimeoutError: one was still there 15 s later.
    """
    wanted = set(processes)
    deadline = Deadline(KILL_TIMEOUT_S)
    while alive := wanted.intersection(ProcessTable()):
        if deadline.has_passed():
            raise KafkaTimeoutError(
                f"processes {sorted(process.pid for process in alive)} were still there "
                f"{deadline.timeout_ms} ms after SIGKILL"
            )
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(LOOK_PAUSE_S)


def _fields(line: str) -> list[str]:
    pid, parent_pid, state, *arguments = line.split(None, 3)
    return [pid, parent_pid, state, *(arguments or [""])]


def _started(pid: str) -> str:
    """When the process started, in the kernel's ticks; empty where there is no /proc.

    The start that ps prints moves by a second from one call to the next.
    """
    try:
        status = Path("/proc", pid, "stat").read_text(errors="replace")
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[_START_FIELD]
