"""Each promise of `docs/promises.md` has a test, and each marker a promise."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.promises import MARKER, PATH, Promise, promises_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TESTS = Path(__file__).parent


def markers_in(source: str) -> Iterator[str]:
    """Yield the promises that a file's markers name, without importing it."""
    if MARKER not in source:
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) as func) if name == MARKER:
                if ast.unparse(func) == f"pytest.mark.{MARKER}":
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
