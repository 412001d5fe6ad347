"""What a type checker finds in a program of ours, and what it has nothing against."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOUND = re.compile(r"^[^:]+:(\d+): error: (.*)$", re.MULTILINE)

RIGHT = """
from pykclient import Admin, Consumer, Producer

with Producer(bootstrap_servers="kafka:9092", acks="all", compression_type="zstd") as p:
    p.send("t", b"v", key=b"k", headers=[("h", b"1")]).result(timeout=10)
with Producer({"bootstrap.servers": "kafka:9092", "acks": "all"}, linger_ms=5):
    pass
with Consumer(
    bootstrap_servers=["kafka:9092", ("other", 9092)],
    group_id="g",
    auto_offset_reset="by_duration:PT12H",
    partition_assignment_strategy=["cooperative-sticky"],
    consumer_timeout_ms=None,
    value_deserializer=lambda topic, data: data,
) as c:
    c.subscribe(["t"])
with Admin(bootstrap_servers=("kafka", 9092), request_timeout_ms=1_000):
    pass
"""
WRONG = """
from pykclient import Admin, Consumer, Producer

Producer(bootstrap_server="kafka:9092")  # Unexpected keyword argument "bootstrap_server"
Producer(bootstrap_servers="kafka:9092", linger_ms="5")  # "str"; expected "int"
Producer(bootstrap_servers="kafka:9092", compression_type="brotli")  # expected "Literal['none',
Producer(bootstrap_servers="kafka:9092", acks=2)  # expected "Literal['all',
Producer(bootstrap_servers="kafka:9092", enable_idempotence="yes")  # expected "bool"
Producer(bootstrap_servers="kafka:9092", group_id="g")  # Unexpected keyword argument "group_id"
Consumer(bootstrap_servers=9092)  # "bootstrap_servers" to "Consumer" has incompatible type "int"
Consumer(bootstrap_servers="kafka:9092", isolation_level="committed")  # 'read_committed'
Consumer(bootstrap_servers="kafka:9092", fetch_min_bytes=None)  # expected "int"
Consumer(bootstrap_servers="kafka:9092", acks="all")  # Unexpected keyword argument "acks"
Admin(bootstrap_servers="kafka:9092", linger_ms=5)  # Unexpected keyword argument "linger_ms"
"""


def errors_of(program: str, folder: Path) -> dict[int, str]:
    """Lines and what mypy finds there, with the options of this project, which are strict."""
    path = folder / "program.py"
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return {int(line): message for line, message in FOUND.findall(done.stdout)}


@pytest.mark.promise("a type checker knows every setting as a keyword, with its type")
def test_a_program_whose_settings_are_right_has_no_error(tmp_path: Path) -> None:
    assert errors_of(RIGHT, tmp_path) == {}


@pytest.mark.promise("a type checker knows every setting as a keyword, with its type")
def test_every_planted_mistake_is_found_in_its_line(tmp_path: Path) -> None:
    found = errors_of(WRONG, tmp_path)
    planted = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(WRONG.splitlines(), 1)
        if "  # " in line
    }
    assert found.keys() == planted.keys()
    for number, part in planted.items():
        assert part in found[number]
