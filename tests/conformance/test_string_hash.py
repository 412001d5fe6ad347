"""Groups belong to the partitions of Java's hash, for any string that a group may be called.

Java's strings are sequences of UTF-16 units, among them halves of surrogate pairs on their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pykclient.cli.groups.command import coordinator_partition, java_string_hash
from tests.java_mirror import JavaMirror

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HASHES_TO_INT_MIN = "polygenelubricants"


@pytest.fixture(scope="module")
def java() -> Iterator[Callable[[str, int], tuple[int, int]]]:
    """Java's hash of a string, and its partition for a partition count."""
    with JavaMirror(Path(__file__).with_name("StringHashMirror.java")) as mirror:

        def call(text: str, partition_count: int) -> tuple[int, int]:
            units = text.encode("utf-16-be", "surrogatepass").hex()
            value, partition = mirror.call(f"{units} {partition_count}").split()
            return int(value), int(partition)

        yield call


@given(
    group=st.text(st.characters(exclude_categories=()), max_size=40),
    partition_count=st.integers(1, 1_000),
)
@example(group=HASHES_TO_INT_MIN, partition_count=50)
@example(group="", partition_count=50)
@example(group="\ud83d\ude00", partition_count=50)
@example(group="\ude00\ud83d", partition_count=50)
@example(group="\U0001f600", partition_count=50)
@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_group_has_the_partition_that_java_gives_it(
    java: Callable[[str, int], tuple[int, int]], group: str, partition_count: int
) -> None:
    ours = java_string_hash(group), coordinator_partition(group, partition_count)
    assert ours == java(group, partition_count)


def test_the_one_hash_without_a_positive_number_counts_as_0() -> None:
    assert java_string_hash(HASHES_TO_INT_MIN) == -(2**31)
    assert {coordinator_partition(HASHES_TO_INT_MIN, count) for count in range(1, 100)} == {0}
