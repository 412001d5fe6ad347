"""Admin's calls about groups, against fake brokers and real ones of each tested version.

The members are librdkafka's, so that what is described was not written by this package.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import (
    Admin,
    GroupMetadata,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from pykclient.errors import (
    AdminCallError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    NotCoordinatorError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from pykclient.testing import FakeKafka
from tests.integration.group_members import (
    GROUP,
    TOPIC,
    ConfluentKip848Member,
    ConfluentMember,
    import_libraries,
    wait_until,
)
from tests.integration.test_fake_groups import wait_for_members
from tests.soak import OLDEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster

PARTITIONS = tuple(TopicPartition(TOPIC, number) for number in range(4))
NO_PARTITION = TopicPartition("no-such-topic", 0)


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    import_libraries()


@pytest.fixture
def admin(fake_kafka: FakeKafka) -> Iterator[Admin]:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        yield admin


@pytest.mark.promise(
    "groups of both protocols are listed and described with members, on both broker versions"
)
@pytest.mark.parametrize(
    ("client", "group_type", "assignor"),
    [(ConfluentMember, "classic", "range"), (ConfluentKip848Member, "consumer", "uniform")],
)
def test_members_are_described_and_protect_their_group(
    admin: Admin,
    fake_kafka: FakeKafka,
    client: type[ConfluentMember],
    group_type: str,
    assignor: str,
) -> None:
    with client(fake_kafka.bootstrap_servers) as member:
        known = wait_for_members(fake_kafka, member)
        group = admin.describe_groups([GROUP])[GROUP]
        assert (group.group_type, group.state, group.assignor) == (group_type, "Stable", assignor)
        assert group.coordinator == admin.find_coordinators([GROUP])[GROUP]
        assert group.coordinator.id == known.coordinator_id
        (described,) = group.members
        assert described.member_id == known.members[0].member_id
        assert described.assignment == PARTITIONS
        is_kip848 = group_type == "consumer"
        assert described.target_assignment == (PARTITIONS if is_kip848 else None)
        assert admin.list_groups(states=["Stable"], types=[group_type]).keys() == {GROUP}
        assert admin.list_groups(states=["Empty"]) == {}
        with pytest.raises(UnknownMemberIdError, match="has members"):
            admin.alter_group_offsets(GROUP, {PARTITIONS[0]: 1})
        with pytest.raises(NonEmptyGroupError, match=f"group {GROUP!r}"):
            admin.delete_groups([GROUP])
        with pytest.raises(GroupSubscribedToTopicError):
            admin.delete_group_offsets(GROUP, [PARTITIONS[0]])
    assert admin.describe_groups([GROUP])[GROUP].members == ()
    admin.alter_group_offsets(GROUP, {PARTITIONS[0]: 1})
    admin.delete_groups([GROUP])
    assert admin.list_groups() == {}


@pytest.mark.promise(
    "groups of both protocols are listed and described with members, on both broker versions"
)
def test_groups_of_both_protocols_and_missing_ones_are_distinguished(
    admin: Admin, fake_kafka: FakeKafka
) -> None:
    admin.alter_group_offsets("empty", {PARTITIONS[0]: 1})
    with ConfluentKip848Member(fake_kafka.bootstrap_servers) as member:
        wait_for_members(fake_kafka, member)
        groups = admin.describe_groups([GROUP, "empty"])
    assert [(name, group.group_type) for name, group in groups.items()] == [
        (GROUP, "consumer"),
        ("empty", "classic"),
    ]
    with pytest.raises(GroupIdNotFoundError, match="'absent'"):
        admin.describe_groups(["absent", "empty"])
    with pytest.raises(AdminCallError) as raised:
        admin.describe_groups(["absent", "empty", "gone"])
    assert raised.value.errors.keys() == {"absent", "gone"}


def test_calls_follow_a_coordinator_that_moves() -> None:
    with FakeKafka(brokers=3) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, len(PARTITIONS))
        with Admin(bootstrap_servers=fake.bootstrap_servers, retry_backoff_ms=1) as admin:
            names = [f"group-{number}" for number in range(9)]
            for name in names:
                admin.alter_group_offsets(name, {PARTITIONS[0]: 1})
            assert set(admin.list_groups()) == set(names)
            homes = {name: node.id for name, node in admin.find_coordinators(names).items()}
            assert set(homes.values()) == {0, 1, 2}
            with fake.control() as cluster:
                cluster.stop_broker(homes[names[0]])
            assert set(admin.list_groups()) == set(names)
            moved = admin.describe_groups(names)
            assert {group.coordinator.id for group in moved.values()} == {0, 1, 2} - {
                homes[names[0]]
            }


@pytest.mark.promise(
    "groups of both protocols are listed and described with members, on both broker versions"
)
@pytest.mark.kafka
def test_members_of_real_groups_are_described(each_kafka_cluster: KafkaCluster) -> None:
    is_new = each_kafka_cluster.version != OLDEST
    with Admin(bootstrap_servers=each_kafka_cluster.bootstrap_servers) as admin:
        if TOPIC not in admin.list_topics():
            admin.create_topics([NewTopic(TOPIC, num_partitions=len(PARTITIONS))])
        for client, group_type in (
            (ConfluentMember, "classic"),
            (ConfluentKip848Member, "consumer"),
        )[: 1 + is_new]:
            if GROUP in admin.list_groups():
                admin.delete_groups([GROUP])
            with client(each_kafka_cluster.bootstrap_servers) as member:
                wait_until(
                    lambda: admin.list_groups(states=["Stable"]).get(GROUP) is not None,
                    lambda: str(admin.list_groups()),
                    member,
                )
                group = admin.describe_groups([GROUP])[GROUP]
                assert (group.group_type, group.state) == (group_type, "Stable")
                assert admin.list_groups(types=[group_type]).keys() >= {GROUP}
                (described,) = group.members
                assert described.assignment == PARTITIONS
                assert described.client_id == "rdkafka"


@pytest.mark.promise("offsets are altered, listed and deleted, groups deleted")
@pytest.mark.kafka
def test_offsets_are_moved_read_and_forgotten(each_kafka_cluster: KafkaCluster) -> None:
    suffix = uuid.uuid4().hex[:8]
    group, topic = f"group-{suffix}", f"topic-{suffix}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    noted = OffsetAndMetadata(7, "how far", 0)
    with Admin(bootstrap_servers=each_kafka_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
        assert admin.list_group_offsets(group) == {}
        with pytest.raises(GroupIdNotFoundError, match=group):
            admin.describe_groups([group])
        with pytest.raises(UnknownTopicOrPartitionError, match="no-such-topic-0"):
            admin.alter_group_offsets(group, {first: 5, NO_PARTITION: 5})
        admin.alter_group_offsets(group, {second: noted})
        assert admin.list_group_offsets(group) == {first: OffsetAndMetadata(5), second: noted}
        assert admin.list_group_offsets(group, [second], require_stable=True) == {second: noted}
        assert admin.list_group_offsets(group, [NO_PARTITION]) == {}
        assert admin.list_groups(states=["Empty"])[group].group_type == "classic"
        assert admin.describe_groups([group])[group].state == "Empty"
        admin.delete_group_offsets(group, [second])
        assert set(admin.list_group_offsets(group)) == {first}
        admin.delete_groups([group])
        assert group not in admin.list_groups()
        with pytest.raises(GroupIdNotFoundError, match=group):
            admin.delete_groups([group])


def check_one_broker_is_asked(servers: str) -> None:
    """Check the coordinator's answers during a transaction that will commit offsets."""
    suffix = uuid.uuid4().hex[:8]
    group, first = f"group-{suffix}", TopicPartition(f"topic-{suffix}", 0)
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers, transactional_id=group) as producer,
    ):
        admin.create_topics([NewTopic(first.topic, 1, 1)])
        admin.alter_group_offsets(group, {first: 5})
        coordinator_id = admin.find_coordinators([group])[group].id
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({first: 6}, GroupMetadata(group))
            asked = admin.list_group_offsets(group, [first], coordinator_id=coordinator_id)
            assert asked == {first: OffsetAndMetadata(5)}
            with pytest.raises(UnstableOffsetCommitError, match=group):
                admin.list_group_offsets(
                    group, [first], require_stable=True, coordinator_id=coordinator_id
                )
        assert admin.list_group_offsets(group, [first], require_stable=True) == {
            first: OffsetAndMetadata(6)
        }


def test_one_broker_is_asked(each_kafka_cluster: KafkaCluster) -> None:
    check_one_broker_is_asked(each_kafka_cluster.bootstrap_servers)


def test_one_fake_broker_is_asked_and_another_refuses(fake_kafka: FakeKafka) -> None:
    servers = fake_kafka.bootstrap_servers
    check_one_broker_is_asked(servers)
    with Admin(bootstrap_servers=servers) as admin:
        other_id = (admin.find_coordinators(["g"])["g"].id + 1) % 3
        with pytest.raises(NotCoordinatorError, match="'g'"):
            admin.list_group_offsets("g", coordinator_id=other_id)
