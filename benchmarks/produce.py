"""Records a second that each client produces, and their cost in CPU.

Each record is sent by itself and has a delivery or a callback of its own: 100-byte values without
keys, 6 partitions, linger 5 ms, acks=all, idempotent. Once with batches of up to 1,000,000 bytes,
once with Java's default of 16,384.

    python benchmarks/produce.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, PYKCLIENT
from measuring.contest import Entry, produce_contest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.measurement import Measurement

CLIENTS_OF_BATCH_BYTES = {
    1_000_000: (PYKCLIENT, CONFLUENT, JAVA, AIOKAFKA, KAFKA_PYTHON),
    16_384: (PYKCLIENT, CONFLUENT, JAVA),
}


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Measure how fast the clients send, with large batches and with small ones."""
    for batch_bytes, clients in CLIENTS_OF_BATCH_BYTES.items():
        place = (BENCHMARK.name, f"batch size {batch_bytes:,}")
        entries = [Entry(client, "produce") for client in clients]
        yield from produce_contest(arena, settings, place, entries, batch_bytes)


BENCHMARK = Benchmark("produce", "Producing record by record", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
