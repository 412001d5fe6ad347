"""One Spark session for the whole run, and topics that other clients have filled."""

from __future__ import annotations

import os
import socket
import sys
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.fixtures import skip_or_fail
from pykclient.testing.spark_cluster.home import find_spark_home
from spark_connector.exactly_once.driver import close_drivers
from spark_connector.exactly_once.slots import close_slots
from spark_connector.worker_clients import close_waiting
from tests.spark.official_connector import official_jars
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrameReader, SparkSession

    from pykclient.testing import KafkaCluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def official_connector() -> None:
    """Require the jars of Spark's own connector."""
    try:
        official_jars()
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Provide a session of two local threads. The format is not registered: Spark must find it.

    It has the jars of Spark's own connector, beside which this one is tested. They are not on the
    JVM's classpath, which an archive may have been made of (`SparkHome`).
    """
    try:
        home = find_spark_home()
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))
    try:
        official = official_jars()
    except MissingPrerequisiteError:  # `official_connector` says so.
        official = ()
    folder = tmp_path_factory.mktemp("spark") / "home"
    home.link(folder)
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        # PySpark leaves sockets and subprocesses to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        # Its Python processes import this package as an installed wheel would be imported.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_HOME", str(folder))
        patch.setenv("PYKCLIENT_ALLOWED_IMPORTS", "tests.spark.token_source")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("pykafka tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.jars", ",".join(map(str, official)))
            .config("spark.driver.extraJavaOptions", " ".join(home.jvm_options))
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def read(spark: SparkSession, kafka_cluster: KafkaCluster) -> DataFrameReader:
    """``spark.read`` of the shared cluster; the test adds what it reads."""
    return spark.read.format("pykafka").option(
        "kafka.bootstrap.servers", kafka_cluster.bootstrap_servers
    )


@pytest.fixture(scope="session")
def new_topic(kafka_cluster: KafkaCluster) -> Callable[[int], str]:
    """Create topics with this many partitions that keep records of any age; return the name.

    The broker then knows the topic and the leaders of its partitions.
    """
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})

    def make(partition_count: int) -> str:
        topic = f"spark-{uuid.uuid4()}"
        wanted = NewTopic(topic, partition_count, 1, config={"retention.ms": "-1"})
        admin.create_topics([wanted])[topic].result(30)

        def leader_count() -> int:
            (found,) = admin.list_topics(topic, timeout=30).topics.values()
            return sum(partition.leader >= 0 for partition in found.partitions.values())

        # A busy broker knows it, and the leaders of its partitions, some time later. Until then a
        # write does not find it, and Java's producer may wait for a leader until it gives up.
        await_true(lambda: leader_count() == partition_count, "the partitions have leaders")
        return topic

    return make


@pytest.fixture(autouse=True)
def no_waiting_clients() -> Iterator[None]:
    """Tasks that a test runs in this process leave no clients to the next test."""
    yield
    close_waiting()
    close_slots()
    close_drivers()


@pytest.fixture
def unused_address() -> Iterator[str]:
    """Provide an address that refuses connections: its port is taken, and has no listener."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"
