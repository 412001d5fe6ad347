"""Groups whose leader subscribes by a pattern, and so knows topics by the list of all alone.

Goal: no member waits for a topic that nobody has. Method: real consumers, fake brokers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer
from tests.integration.fake_group import GROUP, PARTITIONS, TOPIC, has_all, member, poll_until

if TYPE_CHECKING:
    from pykclient.testing import FakeKafka

OTHER_TOPIC = "u"


@pytest.fixture(autouse=True)
def _topics(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
        cluster.create_topic(OTHER_TOPIC, 1)


@pytest.mark.promise(
    "a leader by pattern waits for no missing topic; a second pattern is matched at once"
)
def test_a_leader_by_pattern_waits_for_no_topic_that_does_not_exist(fake_kafka: FakeKafka) -> None:
    with (
        member(fake_kafka) as leader,
        member(fake_kafka, allow_auto_create_topics=False) as other,
    ):
        leader.subscribe(pattern=TOPIC)
        poll_until(has_all(leader), leader)
        other.subscribe([TOPIC, "nobody-has-it"])
        poll_until(lambda: len(other.assignment()) == len(PARTITIONS) // 2, leader, other)
        assert leader.assignment().isdisjoint(other.assignment())


@pytest.mark.promise(
    "a leader by pattern waits for no missing topic; a second pattern is matched at once"
)
def test_another_pattern_is_held_against_the_topics_at_once(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka) as consumer:
        consumer.subscribe(pattern=TOPIC)
        poll_until(has_all(consumer), consumer)
        consumer.subscribe(pattern=OTHER_TOPIC)
        poll_until(lambda: {each.topic for each in consumer.assignment()} == {"u"}, consumer)


@pytest.mark.promise("a deleted topic holds up no rebalance, in either protocol")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_is_deleted_holds_nobody_up(fake_kafka: FakeKafka, protocol: str) -> None:
    """What was read of it can be committed no more, and the group does not wait for that."""
    with Consumer(
        bootstrap_servers=fake_kafka.bootstrap_servers,
        group_id=GROUP,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metadata_max_age_ms=100,
    ) as consumer:
        consumer.subscribe(pattern=re.compile(f"{TOPIC}|{OTHER_TOPIC}"))
        poll_until(lambda: len(consumer.assignment()) == len(PARTITIONS) + 1, consumer)
        for partition in consumer.assignment():
            consumer.position(partition)
        with fake_kafka.control() as cluster:
            cluster.delete_topic(OTHER_TOPIC)
        poll_until(has_all(consumer), consumer)
