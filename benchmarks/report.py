"""Write what runs have measured into the README and `RESULTS.md`.

Each argument is the JSON of a run (`suite.py --json FILE`), without any those in
`benchmarks/results`. The README gets the plot of the first run and the rows of `SUMMARY` between
its markers, with the values of all runs beside each other; `RESULTS.md` gets the whole table of
targets, why a row is missed, how far the floor is, and a section per run. A row that is missed
without a word about it in `measuring/obstacles.py` is an error.
``--check`` tells whether the documents say what the runs say.

    python benchmarks/report.py [--check] [RUN.json ...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import suite
from measuring.measurement import read_run
from measuring.obstacles import obstacle
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
"""The rows of the README: what is measured, and the rival; two of them are missed."""
PLOT = Path("benchmarks", "clients.png")
RESULTS_FOLDER = Path("benchmarks", "results")


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the documents, or with ``--check`` say which of them differ; 1 when any does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("runs", nargs="*", type=Path, help="JSON of a run")
    options = parser.parse_args(arguments)
    paths = options.runs or sorted((root / RESULTS_FOLDER).glob("*.json"))
    if not paths:
        parser.error(f"there is no run in {RESULTS_FOLDER}; make one: suite.py --json FILE")
    runs = [read_run(path) for path in paths]
    blocks = {
        root / "README.md": "\n".join(readme_lines(runs)),
        root / "benchmarks" / "RESULTS.md": "\n".join(results_lines(runs)),
    }
    wanted = {path: replaced(path.read_text("utf-8"), block) for path, block in blocks.items()}
    stale = [path for path, text in wanted.items() if path.read_text("utf-8") != text]
    if options.check:
        for path in stale:
            sys.stderr.write(f"{path.name} does not say what the runs say\n")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], "utf-8")
    write_plot(root / PLOT, runs[0])
    return 0


def replaced(document: str, block: str, *, begin: str = BEGIN, end: str = END) -> str:
    """The document with another block between the markers.

    Raises:
        ValueError: it has no such markers.
    """
    if begin not in document or end not in document:
        raise ValueError(f"the document has no lines {begin} and {end}")
    before, rest = document.split(begin)
    return f"{before}{begin}\n{block}\n{end}{rest.split(end)[1]}"


def readme_lines(runs: Sequence[Run]) -> Iterator[str]:
    """The plot, a few targets, and how many of all are met."""
    counts = "One run" if len(runs) == 1 else f"{len(runs)} runs, their values beside each other"
    commands = ", ".join(f"`{run.command}`" for run in runs)
    yield f"{counts} ({commands}), on {_machine(runs[0])}:"
    yield ""
    yield f"![Records a second and CPU of each client]({PLOT.as_posix()})"
    yield ""
    rows = target_rows(runs)
    yield from markdown(TARGET_HEADINGS, summary_rows(rows))
    judged = [row for row in rows if row.verdict != NOT_MEASURED]
    met_count = sum(MISSED not in row.verdict for row in judged)
    yield ""
    yield (
        f"{met_count} of {len(judged)} targets are met. All of them, what is in the way of the "
        f"others and what was tried: [benchmarks/RESULTS.md](benchmarks/RESULTS.md)."
    )


def summary_rows(rows: Sequence[TargetRow]) -> list[TargetRow]:
    """Those of the README, in the order of `SUMMARY`."""
    return [
        row for what, rival in SUMMARY for row in rows if row.what == what and rival in row.wanted
    ]


def floor_lines(runs: Sequence[Run]) -> Iterator[str]:
    """How far from the limit each of our ways is."""
    headings, *rows = floor_rows(runs)
    if rows:
        yield ""
        yield "How far from the limit, which is the same bytes through a bare socket:"
        yield ""
        yield from markdown(headings, rows)


def missed_lines(runs: Sequence[Run]) -> Iterator[str]:
    """What was tried for the rows that a run missed, and what is in the way.

    Raises:
        ValueError: nothing is said about one.
    """
    rows_of_text: dict[str, list[str]] = {}
    for row in target_rows(runs):
        if MISSED in row.verdict:
            name = f"{row.what} ({row.wanted})"
            rows_of_text.setdefault(obstacle(row.what, row.wanted), []).append(name)
    if rows_of_text:
        yield ""
        yield "What is in the way of the rows that were missed, and what was tried:"
        yield ""
    for text, names in rows_of_text.items():
        yield f"- **{'; '.join(names)}**: {text}"


def results_lines(runs: Sequence[Run]) -> Iterator[str]:
    """The table of targets, why some are missed, the floor, then every median of each run."""
    yield "## Targets"
    yield ""
    yield from markdown(TARGET_HEADINGS, target_rows(runs))
    yield from missed_lines(runs)
    yield from floor_lines(runs)
    for number, run in enumerate(runs, start=1):
        yield ""
        yield f"## Run {number}, {run.date}"
        yield ""
        yield f"    {run.command}"
        yield ""
        yield f"{_machine(run)}. Medians, with the smallest and the largest value."
        for benchmark in suite.BENCHMARKS.values():
            headings, *rows = figures_rows(benchmark.name, run.measurements)
            if rows:
                yield ""
                yield f"### {benchmark.text}"
                yield ""
                yield from markdown(headings, rows)


def _machine(run: Run) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.machine.items())


if __name__ == "__main__":
    sys.exit(main())
