"""Spark Connect: the same format, by a server that another process starts, and by one after it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer, TopicPartition
from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.fixtures import skip_or_fail
from tests.quick_jvm import quick_spark_environ
from tests.spark.connect_life import ENDED, KILLED
from tests.spark.mistakes import MISTAKES
from tests.spark.small_sources import PARTITION_COUNT, ROW_COUNT
from tests.spark.versions import PLANS_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster

ROOT = Path(__file__).parents[2]
CONNECT_S_MAX = 420


PACKAGES = ("pykclient", "spark_connector", "tests")
"""Packages that an application needs; `pyspark_pykafka` lets Spark find the format itself."""


def connect_environ(folder: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the environment of a program that starts a server, and imports these packages."""
    try:
        environ = quick_spark_environ(folder / "spark")
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))
    if importlib.util.find_spec("grpc_status") is None:
        skip_or_fail("Spark Connect needs grpcio-status: pip install 'pyspark[connect]'")
    # Without it the server's port is always the same one.
    environ |= {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    path = folder / "path"
    path.mkdir()
    for package in packages:
        (path / package).symlink_to(ROOT / package)
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    outside = [one for one in others if not Path(one, "pyspark_pykafka").exists()]
    environ["PYTHONPATH"] = os.pathsep.join([str(path), *outside])
    environ["PYSPARK_PYTHON"] = sys.executable
    return environ


@pytest.mark.soak
@pytest.mark.timeout(480)
@pytest.mark.promise("Spark Connect reads and writes by the format's name, batches and streams")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("packages", "discovery", "has_unix_sockets"),
    [
        ((*PACKAGES, "pyspark_pykafka"), "no error", "false"),
        (PACKAGES, "DATA_SOURCE_NOT_FOUND", "true"),
    ],
    ids=["by name", "registered"],
)
def test_spark_connect_reads_and_writes_batches_and_streams(
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
    *,
    packages: tuple[str, ...],
    discovery: str,
    has_unix_sockets: str,
) -> None:
    environ = connect_environ(tmp_path, packages)
    program = [sys.executable, "-m", "tests.spark.connect_program"]
    finished = subprocess.run(
        [*program, kafka_cluster.bootstrap_servers, new_topic(2), str(tmp_path), has_unix_sockets],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=CONNECT_S_MAX,
        cwd=tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["unix sockets"] == has_unix_sockets
    assert discovery in found["discovery"]
    assert found["columns"][:4] == ["key", "value", "topic", "partition"]
    assert (found["empty"], found["written"]) == (0, 10)
    assert (found["ended"], found["copied"], found["lag"]) == (True, 1, [0])
    assert (found["first"], found["once"]) == ("no error", 11)
    assert (found["repeated"], found["once again"]) == ("no error", 11)
    assert "belongs to query" in found["other checkpoint"]
    assert "This write is in foreachBatch, and has no number" in found["own"]
    assert "does not tell which query it is of" in found["own with a number"]
    assert "2 queries are active in the session" in found["beside"]
    assert found["named"] == "no error"
    # One plan for a frame and its view, whatever is done with them.
    plan_count = 1 if PLANS_ONCE else 3
    assert (found["rows"], found["plans"]) == ([PARTITION_COUNT * ROW_COUNT] * 3, plan_count)
    assert "Did you mean 'subscribe'" in found["option"]
    assert 'use either the "Append" or "Overwrite" mode' in found["mode"]
    assert "no-such-topic" in found["topic"]


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.promise("A stream restarts from its checkpoint once the problem is fixed")
@pytest.mark.promise("Spark writes each row once, with delivery=exactly_once")
@pytest.mark.spark
@pytest.mark.kafka
def test_a_query_goes_on_when_a_server_of_spark_connect_is_killed_and_another_one_starts(
    kafka_cluster: KafkaCluster, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    """The first server dies in the first batch, and the second one when it is written."""
    environ = connect_environ(tmp_path, (*PACKAGES, "pyspark_pykafka"))
    servers = kafka_cluster.bootstrap_servers
    source, target = new_topic(2), new_topic(1)
    group = f"apps-{source}"
    first, second = TopicPartition(source, 0), TopicPartition(source, 1)
    command = [sys.executable, "-m", "tests.spark.connect_life"]
    command += [servers, source, group, target, str(tmp_path / "checkpoint")]

    def live(cut: str) -> str:
        said, wrong = tmp_path / f"{cut}.out", tmp_path / f"{cut}.err"
        with said.open("w") as output, wrong.open("w") as errors:
            # Processes of a server that was killed may outlive it; its group ends with the life.
            life = subprocess.Popen(
                [*command, cut],
                env=environ,
                stdout=output,
                stderr=errors,
                cwd=tmp_path,
                start_new_session=True,
            )
            try:
                code = life.wait(CONNECT_S_MAX)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(life.pid, signal.SIGKILL)
                life.wait()
        assert code == 0, wrong.read_text()
        return said.read_text().splitlines()[-1]

    def send(*numbers: int) -> None:
        with Producer(bootstrap_servers=servers) as producer:
            for number in numbers:
                producer.send(source, b"%d" % number, partition=number % 2)

    def commit(in_first: int, in_second: int) -> None:
        with Admin(bootstrap_servers=servers) as admin:
            admin.alter_group_offsets(group, {first: in_first, second: in_second})

    send(*range(10))
    commit(2, 1)  # 0, 2 and 1 are left out
    assert live("before") == KILLED
    # The start is in the log: where the group has committed by now makes no difference.
    commit(5, 5)
    send(*range(10, 14))
    assert live("after") == KILLED
    assert live("not") == ENDED
    assert live("not again") == ENDED
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        copied = TopicPartition(target, 0)
        consumer.assign([copied])
        end = consumer.end_offsets([copied])[copied]
        found: list[int] = []
        while consumer.position(copied) < end:
            found += [int(record.value or b"") for record in consumer.poll(1)]
    assert sorted(found) == [*range(3, 14)]


@pytest.mark.soak
@pytest.mark.timeout(1_500)
@pytest.mark.spark
@pytest.mark.kafka
def test_a_mistake_is_named_at_the_beginning_of_the_error_on_spark_connect_too(
    kafka_cluster: KafkaCluster, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    environ = connect_environ(tmp_path, (*PACKAGES, "pyspark_pykafka"))
    topic = new_topic(2)
    program = [sys.executable, "-m", "tests.spark.mistakes"]
    finished = subprocess.run(
        [*program, kafka_cluster.bootstrap_servers, topic, str(tmp_path)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=1_400,
        cwd=tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    shown = json.loads(finished.stdout.splitlines()[-1])
    wanted = {name: cause.replace("$TOPIC", topic) for name, (_, cause) in MISTAKES.items()}
    assert {name: text for name, text in shown.items() if wanted[name] not in text} == {}
