"""Where groups are put: figures are those of Java's ``"...".hashCode()``."""

from __future__ import annotations

import pytest

from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.registry import java_string_hash, place, utf16_unit_count


@pytest.mark.promise(
    "the fake cluster serves FindCoordinator in every version, and places groups by Java's hash"
)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_smallest_hash_has_no_positive_and_goes_to_the_first_partition() -> None:
    assert place("polygenelubricants", 50) == 0
    assert place("group", 50) == 98629247 % 50
    negative = next(name for name in map(str, range(10**11, 10**12)) if java_string_hash(name) < 0)
    assert place(negative, 50) == -java_string_hash(negative) % 50


def test_a_length_counts_what_java_counts() -> None:
    assert [utf16_unit_count(text) for text in ("", "abc", "é", "😀")] == [0, 3, 1, 2]


@pytest.mark.promise(
    "the fake cluster serves FindCoordinator in every version, and places groups by Java's hash"
)
def test_the_leader_of_the_groups_partition_coordinates_it() -> None:
    cluster = FakeCluster(3, group_settings=GroupSettings(offsets_topic_num_partitions=7))
    for name in ("group", "a", "b", ""):
        broker = cluster.coordinator(0, name)
        assert broker is not None
        partition = cluster.topics["__consumer_offsets"].partitions[place(name, 7)]
        assert partition.leader_id == broker.id
