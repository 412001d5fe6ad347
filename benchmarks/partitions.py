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
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from measuring.benchmark import Benchmark, parser_of, run_benchmarks
from measuring.client import PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement, grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from measuring.arena import Arena
    from measuring.benchmark import Settings
    from measuring.client import Client
    from measuring.measurement import Series

PARTITION_COUNTS = (1, 100, 1_000)
BATCH_BYTES = 16_384
WAYS = {"poll": "consume", "iteration": "iterate", "poll_arrow": "consume_arrow"}
"""How it is read -> the job that does so."""
COST = "cpu_s_per_million"
RATIO_HEADINGS = ("case", "before", "now", "now / before, medians", "now / before, smallest")


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


def ratio_rows(
    measurements: Iterable[Measurement], before: Client, now: Client
) -> Iterator[tuple[str, ...]]:
    """For each case what a million records cost before and now, and the ratios."""
    costs: dict[str, dict[str, Series]] = {}
    for (_, case, client), figures in grouped(measurements).items():
        costs.setdefault(case, {})[client] = figures[COST]
    for case, of_clients in costs.items():
        old, new = of_clients[before.name], of_clients[now.name]
        yield (
            case,
            f"{old.median:.3f} ({old.range[0]:.3f})",
            f"{new.median:.3f} ({new.range[0]:.3f})",
            f"{new.median / old.median:.2f}x",
            f"{new.range[0] / old.range[0]:.2f}x",
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--before", type=Path, help="the folder of another checkout")
    parser.add_argument("--counts", nargs="+", type=int, default=PARTITION_COUNTS)
    options = parser.parse_args(arguments)
    clients = [PYKCLIENT]
    if options.before is not None:
        if not (options.before / "pykclient").is_dir():
            parser.error(f"--before {options.before}: there is no folder pykclient in it")
        clients.append(PYKCLIENT.of_checkout(options.before.resolve(), "before"))
    benchmark = Benchmark(
        BENCHMARK.name, BENCHMARK.text, partial(measure, clients=clients, counts=options.counts)
    )
    run = run_benchmarks([benchmark], options)
    if len(clients) > 1:
        table = Table(*RATIO_HEADINGS, title="Client CPU s per million: medians (smallest)")
        for row in ratio_rows(run.measurements, before=clients[1], now=clients[0]):
            table.add_row(*row)
        Console().print(table)
    return 0


BENCHMARK = Benchmark("partitions", "Reading 1, 100 and 1,000 partitions", measure)

if __name__ == "__main__":
    sys.exit(main())
