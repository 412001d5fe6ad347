"""Distance from the limit: the cost of the same bytes without a client around them.

Fetch responses are received on a bare socket and thrown away, with and without a checksum;
ready-made Produce requests are sent, and their acknowledgements read. Beside them each of our ways
to send and to read the same records.

    python benchmarks/floor.py [--records N] [--runs N] [--clients ...] [--json FILE]
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, run_benchmark
from measuring.client import PYKCLIENT, RAW_SOCKET
from measuring.contest import Entry, produce_contest, read_contest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.measurement import Measurement

OUT = (
    Entry(RAW_SOCKET, "produce"),
    Entry(PYKCLIENT, "send_arrow", "pykclient, send_arrow"),
    Entry(PYKCLIENT, "send_batch", "pykclient, send_batch"),
    Entry(PYKCLIENT, "produce", "pykclient, send"),
)
IN = (
    Entry(RAW_SOCKET, "consume"),
    Entry(RAW_SOCKET, "consume_with_crc", "raw socket and CRC"),
    Entry(PYKCLIENT, "consume_arrow", "pykclient, poll_arrow"),
    Entry(PYKCLIENT, "consume", "pykclient, poll"),
)


def measure(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    """Out, then in."""
    yield from produce_contest(arena, settings, (BENCHMARK.name, "out"), OUT)
    yield from read_contest(arena, settings, (BENCHMARK.name, "in"), IN)


BENCHMARK = Benchmark("floor", "The floor: the same bytes without a client", measure)

if __name__ == "__main__":
    sys.exit(run_benchmark(BENCHMARK, __doc__))
