"""A Spark cluster that runs a job on two hosts, with parts that are killed, paused and resumed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.cluster.processes import BrokerState
from pykclient.testing.spark_cluster.cluster import WORKER_HOSTS, SparkCluster
from pykclient.testing.spark_cluster.home import find_spark_home
from pykclient.testing.spark_cluster.process_table import FoundProcess, ProcessTable, kill_all
from pykclient.testing.spark_cluster.spark_classes import make_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.testing import SparkApplication
    from pykclient.testing.cluster.processes import ServerProcess

JOB = Path(__file__).with_name("spark_job.py")
TIMEOUT_S = 180.0

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def application(spark_cluster: SparkCluster, request_file: Path) -> Iterator[SparkApplication]:
    """Start a driver, and wait until its tasks have run on two hosts."""
    started = spark_cluster.submit(JOB, str(request_file))
    try:
        await_true(lambda: "HOSTS" in started.log_text() or not started.is_alive)
        yield started
    finally:
        if started.is_alive:
            started.kill()


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    """Return the file whose existence makes a driver run its job again."""
    return tmp_path / "request"


def run_again(application: SparkApplication, request_file: Path) -> None:
    """Make the driver run its job again, on both hosts."""
    before = application.log_text().count("HOSTS")
    request_file.touch()
    await_true(lambda: application.log_text().count("HOSTS") > before)


class Pausable(Protocol):
    """A part of the cluster."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@pytest.mark.soak
def test_parts_of_an_application_are_killed_and_leave_nothing(
    spark_cluster: SparkCluster, application: SparkApplication, request_file: Path
) -> None:
    assert f'HOSTS ["{WORKER_HOSTS[0]}", "{WORKER_HOSTS[1]}"]' in application.log_text()
    first, second = application.executors()
    assert {first.host, second.host} == set(WORKER_HOSTS)

    parts: list[tuple[Pausable, list[int]]] = [
        *((server, [pid_of(server)]) for server in (spark_cluster.master, *spark_cluster.workers)),
        *((each, with_below(each.process.pid)) for each in (first, second)),
        *((each, [each.pid]) for each in first.python_workers()[:1]),
        (application, with_below(application.pid)),
    ]
    assert len(parts) == 7
    for part, pids in parts:
        assert not any(are_paused(pids))
        part.pause()
        # Each of its threads stops when the machine next runs it.
        await_true(lambda pids=pids: all(are_paused(pids)))  # type: ignore[misc]
        assert are_paused(pids)
        part.resume()
        await_true(lambda pids=pids: not any(are_paused(pids)))  # type: ignore[misc]
        run_again(application, request_file)

    worker = first.python_workers()[0]
    worker.kill()
    assert not worker.is_alive
    assert first.is_alive

    below = ProcessTable().below(second.process.pid)
    assert below
    second.kill()
    assert not second.is_alive
    await_true(lambda: not alive(below))

    # The master replaces the lost executor.
    await_true(lambda: len(application.executors()) == 2)
    everything = [
        found
        for executor in application.executors()
        for found in (executor.process, *ProcessTable().below(executor.process.pid))
    ]
    everything += ProcessTable().below(application.pid)
    application.kill()
    assert not application.is_alive
    await_true(lambda: not alive(everything))
    assert spark_cluster.master.state is BrokerState.RUNNING


@pytest.mark.soak
def test_servers_map_the_archive_of_their_classes(spark_cluster: SparkCluster) -> None:
    home = find_spark_home()
    if not home.class_archive.exists():
        pytest.skip("there is no archive; this Java makes none, or `make test` did not run")
    for server in (spark_cluster.master, *spark_cluster.workers):
        assert str(home.class_archive) in Path(f"/proc/{server.pid}/maps").read_text()
    assert make_archive(home) == home.class_archive


@pytest.mark.soak
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_the_cluster_of_the_command_line_ends_with_its_process(ended_by: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pykclient.testing.spark_cluster"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
        assert "spark://127.0.0.1:" in line
        folder = Path(line.partition("logs in ")[2].partition(". Ctrl-C")[0])
        below = ProcessTable().below(process.pid)
        assert sum("deploy.worker.Worker" in found.arguments for found in below) == 2
        process.send_signal(ended_by)
        assert process.wait(TIMEOUT_S) == (0 if ended_by is signal.SIGINT else -ended_by)
    await_true(lambda: not alive(below) and not folder.exists())


@pytest.mark.soak
def test_a_master_and_a_worker_come_back_and_close_ends_what_is_paused(
    request_file: Path,
) -> None:
    with SparkCluster() as cluster:
        application = cluster.submit(JOB, str(request_file))
        await_true(lambda: "HOSTS" in application.log_text())
        executors = application.executors()
        cluster.master.kill()
        assert cluster.master.state is BrokerState.STOPPED
        cluster.start_master()
        assert application.executors() == executors
        cluster.workers[0].kill()
        await_true(lambda: len(application.executors()) == 1)
        cluster.workers[0].start()
        await_true(lambda: len(application.executors()) == 2)
        run_again(application, request_file)
        application.pause()
        for executor in application.executors():
            executor.pause()
        started = [*ProcessTable().below(os.getpid())]
        folder = cluster.folder
    assert not alive(started)
    assert not folder.exists()


def test_without_pyspark_the_error_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPrerequisiteError, match=r"pip install 'pyspark\[connect\]' pyarrow"):
        SparkCluster()


def test_without_java_the_error_names_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (find_spark_home().folder / "bin" / "spark-class").exists()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingPrerequisiteError, match="Spark needs a full Java 17 or newer"):
        SparkCluster()


def test_a_process_stays_the_same_when_its_parent_ends() -> None:
    """The shell ends, and another process adopts the one it leaves behind."""
    shell = subprocess.run(
        ["sh", "-c", "sleep 100 >&- 2>&- & echo $!"], capture_output=True, text=True, check=True
    )
    orphan = ProcessTable().get(int(shell.stdout))
    assert orphan is not None
    assert replace(orphan, parent_pid=0, arguments="another program").is_alive
    kill_all([replace(orphan, parent_pid=0)])
    assert not orphan.is_alive


def alive(processes: list[FoundProcess]) -> list[FoundProcess]:
    return [*{*processes}.intersection(ProcessTable())]


def pid_of(server: ServerProcess) -> int:
    assert server.pid is not None
    return server.pid


def with_below(pid: int) -> list[int]:
    return [pid, *(found.pid for found in ProcessTable().below(pid))]


def are_paused(pids: list[int]) -> list[bool]:
    """Return whether each process that has not ended is stopped."""
    command = ["ps", "-o", "stat=", "-p", ",".join(map(str, pids))]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return [state.startswith("T") for state in found if not state.startswith("Z")]


def await_true(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s, "not within 180 s"
        time.sleep(0.05)
