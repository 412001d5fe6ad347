"""Clients of other makers are members of groups of fake brokers, in both protocols.

Goal: whatever a user tests against `fake_kafka` with a group behaves as with Kafka. Method: each
client reads alone, then shares with a second one, takes over from it, and goes on after a restart
at its commits; coordinators move and stop meanwhile. What a group has come to is looked at
in the broker; waiting is for that to be so, with a limit that no good run comes near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient import TopicPartition
from pykclient.testing import FakeKafka, GroupSettings
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.fake.groups.group import GroupKind
from tests.integration import java_tools
from tests.integration.group_members import (
    AiokafkaMember,
    ConfluentKip848Member,
    ConfluentMember,
    GroupMember,
    JavaKip848Member,
    JavaMember,
    JavaRegexMember,
    KafkaPythonMember,
    OldestJavaMember,
    OurCooperativeMember,
    OurEagerMember,
    OurMember,
    import_libraries,
    wait_until,
)
from tests.soak import NEWEST_FIRST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fake.groups.group import GroupSnapshot

TIMEOUT_S = 40.0
PARTITION_COUNT = 4
COUNT = 100
HEARTBEAT_MS = 200
"""Members of KIP-848 do things at their heartbeats only; Kafka's own interval is 5 s."""

OUR_CLIENTS = [OurMember, OurCooperativeMember]
KIP848_CLIENTS = [
    ConfluentKip848Member,
    pytest.param(JavaKip848Member, marks=pytest.mark.kafka),
]
CLIENTS = [
    *OUR_CLIENTS,
    ConfluentMember,
    KafkaPythonMember,
    AiokafkaMember,
    pytest.param(JavaMember, marks=pytest.mark.kafka),
    pytest.param(OldestJavaMember, marks=[pytest.mark.kafka, pytest.mark.soak]),
    *KIP848_CLIENTS,
]
PAIRS = [
    *((client, client) for client in (*OUR_CLIENTS, ConfluentMember, ConfluentKip848Member)),
    (KafkaPythonMember, KafkaPythonMember),
    (AiokafkaMember, AiokafkaMember),
    pytest.param(JavaMember, JavaMember, marks=pytest.mark.kafka),
    pytest.param(OldestJavaMember, OldestJavaMember, marks=[pytest.mark.kafka, pytest.mark.soak]),
    pytest.param(JavaKip848Member, JavaKip848Member, marks=[pytest.mark.kafka, pytest.mark.soak]),
    pytest.param(JavaKip848Member, ConfluentKip848Member, marks=pytest.mark.kafka),
    pytest.param(ConfluentKip848Member, JavaRegexMember, marks=pytest.mark.kafka),
]


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    import_libraries()


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    settings = GroupSettings(group_consumer_heartbeat_interval_ms=HEARTBEAT_MS)
    with FakeKafka(brokers=3, group_settings=settings) as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", PARTITION_COUNT)
        yield fake


def write(fake: FakeKafka, name: str) -> list[bytes]:
    """Write some values to all partitions, and return them."""
    values = [b"%s %d" % (name.encode(), number) for number in range(COUNT)]
    confluent_kafka = pytest.importorskip("confluent_kafka")
    errors: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": fake.bootstrap_servers, "linger.ms": 0}
    )
    for number, value in enumerate(values):
        partition = number % PARTITION_COUNT
        producer.produce(
            "t", value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * COUNT
    return values


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

    def progress() -> str:
        return f"{len(expected)} values are read, not {[len(each.values) for each in members]}"

    wait_until(lambda: len(read()) >= len(expected), progress, *members)
    assert read() == sorted(expected)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_reads_alone_and_goes_on_where_it_committed(
    client: type[GroupMember], fake: FakeKafka
) -> None:
    values = write(fake, "first")
    with client(fake.bootstrap_servers) as member:
        wait_for_values(values, member)
        group = wait_for_members(fake, member)
        if client in (ConfluentKip848Member, JavaKip848Member):
            assert (group.kind, group.protocol_name) == (GroupKind.CONSUMER, "uniform")
        else:
            expected = ("consumer", group.members[0].member_id)
            assert (group.protocol_type, group.leader_id) == expected
    left = snapshot(fake)
    assert left is not None
    assert (left.state, left.members) == ("Empty", ())
    assert {each.offset for each in left.offsets.values()} == {COUNT // PARTITION_COUNT}
    assert len(left.offsets) == PARTITION_COUNT
    later = write(fake, "second")
    with client(fake.bootstrap_servers) as again:
        wait_for_values(later, again)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_two_members_share_and_one_takes_over_when_the_other_leaves(
    one: type[GroupMember], other: type[GroupMember], fake: FakeKafka
) -> None:
    with one(fake.bootstrap_servers) as stays:
        wait_for_members(fake, stays)
        with other(fake.bootstrap_servers) as leaves:
            wait_for_members(fake, stays, leaves)
            values = write(fake, "shared")
            wait_for_values(values, stays, leaves)
            assert stays.values
            assert leaves.values
        wait_for_members(fake, stays)
        values += write(fake, "alone")
        wait_for_values(values, stays, leaves)


# kafka-python and aiokafka take a minute to find a coordinator again, at times, and lose sockets
# when one is gone.
@pytest.mark.parametrize(
    "client",
    [
        *OUR_CLIENTS,
        ConfluentMember,
        pytest.param(JavaMember, marks=pytest.mark.kafka),
        *KIP848_CLIENTS,
    ],
)
def test_members_follow_a_coordinator_that_moves_and_one_that_stops(
    client: type[GroupMember], fake: FakeKafka
) -> None:
    with client(fake.bootstrap_servers) as first, client(fake.bootstrap_servers) as second:
        group = wait_for_members(fake, first, second)
        # librdkafka never requests again the offsets it begins with where NOT_COORDINATOR, as Kafka
        # responds too, met its request: both must have begun.
        values = write(fake, "before")
        wait_for_values(values, first, second)
        with fake.control() as cluster:
            cluster.move_coordinator(0, "g", (group.coordinator_id + 1) % 3)
        values += write(fake, "moved")
        wait_for_values(values, first, second)
        moved = wait_for_members(fake, first, second)
        assert moved.coordinator_id != group.coordinator_id
        with fake.control() as cluster:
            cluster.stop_broker(moved.coordinator_id)
        values += write(fake, "stopped")
        wait_for_values(values, first, second)
        stopped = wait_for_members(fake, first, second)
        assert stopped.coordinator_id != moved.coordinator_id


@pytest.mark.parametrize("client", KIP848_CLIENTS)
def test_a_fenced_member_joins_again(client: type[GroupMember], fake: FakeKafka) -> None:
    with client(fake.bootstrap_servers) as member:
        # Java's consumer gives up when it is fenced before it has a position.
        wait_for_values(write(fake, "first"), member)
        group = wait_for_members(fake, member)
        with fake.control() as cluster:
            cluster.expire_member("g", group.members[0].member_id)
        values = set(write(fake, "again"))
        # What it had not committed, it reads once more.
        wait_until(lambda: values <= set(member.values), "the rest is read", member)
        assert wait_for_members(fake, member).generation > group.generation


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(fake: FakeKafka) -> None:
    kinds = []
    for client in (ConfluentMember, ConfluentKip848Member, ConfluentMember):
        values = write(fake, client.__name__)
        with client(fake.bootstrap_servers) as member:
            wait_for_values(values, member)
            kinds.append(wait_for_members(fake, member).kind)
    assert kinds == [GroupKind.CLASSIC, GroupKind.CONSUMER, GroupKind.CLASSIC]


@pytest.mark.promise("members share partitions with librdkafka's and Java's, eager and cooperative")
def test_clients_of_different_makers_share_a_group(fake: FakeKafka) -> None:
    servers = fake.bootstrap_servers
    with (
        ConfluentMember(servers) as one,
        KafkaPythonMember(servers) as two,
        AiokafkaMember(servers) as three,
        OurEagerMember(servers) as four,
    ):
        wait_for_members(fake, one, two, three, four)
        values = write(fake, "shared")
        wait_for_values(values, one, two, three, four)
        assert all(member.values for member in (one, two, three, four))


def described_by_java(
    fake: FakeKafka, *options: str, version: str = KAFKA_VERSIONS[0]
) -> list[dict[str, str]]:
    """Return the rows that the tool's table has of group ``g``."""
    lines = java_tools.java_groups(
        version, fake.bootstrap_servers, "--describe", "--group", "g", *options
    )
    heading = max(number for number, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[heading], row, strict=False)) for row in lines[heading + 1 :]]


@pytest.mark.kafka
def test_javas_tool_describes_a_consumer_group(fake: FakeKafka) -> None:
    with ConfluentKip848Member(fake.bootstrap_servers) as member:
        [known] = wait_for_members(fake, member).members
        [described] = described_by_java(fake, "--members", "--verbose")
        assert described["CONSUMER-ID"] == known.member_id
        assert described["CURRENT-EPOCH"] == described["TARGET-EPOCH"]
        assert described["CURRENT-ASSIGNMENT"] == "t:0,1,2,3"


@pytest.mark.kafka
@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_javas_tool_describes_lists_resets_and_deletes_groups(
    version: str, fake: FakeKafka
) -> None:
    def tool(*arguments: str) -> list[list[str]]:
        return java_tools.java_groups(version, fake.bootstrap_servers, *arguments)

    values = write(fake, "first")
    with ConfluentMember(fake.bootstrap_servers) as member:
        wait_for_values(values, member)
        [known] = wait_for_members(fake, member).members
        [described] = described_by_java(fake, "--members", "--verbose", version=version)
        assert described["CONSUMER-ID"] == known.member_id
        assert tool("--list") == [["g"]]
    rows = described_by_java(fake, version=version)
    assert len(rows) == PARTITION_COUNT
    assert {row["CURRENT-OFFSET"] for row in rows} == {str(COUNT // PARTITION_COUNT)}
    assert {row["LAG"] for row in rows} == {"0"}
    tool("--reset-offsets", "--group", "g", "--all-topics", "--to-earliest", "--execute")
    with ConfluentMember(fake.bootstrap_servers) as again:
        wait_for_values(values, again)
    tool("--delete-offsets", "--group", "g", "--topic", "t:0")
    left = snapshot(fake)
    assert left is not None
    assert sorted(name.partition for name in left.offsets) == [1, 2, 3]
    tool("--delete", "--group", "g")
    assert snapshot(fake) is None
