"""Our members of KIP-848 groups beside those of other makers, and beside classic ones.

Goal: the coordinator sees no difference, also while a group changes its protocol under its members
(KIP-848, "upgrade" and "downgrade"). Method: as in `test_mixed_groups`, on a broker that asks for a
heartbeat twice a second.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, NewTopic
from tests.integration import group_members
from tests.integration.group_members import (
    ConfluentModernMember,
    GroupMember,
    JavaModernMember,
    OurCooperativeMember,
    OurMember,
    OurModernMember,
    import_libraries,
)
from tests.integration.test_mixed_groups import (
    PARTITION_COUNT,
    share_counts,
    wait_until,
    write,
)

if TYPE_CHECKING:
    from pykclient.testing import KafkaCluster
    from pykclient.testing.fixtures import KafkaClusterFactory

pytestmark = pytest.mark.kafka

HEARTBEAT_MS = 500
HALF = PARTITION_COUNT // 2


@pytest.fixture(scope="module")
def cluster(kafka_cluster_factory: KafkaClusterFactory) -> KafkaCluster:
    """A broker whose KIP-848 groups heartbeat fast."""
    return kafka_cluster_factory(
        config={
            "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
            "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
        }
    )


@pytest.fixture(autouse=True)
def servers(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give each test a topic and a group that no other has."""
    import_libraries()
    name = f"modern-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(group_members, "TOPIC", name)
    monkeypatch.setattr(group_members, "GROUP", name)
    monkeypatch.setattr(JavaModernMember, "topics", ("--topic", name))
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=PARTITION_COUNT)])
    return cluster.bootstrap_servers


@pytest.mark.promise(
    "KIP-848 members share partitions with Java's and librdkafka's on real brokers"
)
@pytest.mark.parametrize("other", [OurModernMember, ConfluentModernMember, JavaModernMember])
def test_two_makers_share_and_one_takes_over(other: type[GroupMember], servers: str) -> None:
    with OurModernMember(servers) as stays:
        with other(servers) as leaves:
            wait_until(lambda: share_counts(servers) == [HALF, HALF], "they share", stays, leaves)
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


@pytest.mark.promise("a live group changes its protocol and back, and every record is read once")
@pytest.mark.parametrize("classic", [OurMember, OurCooperativeMember])
def test_a_group_is_migrated_while_it_reads_and_back(
    classic: type[GroupMember], servers: str
) -> None:
    """A member of the other protocol comes, then the last one of the old protocol goes; and back.

    Nothing is lost. What was handed out is committed by everybody who leaves, or gives up
    partitions, so nothing is read twice either.
    """
    values = write(servers, "classic")
    with classic(servers) as before:
        wait_until(lambda: set(before.values) >= values, "the classic one reads", before)
        with OurModernMember(servers) as modern:
            wait_until(lambda: share_counts(servers) == [HALF, HALF], "they share", before, modern)
            values |= write(servers, "both")
            wait_until(
                lambda: {*before.values, *modern.values} >= values, "both read", before, modern
            )
            before.close()
            wait_until(lambda: share_counts(servers) == [PARTITION_COUNT], "it is alone", modern)
            values |= write(servers, "modern")
            wait_until(lambda: {*before.values, *modern.values} >= values, "it reads", modern)
            with classic(servers) as after:
                wait_until(
                    lambda: share_counts(servers) == [HALF, HALF], "they share", modern, after
                )
                modern.close()
                wait_until(lambda: share_counts(servers) == [PARTITION_COUNT], "back", after)
                values |= write(servers, "again")
                wait_until(
                    lambda: {*before.values, *modern.values, *after.values} >= values,
                    "the classic one reads again",
                    after,
                )
    assert sorted(before.values + modern.values + after.values) == sorted(values)
