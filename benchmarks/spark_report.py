"""Write what a run of `spark_suite.py` has measured into README, docs/spark.md and `RESULTS.md`.

Each argument is the JSON of a run (`spark_suite.py --json FILE`), among which the benchmarks may be
divided; without any it is the one of `make bench-spark`, in `bench-output`. The README gets a few
medians side by side, the page a few rows of targets, and `RESULTS.md` the table of targets and
every median, each between its markers. Dead ends stand in `RESULTS.md` below the markers.

    python benchmarks/spark_report.py [RUN.json ...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.figures import FIGURES
from measuring.measurement import grouped, read_run
from measuring.tables import (
    MISSED,
    NOT_MEASURED,
    TARGET_HEADINGS,
    figures_rows,
    markdown,
    target_rows,
)
from report import command_lines, machine_text, replaced
from spark.contender import CEILING, OFFICIAL, OURS, TUNED
from spark.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.measurement import Run

ROOT = Path(__file__).parents[1]
RUN = Path("bench-output", "spark.json")
"""Written by ``make bench-spark``; not in git."""
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
"""The rows of the README: benchmark, case and figure."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the documents."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path, help=f"JSON of a run; default: {RUN}")
    paths = parser.parse_args(arguments).runs or [root / RUN]
    if missing := [str(path) for path in paths if not path.exists()]:
        parser.error(f"there is no run in {', '.join(missing)}; make one: make bench-spark")
    runs = [read_run(path) for path in paths]
    blocks = {
        root / "README.md": "\n".join(readme_lines(runs)),
        root / "docs" / "spark.md": "\n".join(page_lines(runs)),
        root / "benchmarks" / "RESULTS.md": "\n".join(results_lines(runs)),
    }
    for path, block in blocks.items():
        text = replaced(path.read_text("utf-8"), block, begin=BEGIN, end=END)
        path.write_text(text, "utf-8")
    return 0


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
    """Yield a few targets, and how many of all are met."""
    machine = machine_text(runs[0])
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
        f"{met_count} of {len(judged)} targets are met. All of them, and what was tried for the "
        f"others, are in `benchmarks/RESULTS.md`."
    )


def results_lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the commands, the table of targets, and every median over all runs."""
    yield from command_lines(runs)
    yield ""
    yield from markdown(TARGET_HEADINGS, target_rows(runs, TARGETS))
    yield ""
    yield "Medians of all runs, with the smallest and the largest value."
    measurements = [one for run in runs for one in run.measurements]
    for benchmark in dict.fromkeys(one.benchmark for one in measurements):
        headings, *figures = figures_rows(benchmark, measurements)
        yield ""
        yield f"### Spark: {benchmark}"
        yield ""
        yield from markdown(headings, figures)


if __name__ == "__main__":
    sys.exit(main())
