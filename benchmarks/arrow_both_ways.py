"""Cost of records in bulk: lists and Arrow tables sent, Arrow batches read.

Two rivals run beside them: confluent-kafka, which handles its records one by one, and a bare socket
with the same bytes. 100-byte values without keys, 6 partitions.

    python benchmarks/arrow_both_ways.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import CONFLUENT, PYKCLIENT, RAW_SOCKET
from measuring.contest import Entry, produce_contest, read_contest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.measurement import Measurement

OUT = (
    Entry(PYKCLIENT, "send_batch", "pykclient, send_batch"),
    Entry(PYKCLIENT, "send_arrow", "pykclient, send_arrow"),
    Entry(CONFLUENT, "produce"),
    Entry(RAW_SOCKET, "produce"),
)
IN = (
    Entry(PYKCLIENT, "consume_arrow", "pykclient, poll_arrow"),
    Entry(CONFLUENT, "consume"),
    Entry(RAW_SOCKET, "consume"),
    Entry(RAW_SOCKET, "consume_with_crc", "raw socket and CRC"),
)


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Send in bulk, then read in bulk."""
    yield from produce_contest(arena, settings, (BENCHMARK.name, "out"), OUT)
    yield from read_contest(arena, settings, (BENCHMARK.name, "in"), IN)


BENCHMARK = Benchmark("arrow", "In bulk, both ways", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
