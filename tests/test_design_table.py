"""DESIGN.md's table of promises names tests and commands that exist, and none has been forgotten.

A row is ``| promise | what shows it |``. What shows it stands in code spans: a test below ``tests``
(`consumer/test_silence.py::test_name`; `::test_name` for one more of the same file) or a command.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
HEADING = "## What shows each promise"
COMMANDS = ("make ", "python ")
HEADER_ROWS = 2


class Row(NamedTuple):
    """One promise, the tests that would fail without it, and commands that show it."""

    promise: str
    tests: list[str]
    commands: list[str]


def rows_of(document: str) -> Iterator[Row]:
    section = document.split(f"\n{HEADING}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    for row in rows[HEADER_ROWS:]:
        promise, shown_by = (cell.strip() for cell in row.strip("|").split(" | "))
        tests, commands = [], []
        file = ""
        for span in re.findall(r"`([^`]+)`", shown_by):
            if span.startswith(COMMANDS):
                commands.append(span)
                continue
            path, _, name = span.partition("::")
            file = path or file
            tests.append(f"{file}::{name}")
        yield Row(promise, tests, commands)


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests of one file: functions, and classes that hypothesis makes of machines."""
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    targets = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    names = functions | {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(name for name in names if name.lower().startswith("test"))


def absent_tests(rows: list[Row]) -> list[str]:
    named = [test.partition("::") for row in rows for test in row.tests]
    return [
        f"{file}::{name}" for file, _, name in named if name not in names_in(ROOT / "tests" / file)
    ]


def absent_commands(rows: list[Row]) -> list[str]:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return [
        command
        for row in rows
        for command in row.commands
        if (command.split()[1] not in targets if command.startswith("make ") else False)
        or (not (ROOT / command.split()[1]).exists() if command.startswith("python ") else False)
    ]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(rows_of((ROOT / "DESIGN.md").read_text(encoding="utf-8")))


def test_every_test_that_the_table_names_exists(rows: list[Row]) -> None:
    assert absent_tests(rows) == []


def test_every_command_that_the_table_names_exists(rows: list[Row]) -> None:
    assert absent_commands(rows) == []


def test_every_promise_names_what_shows_it_and_stands_once(rows: list[Row]) -> None:
    assert [row.promise for row in rows if not row.tests + row.commands] == []
    promises = [row.promise for row in rows]
    assert len(promises) == len(set(promises)) > 0


def test_what_does_not_exist_is_seen() -> None:
    table = f"""# D

{HEADING}

| promise | shown by |
| --- | --- |
| one | `test_tidy.py::test_the_project_keeps`, `::test_gone` |
| two | `test_gone.py::test_the_project_keeps`, `make test`, `make gone`, `python gone.py` |
| three | nothing |

## After

| not | `looked_at.py::test_at` |
"""
    one, two, three = rows_of(table)
    assert absent_tests([one, two, three]) == [
        "test_tidy.py::test_gone",
        "test_gone.py::test_the_project_keeps",
    ]
    assert absent_commands([one, two, three]) == ["make gone", "python gone.py"]
    assert three == Row("three", [], [])
