"""Growth of resident memory over a run.

The producer sends as fast as it can, with Kafka's default `buffer_memory` of 32 MiB, and keeps no
delivery. The consumer reads a backlog of 1,000-byte values, at first slowly, from partitions each
of which may fill a whole fetch of `fetch_max_bytes`, 50 MiB. The kernel keeps the peak.

    python benchmarks/memory.py [--records N] [--runs N] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import PYKCLIENT
from measuring.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings

VALUE_BYTES = 1_000


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Produce, then consume."""
    if not settings.able("produce_memory", [PYKCLIENT]):
        return
    record_count = settings.record_count
    for _ in range(settings.run_count):
        figures = arena.produce(PYKCLIENT, "produce_memory", record_count, value_bytes=VALUE_BYTES)
        yield Measurement(BENCHMARK.name, "producer", PYKCLIENT.name, figures)
    with arena.filled_topic(record_count, value_bytes=VALUE_BYTES) as job:
        for _ in range(settings.run_count):
            figures = arena.run(PYKCLIENT, "consume_memory", job)
            yield Measurement(BENCHMARK.name, "consumer", PYKCLIENT.name, figures)


BENCHMARK = Benchmark("memory", "Growth of resident memory", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
