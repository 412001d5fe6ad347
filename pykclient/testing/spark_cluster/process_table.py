"""The processes of this machine as a tree, to find those that Spark started.

Executors are children of a worker. A Python daemon is a child of an executor or a driver, makes its
own process group, and forks the Python workers.

Owner: none; each table is a snapshot.
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
"""Index among the fields after the command's name (proc(5))."""

KILL_TIMEOUT_S: Final = 15.0
LOOK_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class FoundProcess:
    """A process that is no child of this one; `arguments` is its command line as one string.

    Processes with the same id and start are equal: the parent changes when it ends, and the
    arguments when the process executes a program.
    """

    pid: int
    started: str
    parent_pid: int = field(compare=False)
    arguments: str = field(compare=False)

    @property
    def is_alive(self) -> bool:
        """True if it still exists, running or paused."""
        return ProcessTable().get(self.pid) == self

    def option(self, name: str) -> str:
        """Return the argument after `name` in its command line; empty if there is none."""
        return self.arguments.partition(f" {name} ")[2].partition(" ")[0]

    def kill(self) -> None:
        """Kill it with SIGKILL, running or paused, and wait for its end.

        Raises:
            KafkaTimeoutError: it still existed 15 s later.
        """
        kill_all([self])

    def pause(self) -> None:
        """Pause it with SIGSTOP: it keeps its connections, sends nothing. No effect if it ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it with SIGCONT; to it no time has passed. No effect if it ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)


class ProcessTable:
    """The processes that exist now, by id."""

    def __init__(self) -> None:
        listed = subprocess.run(_COMMAND, capture_output=True, text=True, check=True).stdout
        self._processes = {
            process.pid: process
            for pid, parent_pid, state, arguments in map(_fields, listed.splitlines())
            # An ended process stays in the table until its parent reaps it.
            if not state.startswith("Z")
            for process in [FoundProcess(int(pid), _started(pid), int(parent_pid), arguments)]
        }

    def __iter__(self) -> Iterator[FoundProcess]:
        return iter(self._processes.values())

    def get(self, pid: int) -> FoundProcess | None:
        """Return the process with this id, or None."""
        return self._processes.get(pid)

    def children(self, pid: int) -> list[FoundProcess]:
        """Return the processes started by this one."""
        return [process for process in self if process.parent_pid == pid]

    def below(self, pid: int) -> list[FoundProcess]:
        """Return all descendants of this process."""
        return [found for child in self.children(pid) for found in (child, *self.below(child.pid))]


def kill_all(processes: Iterable[FoundProcess]) -> None:
    """Kill processes with SIGKILL, and wait until all are gone.

    Raises:
        KafkaTimeoutError: one still existed 15 s later.
    """
    wanted = set(processes)
    deadline = Deadline(KILL_TIMEOUT_S)
    while alive := wanted.intersection(ProcessTable()):
        if deadline.has_passed():
            raise KafkaTimeoutError(
                f"processes {sorted(process.pid for process in alive)} still existed "
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
    """Return when the process started, in kernel ticks; empty without /proc.

    The start time printed by ps varies by a second between calls.
    """
    try:
        status = Path("/proc", pid, "stat").read_text(errors="replace")
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[_START_FIELD]
