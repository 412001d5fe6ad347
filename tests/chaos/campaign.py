"""`make chaos`: put loads under fire, one after the other, and print the tables of what came of it.

``python -m tests.chaos.campaign LOAD...`` runs some of `LOADS`; without names it runs all. Each
prints a table for `benchmarks/RESULTS.md`. The module of a load names the variables of the
environment that restrict it.

It exits with status 1 if there is a violation, and prints it.

Owner: the main thread.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pykclient.testing.cluster.jars import KAFKA_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

LOADS: Final = {
    "groups": "tests.chaos.table",
    "producers": "tests.chaos.producer.table",
    "transactions": "tests.chaos.transactions.table",
    "spark": "tests.chaos.spark.table",
}
"""Modules of the loads, imported when they run: only one needs Spark."""

UNKNOWN = "?"
T = TypeVar("T")


class Judged(Protocol):
    """The result of a run."""

    @property
    def violations(self) -> Sequence[str]: ...


JudgedT = TypeVar("JudgedT", bound=Judged)


class TimedRow(Protocol):
    """A row of a table."""

    @property
    def seconds(self) -> int: ...

    @property
    def violations(self) -> int: ...


def main(names: Sequence[str]) -> int:
    """Run loads, and return the exit status."""
    violation_count = 0
    for module in chosen(",".join(names) or None, LOADS):
        load = import_module(module)
        table, count = load.run(os.environ)
        violation_count += count
        sys.stdout.write(f"\nFor benchmarks/RESULTS.md, section {load.SECTION}:\n\n{table}\n")
    return int(violation_count > 0)


def chosen(names: str | None, choices: Mapping[str, T]) -> tuple[T, ...]:
    """Return the choices with these names, separated by commas; None means all.

    Raises:
        ValueError: a name is unknown.
    """
    if names is None:
        return tuple(choices.values())
    if unknown := set(names.split(",")) - choices.keys():
        raise ValueError(f"{sorted(unknown)} are none of {', '.join(choices)}")
    return tuple(choices[name] for name in names.split(","))


def versions_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the versions named in `CHAOS_VERSIONS`, by default all tested ones."""
    return chosen(environment.get("CHAOS_VERSIONS"), {each: each for each in KAFKA_VERSIONS})


def attempt(title: str, run: Callable[[], JudgedT]) -> tuple[JudgedT | None, int]:
    """Print the violations of a run; return its result, None if it failed, and the seconds."""
    started_s = time.monotonic()
    result = None
    try:
        result = run()
    except Exception as error:  # noqa: BLE001 - the run gets a row, and the table is written
        sys.stderr.write(f"{title}: {error!r}\n")
    else:
        report(title, result.violations)
    return result, round(time.monotonic() - started_s)


def report(title: str, violations: Iterable[str]) -> None:
    """Print violations."""
    for violation in violations:
        sys.stderr.write(f"{title}: {violation}\n")


def footer(rows: Sequence[TimedRow], what: str) -> list[str]:
    """Return the end of a table: the number of rows, their duration and violations."""
    minutes = sum(row.seconds for row in rows) / 60
    violations = sum(row.violations for row in rows)
    return ["", f"{len(rows)} {what}, {minutes:.0f} min; violations: {violations}"]


def cell(count: int | None) -> str:
    """Return a number for a table."""
    return UNKNOWN if count is None else f"{count:,}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
