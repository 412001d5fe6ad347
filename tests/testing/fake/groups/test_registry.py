"""All groups of a cluster, by name and by coordinator."""

from __future__ import annotations

import pytest

from pykclient.errors.broker import InvalidGroupIdError, NotCoordinatorError
from pykclient.testing import FakeCluster
from pykclient.testing.fake.groups.classic.group import ClassicGroup
from pykclient.testing.fake.groups.offsets import CommittedOffset
from pykclient.types import TopicPartition


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(3)


def test_a_groups_coordinator_and_nobody_else_serves_it(cluster: FakeCluster) -> None:
    registry = cluster.groups
    refusals = [registry.check_named(broker_id, "g") for broker_id in cluster.brokers]
    assert sorted(map(str, refusals)) == sorted(map(str, [None, *[NotCoordinatorError] * 2]))
    coordinator_id = refusals.index(None)
    assert registry.check_named(coordinator_id, "") is InvalidGroupIdError
    assert registry.partition("g").leader_id == coordinator_id


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
