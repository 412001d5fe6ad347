"""Groups belong to the partitions that Java's hash says, for any string that a group may be called.

Java's strings are sequences of UTF-16 units, among them halves of surrogate pairs on their own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pykclient.admin.coordinator_partition import coordinator_partition, java_string_hash
from pykclient.testing.cluster.jars import kafka_jars
from pykclient.testing.cluster.java import MissingPrerequisiteError
from pykclient.testing.fixtures import skip_or_fail
from tests.java_compiler import java_with_compiler
from tools.protogen.jar import KAFKA_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = Path(__file__).with_name("StringHashMirror.java")
EXIT_TIMEOUT_S = 30.0
HASHES_TO_INT_MIN = "polygenelubricants"


@pytest.fixture(scope="module")
def java() -> Iterator[Callable[[str, int], tuple[int, int]]]:
    """Java's hash of a string, and its partition among so many."""
    compiler = java_with_compiler()
    try:
        jars = kafka_jars(KAFKA_VERSION)
    except MissingPrerequisiteError as error:
        skip_or_fail(str(error))
    process = subprocess.Popen(
        [str(compiler.executable), "-Xmx128m", "-cp", jars.classpath, str(SOURCE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def ask(text: str, partition_count: int) -> tuple[int, int]:
        units = text.encode("utf-16-be", "surrogatepass").hex()
        questions.write(f"{units} {partition_count}\n")
        questions.flush()
        value, partition = answers.readline().split()
        return int(value), int(partition)

    yield ask
    process.communicate(timeout=EXIT_TIMEOUT_S)


@pytest.mark.promise("Java's string hash is computed for any string, halves of surrogate pairs too")
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


@pytest.mark.promise("Java's string hash is computed for any string, halves of surrogate pairs too")
def test_the_one_hash_without_a_positive_number_counts_as_0() -> None:
    assert java_string_hash(HASHES_TO_INT_MIN) == -(2**31)
    assert {coordinator_partition(HASHES_TO_INT_MIN, count) for count in range(1, 100)} == {0}
