"""The verifiable consumer does what Kafka's own system tests want of Java's."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pykclient import Admin, NewTopic, Producer, TopicPartition
from tests.integration.verifiable_member import VerifiableMember

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka, KafkaCluster

TOPIC = "vt"
GROUP = ("--topic", TOPIC, "--group-id", "vg")
PARTITION_COUNT = 6
COUNT = 60
TIMEOUT_S = 60.0
LOOK_S = 0.02
PROTOCOLS = ("classic", "consumer")
SESSION = ("--session-timeout", "6000")


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, PARTITION_COUNT)
    write(fake_kafka.bootstrap_servers, TOPIC, range(COUNT))
    return fake_kafka.bootstrap_servers


def write(servers: str, topic: str, numbers: range) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITION_COUNT)


def wait_until(condition: Callable[[], object], *members: VerifiableMember) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        seen = [(member.events[-3:], member.errors) for member in members]
        assert time.monotonic() < deadline_s, seen
        time.sleep(LOOK_S)


def read_by(*members: VerifiableMember) -> list[int]:
    return sorted(int(value) for member in members for value in member.values())


def shared_by(*members: VerifiableMember) -> bool:
    shares = [member.assigned() for member in members]
    return all(shares) and sum(map(len, shares)) == PARTITION_COUNT == len(set().union(*shares))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_prints_what_it_does_and_leaves_at_a_signal(servers: str, protocol: str) -> None:
    options = (*GROUP, "--verbose", "--group-protocol", protocol)
    with VerifiableMember(servers, *options) as member:
        wait_until(lambda: len(member.values()) == COUNT, member)
        wait_until(lambda: member.named("offsets_committed"), member)
        member.terminate()
        assert member.wait() == 0
    assert read_by(member) == list(range(COUNT))
    committed: dict[TopicPartition, int] = {}
    member.check(committed)
    names = [event["name"] for event in member.events]
    assert names[:2] == ["startup_complete", "partitions_assigned"]
    assert names[-3:] == ["shutdown_requested", "partitions_revoked", "shutdown_complete"]
    with Admin(bootstrap_servers=servers) as admin:
        offsets = admin.list_group_offsets("vg")
        assert {place: each.offset for place, each in offsets.items()} == committed
        assert set(committed.values()) == {COUNT // PARTITION_COUNT}
        assert admin.describe_groups(["vg"])["vg"].state == "Empty"


def test_it_ends_after_so_many_records_and_commits_no_more(servers: str) -> None:
    with VerifiableMember(servers, *GROUP, "--verbose", "--max-messages", "25") as member:
        assert member.wait() == 0
    assert len(member.values()) == 25
    member.check({})
    assert member.events[-1]["name"] == "shutdown_complete"
    with Admin(bootstrap_servers=servers) as admin:
        offsets = admin.list_group_offsets("vg")
    assert sum(each.offset for each in offsets.values()) == 25


def test_with_autocommit_it_reports_no_commits_and_makes_them(servers: str) -> None:
    with VerifiableMember(servers, *GROUP, "--verbose", "--enable-autocommit") as member:
        wait_until(lambda: len(member.values()) == COUNT, member)
        member.terminate()
        assert member.wait() == 0
    assert member.named("offsets_committed") == []
    with Admin(bootstrap_servers=servers) as admin:
        offsets = admin.list_group_offsets("vg")
    assert {each.offset for each in offsets.values()} <= {COUNT // PARTITION_COUNT}


def test_members_take_over_from_one_that_was_killed(servers: str) -> None:
    options = (*GROUP, "--verbose", *SESSION)
    with VerifiableMember(servers, *options) as stays, VerifiableMember(servers, *options) as ends:
        wait_until(lambda: shared_by(stays, ends), stays, ends)
        wait_until(lambda: len(set(read_by(stays, ends))) == COUNT, stays, ends)
        ends.kill()
        ends.wait()
        wait_until(lambda: len(stays.assigned()) == PARTITION_COUNT, stays)
        write(servers, TOPIC, range(COUNT, 2 * COUNT))
        wait_until(lambda: len(set(read_by(stays, ends))) == 2 * COUNT, stays)
        stays.terminate()
        assert stays.wait() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--group-id", "vg"), "--topic"),
        ((*GROUP, "--reset-policy", "sometimes"), "auto.offset.reset"),
        ((*GROUP, "--assignment-strategy", "no.such:Assignor"), "partition.assignment.strategy"),
        ((*GROUP, "--command-config", "no-such-file"), "no-such-file"),
    ],
)
def test_a_wrong_call_is_reported(options: tuple[str, ...], expected: str) -> None:
    with VerifiableMember("localhost:1", *options) as member:
        assert member.wait() != 0
    assert expected in member.errors
    assert member.named("shutdown_complete") == []


def test_an_error_ends_it_with_a_status_and_a_reason(servers: str) -> None:
    with VerifiableMember(servers, *GROUP, "--reset-policy", "none") as member:
        assert member.wait() == 1
    assert "NoOffsetForPartitionError" in member.errors
    assert member.events[-1]["name"] == "shutdown_complete"


@pytest.mark.kafka
@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.soak), "consumer"])
def test_ours_and_javas_share_a_group_and_report_the_same_events(
    kafka_cluster: KafkaCluster, protocol: str
) -> None:
    servers = kafka_cluster.bootstrap_servers
    topic = f"vt-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITION_COUNT, 1)])
    write(servers, topic, range(COUNT))
    options = ["--topic", topic, "--group-id", topic, "--verbose", "--group-protocol", protocol]
    if protocol == "classic":
        options += SESSION
    java = VerifiableMember(servers, *options, java_version=kafka_cluster.version)
    with java, VerifiableMember(servers, *options) as ours:
        wait_until(lambda: shared_by(java, ours), java, ours)
        wait_until(lambda: len(set(read_by(java, ours))) == COUNT, java, ours)
        write(servers, topic, range(COUNT, 2 * COUNT))
        wait_until(lambda: len(set(read_by(java, ours))) == 2 * COUNT, java, ours)
        for member in (java, ours):  # the summary comes after the records
            wait_until(partial(member.named, "records_consumed"), member)
        java.terminate()
        java.wait()
        wait_until(lambda: len(ours.assigned()) == PARTITION_COUNT, ours)
        write(servers, topic, range(2 * COUNT, 3 * COUNT))
        wait_until(lambda: len(set(read_by(java, ours))) == 3 * COUNT, ours)
        wait_until(lambda: ours.events[-1]["name"] == "offsets_committed", ours)
        ours.terminate()
        assert ours.wait() == 0
    for member in (java, ours):
        member.check({})
    for name in {event["name"] for event in java.events}:
        theirs, mine = (member.named(name) for member in (java, ours))
        assert theirs[0].keys() == mine[0].keys(), name
        assert parts_of(theirs) == parts_of(mine), name


def parts_of(events: list[dict[str, Any]]) -> set[frozenset[str]]:
    """Return the fields that events report of a partition."""
    return {frozenset(part) for event in events for part in event.get("partitions", ())}
