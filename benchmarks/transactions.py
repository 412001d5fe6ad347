"""Records a second that go through transactions, and their cost in CPU.

Transactions of 1,000 records, one after the other: 100-byte values without keys, 6 partitions,
linger 5 ms, batches of up to 1,000,000 bytes. Half as many go ahead, for the broker to compile what
it runs. Brokers do most of the work, and turns differ by half: there are five for each run.

    python benchmarks/transactions.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from contestants.job import TRANSACTION_COUNT
from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import CONFLUENT, PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings

CLIENTS = (PYKCLIENT, CONFLUENT)
SHARE = 5
TURNS_PER_RUN = 5
CASE = f"of {TRANSACTION_COUNT:,} records"


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Measure how each client makes transactions, in a topic of its own."""
    record_count = max(settings.record_count // SHARE, TRANSACTION_COUNT)
    turn_count = settings.run_count * TURNS_PER_RUN
    for client in in_turns(settings.able("transactions", CLIENTS), turn_count):
        figures = arena.transactions(client, record_count)
        yield Measurement(BENCHMARK.name, CASE, client.name, figures)


BENCHMARK = Benchmark("transactions", "Transactions", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
