"""pykclient without its compiled core beside the other client in pure Python.

Both produce and consume record by record: 100-byte values without keys, 6 partitions.

    python benchmarks/pure_twin.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import KAFKA_PYTHON, PURE
from measuring.contest import Entry, produce_contest, read_contest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.measurement import Measurement

CLIENTS = (PURE, KAFKA_PYTHON)


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Produce, then consume."""
    writers = [Entry(client, "produce") for client in CLIENTS]
    yield from produce_contest(arena, settings, (BENCHMARK.name, "produce"), writers)
    readers = [Entry(client, "consume") for client in CLIENTS]
    yield from read_contest(arena, settings, (BENCHMARK.name, "consume"), readers)


BENCHMARK = Benchmark("pure", "Without the compiled core", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
