"""SparkApplication: a driver started by `SparkCluster`, with its executors and Python workers.

The driver is a process in client mode. Its executors are found by the application's id among the
processes that the cluster's workers started.

Owner: the thread that owns the cluster.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykclient.errors.base import KafkaTimeoutError
from pykclient.testing.spark_cluster.process_table import FoundProcess, ProcessTable, kill_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXECUTOR_CLASS = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True, slots=True)
class Executor:
    """An executor's JVM, with its id in the application and its host."""

    process: FoundProcess
    executor_id: str
    host: str

    @property
    def is_alive(self) -> bool:
        """True if its JVM exists, running or paused."""
        return self.process.is_alive

    def python_workers(self) -> list[FoundProcess]:
        """Return the processes that run its tasks' Python code, idle ones included."""
        table = ProcessTable()
        return [
            worker
            for daemon in table.children(self.process.pid)
            for worker in table.children(daemon.pid)
        ]

    def kill(self) -> None:
        """Kill the JVM with SIGKILL. Its Python processes notice and end by themselves.

        Raises:
            KafkaTimeoutError: it still existed 15 s later.
        """
        self.process.kill()

    def pause(self) -> None:
        """Pause the JVM and its Python processes with SIGSTOP."""
        for process in (self.process, *ProcessTable().below(self.process.pid)):
            process.pause()

    def resume(self) -> None:
        """Resume the JVM and its Python processes with SIGCONT."""
        for process in (self.process, *ProcessTable().below(self.process.pid)):
            process.resume()


class SparkApplication:
    """A run of a driver named `name`, whose output is appended to the file `log`."""

    def __init__(
        self,
        name: str,
        driver: subprocess.Popen[bytes],
        *,
        log: Path,
        application_id: Callable[[str], str],
        worker_pids: Callable[[], list[int]],
    ) -> None:
        self.name = name
        self.log = log
        self._driver = driver
        self._application_id = application_id
        self._worker_pids = worker_pids
        self._id: str | None = None

    @property
    def pid(self) -> int:
        """Process id of the driver."""
        return self._driver.pid

    @property
    def id(self) -> str:
        """Spark's id of the application, once the master has assigned it.

        Raises:
            KafkaTimeoutError: the driver did not register in time; has the tail of its log.
        """
        if self._id is None:
            self._id = self._application_id(self.name)
        return self._id

    @property
    def is_alive(self) -> bool:
        """True if the driver exists, running or paused."""
        return self._driver.poll() is None

    def executors(self) -> list[Executor]:
        """Return the executors whose JVMs exist now, ordered by id."""
        table = ProcessTable()
        found = [
            Executor(process, process.option("--executor-id"), process.option("--hostname"))
            for pid in self._worker_pids()
            for process in table.below(pid)
            if EXECUTOR_CLASS in process.arguments and process.option("--app-id") == self.id
        ]
        return sorted(found, key=lambda executor: int(executor.executor_id))

    def wait(self, timeout: float) -> int:
        """Wait for the driver and return its exit status, which is 0 unless its script failed.

        Raises:
            KafkaTimeoutError: it did not end within `timeout` seconds.
        """
        try:
            return self._driver.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise KafkaTimeoutError(
                f"the driver {self.name} did not end within {timeout * 1000:.0f} ms; see {self.log}"
            ) from error

    def kill(self) -> None:
        """Kill the driver and its Python processes with SIGKILL, and wait for their end.

        Raises:
            KafkaTimeoutError: one still existed 15 s later.
        """
        below = ProcessTable().below(self._driver.pid)
        self._driver.kill()
        kill_all(below)
        self.wait(timeout=15.0)

    def pause(self) -> None:
        """Pause the driver and its Python processes with SIGSTOP."""
        for process in self._processes():
            process.pause()

    def resume(self) -> None:
        """Resume the driver and its Python processes with SIGCONT."""
        for process in self._processes():
            process.resume()

    def log_text(self) -> str:
        """Return the driver's output so far."""
        return self.log.read_text(errors="replace")

    def _processes(self) -> list[FoundProcess]:
        table = ProcessTable()
        driver = table.get(self._driver.pid)
        return [*([driver] if driver else []), *table.below(self._driver.pid)]
