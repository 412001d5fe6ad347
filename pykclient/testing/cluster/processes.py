"""Processes of a test cluster: servers as Java processes, and the process group of all.

A server is stopped, running or paused. All its runs append to one log file and use the same data
folder. It may end at any time, which is noticed when its state is read.

Processes and their folder are removed together with the process that created them. A `watchdog`
process leads a process group of its own and watches a pipe to us; everything started here joins
that group. On `close`, and when this process ends for any reason, SIGKILL included, the watchdog
kills the group and removes the folder. No process can escape: it joins the group between fork and
exec, and holds a copy of our end of the pipe until exec, so that the watchdog sees the end only
after the newest process has joined. The group does not receive the terminal's Ctrl-C, so that its
owner can close it in order.

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
    """State of a server's process or container."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"


# Actions and the states in which they are allowed. A server may also end by itself at any time.
_ALLOWED_IN: dict[str, frozenset[BrokerState]] = {
    "start": frozenset({BrokerState.STOPPED}),
    "pause": frozenset({BrokerState.RUNNING}),
    "resume": frozenset({BrokerState.PAUSED}),
    "stop": frozenset({BrokerState.RUNNING}),
    "kill": frozenset({BrokerState.RUNNING, BrokerState.PAUSED}),
}


def check_allowed(action: str, name: str, state: BrokerState) -> None:
    """Check that `action` is allowed in this `state` of the server `name`.

    Raises:
        UsageError: it is not; the message tells the required state.
    """
    if state not in _ALLOWED_IN[action]:
        wanted = " or ".join(sorted(state.value for state in _ALLOWED_IN[action]))
        raise UsageError(f"{name} is {state.value}; to {action} it, it must be {wanted}")


class ProcessGroup:
    """A temporary folder and the processes that work in it, until closed."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        read_end, write_end = os.pipe()
        # Not the stdin of the Popen, which would outlive this object.
        self._lifeline = open(write_end, "wb", buffering=0)  # noqa: SIM115 - closed by `close`
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
                f"the watchdog process did not start: {complaint.decode(errors='replace').strip()}"
            )

    def start(
        self,
        command: Sequence[str],
        output: Path,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process in the group; its output is appended to the file `output`.

        `environment` None means that of this process.

        Raises:
            ClosedError: the group was closed.
            KafkaError: the watchdog died, so that nothing would end the process.
        """
        if self._lifeline.closed:
            raise ClosedError(f"the processes of {self.folder} were ended; start new ones instead")
        status = self._watchdog.poll()
        if status is not None:
            raise KafkaError(
                f"the process that watches {self.folder} ended with status {status}, so no process "
                "can be started there; close this cluster and make a new one"
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
        """Kill all members, paused ones included, and remove the folder. Idempotent.

        Raises:
            KafkaError: a process or the folder still exists after 15 s.
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
        # It still exists if the watchdog was killed.
        shutil.rmtree(self.folder, ignore_errors=True)
        alive = [process.pid for process in self._members if process.poll() is None]
        if alive or self.folder.exists():
            raise KafkaError(
                f"after {deadline.timeout_ms} ms these still exist: "
                f"processes {alive}, folder {self.folder}; remove them by hand"
            )


def _wait(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=deadline.remaining_s())


class BrokerFailedError(KafkaError):
    """A server ended, or its storage could not be formatted; has the tail of its log."""


class ServerProcess:
    """A server named `name` that binds the reserved `ports`.

    The next start uses a `command` that was replaced. `environment` None means that of this
    process.
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
        self.command = command
        self._log = log
        self._ports = ports
        self._group = group
        self._environment = environment
        self._state = BrokerState.STOPPED
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Id of its current or last process; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def state(self) -> BrokerState:
        """Current state; a process that ended for any reason is STOPPED."""
        if self._process is None or self._process.poll() is not None:
            self._state = BrokerState.STOPPED
        return self._state

    def start(self) -> None:
        """Start the process, without waiting until it is ready. Raises `UsageError`."""
        check_allowed("start", self.name, self.state)
        for port in self._ports:
            port.make_way()
        self._process = self._group.start(self.command, self._log, self._environment)
        self._state = BrokerState.RUNNING

    def pause(self) -> None:
        """Pause it with SIGSTOP: it keeps its connections, sends nothing. Raises `UsageError`."""
        process = self._check_live("pause")
        process.send_signal(signal.SIGSTOP)
        # Wait until the kernel reports that all its threads are stopped, or that it has ended.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._state = BrokerState.PAUSED

    def resume(self) -> None:
        """Resume it with SIGCONT; to the server no time has passed. Raises `UsageError`."""
        self._check_live("resume").send_signal(signal.SIGCONT)
        self._state = BrokerState.RUNNING

    def kill(self) -> None:
        """Kill it with SIGKILL, running or paused, and wait for its end. Raises `UsageError`."""
        _kill(self._check_live("kill"))

    def stop(self, timeout: float) -> None:
        """Stop it with SIGTERM and wait; after `timeout` seconds, kill it.

        Raises:
            UsageError: it is not running.
            KafkaTimeoutError: it did not end in time, and was killed.
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
        """Return the live process that `action` applies to. Raises `UsageError`."""
        check_allowed(action, self.name, self.state)
        assert self._process is not None
        return self._process


def tail(log: Path) -> str:
    """Return the last lines of a log, preceded by the first error if that is further up.

    A broker that fails to start logs many more lines while it shuts down.
    """
    lines = log.read_text(errors="replace").splitlines()
    earlier, last = lines[:-LOG_TAIL_LINES], lines[-LOG_TAIL_LINES:]
    errors = [index for index, line in enumerate(earlier) if _ERROR in line]
    # The exception's own message is on the next line.
    first = [*lines[errors[0] : errors[0] + 2], "..."] if errors else []
    return "\n".join([*first, *last])


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(KILL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise KafkaTimeoutError(
            f"process {process.pid} still existed {KILL_TIMEOUT_S * 1000:.0f} ms after SIGKILL"
        ) from error
