"""Processes of a test cluster: one server as a Java process, and the group that all are in.

A server is stopped, running or paused. What it printed in all its lives is in one log file, and its
data stay where they are from one life to the next. It may end by itself at any time, which is
noticed when its state is read.

Processes and their folder vanish together with the process that made them. A `watchdog` process
leads a process group of its own and watches a pipe to us. What is started here joins that group. On
`close`, and when this process ends in any way, SIGKILL included, the watchdog kills the group and
removes the folder. A process can't slip through: it joins the group between fork and exec, and
until exec it holds a copy of our end of the pipe, so the watchdog does not see the end before the
newest process is a member. Being another group than ours, it is spared the terminal's Ctrl-C, so
that whoever owns it gets to close it in its own order.

Owner: the thread that owns the cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.errors.base import ClosedError, KafkaError, KafkaTimeoutError, UsageError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster import watchdog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pykclient.testing.port import PortReservation

CLOSE_TIMEOUT_S = watchdog.REMOVE_TIMEOUT_S + 5.0
LOG_TAIL_LINES = 25
KILL_TIMEOUT_S = 15.0
_ERROR = " ERROR "


class BrokerState(Enum):
    """What a server's process or container is doing."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"


# What may be done to a broker in which state. Every one can also end by itself.
_ALLOWED_IN: dict[str, frozenset[BrokerState]] = {
    "start": frozenset({BrokerState.STOPPED}),
    "pause": frozenset({BrokerState.RUNNING}),
    "resume": frozenset({BrokerState.PAUSED}),
    "stop": frozenset({BrokerState.RUNNING}),
    "kill": frozenset({BrokerState.RUNNING, BrokerState.PAUSED}),
}


def check_allowed(action: str, name: str, state: BrokerState) -> None:
    """Check that `action` fits the server `name` in its `state`.

    Raises:
        UsageError: it does not; says which state it would take.
    """
    if state not in _ALLOWED_IN[action]:
        wanted = " or ".join(sorted(state.value for state in _ALLOWED_IN[action]))
        raise UsageError(f"{name} is {state.value}; to {action} it, it must be {wanted}")


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

    def start(
        self,
        command: Sequence[str],
        output: Path,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process in the group, what it prints appended to the file `output`.

        `environment` None is that of this process.

        Raises:
            ClosedError: the group was closed.
            KafkaError: the watchdog died, so that nothing would end the process.
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
                env=environment,
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


class BrokerFailedError(KafkaError):
    """A server ended by itself, or its storage could not be made; ends with the tail of its log."""


class ServerProcess:
    """A server, named `name` in errors, that binds the reserved `ports`.

    `environment` None is that of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        ports: Sequence[PortReservation],
        group: ProcessGroup,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._ports = ports
        self._group = group
        self._environment = environment
        self._state = BrokerState.STOPPED
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The number of its process, of the last one if it has ended; None before the first."""
        return None if self._process is None else self._process.pid

    @property
    def state(self) -> BrokerState:
        """The state now; a process that ended, by us or by itself, is STOPPED."""
        if self._process is None or self._process.poll() is not None:
            self._state = BrokerState.STOPPED
        return self._state

    def start(self) -> None:
        """Start the process; its being ready is another matter. Raises `UsageError`."""
        check_allowed("start", self.name, self.state)
        for port in self._ports:
            port.make_way()
        self._process = self._group.start(self._command, self._log, self._environment)
        self._state = BrokerState.RUNNING

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and sends nothing. Raises `UsageError`."""
        process = self._check_live("pause")
        process.send_signal(signal.SIGSTOP)
        # Wait until the kernel reports that all of its threads stand still, or that it is gone.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._state = BrokerState.PAUSED

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed. Raises `UsageError`."""
        self._check_live("resume").send_signal(signal.SIGCONT)
        self._state = BrokerState.RUNNING

    def kill(self) -> None:
        """SIGKILL, running or paused, and wait for its end. Raises `UsageError`."""
        _kill(self._check_live("kill"))

    def stop(self, timeout: float) -> None:
        """SIGTERM and wait for a clean end; after `timeout` seconds, SIGKILL.

        Raises:
            UsageError: it is not running.
            KafkaTimeoutError: it did not end by itself; it was killed.
        """
        process = self._check_live("stop")
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise KafkaTimeoutError(
                f"{self.name} did not stop within {timeout * 1000:.0f} ms and was killed"
            ) from error

    def stay_alive(self, timeout: float) -> None:
        """Watch it for `timeout` seconds.

        Raises:
            BrokerFailedError: it has ended.
        """
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(timeout)
            raise BrokerFailedError(
                f"{self.name} ended with status {status}; the last lines it logged:\n"
                f"{tail(self._log)}"
            )

    def _check_live(self, action: str) -> subprocess.Popen[bytes]:
        """The process that `action` is meant for."""
        check_allowed(action, self.name, self.state)
        assert self._process is not None
        return self._process


def tail(log: Path) -> str:
    """The last lines of a log file, after the first error where that is not among them.

    A broker that cannot start logs much more while it shuts down.
    """
    lines = log.read_text(errors="replace").splitlines()
    earlier, last = lines[:-LOG_TAIL_LINES], lines[-LOG_TAIL_LINES:]
    errors = [index for index, line in enumerate(earlier) if _ERROR in line]
    # The exception's own text is in the next line.
    first = [*lines[errors[0] : errors[0] + 2], "..."] if errors else []
    return "\n".join([*first, *last])


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(KILL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise KafkaTimeoutError(
            f"process {process.pid} was still there {KILL_TIMEOUT_S * 1000:.0f} ms after SIGKILL"
        ) from error
