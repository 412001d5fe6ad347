"""Spark reads and writes a secured cluster from its executors, and shows no password of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pykclient import Admin, NewTopic
from pykclient.testing import ClusterSecurity
from tests.soak import OWN_BROKERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = [pytest.mark.kafka, pytest.mark.spark, OWN_BROKERS]

CANARY = "canary-9b1d"
SECURITY = ClusterSecurity(
    listeners=("SASL_SSL", "MTLS"), mechanisms=("SCRAM-SHA-512",), users={"alice": CANARY}
)


@pytest.fixture(scope="module")
def secured(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[KafkaCluster]:
    """One broker whose listeners are all secured."""
    with kafka_cluster_factory(security=SECURITY) as cluster:
        yield cluster


def options_of(settings: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}


def shown_of(frame: DataFrame) -> str:
    """Everything that Spark says of a frame's plan."""
    return str(frame._jdf.queryExecution().toString())


@pytest.mark.parametrize("listener", ["SASL_SSL", "MTLS"])
def test_a_secured_cluster_is_written_and_read(
    spark: SparkSession,
    secured: KafkaCluster,
    tmp_path: Path,
    listener: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = options_of(secured.client_settings(listener))
    topic = f"secured-{listener.lower()}"
    with Admin(secured.client_settings(listener)) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value", f"'{topic}' AS topic")
    rows.write.format("pykafka").options(**options).mode("append").save()
    frame = spark.read.format("pykafka").options(**options).option("subscribe", topic).load()
    assert sorted(int(row.value) for row in frame.select("value").collect()) == [*range(100)]
    assert CANARY not in shown_of(frame)
    stream = spark.readStream.format("pykafka").options(**options).option("subscribe", topic)
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    progress: list[Any] = list(query.recentProgress)
    assert sum(each["numInputRows"] for each in progress) == 100
    assert CANARY not in str(progress)
    assert CANARY not in "".join(
        file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()
    )
    printed = capfd.readouterr()
    assert CANARY not in printed.out + printed.err


def test_a_wrong_password_is_named_and_not_shown(
    spark: SparkSession, secured: KafkaCluster
) -> None:
    options = options_of(secured.client_settings("SASL_SSL", password=f"no {CANARY}"))
    reader = spark.read.format("pykafka").options(**options).option("subscribe", "any")
    with pytest.raises(PySparkException) as caught:
        reader.load().collect()
    assert "AuthenticationError" in str(caught.value)
    assert "the broker refused the user 'alice'" in str(caught.value)
    assert CANARY not in str(caught.value)
