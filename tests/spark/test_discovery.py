"""How Spark comes to know the format: by the name of a module, or by `register`."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import spark_connector
from pyspark_pykafka import DefaultSource
from spark_connector.source import KafkaDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pykclient.testing import KafkaCluster


def printed_by(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_module_that_spark_looks_for_holds_the_source() -> None:
    assert DefaultSource is KafkaDataSource
    assert DefaultSource.name() == "pykafka"


def test_the_module_that_spark_looks_for_never_fails() -> None:
    """One such module that raises makes Spark skip the sources of all of them."""
    program = "import sys; sys.modules['pyspark'] = None; import pyspark_pykafka as found; "
    assert printed_by(f"{program} print(hasattr(found, 'DefaultSource'))") == "False"


def test_the_module_that_spark_looks_for_loads_nothing_heavy() -> None:
    program = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules); import pyspark_pykafka; "
    )
    loaded = printed_by(f"{program} print(*(set(sys.modules) - before))").split()
    assert {name.split(".")[0] for name in loaded} == {"pyspark_pykafka", "spark_connector"}


@pytest.mark.kafka
@pytest.mark.spark
def test_a_session_can_register_the_format(
    spark: SparkSession, kafka_cluster: KafkaCluster
) -> None:
    session = spark.newSession()
    spark_connector.register(session)
    records = (
        session.read.format("pykafka")
        .option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
        .option("subscribePattern", "no topic has such a name")
        .load()
    )
    assert records.count() == 0
