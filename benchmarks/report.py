"""Write the results of runs into the README and `RESULTS.md`.

Each argument is the JSON of a run (`suite.py --json FILE`); without any it is the one of
`make bench`, in `bench-output`. The README gets the plot of the first run and the rows of `SUMMARY`
between its markers; `RESULTS.md` gets the table of targets, how far the floor is, and the median of
each case over all runs. Dead ends stand in `RESULTS.md` below the markers: write there why a new
row is missed.

    python benchmarks/report.py [RUN.json ...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import suite
from measuring.measurement import read_run
from measuring.plot import write_plot
from measuring.tables import (
    MISSED,
    NOT_MEASURED,
    TARGET_HEADINGS,
    figures_rows,
    floor_rows,
    markdown,
    target_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.measurement import Run
    from measuring.tables import TargetRow

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- benchmarks: written by benchmarks/report.py -->"
END = "<!-- benchmarks: end -->"
SUMMARY = (
    ("produce, batch size 1,000,000, records/s", "confluent-kafka"),
    ("produce, batch size 16,384, client CPU s per million", "confluent-kafka"),
    ("consume, record objects, records/s", "confluent-kafka"),
    ("arrow, in, poll_arrow, client CPU s per million", "confluent-kafka"),
    ("latency, one record, linger 0, acknowledged, p50, ms", "confluent-kafka"),
    ("memory, consumer, resident growth, MiB", ""),
)
"""The rows of the README: benchmark and rival; two targets are missed."""
PLOT = Path("benchmarks", "clients.png")
RUN = Path("bench-output", "results.json")
"""Written by ``make bench``; not in git."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the documents and the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, help=f"JSON of a run; default: {RUN}")
    paths = parser.parse_args(arguments).runs or [root / RUN]
    if missing := [str(path) for path in paths if not path.exists()]:
        parser.error(f"there is no run in {', '.join(missing)}; make one: make bench")
    runs = [read_run(path) for path in paths]
    blocks = {
        root / "README.md": "\n".join(readme_lines(runs)),
        root / "benchmarks" / "RESULTS.md": "\n".join(results_lines(runs)),
    }
    for path, block in blocks.items():
        path.write_text(replaced(path.read_text("utf-8"), block), "utf-8")
    write_plot(root / PLOT, runs[0])
    return 0


def replaced(document: str, block: str, *, begin: str = BEGIN, end: str = END) -> str:
    """Return the document with another block between the markers.

    Raises:
        ValueError: it has no such markers.
    """
    if begin not in document or end not in document:
        raise ValueError(f"the document has no lines {begin} and {end}")
    before, rest = document.split(begin)
    return f"{before}{begin}\n{block}\n{end}{rest.split(end)[1]}"


def readme_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the plot, a few targets, and how many of all are met."""
    yield f"Medians on {machine_text(runs[0])}; of several runs beside each other:"
    yield ""
    yield f"![Records a second and CPU of each client]({PLOT.as_posix()})"
    yield ""
    rows = target_rows(runs)
    yield from markdown(TARGET_HEADINGS, summary_rows(rows))
    judged = [row for row in rows if row.verdict != NOT_MEASURED]
    met_count = sum(MISSED not in row.verdict for row in judged)
    yield ""
    yield (
        f"{met_count} of {len(judged)} targets are met. All of them, how to repeat them, and what "
        f"was tried for the others: [benchmarks/RESULTS.md](benchmarks/RESULTS.md)."
    )


def summary_rows(rows: Sequence[TargetRow]) -> list[TargetRow]:
    """Select the rows for the README, in the order of `SUMMARY`."""
    return [
        row for what, rival in SUMMARY for row in rows if row.what == what and rival in row.wanted
    ]


def floor_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Compare each of our ways with the bare socket."""
    headings, *rows = floor_rows(runs)
    if rows:
        yield ""
        yield "How far from the limit, which is the same bytes through a bare socket:"
        yield ""
        yield from markdown(headings, rows)


def results_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the commands, the table of targets, the floor, then every median over all runs."""
    yield from command_lines(runs)
    yield ""
    yield "## Targets"
    yield ""
    yield from markdown(TARGET_HEADINGS, target_rows(runs))
    yield from floor_lines(runs)
    yield ""
    yield "Medians of all runs, with the smallest and the largest value."
    measurements = [one for run in runs for one in run.measurements]
    for benchmark in suite.BENCHMARKS.values():
        headings, *rows = figures_rows(benchmark.name, measurements)
        if rows:
            yield ""
            yield f"### {benchmark.text}"
            yield ""
            yield from markdown(headings, rows)


def command_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the command that repeats the runs, and the machine that they ran on."""
    for run in runs:
        yield f"    {run.command}    # {run.date}"
    yield ""
    yield f"{machine_text(runs[0])}."


def machine_text(run: Run) -> str:
    """Return the machine and the versions of a run in one line."""
    return ", ".join(f"{name} {value}" for name, value in run.machine.items())


if __name__ == "__main__":
    sys.exit(main())
