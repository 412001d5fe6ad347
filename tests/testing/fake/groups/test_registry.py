"""All groups of a cluster, by name and by coordinator; hashes are those of Java's strings."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pykclient.cli.groups.command import coordinator_partition
from pykclient.errors.broker import InvalidGroupIdError, NotCoordinatorError
from pykclient.testing import FakeCluster, GroupSettings
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.testing.fake.groups.registry import place, utf16_unit_count
from pykclient.types import TopicPartition
from tests.testing.fake.requests import coordinator_id


def test_only_a_groups_coordinator_serves_it(cluster: FakeCluster) -> None:
    registry = cluster.groups
    refusals = [registry.check_named(broker_id, "g") for broker_id in cluster.brokers]
    assert sorted(map(str, refusals)) == sorted(map(str, [None, *[NotCoordinatorError] * 2]))
    leader_id = refusals.index(None)
    assert registry.check_named(leader_id, "") is InvalidGroupIdError
    assert registry.partition("g").leader_id == leader_id


def test_groups_are_found_until_they_are_removed_with_their_offsets(cluster: FakeCluster) -> None:
    registry = cluster.groups
    for name in ("a", "b"):
        registry.put(ClassicGroup(name, registry))
        registry.offsets(name).commit(TopicPartition("t", 0), CommittedOffset(1))
    found = [group.name for each in cluster.brokers for group in registry.coordinated_by(each)]
    assert sorted(found) == ["a", "b"]
    registry.remove("a", 0)
    registry.remove("a", 0)
    assert registry.find("a") is None
    assert registry.snapshot("a") is None
    assert registry.offsets("a").all() == {}
    assert len(registry.offsets("b").all()) == 1


def test_an_empty_groups_offsets_stay_when_its_kind_changes(cluster: FakeCluster) -> None:
    registry = cluster.groups
    registry.put(ClassicGroup("g", registry))
    registry.offsets("g").commit(TopicPartition("t", 0), CommittedOffset(1))
    registry.put(ClassicGroup("g", registry))
    snapshot = registry.snapshot("g")
    assert snapshot is not None
    assert snapshot.offsets == {TopicPartition("t", 0): CommittedOffset(1)}


def test_member_ids_are_the_same_in_each_run() -> None:
    first, second = (FakeCluster(1).groups for _ in range(2))
    ids = [first.new_member_id("c") for _ in range(3)]
    assert ids == [second.new_member_id("c") for _ in range(3)]
    assert len(set(ids)) == 3


def test_kafkas_own_topic_can_be_lost_and_is_made_again(cluster: FakeCluster) -> None:
    before = cluster.groups.partition("g")
    cluster.delete_topic("__consumer_offsets")
    assert cluster.groups.partition("g") is not before
    assert cluster.coordinator(0, "g") is not None


@given(st.text(st.characters(exclude_categories=()), max_size=40), st.integers(1, 1_000))
@example("polygenelubricants", 50)
def test_a_group_is_placed_where_java_puts_it(group: str, partition_count: int) -> None:
    """`tests/conformance` compares the `groups` command with Java in the same way."""
    assert place(group, partition_count) == coordinator_partition(group, partition_count)


def test_a_length_counts_what_java_counts() -> None:
    assert [utf16_unit_count(text) for text in ("", "abc", "é", "😀")] == [0, 3, 1, 2]


def test_the_leader_of_the_groups_partition_coordinates_it() -> None:
    cluster = FakeCluster(3, group_settings=GroupSettings(offsets_topic_num_partitions=7))
    for name in ("group", "a", "b", ""):
        broker_id = coordinator_id(cluster, name)
        partition = cluster.topics["__consumer_offsets"].partitions[place(name, 7)]
        assert partition.leader_id == broker_id
