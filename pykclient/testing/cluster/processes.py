"""One Kafka server: a Java process that can be started, paused, killed and started again.

It is stopped, running or paused. What it printed in all its lives is in one log file, and its data
stay where they are from one life to the next. It may end by itself at any time, which is noticed
when its state is asked for.

Owner: the thread that owns the cluster.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

from pykclient.errors.base import KafkaError, KafkaTimeoutError
from pykclient.testing.cluster.broker_state import BrokerState, check_allowed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pykclient.testing.cluster.port import PortReservation
    from pykclient.testing.cluster.process_group import ProcessGroup

__all__ = ["BrokerFailedError", "BrokerProcess", "tail"]

LOG_TAIL_LINES = 25
KILL_TIMEOUT_S = 15.0


class BrokerFailedError(KafkaError):
    """A server ended by itself, or its storage could not be made; ends with the tail of its log."""


class BrokerProcess:
    """A server, named `name` in errors, that binds the reserved `ports`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        ports: Sequence[PortReservation],
        group: ProcessGroup,
    ) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._ports = ports
        self._group = group
        self._state = BrokerState.STOPPED
        self._process: subprocess.Popen[bytes] | None = None

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
        self._process = self._group.start(self._command, self._log)
        self._state = BrokerState.RUNNING

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and answers nothing. Raises `UsageError`."""
        process = self._check_live("pause")
        process.send_signal(signal.SIGSTOP)
        # Wait for the kernel's word that all of its threads stand still, or that it is gone.
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
    """The last lines of a log file."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:])


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(KILL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise KafkaTimeoutError(
            f"process {process.pid} was still there {KILL_TIMEOUT_S * 1000:.0f} ms after SIGKILL"
        ) from error
