"""Our consumer shares partitions with those of other makers, on real brokers.

Goal: a group may have members of any maker, eager and cooperative. Method: two members of different
makers read what is written after both have joined; then one leaves, and the other reads on alone.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer
from pykclient.errors import GroupIdNotFoundError
from tests.integration import group_members
from tests.integration.group_members import (
    ConfluentCooperativeMember,
    ConfluentMember,
    CooperativeJavaMember,
    GroupMember,
    NewestJavaMember,
    OurCooperativeMember,
    OurMember,
    import_libraries,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka

PARTITION_COUNT = 4
COUNT = 40
TIMEOUT_S = 60.0
LOOK_S = 0.05

PAIRS = [
    (OurMember, OurMember),
    (OurCooperativeMember, OurCooperativeMember),
    (OurMember, ConfluentMember),
    (OurCooperativeMember, ConfluentCooperativeMember),
    (OurMember, NewestJavaMember),
    (OurCooperativeMember, CooperativeJavaMember),
]


@pytest.fixture(autouse=True)
def _own_names(kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a topic and a group that no other has."""
    import_libraries()
    name = f"mixed-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(group_members, "TOPIC", name)
    monkeypatch.setattr(group_members, "GROUP", name)
    monkeypatch.setattr(NewestJavaMember, "topics", ("--topic", name))
    monkeypatch.setattr(CooperativeJavaMember, "topics", ("--topic", name))
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=PARTITION_COUNT)])


def wait_until(condition: Callable[[], bool], what: str, *members: GroupMember) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        for member in members:
            member.check()
        assert time.monotonic() < deadline_s, f"{what}: not within {TIMEOUT_S:.0f} s"
        time.sleep(LOOK_S)


def share_counts(servers: str) -> list[int]:
    """How many partitions each member of the stable group has; empty while it is not stable."""
    with Admin(bootstrap_servers=servers) as admin:
        try:
            group = admin.describe_groups([group_members.GROUP])[group_members.GROUP]
        except GroupIdNotFoundError:
            return []
    if group.state != "Stable":
        return []
    return sorted(len(member.assignment) for member in group.members)


def write(servers: str, name: str) -> set[bytes]:
    values = [b"%s %d" % (name.encode(), number) for number in range(COUNT)]
    with Producer(bootstrap_servers=servers) as producer:
        for number, value in enumerate(values):
            producer.send(group_members.TOPIC, value, partition=number % PARTITION_COUNT)
        producer.flush(TIMEOUT_S)
    return set(values)


@pytest.mark.promise(
    "our members share partitions with librdkafka's and Java's, eager and cooperative"
)
@pytest.mark.parametrize(
    ("ours", "other"), PAIRS, ids=lambda member: str(getattr(member, "__name__", member))
)
def test_two_makers_share_and_one_takes_over(
    ours: type[GroupMember], other: type[GroupMember], kafka_cluster: KafkaCluster
) -> None:
    servers = kafka_cluster.bootstrap_servers
    with ours(servers) as stays:
        with other(servers) as leaves:
            half = PARTITION_COUNT // 2
            wait_until(lambda: share_counts(servers) == [half, half], "they share", stays, leaves)
            values = write(servers, "shared")
            wait_until(
                lambda: set(stays.values) | set(leaves.values) >= values,
                "all is read",
                stays,
                leaves,
            )
            assert stays.values
            assert leaves.values
        wait_until(lambda: share_counts(servers) == [PARTITION_COUNT], "one is left", stays)
        alone = write(servers, "alone")
        wait_until(lambda: set(stays.values) >= alone, "it reads on", stays)


@pytest.mark.promise(
    "our members share partitions with librdkafka's and Java's, eager and cooperative"
)
def test_a_group_reads_every_record_once_when_a_member_joins_and_leaves(
    kafka_cluster: KafkaCluster,
) -> None:
    servers = kafka_cluster.bootstrap_servers
    values = write(servers, "before")
    with OurMember(servers) as stays:
        wait_until(lambda: set(stays.values) >= values, "the first reads", stays)
        with OurMember(servers) as leaves:
            half = PARTITION_COUNT // 2
            wait_until(lambda: share_counts(servers) == [half, half], "they share", stays, leaves)
            values |= write(servers, "shared")
            wait_until(
                lambda: set(stays.values) | set(leaves.values) >= values, "both read", stays, leaves
            )
        wait_until(lambda: share_counts(servers) == [PARTITION_COUNT], "one is left", stays)
        values |= write(servers, "after")
        wait_until(lambda: set(stays.values) | set(leaves.values) >= values, "it reads on", stays)
    # Clean leaves commit what was finished with, so nothing is read twice.
    assert sorted(stays.values + leaves.values) == sorted(values)


@pytest.mark.promise(
    "subscriptions change in place; patterns follow new topics; topics that grow are reassigned"
)
def test_a_pattern_follows_topics_that_appear(kafka_cluster: KafkaCluster) -> None:
    servers = kafka_cluster.bootstrap_servers
    prefix = group_members.TOPIC
    with (
        Consumer(
            bootstrap_servers=servers,
            group_id=prefix,
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        ) as consumer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        consumer.subscribe(pattern=f"{prefix}.*")
        deadline_s = time.monotonic() + TIMEOUT_S
        while len(consumer.assignment()) < PARTITION_COUNT:
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s
        admin.create_topics([NewTopic(f"{prefix}-later", num_partitions=1)])
        while len(consumer.assignment()) < PARTITION_COUNT + 1:
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s
        assert consumer.subscription() == {prefix, f"{prefix}-later"}
