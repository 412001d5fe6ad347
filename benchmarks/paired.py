"""Is this checkout slower than another one?

Both take turns at the same jobs; the last table has what a record costs before and now. CPU time
varies where others use the cores: there the ratio of the smallest values says more than that of the
medians, and with ``--instructions`` valgrind counts what the client's process executes, which
hardly varies at all: one turn does, of fewer records (`measuring/instructions.py`).

    git worktree add ../before COMMIT
    (cd ../before && PYKCLIENT_BUILD=compiled python setup.py build_ext --inplace)
    python benchmarks/paired.py --before ../before [--instructions] [--only ROW ...]
        [--records N] [--runs N] [--json FILE]
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from measuring.arena import BATCH_BYTES, PARTITION_COUNT, Arena
from measuring.benchmark import Benchmark, parser_of, run_benchmarks
from measuring.client import PURE, PYKCLIENT
from measuring.contest import in_turns
from measuring.instructions import Instructions
from measuring.measurement import Measurement
from measuring.pair import CPU, INSTRUCTIONS, add_option, checkouts, pair_of, print_ratios

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from contestants.job import Figures
    from measuring.benchmark import Settings
    from measuring.client import Client

NAME = "paired"
SMALL_BATCH_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Row:
    """A job that both checkouts do.

    It has a `share`-th of the records, a `counted_share`-th when instructions are counted.
    """

    action: str
    client: Client = PYKCLIENT
    batch_bytes: int = BATCH_BYTES
    partition_count: int = PARTITION_COUNT
    has_keys: bool = False
    reads: bool = False
    share: int = 1
    counted_share: int = 20


ROWS = {
    "send": Row("produce", counted_share=5),
    "send-16384": Row("produce", batch_bytes=SMALL_BATCH_BYTES),
    "send-keys-16384": Row("produce", batch_bytes=SMALL_BATCH_BYTES, has_keys=True),
    "pure-send": Row("produce", client=PURE),
    "pure-send-keys": Row("produce", client=PURE, has_keys=True),
    "send_batch": Row("send_batch", counted_share=1),
    "send_arrow": Row("send_arrow", counted_share=1),
    "one-by-one": Row("one_by_one", share=500, counted_share=2_000),
    "poll": Row("consume", reads=True, counted_share=5),
    "poll-1000": Row(
        "consume", batch_bytes=SMALL_BATCH_BYTES, partition_count=1_000, reads=True, counted_share=5
    ),
    "iterate": Row("iterate", reads=True, counted_share=5),
    "poll_arrow": Row("consume_arrow", reads=True, counted_share=1),
    "pure-poll": Row("consume", client=PURE, reads=True),
}
"""The measured rows by their name in the results."""


def measure(
    arena: Arena,
    settings: Settings,
    *,
    folders: Mapping[str, Path],
    names: Sequence[str],
    instructions: Instructions | None,
) -> Iterator[Measurement]:
    """Measure the jobs, with the checkouts taking turns."""
    measuring = Arena(arena.bootstrap_servers, instructions=instructions)
    for name in names:
        row = ROWS[name]
        share = row.share if instructions is None else row.counted_share
        record_count = max(settings.record_count // share, 2)
        # A topic that is read is filled at full speed, by this checkout, once for all turns.
        with (
            arena.filled_topic(
                record_count,
                partition_count=row.partition_count,
                batch_bytes=row.batch_bytes,
            )
            if row.reads
            else nullcontext() as to_read
        ):
            for client in in_turns(pair_of(row.client, folders), settings.run_count):
                if to_read is not None:
                    figures = measuring.run(client, row.action, to_read)
                else:
                    figures = measuring.produce(
                        client,
                        row.action,
                        record_count,
                        batch_bytes=row.batch_bytes,
                        has_keys=row.has_keys,
                    )
                yield Measurement(NAME, name, client.name, _cost(figures))


def _cost(figures: Figures) -> Figures:
    """Return what was counted, else the CPU: rates say little of two that are nearly the same."""
    return {name: value for name, value in figures.items() if name in (CPU, INSTRUCTIONS)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the tables."""
    parser = parser_of(__doc__)
    add_option(parser)
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--instructions", action="store_true", help="count them; needs valgrind")
    options = parser.parse_args(arguments)
    folders = checkouts(parser, options)
    with Instructions() if options.instructions else nullcontext() as instructions:
        ways = partial(measure, folders=folders, names=options.only, instructions=instructions)
        run = run_benchmarks([Benchmark(NAME, "Beside another checkout", ways)], options)
    print_ratios(run.measurements, CPU if instructions is None else INSTRUCTIONS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
