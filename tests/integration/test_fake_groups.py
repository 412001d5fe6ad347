"""Clients of other makers are members of groups of fake brokers.

Goal: whatever a user tests against `fake_kafka` with a group behaves as with Kafka. Method: each
client reads alone, then shares with a second one, takes over from it, and goes on after a restart
where its commits say; coordinators move and stop meanwhile. What a group has come to is looked at
in the broker; waiting is for that to be so, with a limit that no good run comes near.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import TopicPartition
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.fake.cluster import FakeCluster
from tests.integration import java_tools
from tests.integration.group_members import (
    AiokafkaMember,
    ConfluentMember,
    GroupMember,
    KafkaPythonMember,
    NewestJavaMember,
    OldestJavaMember,
    OurCooperativeMember,
    OurEagerMember,
    OurMember,
    import_libraries,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka
    from pykclient.testing.fake.groups.group import GroupSnapshot

TIMEOUT_S = 40.0
LOOK_S = 0.02
PARTITION_COUNT = 4
COUNT = 100

CLIENTS = [
    OurMember,
    OurCooperativeMember,
    ConfluentMember,
    KafkaPythonMember,
    AiokafkaMember,
    pytest.param(NewestJavaMember, marks=pytest.mark.kafka),
    pytest.param(OldestJavaMember, marks=pytest.mark.kafka),
]


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    import_libraries()


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", PARTITION_COUNT)
    return fake_kafka.bootstrap_servers


def write(servers: str, name: str) -> list[bytes]:
    """Write some values to all partitions, and return them."""
    values = [b"%s %d" % (name.encode(), number) for number in range(COUNT)]
    confluent_kafka = pytest.importorskip("confluent_kafka")
    errors: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for number, value in enumerate(values):
        partition = number % PARTITION_COUNT
        producer.produce(
            "t", value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * COUNT
    return values


def wait_until(
    condition: Callable[[], bool], what: Callable[[], str], *members: GroupMember
) -> None:
    """Look until it is so. Fails when a client has failed or the time is over."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        for member in members:
            member.check()
        assert time.monotonic() < deadline_s, f"{what()}: not within {TIMEOUT_S:.0f} s"
        time.sleep(LOOK_S)


def snapshot(fake: FakeKafka) -> GroupSnapshot | None:
    with fake.control() as cluster:
        return cluster.groups.snapshot("g")


def wait_for_members(fake: FakeKafka, *members: GroupMember) -> GroupSnapshot:
    """Wait until these share the partitions, all of them and none twice."""

    def is_shared() -> bool:
        group = snapshot(fake)
        if group is None or group.state != "Stable" or len(group.members) != len(members):
            return False
        owned = sorted(each for member in group.members for each in member.partitions)
        is_whole = owned == [TopicPartition("t", number) for number in range(PARTITION_COUNT)]
        return is_whole and all(member.partitions for member in group.members)

    wait_until(
        is_shared, lambda: f"{len(members)} share the partitions: {snapshot(fake)}", *members
    )
    group = snapshot(fake)
    assert group is not None
    return group


def wait_for_values(expected: list[bytes], *members: GroupMember) -> None:
    """Wait until these have been read, each exactly once, by all members together."""

    def read() -> list[bytes]:
        return sorted(value for member in members for value in member.values)

    def told() -> str:
        return f"{len(expected)} values are read, not {[len(each.values) for each in members]}"

    wait_until(lambda: len(read()) >= len(expected), told, *members)
    assert read() == sorted(expected)


@pytest.mark.promise("four other clients read in a fake group, and go on where they committed")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_reads_alone_and_goes_on_where_it_committed(
    client: type[GroupMember], fake_kafka: FakeKafka, servers: str
) -> None:
    values = write(servers, "first")
    with client(servers) as member:
        wait_for_values(values, member)
        group = wait_for_members(fake_kafka, member)
        assert (group.protocol_type, group.leader_id) == ("consumer", group.members[0].member_id)
    left = snapshot(fake_kafka)
    assert left is not None
    assert (left.state, left.members) == ("Empty", ())
    assert {each.offset for each in left.offsets.values()} == {COUNT // PARTITION_COUNT}
    assert len(left.offsets) == PARTITION_COUNT
    later = write(servers, "second")
    with client(servers) as again:
        wait_for_values(later, again)


def share_and_take_over(
    one: type[GroupMember], other: type[GroupMember], fake: FakeKafka, servers: str
) -> None:
    """Two members share the partitions, and one reads on when the other has left."""
    with one(servers) as stays:
        wait_for_members(fake, stays)
        with other(servers) as leaves:
            wait_for_members(fake, stays, leaves)
            values = write(servers, "shared")
            wait_for_values(values, stays, leaves)
            assert stays.values
            assert leaves.values
        wait_for_members(fake, stays)
        values += write(servers, "alone")
        wait_for_values(values, stays, leaves)


@pytest.mark.promise("two other clients share a fake group's partitions, and one takes over")
@pytest.mark.parametrize("client", CLIENTS)
def test_two_members_share_and_one_takes_over_when_the_other_leaves(
    client: type[GroupMember], fake_kafka: FakeKafka, servers: str
) -> None:
    share_and_take_over(client, client, fake_kafka, servers)


# kafka-python and aiokafka take a minute to find a coordinator again, at times, and lose sockets
# when one is gone.
each_that_follows = pytest.mark.parametrize(
    "client",
    [
        OurMember,
        OurCooperativeMember,
        ConfluentMember,
        pytest.param(NewestJavaMember, marks=pytest.mark.kafka),
    ],
)


def read_through(
    change: Callable[[FakeCluster, int], object],
    client: type[GroupMember],
    fake_kafka: FakeKafka,
    servers: str,
) -> None:
    """Two members read on when `change` has done something to their coordinator."""
    with client(servers) as first, client(servers) as second:
        group = wait_for_members(fake_kafka, first, second)
        values = write(servers, "before")
        wait_for_values(values, first, second)
        with fake_kafka.control() as cluster:
            change(cluster, group.coordinator_id)
        values += write(servers, "after")
        wait_for_values(values, first, second)
        moved = wait_for_members(fake_kafka, first, second)
        assert moved.coordinator_id != group.coordinator_id


@pytest.mark.promise("every error of a group's responses is handled as in Java")
@pytest.mark.promise("members follow a fake coordinator that moves or stops")
@each_that_follows
def test_members_follow_a_coordinator_that_moves(
    client: type[GroupMember], fake_kafka: FakeKafka, servers: str
) -> None:
    def move(cluster: FakeCluster, coordinator_id: int) -> None:
        cluster.move_coordinator(0, "g", (coordinator_id + 1) % 3)

    read_through(move, client, fake_kafka, servers)


@pytest.mark.promise("every error of a group's responses is handled as in Java")
@pytest.mark.promise("members follow a fake coordinator that moves or stops")
@each_that_follows
def test_members_survive_a_coordinator_that_stops(
    client: type[GroupMember], fake_kafka: FakeKafka, servers: str
) -> None:
    read_through(FakeCluster.stop_broker, client, fake_kafka, servers)


@pytest.mark.promise(
    "our members share partitions with librdkafka's and Java's, eager and cooperative"
)
@pytest.mark.promise("two other clients share a fake group's partitions, and one takes over")
def test_clients_of_different_makers_share_a_group(fake_kafka: FakeKafka, servers: str) -> None:
    with (
        ConfluentMember(servers) as one,
        KafkaPythonMember(servers) as two,
        AiokafkaMember(servers) as three,
        OurEagerMember(servers) as four,
    ):
        wait_for_members(fake_kafka, one, two, three, four)
        values = write(servers, "shared")
        wait_for_values(values, one, two, three, four)
        assert all(member.values for member in (one, two, three, four))


@pytest.mark.promise("Java's tool describes, resets and deletes fake groups")
@pytest.mark.kafka
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_javas_tool_describes_lists_resets_and_deletes_groups(
    version: str, fake_kafka: FakeKafka, servers: str
) -> None:
    def tool(*arguments: str) -> list[list[str]]:
        return java_tools.java_groups(version, servers, *arguments)

    values = write(servers, "first")
    with ConfluentMember(servers) as member:
        wait_for_values(values, member)
        group = wait_for_members(fake_kafka, member)
        [told] = group.members
        heading, *rows = tool("--describe", "--group", "g", "--members", "--verbose")
        assert [dict(zip(heading, row, strict=False))["CONSUMER-ID"] for row in rows] == [
            told.member_id
        ]
        assert tool("--list") == [["g"]]
    heading, *rows = tool("--describe", "--group", "g")[-1 - PARTITION_COUNT :]
    described = [dict(zip(heading, row, strict=False)) for row in rows]
    ends = str(COUNT // PARTITION_COUNT)
    assert {row["CURRENT-OFFSET"] for row in described} == {ends}
    assert {row["LAG"] for row in described} == {"0"}
    tool("--reset-offsets", "--group", "g", "--all-topics", "--to-earliest", "--execute")
    with ConfluentMember(servers) as again:
        wait_for_values(values, again)
    tool("--delete-offsets", "--group", "g", "--topic", "t:0")
    left = snapshot(fake_kafka)
    assert left is not None
    assert sorted(name.partition for name in left.offsets) == [1, 2, 3]
    tool("--delete", "--group", "g")
    assert snapshot(fake_kafka) is None
