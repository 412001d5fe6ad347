"""Each promise of `docs/promises.md` has a test, and each marker a promise."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.promises import MARKER, PATH, Promise, PromiseReporter, listing, promises_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TESTS = Path(__file__).parent
SOURCE = f"""\
import pytest

@pytest.mark.{MARKER}("one")
@pytest.mark.{MARKER}("two")
@pytest.mark.slow
def test_a(): ...

TestB = pytest.mark.{MARKER}("three")(object)
"""


def markers_in(source: str) -> Iterator[str]:
    """The promises that a file's markers name, without importing it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{MARKER}":
            yield ast.literal_eval(node.args[0])


@cache
def all_markers() -> frozenset[str]:
    files = TESTS.rglob("test_*.py")
    return frozenset(text for file in files for text in markers_in(file.read_text("utf-8")))


@pytest.fixture(scope="module")
def promises() -> list[Promise]:
    return list(promises_of(PATH.read_text(encoding="utf-8")))


def absent(wanted: Iterable[str], among: Iterable[str]) -> list[str]:
    return sorted(set(wanted) - set(among))


def test_each_promise_has_a_test(promises: list[Promise]) -> None:
    assert absent((promise.text for promise in promises), all_markers()) == []


def test_each_marker_names_a_promise(promises: list[Promise]) -> None:
    assert absent(all_markers(), (promise.text for promise in promises)) == []


def test_each_promise_is_listed_once(promises: list[Promise]) -> None:
    counts = Counter(promise.text for promise in promises)
    assert [text for text, count in counts.items() if count > 1] == []
    assert len(counts) <= 120


def test_lines_and_markers_are_seen() -> None:
    document = "# P\n\nwords\n\n## S\n\n- `one` (x)\n- two (also: `make a`, `make b`)\n"
    assert list(promises_of(document)) == [
        Promise("S", "`one` (x)"),
        Promise("S", "two", ("make a", "make b")),
    ]
    assert sorted(markers_in(SOURCE)) == ["one", "three", "two"]
    assert absent(["one", "four"], markers_in(SOURCE)) == ["four"]


def test_the_list_has_the_outcomes_of_each_promise() -> None:
    promises = [Promise("S", "one"), Promise("S", "two"), Promise("T", "three")]
    outcomes = {"one": Counter(passed=2), "three": Counter(passed=1, failed=3)}
    assert list(listing(promises, outcomes)) == [
        "S:",
        "      2 passed  one",
        "       not run  two",
        "T:",
        "  1 passed, 3 failed  three",
    ]


@pytest.mark.parametrize(
    ("when", "outcome", "counted"),
    [
        ("setup", "passed", None),
        ("setup", "skipped", "skipped"),
        ("setup", "failed", "failed"),
        ("call", "passed", "passed"),
        ("call", "failed", "failed"),
        ("teardown", "passed", None),
        ("teardown", "failed", "failed"),
    ],
)
def test_a_test_counts_once(when: str, outcome: str, counted: str | None) -> None:
    report = pytest.TestReport(
        nodeid="a",
        location=("a", 1, "a"),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]  # one of those above
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        user_properties=[(MARKER, "one"), ("other", "two")],
    )
    reporter = PromiseReporter()
    reporter.pytest_runtest_logreport(report)
    assert reporter.outcomes == ({} if counted is None else {"one": Counter({counted: 1})})
