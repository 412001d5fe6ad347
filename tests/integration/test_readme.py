"""The README's examples run as they stand, one after the other, on a real broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.quick_jvm import quick_jvm_environ

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster

README = Path(__file__).parents[2] / "README.md"
WRITTEN_ADDRESS = "localhost:9092"
RUN_TIMEOUT_S = 120


def example(heading: str) -> str:
    """Return the Python block under a heading of the README."""
    section = README.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(block)


def command(heading: str, kafka: KafkaCluster) -> list[str]:
    """Return the command that runs an example in its own process, with unbuffered output."""
    text = example(heading).replace(WRITTEN_ADDRESS, kafka.bootstrap_servers)
    return [sys.executable, "-u", "-c", text]


def environ() -> dict[str, str]:
    """As in an activated environment: Spark's workers are whatever `python3` is."""
    return {
        **quick_jvm_environ(),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(README.parent),
    }


def printed_by(heading: str, kafka: KafkaCluster) -> str:
    """Run an example; return its output."""
    return subprocess.run(
        command(heading, kafka),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=RUN_TIMEOUT_S,
        env=environ(),
    ).stdout


@pytest.fixture(scope="module")
def greeted_kafka(kafka_cluster: KafkaCluster) -> KafkaCluster:
    """Provide the broker after the README's first example."""
    printed = printed_by("Produce", kafka_cluster)
    assert re.fullmatch(r"greetings-[012] offset 0\n", printed)
    return kafka_cluster


@pytest.mark.kafka
def test_the_consumer_reads_what_the_producer_sent_and_ends_at_sigterm(
    greeted_kafka: KafkaCluster,
) -> None:
    with subprocess.Popen(
        command("Consume in a group", greeted_kafka),
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip() for _ in range(1_001)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    assert re.fullmatch(r"[012] 0 b'en' b'hello' \(\('tone', b'friendly'\),\)", lines[0])
    assert [line.split()[1] for line in lines] == [str(offset) for offset in range(1_001)]
    assert lines[-1].endswith(" 1000 b'en' b'hello 999' ()")


@pytest.mark.kafka
def test_the_cluster_of_the_example_takes_a_record(kafka_cluster: KafkaCluster) -> None:
    assert "offset=0" in printed_by("Test with it", kafka_cluster)


def test_the_examples_are_as_short_as_promised() -> None:
    lengths = [
        len(example(heading).splitlines())
        for heading in ("Produce", "Consume in a group", "Arrow and Spark")
    ]
    assert lengths[0] <= 20
    assert lengths[1] <= 20
    assert lengths[2] <= 10
