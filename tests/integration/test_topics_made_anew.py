"""A topic that is deleted and made anew under its name, while it is read: by real brokers and fake.

Method: the new topic has more records than the old one, so that a position of the old log stands
in the new one, too, and nothing but the topic's id tells that records would be left out.
"""

from __future__ import annotations

import time

import pytest

from pykclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pykclient.errors import LogTruncationError, TopicAlreadyExistsError

OLD_COUNT, NEW_COUNT = 10, 40
TIMEOUT_S = 20.0
POLL_S = 0.05


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    name = "fake_kafka" if request.param == "fake" else "kafka_cluster"
    servers: str = request.getfixturevalue(name).bootstrap_servers
    return servers


def make(servers: str, topic: str, count: int) -> None:
    """Make a topic, as soon as brokers have done with the one before, with so many records."""
    deadline_s = time.monotonic() + TIMEOUT_S
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        while True:
            try:
                admin.create_topics([NewTopic(topic, 1, 1)])
                break
            except TopicAlreadyExistsError:
                assert time.monotonic() < deadline_s, "it is still there"
                time.sleep(POLL_S)
        for _ in range(count):
            producer.send(topic, b"v", partition=0)


def make_anew(servers: str, topic: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_topics([topic])
    make(servers, topic, NEW_COUNT)


def read(consumer: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    while len(offsets) < count:
        records = consumer.poll(TIMEOUT_S)
        assert records, f"only {offsets} came"
        offsets += [record.offset for record in records]
    return offsets


@pytest.mark.parametrize("group_id", [None, "anew"])
def test_every_record_of_the_new_topic_is_read(servers: str, group_id: str | None) -> None:
    topic = f"anew-{group_id}"
    make(servers, topic, OLD_COUNT)
    with Consumer(
        bootstrap_servers=servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
    ) as consumer:
        if group_id is None:
            consumer.assign([TopicPartition(topic, 0)])
        else:
            consumer.subscribe([topic])
        assert read(consumer, OLD_COUNT) == list(range(OLD_COUNT))
        make_anew(servers, topic)
        assert read(consumer, NEW_COUNT) == list(range(NEW_COUNT))


def test_without_a_reset_the_application_is_told_until_it_seeks(servers: str) -> None:
    topic = "anew-told"
    partition = TopicPartition(topic, 0)
    make(servers, topic, OLD_COUNT)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="none", allow_auto_create_topics=False
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        read(consumer, OLD_COUNT)
        make_anew(servers, topic)
        for _ in range(2):
            with pytest.raises(LogTruncationError, match="made anew"):
                read(consumer, 1)
        consumer.seek(partition, 0)
        assert read(consumer, NEW_COUNT) == list(range(NEW_COUNT))
