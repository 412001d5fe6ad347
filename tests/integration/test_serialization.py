"""The program of docs/serialization.md runs as it stands, on a real broker."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, TopicPartition
from pykclient.errors import RecordDeserializationError

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "serialization.md"
RUN_TIMEOUT_S = 60
LONG = "org.apache.kafka.common.serialization.LongDeserializer"


@pytest.mark.kafka
def test_the_pages_program_writes_and_reads_objects(kafka_cluster: KafkaCluster) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    program = program.replace("localhost:9092", kafka_cluster.bootstrap_servers)
    program = program.replace('"orders"', f'"{topic}"').replace('"readers"', f'"{topic}"')
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=RUN_TIMEOUT_S,
        cwd=ROOT,
    ).stdout
    assert printed == f"{uuid.UUID(int=7)} {{'item': 'lamp', 'count': 2}} (('form', b'2'),)\n"
    with Consumer(
        bootstrap_servers=kafka_cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        key_deserializer=LONG,
    ) as consumer:
        consumer.assign(
            [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
        )
        with pytest.raises(RecordDeserializationError) as raised:
            _first_of(consumer)
    text = str(raised.value)
    for part in (f"{topic}-{raised.value.partition}", "key_deserializer", "offset 0", "36 bytes"):
        assert part in text


def _first_of(consumer: Consumer) -> None:
    while not consumer.poll(1.0):
        pass
