"""The tables that a benchmark prints, and the same ones for a document.

Owner: none; everything is a function of runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.table import Table

from measuring.figures import FIGURES
from measuring.measurement import grouped
from measuring.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from measuring.benchmark import Benchmark
    from measuring.measurement import Measurement, Run, Series
    from measuring.targets import Judgement, Target

TARGET_HEADINGS = ("what", "pykclient", "rival", "result", "target", "verdict")
NOT_MEASURED = "not measured"
MISSED = "missed"

FLOOR = "floor"
FLOORS = {"out": "raw socket", "in": "raw socket and CRC"}
"""The row that each way is compared with: the same bytes without a client."""
FLOOR_FIGURE = "cpu_s_per_million"


class TargetRow(NamedTuple):
    """One target with what the runs say to it, each cell one value per run."""

    what: str
    ours: str
    theirs: str
    result: str
    wanted: str
    verdict: str


def target_rows(runs: Sequence[Run], targets: Iterable[Target] = TARGETS) -> list[TargetRow]:
    """Each target, judged by each run that measured it."""
    of_runs = [grouped(run.measurements) for run in runs]
    rows = []
    for target in targets:
        judged = [judgement for groups in of_runs if (judgement := target.judge(groups))]
        rows.append(
            TargetRow(
                target.what,
                _joined(judgement.ours for judgement in judged),
                _joined(judgement.theirs for judgement in judged),
                _joined(judgement.result for judgement in judged),
                target.wanted,
                _verdict(judged),
            )
        )
    return rows


def targets_table(runs: Sequence[Run], targets: Iterable[Target] = TARGETS) -> Table:
    """Return the targets that were measured, for the terminal."""
    table = Table(*TARGET_HEADINGS, title="Medians, and the targets")
    for row in target_rows(runs, targets):
        if row.verdict != NOT_MEASURED:
            table.add_row(*row, style="red" if MISSED in row.verdict else None)
    return table


def floor_rows(runs: Sequence[Run]) -> list[list[str]]:
    """Headings, then how many times the floor's CPU each of our ways takes, a value per run."""
    text = FIGURES[FLOOR_FIGURE].text
    cells: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for run in runs:
        groups = grouped(run.measurements)
        for case, floor in FLOORS.items():
            limit = groups.get((FLOOR, case, floor), {}).get(FLOOR_FIGURE)
            for (benchmark, of_case, client), figures in groups.items():
                is_ours = (benchmark, of_case) == (FLOOR, case) and client.startswith("pykclient")
                if limit is None or not is_ours:
                    continue
                cost = figures[FLOOR_FIGURE].median
                ratio = f"{cost / limit.median:.1f}x"
                row = (text(cost), text(limit.median), ratio)
                cells.setdefault((client, floor), []).append(row)
    rows = [["way", FIGURES[FLOOR_FIGURE].heading, "floor", "the floor's", "times the floor"]]
    for (client, floor), of_runs in cells.items():
        ours, limits, ratios = (_joined(column) for column in zip(*of_runs, strict=True))
        rows.append([client, ours, floor, limits, ratios])
    return rows


def figures_rows(benchmark: str, measurements: Iterable[Measurement]) -> list[list[str]]:
    """Headings, then a row for each case and client: the medians, with smallest and largest."""
    of_benchmark = {
        key: figures for key, figures in grouped(measurements).items() if key[0] == benchmark
    }
    names = list(dict.fromkeys(name for figures in of_benchmark.values() for name in figures))
    rows = [["case", "client", *(FIGURES[name].heading for name in names), "runs"]]
    for (_, case, client), figures in of_benchmark.items():
        cells = [_series_text(name, figures[name]) if name in figures else "" for name in names]
        count = max(len(series.values) for series in figures.values())
        rows.append([case, client, *cells, str(count)])
    return rows


def figures_table(benchmark: Benchmark, measurements: Iterable[Measurement]) -> Table:
    """Return the figures of one benchmark, for the terminal."""
    headings, *rows = figures_rows(benchmark.name, measurements)
    table = Table(*headings, title=f"{benchmark.text}: medians (smallest to largest)")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table in a document."""
    yield f"| {' | '.join(headings)} |"
    yield f"|{' --- |' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _series_text(name: str, series: Series) -> str:
    figure = FIGURES[name]
    smallest, largest = series.range
    return f"{figure.text(series.median)} ({figure.text(smallest)} to {figure.text(largest)})"


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(text for text in texts if text)


def _verdict(judged: Sequence[Judgement]) -> str:
    if not judged:
        return NOT_MEASURED
    verdicts = ["met" if judgement.is_met else MISSED for judgement in judged]
    return verdicts[0] if len(set(verdicts)) == 1 else "; ".join(verdicts)
