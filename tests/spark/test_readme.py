"""The README's example for Spark runs as it stands, in the session that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from tests.integration.test_readme import WRITTEN_ADDRESS, example

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster

COUNT = 1_001


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
