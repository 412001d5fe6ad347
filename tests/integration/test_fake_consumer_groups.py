"""Clients of other makers are members of KIP-848 groups of fake brokers.

Goal: whatever a user tests against `fake_kafka` with ``group.protocol=consumer`` behaves as with
Kafka. Method: members read, share, take over, and go on where their commits say; coordinators move
and stop meanwhile, and a group changes its protocol while nobody is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.testing import FakeKafka, GroupSettings
from pykclient.testing.cluster.jars import KAFKA_VERSIONS
from pykclient.testing.fake.groups.group import GroupKind
from tests.integration import java_tools
from tests.integration.group_members import (
    ConfluentMember,
    ConfluentModernMember,
    GroupMember,
    JavaModernMember,
    JavaRegexMember,
)
from tests.integration.test_fake_groups import (
    COUNT,
    PARTITION_COUNT,
    share_and_take_over,
    snapshot,
    wait_for_members,
    wait_for_values,
    wait_until,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HEARTBEAT_MS = 200
"""Members do things at their heartbeats only; Kafka's own interval is 5 s."""

CLIENTS = [ConfluentModernMember, pytest.param(JavaModernMember, marks=pytest.mark.kafka)]


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    settings = GroupSettings(group_consumer_heartbeat_interval_ms=HEARTBEAT_MS)
    with FakeKafka(brokers=3, group_settings=settings) as fake:
        with fake.control() as cluster:
            cluster.create_topic("t", PARTITION_COUNT)
        yield fake


@pytest.mark.promise(
    "librdkafka and Java's consumer read in fake KIP-848 groups, alone and together"
)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_reads_alone_and_goes_on_where_it_committed(
    client: type[GroupMember], fake: FakeKafka
) -> None:
    values = write(fake.bootstrap_servers, "first")
    with client(fake.bootstrap_servers) as member:
        wait_for_values(values, member)
        group = wait_for_members(fake, member)
        assert (group.kind, group.protocol_name) == (GroupKind.CONSUMER, "uniform")
    left = snapshot(fake)
    assert left is not None
    assert (left.state, left.members) == ("Empty", ())
    assert {each.offset for each in left.offsets.values()} == {COUNT // PARTITION_COUNT}
    later = write(fake.bootstrap_servers, "second")
    with client(fake.bootstrap_servers) as again:
        wait_for_values(later, again)


@pytest.mark.promise(
    "librdkafka and Java's consumer read in fake KIP-848 groups, alone and together"
)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ConfluentModernMember, ConfluentModernMember),
        pytest.param(JavaModernMember, JavaModernMember, marks=pytest.mark.kafka),
        pytest.param(JavaModernMember, ConfluentModernMember, marks=pytest.mark.kafka),
        pytest.param(ConfluentModernMember, JavaRegexMember, marks=pytest.mark.kafka),
    ],
)
def test_two_members_share_and_one_takes_over_when_the_other_leaves(
    one: type[GroupMember], other: type[GroupMember], fake: FakeKafka
) -> None:
    share_and_take_over(one, other, fake, fake.bootstrap_servers)


@pytest.mark.promise("members of fake KIP-848 groups survive a moved coordinator and fencing")
@pytest.mark.parametrize("client", CLIENTS)
def test_members_follow_a_coordinator_that_moves_and_one_that_stops(
    client: type[GroupMember], fake: FakeKafka
) -> None:
    servers = fake.bootstrap_servers
    with client(servers) as first, client(servers) as second:
        group = wait_for_members(fake, first, second)
        # librdkafka never asks again for the offsets it begins with where NOT_COORDINATOR, as Kafka
        # answers too, met its question: both must have begun.
        values = write(servers, "before")
        wait_for_values(values, first, second)
        with fake.control() as cluster:
            cluster.move_coordinator(0, "g", (group.coordinator_id + 1) % 3)
        values += write(servers, "moved")
        wait_for_values(values, first, second)
        moved = wait_for_members(fake, first, second)
        with fake.control() as cluster:
            cluster.stop_broker(moved.coordinator_id)
        values += write(servers, "stopped")
        wait_for_values(values, first, second)
        wait_for_members(fake, first, second)


@pytest.mark.promise("members of fake KIP-848 groups survive a moved coordinator and fencing")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_fenced_member_joins_again(client: type[GroupMember], fake: FakeKafka) -> None:
    servers = fake.bootstrap_servers
    with client(servers) as member:
        # Java's consumer gives up when it is fenced before it knows where to begin.
        wait_for_values(write(servers, "first"), member)
        group = wait_for_members(fake, member)
        with fake.control() as cluster:
            cluster.expire_member("g", group.members[0].member_id)
        values = set(write(servers, "again"))
        # What it had not committed, it reads once more.
        wait_until(lambda: values <= set(member.values), lambda: "the rest is read", member)
        assert wait_for_members(fake, member).generation > group.generation


@pytest.mark.promise("an empty fake group may change its protocol, and keeps its offsets")
def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(fake: FakeKafka) -> None:
    servers = fake.bootstrap_servers
    kinds = []
    for client in (ConfluentMember, ConfluentModernMember, ConfluentMember):
        values = write(servers, client.__name__)
        with client(servers) as member:
            wait_for_values(values, member)
            kinds.append(wait_for_members(fake, member).kind)
    assert kinds == [GroupKind.CLASSIC, GroupKind.CONSUMER, GroupKind.CLASSIC]


@pytest.mark.promise("administrators list and describe fake KIP-848 groups")
@pytest.mark.kafka
def test_javas_tool_describes_a_consumer_group(fake: FakeKafka) -> None:
    with ConfluentModernMember(fake.bootstrap_servers) as member:
        [told] = wait_for_members(fake, member).members
        options = ("--describe", "--group", "g", "--members", "--verbose")
        heading, row = java_tools.java_groups(KAFKA_VERSIONS[0], fake.bootstrap_servers, *options)
        described = dict(zip(heading, row, strict=False))
        assert described["CONSUMER-ID"] == told.member_id
        assert described["CURRENT-EPOCH"] == described["TARGET-EPOCH"]
        assert described["CURRENT-ASSIGNMENT"] == "t:0,1,2,3"
