"""What does reading cost with 1, 100 and 1,000 partitions, and did another checkout do it cheaper?

The same records, in batches of 16,384 bytes (Kafka's default), read by `poll`, by iteration and by
`poll_arrow`. With ``--before FOLDER`` a checkout of an earlier commit, whose core was built there,
takes every other turn, and a last table has the ratios: of the medians, and of the smallest
values, which say more where others use the cores as well.

    git worktree add ../before COMMIT
    (cd ../before && PYKCLIENT_BUILD=compiled python setup.py build_ext --inplace)
    python benchmarks/partitions.py --before ../before [--records N] [--runs N] [--counts N ...]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from measuring.benchmark import Benchmark, parser_of, run_benchmarks
from measuring.client import PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement
from measuring.pair import CPU, add_option, checkouts, pair_of, print_ratios

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.client import Client

PARTITION_COUNTS = (1, 100, 1_000)
BATCH_BYTES = 16_384
WAYS = {"poll": "consume", "iteration": "iterate", "poll_arrow": "consume_arrow"}
"""How it is read -> the job that does so."""


def measure(
    arena: Arena,
    settings: Settings,
    clients: Sequence[Client] = (PYKCLIENT,),
    counts: Sequence[int] = PARTITION_COUNTS,
) -> Iterator[Measurement]:
    """Let the checkouts read the same topics in turns."""
    with ExitStack() as stack:
        jobs = {
            count: stack.enter_context(
                arena.filled_topic(
                    settings.record_count, partition_count=count, batch_bytes=BATCH_BYTES
                )
            )
            for count in counts
        }
        for count, job in jobs.items():
            for way, action in WAYS.items():
                for client in in_turns(clients, settings.run_count):
                    figures = arena.run(client, action, job)
                    yield Measurement(
                        BENCHMARK.name, f"{way}, partitions: {count:,}", client.name, figures
                    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the tables."""
    parser = parser_of(__doc__)
    add_option(parser)
    parser.add_argument("--counts", nargs="+", type=int, default=PARTITION_COUNTS)
    options = parser.parse_args(arguments)
    clients = pair_of(PYKCLIENT, checkouts(parser, options))
    benchmark = Benchmark(
        BENCHMARK.name, BENCHMARK.text, partial(measure, clients=clients, counts=options.counts)
    )
    run = run_benchmarks([benchmark], options)
    if len(clients) > 1:
        print_ratios(run.measurements, CPU)
    return 0


BENCHMARK = Benchmark("partitions", "Reading 1, 100 and 1,000 partitions", measure)

if __name__ == "__main__":
    sys.exit(main())
