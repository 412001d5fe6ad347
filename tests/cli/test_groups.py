"""Tables for people, objects for programs; and the partition of a group's coordinator.

`tests/conformance/test_string_hash.py` holds the hash against Java itself.
"""

from __future__ import annotations

import json

import pytest

from pykclient.cli.groups.command import coordinator_partition, java_string_hash
from pykclient.cli.table import Row, write_rows

ROWS: list[Row] = [
    {"name": "first", "log_end": 5, "parts": {"t": [0, 1], "u": [2]}, "nodes": (1, 2)},
    {"name": "b", "log_end": None, "parts": {}, "nodes": ()},
]


def test_columns_are_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows("row", ROWS, is_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "NAME   LOG-END  PARTS         NODES",
        "first        5  t(0,1), u(2)  1,2",
        "b            -  -             -",
    ]


def test_each_object_has_its_type(capsys: pytest.CaptureFixture[str]) -> None:
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
    write_rows("row", [{"name": "\x1b[2J\n\x9b", "parts": {"\x07": [0]}}], is_json=False)
    assert capsys.readouterr().out.splitlines()[1].startswith(r"\x1b[2J\x0a\x9b")


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("Aa", 2112)],
)
def test_hashes_are_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_a_pair_of_surrogates_is_two_units() -> None:
    assert (
        java_string_hash("\U0001f600") == java_string_hash("\ud83d\ude00") == 0xD83D * 31 + 0xDE00
    )


def test_a_negative_hash_counts_without_its_sign() -> None:
    assert java_string_hash("orders") == -1008770331
    assert coordinator_partition("orders", 50) == 31


@pytest.mark.parametrize("partition_count", [1, 50, 51])
def test_partitions_are_in_range_for_negative_hashes_too(partition_count: int) -> None:
    groups = [f"group {number} of consumers" for number in range(100)]
    assert any(java_string_hash(group) < 0 for group in groups)
    assert {coordinator_partition(group, partition_count) for group in groups} <= set(
        range(partition_count)
    )
