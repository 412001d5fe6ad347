"""Tables for people, objects for programs."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from pykclient.cli.table import write_rows


class Row(NamedTuple):
    """A row with each kind of value."""

    name: str
    log_end: int | None
    parts: dict[str, list[int]]
    nodes: tuple[int, ...]


ROWS = [Row("first", 5, {"t": [0, 1], "u": [2]}, (1, 2)), Row("b", None, {}, ())]


def test_columns_are_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("row", ROWS, is_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "NAME   LOG-END  PARTS         NODES",
        "first        5  t(0,1), u(2)  1,2",
        "b            -  -             -",
    ]


def test_each_object_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("row", ROWS, is_json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    parts = {"t": [0, 1], "u": [2]}
    assert first == {"type": "row", "name": "first", "log_end": 5, "parts": parts, "nodes": [1, 2]}
    assert second["log_end"] is None


@pytest.mark.parametrize("is_json", [True, False])
def test_nothing_is_printed_for_no_rows(capsys: pytest.CaptureFixture[str], is_json: bool) -> None:
    write_rows("row", [], is_json=is_json)
    assert capsys.readouterr().out == ""


def test_a_name_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("row", [Row("\x1b[2J\n\x9b", 1, {"\x07": [0]}, ())], is_json=False)
    assert capsys.readouterr().out.splitlines()[1].startswith(r"\x1b[2J\x0a\x9b")
