"""SparkCluster: a standalone Spark cluster on this machine, to run, break and repair.

It has a master on 127.0.0.1 and workers on 127.0.0.2 and 127.0.0.3, from the PySpark package, each
in its own process. There are two worker hosts because Spark starts no speculative copy of a task on
the same host. The master stores workers and applications in files, so that it continues with them
after it is killed and started again.

The cluster is ready when the constructor returns. It is gone, with all drivers, executors and
Python processes, after `close` or when this process ends for any reason. It needs Linux, where all
of 127.0.0.0/8 is on the loopback interface.

Owner: the thread that created it.
Source: Spark's "Spark Standalone Mode".
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final

from pykclient.errors.base import KafkaTimeoutError
from pykclient.testing.clock import Deadline
from pykclient.testing.cluster.processes import BrokerState, ProcessGroup, ServerProcess, tail
from pykclient.testing.port import LOOPBACK, PortReservation
from pykclient.testing.serving import Closing
from pykclient.testing.spark_cluster.application import SparkApplication
from pykclient.testing.spark_cluster.home import QUICK_JVM, find_spark_home
from pykclient.testing.spark_cluster.process_table import ProcessTable, kill_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

WORKER_HOSTS: Final = ("127.0.0.2", "127.0.0.3")
APPLICATION_TIMEOUT_S: Final = 180.0
RESPONSE_TIMEOUT_S: Final = 5.0
LOOK_PAUSE_S: Final = 0.05

_MASTER_SETTINGS: Final = {
    "spark.deploy.recoveryMode": "FILESYSTEM",
    # Keep an application whose executors are killed repeatedly.
    "spark.deploy.maxExecutorRetries": "-1",
    # Its port would be the same for every cluster.
    "spark.master.rest.enabled": "false",
}


class SparkCluster(Closing):
    """A master and two workers with `cores` and `memory` each; a context manager.

    `environment` is added to that of master, workers and executors. The cluster must be ready
    within `start_timeout` seconds.

    Raises:
        MissingPrerequisiteError: PySpark, or a Java that can start it, is missing.
        BrokerFailedError: a server ended while starting; the message has the tail of its log.
        KafkaTimeoutError: it was not ready in time.
    """

    def __init__(
        self,
        *,
        cores: int = 2,
        memory: str = "1500m",
        environment: Mapping[str, str] | None = None,
        start_timeout: float = 180.0,
    ) -> None:
        self._home = find_spark_home()
        deadline = Deadline(start_timeout)
        self._applications: list[SparkApplication] = []
        with ExitStack() as resources:
            self._port = resources.enter_context(closing(PortReservation()))
            self._web_port = resources.enter_context(closing(PortReservation()))
            self._group = resources.enter_context(closing(ProcessGroup("pykclient-spark")))
            self._home.link(self.folder / "spark")
            self._bin = self.folder / "spark" / "bin"
            self._environment = {
                **os.environ,
                "SPARK_HOME": str(self.folder / "spark"),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": self._jvm_options(),
                "SPARK_LAUNCHER_OPTS": " ".join(QUICK_JVM),
                "SPARK_LOCAL_DIRS": str(self.folder / "local"),
                **(environment or {}),
            }
            self.master = self._make_master()
            self.workers = tuple(self._make_worker(host, cores, memory) for host in WORKER_HOSTS)
            """Workers on `WORKER_HOSTS`. All servers have `kill`, `pause`, `resume` and `start`."""
            self._members = [self.master, *self.workers]
            self.master.start()
            self._await_master(deadline)
            for worker in self.workers:
                worker.start()
            self._await(self._has_workers, "a worker did not register", deadline)
            self._resources = resources.pop_all()

    @property
    def folder(self) -> Path:
        """Folder with logs, recovery files and executors' output (``work``), until `close`."""
        return self._group.folder

    @property
    def master_url(self) -> str:
        """Master URL for applications: ``spark://host:port``."""
        return f"spark://{LOOPBACK}:{self._port.port}"

    @property
    def web_url(self) -> str:
        """Address of the master's web page."""
        return f"http://{LOOPBACK}:{self._web_port.port}"

    @property
    def settings(self) -> dict[str, str]:
        """Spark settings of an application here: an executor on each host, and little memory."""
        return {
            "spark.master": self.master_url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.extraJavaOptions": self._jvm_options(),
            "spark.driver.memory": "1g",
            "spark.executor.extraJavaOptions": self._jvm_options(),
            "spark.executor.memory": "600m",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.ui.enabled": "false",
        }

    def submit(
        self,
        script: Path,
        *arguments: str,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> SparkApplication:
        """Start a driver that runs a Python script, and return at once.

        The script must not set its application's name. `settings` are Spark's and override those of
        the cluster; `environment` is added to the driver's.

        Raises:
            ClosedError: the cluster was closed.
        """
        name = f"{script.stem}-{len(self._applications) + 1}"
        log = self.folder / f"{name}.log"
        chosen = {**self.settings, **(settings or {})}
        command = [
            *(str(self._bin / "spark-submit"), "--name", name),
            *(part for key, value in chosen.items() for part in ("--conf", f"{key}={value}")),
            *(str(script), *arguments),
        ]
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        driver = self._group.start(
            command,
            log,
            {**self._environment, "SPARK_LOCAL_IP": LOOPBACK, **python, **(environment or {})},
        )
        application = SparkApplication(
            name,
            driver,
            log=log,
            application_id=self._application_id,
            worker_pids=self._worker_pids,
        )
        self._applications.append(application)
        return application

    def start_master(self, timeout: float = 180.0) -> None:
        """Start the master again, and wait until both workers have registered.

        Raises:
            UsageError: it is not stopped.
            BrokerFailedError: it ended again; the message has the tail of its log.
            KafkaTimeoutError: it was not ready within `timeout` seconds.
        """
        deadline = Deadline(timeout)
        self.master.start()
        self._await_master(deadline)
        self._await(self._has_workers, "a worker did not register", deadline)

    def executor_logs(self) -> dict[Path, str]:
        """Return the output of all applications' executors, by file."""
        return {
            path: path.read_text(errors="replace")
            for name in ("stdout", "stderr")
            for path in sorted((self.folder / "work").glob(f"*/*/{name}"))
        }

    def close(self) -> None:
        """Kill everything and remove the folder. Idempotent.

        Raises:
            KafkaError: a process or the folder still exists after 15 s.
        """
        table = ProcessTable()
        # Python daemons are in process groups of their own, and survive their parents.
        started = [found for pid in self._live_pids() for found in table.below(pid)]
        self._resources.close()
        kill_all(started)

    def _live_pids(self) -> list[int]:
        """Return the ids of live servers and drivers; those of ended ones may be reused."""
        servers = [
            member.pid
            for member in self._members
            if member.pid is not None and member.state is not BrokerState.STOPPED
        ]
        return [*servers, *(one.pid for one in self._applications if one.is_alive)]

    def _worker_pids(self) -> list[int]:
        return [worker.pid for worker in self.workers if worker.pid is not None]

    def _jvm_options(self) -> str:
        return " ".join((*self._home.jvm_options, f"-Djava.io.tmpdir={self.folder}"))

    def _make_master(self) -> ServerProcess:
        properties = self.folder / "master.properties"
        settings = {**_MASTER_SETTINGS, "spark.deploy.recoveryDirectory": self.folder / "recovery"}
        properties.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        return self._make_server(
            "the Spark master",
            "org.apache.spark.deploy.master.Master",
            *("--host", LOOPBACK, "--port", str(self._port.port)),
            *("--webui-port", str(self._web_port.port), "--properties-file", str(properties)),
            host=LOOPBACK,
            ports=(self._port, self._web_port),
        )

    def _make_worker(self, host: str, cores: int, memory: str) -> ServerProcess:
        return self._make_server(
            f"the Spark worker on {host}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", host, "--webui-port", "0", "--work-dir", str(self.folder / "work")),
            *("--cores", str(cores), "--memory", memory, self.master_url),
            host=host,
        )

    def _make_server(
        self, name: str, *command: str, host: str, ports: tuple[PortReservation, ...] = ()
    ) -> ServerProcess:
        return ServerProcess(
            name,
            [str(self._bin / "spark-class"), *command],
            log=self.folder / f"{name.rpartition(' ')[2]}.log",
            ports=ports,
            group=self._group,
            # Web pages bind to it; executors and Python workers inherit it.
            environment={**self._environment, "SPARK_LOCAL_IP": host},
        )

    def _await_master(self, deadline: Deadline) -> None:
        self._await(
            lambda: self._state()["status"] == "ALIVE", "the master did not start", deadline
        )

    def _has_workers(self) -> bool:
        return int(self._state()["aliveworkers"]) == len(self.workers)

    def _await(self, is_so: Callable[[], bool], trouble: str, deadline: Deadline) -> None:
        while not is_so():
            if deadline.has_passed():
                raise KafkaTimeoutError(f"{trouble} within {deadline.timeout_ms} ms")
            for server in self._members:
                if server.state is BrokerState.RUNNING:
                    server.stay_alive(LOOK_PAUSE_S)

    def _application_id(self, name: str) -> str:
        deadline = Deadline(APPLICATION_TIMEOUT_S)
        found: list[str] = []

        def is_registered() -> bool:
            state = self._state()
            applications = (*state["activeapps"], *state["completedapps"])
            found[:] = [each["id"] for each in applications if each["name"] == name]
            return bool(found)

        try:
            self._await(is_registered, f"the master has no application {name}", deadline)
        except KafkaTimeoutError as error:
            log = tail(self.folder / f"{name}.log")
            raise KafkaTimeoutError(f"{error}; its driver printed:\n{log}") from error
        return found[0]

    def _state(self) -> dict[str, Any]:
        """Return the master's report; an empty one while it does not respond."""
        try:
            with urllib.request.urlopen(  # noqa: S310 - it is our own master, by http
                f"{self.web_url}/json/", timeout=RESPONSE_TIMEOUT_S
            ) as response:
                state = json.load(response)
        except (OSError, ValueError):
            state = {}
        assert isinstance(state, dict)
        absent = {"status": "", "aliveworkers": 0, "activeapps": (), "completedapps": ()}
        return {**absent, **state}
