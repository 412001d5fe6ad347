"""Admin against real brokers: topics are made, shown, and gone when the call returns."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, NewTopic
from pykclient.errors import (
    AdminCallError,
    InvalidConfigError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.testing import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def admin(each_kafka_cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=each_kafka_cluster.bootstrap_servers) as admin:
        yield admin


def name_of(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.mark.promise("`Admin` creates, deletes, lists and describes topics")
def test_a_topic_is_created_shown_and_deleted(admin: Admin) -> None:
    name = name_of("admin")
    created = admin.create_topics(
        [NewTopic(name, num_partitions=3, replication_factor=1, config={"retention.ms": 60_000})]
    )[name]
    assert (created.name, created.num_partitions, created.replication_factor) == (name, 3, 1)
    listed = admin.list_topics()[name]
    assert (listed.name, listed.topic_id, listed.is_internal) == (name, created.topic_id, False)
    description = admin.describe_topics([name])[name]
    assert description.topic_id == created.topic_id
    assert [p.partition for p in description.partitions] == [0, 1, 2]
    assert all(p.leader_id in p.in_sync_replica_ids for p in description.partitions)
    admin.delete_topics([name])
    assert name not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError, match=name):
        admin.describe_topics([name])


def test_the_broker_chooses_what_is_left_open(admin: Admin) -> None:
    name = name_of("defaults")
    admin.create_topics([NewTopic(name)])
    assert len(admin.describe_topics([name])[name].partitions) == 1


def test_every_topic_of_a_call_is_tried(admin: Admin) -> None:
    old, new = name_of("old"), name_of("new")
    admin.create_topics([NewTopic(old)])
    with pytest.raises(TopicAlreadyExistsError, match=old):
        admin.create_topics([NewTopic(old), NewTopic(new)])
    with pytest.raises(AdminCallError) as raised:
        admin.create_topics([NewTopic(old), NewTopic("no topic!"), NewTopic(new)])
    assert {name: type(error) for name, error in raised.value.errors.items()} == {
        old: TopicAlreadyExistsError,
        "no topic!": InvalidTopicError,
        new: TopicAlreadyExistsError,
    }


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("too-many-replicas", 1, 9), InvalidReplicationFactorError),
        (NewTopic("bad-setting", 1, 1, config={"no.such.setting": 1}), InvalidConfigError),
    ],
)
def test_what_the_broker_refuses_is_raised_with_its_message(
    admin: Admin, topic: NewTopic, error: type[Exception]
) -> None:
    with pytest.raises(error, match=topic.name):
        admin.create_topics([topic])
    assert topic.name not in admin.list_topics()
