"""Processes and a folder that vanish together with the process that made them.

A `watchdog` process leads a process group of its own and watches a pipe to us. What is started here
joins that group. On `close`, and when this process ends in any way, SIGKILL included, the watchdog
kills the group and removes the folder. A process can't slip through: it joins the group between
fork and exec, and until exec it holds a copy of our end of the pipe, so the watchdog does not see
the end before the newest process is a member.

Being another group than ours, it is spared the terminal's Ctrl-C, so that whoever owns it gets to
close it in its own order.

Owner: the thread that made it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.errors.base import ClosedError, KafkaError
from pykclient.testing.cluster import watchdog
from pykclient.testing.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ProcessGroup"]

CLOSE_TIMEOUT_S = watchdog.REMOVE_TIMEOUT_S + 5.0


class ProcessGroup:
    """A temporary folder and the processes that work in it; open until closed."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        read_end, write_end = os.pipe()
        # Not the stdin of the Popen, which would live on when this object is forgotten.
        self._lifeline = open(write_end, "wb", buffering=0)  # noqa: SIM115 - it is what close closes
        with open(read_end, "rb") as lifeline:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-I", "-S", watchdog.__file__, self.folder, str(os.getpid())],
                stdin=lifeline,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._members: list[subprocess.Popen[bytes]] = []
        assert self._watchdog.stdout is not None
        first = self._watchdog.stdout.read(len(watchdog.READY))
        if first != watchdog.READY:
            complaint = first + self._watchdog.stdout.read()
            self.close()
            raise KafkaError(
                "the process that would end the others did not start: "
                f"{complaint.decode(errors='replace').strip()}"
            )

    def start(self, command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        """Start a process in the group, what it prints appended to the file `output`.

        Raises:
            ClosedError: the group was closed.
            KafkaError: the watchdog died, so that nobody would end the process.
        """
        if self._lifeline.closed:
            raise ClosedError(f"the processes of {self.folder} were ended; start new ones instead")
        status = self._watchdog.poll()
        if status is not None:
            raise KafkaError(
                f"the process that watches {self.folder} ended with status {status}, so nothing "
                "more is started there; close this cluster and make a new one"
            )
        with output.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                process_group=self._watchdog.pid,
            )
        self._members.append(process)
        return process

    def close(self) -> None:
        """Kill all members, paused ones too, and remove the folder. A second call does nothing.

        Raises:
            KafkaError: a process or the folder is still there after 15 s.
        """
        if self._lifeline.closed:
            return
        deadline = Deadline(CLOSE_TIMEOUT_S)
        for process in self._members:
            process.kill()
        for process in self._members:
            _wait(process, deadline)
        self._lifeline.close()
        try:
            self._watchdog.communicate(timeout=deadline.remaining_s())
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            _wait(self._watchdog, deadline)
        # It is still there if the watchdog had been killed.
        shutil.rmtree(self.folder, ignore_errors=True)
        alive = [process.pid for process in self._members if process.poll() is None]
        if alive or self.folder.exists():
            raise KafkaError(
                f"after {deadline.timeout_ms} ms these are still there: "
                f"processes {alive}, folder {self.folder}; remove them by hand"
            )


def _wait(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=deadline.remaining_s())
