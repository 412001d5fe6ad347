"""The promises of `docs/promises.md`, and which tests have shown them in a run.

A plugin of pytest, loaded by `tests/conftest.py`: it ends a run with how many promises were shown,
and which were broken; with `--promises` it lists all of them.

Owner: the process that reports; a worker of xdist only sends what its tests are marked with.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PATH: Final = Path(__file__).parents[1] / "docs" / "promises.md"
MARKER: Final = "promise"

_LINE = re.compile(r"- (?P<text>.+?)(?: \(also: (?P<commands>`.+`)\))?")


class Promise(NamedTuple):
    """One line of the document, and the commands that show more of it."""

    section: str
    text: str
    commands: tuple[str, ...] = ()


def promises_of(document: str) -> Iterator[Promise]:
    section = ""
    for line in document.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif found := _LINE.fullmatch(line):
            commands = re.findall(r"`([^`]+)`", found["commands"] or "")
            yield Promise(section, found["text"], tuple(commands))


def marked(item: pytest.Item) -> list[str]:
    return [mark.args[0] for mark in item.iter_markers(MARKER)]


def listing(
    promises: Iterable[Promise], outcomes: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield the table: a line for each promise, with the number of its tests by outcome."""
    section = ""
    for promise in promises:
        if promise.section != section:
            section = promise.section
            yield f"{section}:"
        counts = outcomes.get(promise.text) or {"not run": 0}
        shown = ", ".join(f"{count} {name}" if count else name for name, count in counts.items())
        yield f"  {shown:>12}  {promise.text}"


class PromiseReporter:
    """Counts the outcomes of the marked tests of a run, by promise."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Counter[str]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Attach the promises to the test's reports, which travel from a worker."""
        item.user_properties.extend((MARKER, text) for text in marked(item))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: when it was called, or did not get there."""
        if report.when != "call" and report.passed:
            return
        for name, text in report.user_properties:
            if name == MARKER:
                self.outcomes.setdefault(str(text), Counter())[report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.outcomes or not PATH.exists():  # beside a wheel there are tests alone
            return
        promises = list(promises_of(PATH.read_text(encoding="utf-8")))
        broken = [promise for promise in promises if self._count(promise, "failed")]
        shown = [promise for promise in promises if self._count(promise, "passed")]
        terminalreporter.section("promises")
        if terminalreporter.config.getoption("promises"):
            for line in listing(promises, self.outcomes):
                terminalreporter.write_line(line)
        for promise in broken:
            terminalreporter.write_line(f"broken: {promise.text}", red=True)
        kept_count = len([promise for promise in shown if promise not in broken])
        terminalreporter.write_line(
            f"{kept_count} of {len(promises)} promises were shown, {len(broken)} are broken"
        )

    def _count(self, promise: Promise, outcome: str) -> int:
        return self.outcomes.get(promise.text, Counter())[outcome]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--promises", action="store_true", help="list all promises at the end")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(PromiseReporter(), "promises")
