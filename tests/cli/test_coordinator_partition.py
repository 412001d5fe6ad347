"""Java's hash of strings, by values that Java's documentation and everyday use give.

`tests/conformance/test_string_hash.py` holds it against Java itself.
"""

from __future__ import annotations

import pytest

from pykclient.cli.groups.command import coordinator_partition, java_string_hash


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
