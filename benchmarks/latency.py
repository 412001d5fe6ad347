"""Latency of one record: from send to acknowledgement, and from send until it is read.

One record at a time, linger 0, one partition: send, wait for the acknowledgement, poll until the
record comes, and the next. As many go ahead uncounted as half of those that count. 2,000 count
where other benchmarks have a million records.

    python benchmarks/latency.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import CONFLUENT, JAVA, PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings

CLIENTS = (PYKCLIENT, CONFLUENT, JAVA)
SHARE = 500
CASE = "one record, linger 0"


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Measure how long each client takes to send and read, in a topic of its own."""
    for client in in_turns(settings.able("latency", CLIENTS), settings.run_count):
        figures = arena.latency(client, settings.record_count // SHARE)
        yield Measurement(BENCHMARK.name, CASE, client.name, figures)


BENCHMARK = Benchmark("latency", "One record at a time", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
