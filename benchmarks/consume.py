"""Records a second that each client consumes as objects, and their cost in CPU.

100-byte values without keys from 6 partitions, checksums checked, up to 10,000 records a poll, the
value of each looked at.

    python benchmarks/consume.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, PYKCLIENT
from measuring.contest import Entry, read_contest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.measurement import Measurement

CLIENTS = (PYKCLIENT, CONFLUENT, JAVA, AIOKAFKA, KAFKA_PYTHON)


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Measure how fast each client reads the same records."""
    entries = [Entry(client, "consume") for client in CLIENTS]
    yield from read_contest(arena, settings, (BENCHMARK.name, "record objects"), entries)


BENCHMARK = Benchmark("consume", "Consuming to record objects", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
