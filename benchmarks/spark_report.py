"""Write what a run of `spark_suite.py` has measured into README, docs/spark.md and `RESULTS.md`.

The runs are those in `benchmarks/results/spark` (``spark_suite.py --json FILE``), the benchmarks of
one may be divided among several. The README gets a few medians side by side, the page a few rows
of targets, both between markers, and `RESULTS.md` the whole table of targets, what is in the way of
those that were missed, and every median. A row that is missed without a word about it in
`spark/obstacles.py` is an error.
``--check`` tells whether the documents say what the runs say.

    python benchmarks/spark_report.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.figures import FIGURES
from measuring.measurement import grouped, read_run
from measuring.obstacles import obstacle
from measuring.tables import (
    MISSED,
    NOT_MEASURED,
    TARGET_HEADINGS,
    figures_rows,
    markdown,
    target_rows,
)
from report import replaced
from spark.contender import CEILING, OFFICIAL, OURS, TUNED
from spark.obstacles import OBSTACLES, PROFILE, PROFILE_COMMAND
from spark.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.measurement import Run
    from measuring.tables import TargetRow

ROOT = Path(__file__).parents[1]
RESULTS_FOLDER = Path("benchmarks", "results", "spark")
BEGIN = "<!-- Spark benchmarks: written by benchmarks/spark_report.py -->"
END = "<!-- Spark benchmarks: end -->"
SUMMARY = (
    ("read, none, noop, records/s", OFFICIAL.name),
    ("read, none, noop, records/s", TUNED.name),
    ("read, none, noop, records/s", CEILING.name),
    ("write, none, records/s", OFFICIAL.name),
    ("write, lz4, records/s", OFFICIAL.name),
    ("micro-batch, dense feed, 6 partitions, batch, ms", OFFICIAL.name),
    ("micro-batch, dense feed, 6 partitions, two tasks, batch, ms", OFFICIAL.name),
    ("idle query, a minute, requests", OFFICIAL.name),
)
"""The rows of the page: what is measured, and how the rival's name ends."""
SIDES = (OURS.name, OFFICIAL.name, TUNED.name)
SIDE_BY_SIDE = (
    ("read", "none, noop", "records_per_second"),
    ("write", "none", "records_per_second"),
)
"""What the README has: benchmark, case and figure."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the documents, or with ``--check`` say which of them differ; 1 when any does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    runs = [read_run(path) for path in sorted((root / RESULTS_FOLDER).glob("*.json"))]
    blocks = {
        root / "README.md": "\n".join(readme_lines(runs)),
        root / "docs" / "spark.md": "\n".join(page_lines(runs)),
        root / "benchmarks" / "RESULTS.md": "\n".join(results_lines(runs)),
    }
    wanted = {
        path: replaced(path.read_text("utf-8"), block, begin=BEGIN, end=END)
        for path, block in blocks.items()
    }
    stale = [path for path, text in wanted.items() if path.read_text("utf-8") != text]
    for path in stale:
        if options.check:
            sys.stderr.write(f"{path.name} does not say what the runs of Spark say\n")
        else:
            path.write_text(wanted[path], "utf-8")
    return 1 if stale and options.check else 0


def readme_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Medians of ours and of Spark's own, in one sentence."""
    groups = grouped([one for run in runs for one in run.measurements])
    texts = []
    for benchmark, case, figure in SIDE_BY_SIDE:
        medians = {side: groups.get((benchmark, case, side), {}).get(figure) for side in SIDES}
        sides = ", ".join(
            f"{FIGURES[figure].text(one.median)} ({side})"
            for side, one in medians.items()
            if one is not None
        )
        texts.append(f"{benchmark}, {case}, {FIGURES[figure].heading}: {sides or 'not measured'}")
    yield f"In Spark (`make bench-spark`; [all rows](docs/spark.md#speed)): {'; '.join(texts)}."


def page_lines(runs: Sequence[Run]) -> Iterator[str]:
    """A few targets, and how many of all are met."""
    machine = _machine(runs[0])
    yield f"Beside Spark's own Kafka source and sink (`make bench-spark`), on {machine}:"
    yield ""
    rows = target_rows(runs, TARGETS)
    chosen = [
        row
        for what, rival in SUMMARY
        for row in rows
        if row.what == what and row.wanted.endswith(f"x {rival}")
    ]
    yield from markdown(TARGET_HEADINGS, chosen)
    judged = [row for row in rows if row.verdict != NOT_MEASURED]
    met_count = sum(row.verdict != MISSED for row in judged)
    yield ""
    yield (
        f"{met_count} of {len(judged)} targets are met. All of them, and what is in the way of the "
        f"others, are in `benchmarks/RESULTS.md`."
    )


def results_lines(runs: Sequence[Run]) -> Iterator[str]:
    """The table of targets, why some are missed, and every median."""
    for run in runs:
        yield f"    {run.command}    # {run.date}"
    yield ""
    yield f"{_machine(runs[0])}."
    yield ""
    rows = target_rows(runs, TARGETS)
    yield from markdown(TARGET_HEADINGS, rows)
    yield ""
    yield from missed_lines(rows)
    yield ""
    yield f"    {PROFILE_COMMAND}"
    yield ""
    yield from markdown(PROFILE[0], PROFILE[1:])
    yield ""
    yield "Medians, with the smallest and the largest value."
    measurements = [one for run in runs for one in run.measurements]
    for benchmark in dict.fromkeys(one.benchmark for one in measurements):
        headings, *figures = figures_rows(benchmark, measurements)
        yield ""
        yield f"### Spark: {benchmark}"
        yield ""
        yield from markdown(headings, figures)


def missed_lines(rows: Sequence[TargetRow]) -> Iterator[str]:
    """What is in the way of the rows that were missed.

    Raises:
        ValueError: nothing is said about one.
    """
    names_of_text: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == MISSED:
            text = obstacle(row.what, row.wanted, OBSTACLES)
            names_of_text.setdefault(text, []).append(f"{row.what} ({row.wanted})")
    if names_of_text:
        yield ""
        yield "What is in the way of the rows that were missed:"
        yield ""
    for text, names in names_of_text.items():
        yield f"- **{'; '.join(names)}**: {text}"


def _machine(run: Run) -> str:
    return ", ".join(f"{name} {value}" for name, value in run.machine.items())


if __name__ == "__main__":
    sys.exit(main())
