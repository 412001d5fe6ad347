"""The programs of README.md and docs/spark.md run as they stand, in the session that is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pykclient import Consumer, Producer, TopicPartition
from pykclient.testing.port import PortReservation
from tests.integration.test_readme import WRITTEN_ADDRESS, example
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pykclient.testing import KafkaCluster

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
COUNT = 1_001
SPARK_S = 120


@pytest.mark.usefixtures("spark")
@pytest.mark.spark
def test_spark_counts_what_the_producer_sent(
    kafka_cluster: KafkaCluster, new_topic: Callable[[int], str], capsys: pytest.CaptureFixture[str]
) -> None:
    servers, topic = kafka_cluster.bootstrap_servers, new_topic(3)
    with Producer(bootstrap_servers=servers) as producer:
        for _ in range(COUNT):
            producer.send(topic, b"hello", b"en")
    program = example("Arrow and Spark").replace(WRITTEN_ADDRESS, servers)
    assert '"greetings"' in program
    exec(program.replace('"greetings"', f'"{topic}"'), {})  # the README is ours
    assert f"|[65 6E]| {COUNT}|" in capsys.readouterr().out


@pytest.mark.promise("unreachable brokers are reported, each with its reason")
@pytest.mark.parametrize(
    "program", [example("Arrow and Spark"), PROGRAMS[0]], ids=["README", "page"]
)
@pytest.mark.spark
def test_without_a_broker_sparks_own_error_has_our_line(spark: SparkSession, program: str) -> None:
    """Spark's own error class comes before it, and no traceback of its Python process."""
    reservation = PortReservation()
    address = f"127.0.0.1:{reservation.port}"
    assert ".load()" in program
    program = program.replace(".load()", '.option("kafka.default.api.timeout.ms", "300").load()')
    with pytest.raises(PySparkException) as caught:
        exec(  # the documents are ours
            program.replace(WRITTEN_ADDRESS, address), {"spark": spark, "servers": address}
        )
    reservation.close()
    first_line = str(caught.value).partition("\n")[0]
    assert f"cannot connect to {address}: connection refused" in first_line


@pytest.mark.spark
def test_the_programs_of_the_connectors_page_run_one_after_the_other(
    spark: SparkSession,
    kafka_cluster: KafkaCluster,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    servers, orders, totals = kafka_cluster.bootstrap_servers, new_topic(1), new_topic(1)
    assert len(PROGRAMS) == 4
    names: dict[str, Any] = {"spark": spark, "servers": servers, "folder": tmp_path}

    def send(*keys: bytes) -> None:
        with Producer(bootstrap_servers=servers) as producer:
            for key in keys:
                producer.send(orders, b"order", key)

    def written() -> list[tuple[object, object]]:
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            partition = TopicPartition(totals, 0)
            consumer.assign([partition])
            found: list[tuple[object, object]] = []
            end = consumer.end_offsets([partition])[partition]
            while consumer.position(partition) < end:
                found += [(record.key, record.value) for record in consumer.poll(1)]
        return found

    send(b"a", b"b", b"a")
    try:
        for program in PROGRAMS:
            program = program.replace('"orders"', f'"{orders}"').replace('"totals"', f'"{totals}"')
            exec(program, names)  # the page is ours
        queries = spark.streams.active
        assert len(queries) == 3
        assert sorted(written()) == [(b"a", b"2"), (b"b", b"1")]
        for query in queries:
            query.processAllAvailable()
        send(b"c")
        await_true(lambda: len(written()) == 5, "all queries have written", SPARK_S)
        assert sorted(written()[2:]) == [(b"c", b"1"), (b"c", b"order"), (b"c", b"order")]
        listener = names["listener"]
        await_true(lambda: len(listener.history) >= 2, "lag was reported", SPARK_S)
        spark.streams.removeListener(listener)
    finally:
        for query in spark.streams.active:
            query.stop()
