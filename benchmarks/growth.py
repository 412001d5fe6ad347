"""Does a record cost the same with many partitions, and in long runs?

Partitions: 1 to 1,000, once without keys (the producer fills one partition's batch after the other)
and once with 10,000 keys, which spread a quarter of the records over all partitions at once; then
these are read. Records: a quarter up to four times as many, or as `--sizes` says.

    python benchmarks/growth.py [--records N] [--runs N] [--sizes N ...] [--json FILE]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from contestants.job import Job
from measuring.arena import VALUE_BYTES
from measuring.benchmark import Benchmark, parser_of, run_benchmarks
from measuring.client import PYKCLIENT
from measuring.contest import in_turns
from measuring.measurement import Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.arena import Arena
    from measuring.benchmark import Settings

PARTITION_COUNTS = (1, 10, 100, 1_000)


def measure(
    arena: Arena, settings: Settings, sizes: Sequence[int] | None = None
) -> Iterator[Measurement]:
    """Grow the partitions, then the records."""
    if not settings.able("produce", [PYKCLIENT]):
        return
    yield from _over_partitions(arena, settings)
    count = settings.record_count
    yield from _over_records(arena, settings, sizes or (max(count // 4, 1), count, count * 4))


def _over_partitions(arena: Arena, settings: Settings) -> Iterator[Measurement]:
    # The same topics in all turns: making and deleting one of 1,000 partitions keeps a broker busy.
    with ExitStack() as stack:
        topics = {count: stack.enter_context(arena.topic(count)) for count in PARTITION_COUNTS}
        for has_keys in (False, True):
            what = f"produce {'with' if has_keys else 'without'} keys, partitions"
            for partition_count in in_turns(PARTITION_COUNTS, settings.run_count):
                job = Job(
                    arena.bootstrap_servers,
                    topics[partition_count],
                    partition_count,
                    _spread_count(settings) if has_keys else settings.record_count,
                    VALUE_BYTES,
                    has_keys=has_keys,
                )
                figures = arena.append(PYKCLIENT, "produce", job)
                yield _measurement(what, partition_count, figures)
    with ExitStack() as stack:
        jobs = [
            stack.enter_context(
                arena.filled_topic(_spread_count(settings), partition_count=count, has_keys=True)
            )
            for count in PARTITION_COUNTS
        ]
        for job in in_turns(jobs, settings.run_count):
            figures = arena.run(PYKCLIENT, "consume", job)
            yield _measurement("consume, partitions", job.partition_count, figures)


def _over_records(arena: Arena, settings: Settings, sizes: Sequence[int]) -> Iterator[Measurement]:
    for record_count in in_turns(sizes, settings.run_count):
        figures = arena.produce(PYKCLIENT, "produce", record_count)
        yield _measurement("produce, records", record_count, figures)
    with ExitStack() as stack:
        jobs = [stack.enter_context(arena.filled_topic(record_count)) for record_count in sizes]
        for job in in_turns(jobs, settings.run_count):
            figures = arena.run(PYKCLIENT, "consume", job)
            yield _measurement("consume, records", job.record_count, figures)


def _spread_count(settings: Settings) -> int:
    """Return a quarter of the records: a million in batches of a few take a broker too long."""
    return max(settings.record_count // 4, 1)


def _measurement(what: str, size: int, figures: dict[str, float]) -> Measurement:
    return Measurement(BENCHMARK.name, f"{what}: {size:,}", PYKCLIENT.name, figures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, help="records of the runs that grow")
    options = parser.parse_args(arguments)
    grown = Benchmark(BENCHMARK.name, BENCHMARK.text, partial(measure, sizes=options.sizes))
    run_benchmarks([grown], options)
    return 0


BENCHMARK = Benchmark("growth", "More partitions, more records", measure)

if __name__ == "__main__":
    sys.exit(main())
