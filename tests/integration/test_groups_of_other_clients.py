"""Our consumer shares partitions with those of other clients, on real brokers, in both protocols.

Goal: the coordinator sees no difference, also while a group changes its protocol under its members
(KIP-848, "upgrade" and "downgrade"). Method: two members read what is written after both have
joined; then one leaves, and the other reads on alone. The brokers of KIP-848 groups require a
heartbeat twice a second.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, NewTopic, Producer
from pykclient.errors import GroupIdNotFoundError
from tests.integration.group_members import (
    ConfluentCooperativeMember,
    ConfluentKip848Member,
    ConfluentMember,
    CooperativeJavaMember,
    GroupMember,
    JavaKip848Member,
    JavaMember,
    OurAutoMember,
    OurCooperativeMember,
    OurKip848Member,
    OurMember,
    import_libraries,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing.fixtures import KafkaClusterFactory


pytestmark = pytest.mark.kafka

PARTITION_COUNT = 4
HALF = PARTITION_COUNT // 2
COUNT = 40
HEARTBEAT_MS = 500
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def servers(kafka_cluster_factory: KafkaClusterFactory) -> Iterator[str]:
    """Provide a broker whose KIP-848 groups heartbeat fast."""
    import_libraries()
    config = {
        "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
        "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    }
    with kafka_cluster_factory(config=config) as cluster:
        yield cluster.bootstrap_servers


class Group:
    """Create a group and a topic with the same unique name."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._name = f"group-{uuid.uuid4().hex[:8]}"
        self._members: list[GroupMember] = []
        self._written: list[bytes] = []
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(self._name, num_partitions=PARTITION_COUNT)])

    def join(self, client: type[GroupMember]) -> GroupMember:
        member = client(self._servers, self._name, self._name)
        self._members.append(member)
        return member

    def write(self, name: str) -> None:
        values = [b"%s %d" % (name.encode(), number) for number in range(COUNT)]
        with Producer(bootstrap_servers=self._servers) as producer:
            for number, value in enumerate(values):
                producer.send(self._name, value, partition=number % PARTITION_COUNT)
            producer.flush(TIMEOUT_S)
        self._written += values

    @property
    def read(self) -> list[bytes]:
        return [value for member in self._members for value in member.values]

    def await_read(self) -> None:
        """Wait until the members together have read everything written."""
        wait_until(lambda: set(self.read) >= set(self._written), "all is read", *self._members)

    def await_counts(self, *counts: int) -> None:
        """Wait until each member has its number of partitions."""
        wait_until(lambda: self._counts() == list(counts), f"shared {counts}", *self._members)

    def check_read_once(self) -> None:
        assert sorted(self.read) == sorted(self._written)

    def _counts(self) -> list[int]:
        """Return each member's number of partitions, if the group is stable; otherwise []."""
        with Admin(bootstrap_servers=self._servers) as admin:
            try:
                group = admin.describe_groups([self._name])[self._name]
            except GroupIdNotFoundError:
                return []
        if group.state != "Stable":
            return []
        return sorted(len(member.assignment) for member in group.members)


@pytest.fixture
def group(servers: str) -> Group:
    return Group(servers)


@pytest.mark.promise("members share partitions with librdkafka's and Java's, eager and cooperative")
@pytest.mark.promise(
    "KIP-848 members share partitions with Java's and librdkafka's on real brokers"
)
@pytest.mark.parametrize(
    ("ours", "other"),
    [
        (OurMember, OurMember),
        pytest.param(OurMember, ConfluentMember, marks=pytest.mark.soak),
        (OurMember, JavaMember),
        pytest.param(OurCooperativeMember, OurCooperativeMember, marks=pytest.mark.soak),
        (OurCooperativeMember, ConfluentCooperativeMember),
        pytest.param(OurCooperativeMember, CooperativeJavaMember, marks=pytest.mark.soak),
        pytest.param(OurKip848Member, OurKip848Member, marks=pytest.mark.soak),
        (OurKip848Member, ConfluentKip848Member),
        (OurKip848Member, JavaKip848Member),
        (OurAutoMember, OurMember),
        (OurAutoMember, JavaMember),
    ],
    ids=lambda member: str(member.__name__),
)
def test_two_members_share_and_one_takes_over(
    ours: type[GroupMember], other: type[GroupMember], group: Group
) -> None:
    group.write("before")
    with group.join(ours) as stays:
        group.await_read()
        with group.join(other) as leaves:
            group.await_counts(HALF, HALF)
            group.write("shared")
            group.await_read()
            assert leaves.values
        group.await_counts(PARTITION_COUNT)
        group.write("alone")
        group.await_read()
        assert stays.values
    if ours is other:  # a member of ours commits all that was processed, when it leaves
        group.check_read_once()


@pytest.mark.promise("a live group changes its protocol and back, and every record is read once")
@pytest.mark.parametrize("classic", [OurMember, OurCooperativeMember])
def test_a_group_is_migrated_while_it_reads_and_back(
    classic: type[GroupMember], group: Group
) -> None:
    """A member of the other protocol comes, then the last one of the old protocol goes; and back.

    Nothing is lost. Each that leaves or gives up partitions commits what was processed, so nothing
    is read twice either.
    """
    group.write("classic")
    with group.join(classic) as before:
        group.await_read()
        with group.join(OurKip848Member) as kip848:
            group.await_counts(HALF, HALF)
            group.write("both")
            group.await_read()
            before.close()
            group.await_counts(PARTITION_COUNT)
            group.write("kip848")
            group.await_read()
            with group.join(classic):
                group.await_counts(HALF, HALF)
                kip848.close()
                group.await_counts(PARTITION_COUNT)
                group.write("again")
                group.await_read()
    group.check_read_once()
