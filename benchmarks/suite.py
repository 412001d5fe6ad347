"""All benchmarks after each other at one broker: what ``make bench`` runs.

The short form takes a quarter of an hour on two cores. The long form takes sizes and turns:
``--records 5000000 --runs 11``. It prints each benchmark's table and the table of targets, and
writes `results.json` and `clients.png` into the folder that it is given.

    python benchmarks/suite.py [--records N] [--runs N] [--only ...] [--output FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import arrow_both_ways
import busy_neighbour
import consume
import floor
import growth
import import_time
import latency
import memory
import produce
import pure_twin
import tls
import transactions
from measuring.benchmark import parser_of, run_benchmarks
from measuring.plot import write_plot

if TYPE_CHECKING:
    from collections.abc import Sequence

BENCHMARKS = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (
        *(produce, consume, arrow_both_ways, floor, pure_twin, latency, busy_neighbour),
        *(memory, growth, import_time, tls, transactions),
    )
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, write the files."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--output", type=Path, help="folder for results.json and clients.png")
    options = parser.parse_args(arguments)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        options.json = options.json or options.output / "results.json"
    run = run_benchmarks([BENCHMARKS[name] for name in options.only], options)
    if options.output is not None:
        write_plot(options.output / "clients.png", run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
