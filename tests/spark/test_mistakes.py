"""The mistakes of a first hour in classic Spark, through Spark itself.

`test_connect.py` makes them on Spark Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.mistakes import MISTAKES, Hour, beginning, made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pykclient.testing import KafkaCluster

pytestmark = [pytest.mark.soak, pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(scope="module")
def topic(new_topic: Callable[[int], str]) -> str:
    return new_topic(2)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_at_the_beginning_of_the_error(
    spark: SparkSession, kafka_cluster: KafkaCluster, topic: str, tmp_path: Path, name: str
) -> None:
    hour = Hour(spark, kafka_cluster.bootstrap_servers, topic, str(tmp_path))
    assert MISTAKES[name][1].replace("$TOPIC", topic) in beginning(made(hour, name))
