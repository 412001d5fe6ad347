"""Polls with no time at all, or next to none, one after the other: each goes on where the last was.

As Java's do with `Duration.ZERO`. Method: real consumers over the loopback, both protocols.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Consumer, Producer
from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import GROUP, PARTITIONS, TIMEOUT_S, TOPIC, Diary, has_all, member

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka

COUNT = 200
NO_TIME_S = [0, 1e-6, 1e-3]


@pytest.fixture(autouse=True)
def _topic(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic(TOPIC, len(PARTITIONS))
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(TOPIC, b"%d" % number, partition=number % len(PARTITIONS))


def reader(fake: FakeKafka, protocol: str) -> Consumer:
    return Consumer(
        bootstrap_servers=fake.bootstrap_servers,
        group_id=GROUP,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1,
    )


def spin(consumer: Consumer, timeout_s: float, until: Callable[[int], bool]) -> int:
    """Poll until as many records were read as are enough; return how many."""
    deadline_s = time.monotonic() + TIMEOUT_S
    count = 0
    while not until(count):
        count += len(consumer.poll(timeout_s))
        assert time.monotonic() < deadline_s
    return count


@pytest.mark.promise("polls with timeout 0 join, read, commit and raise what is wrong")
@pytest.mark.parametrize("timeout_s", NO_TIME_S)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_they_join_read_and_commit(protocol: str, timeout_s: float, fake_kafka: FakeKafka) -> None:
    diary = Diary()
    with reader(fake_kafka, protocol) as consumer:
        consumer.subscribe([TOPIC], listener=diary.listener)
        assert spin(consumer, timeout_s, lambda count: count >= COUNT) == COUNT

        def is_committed(_: int) -> bool:
            with fake_kafka.control() as cluster:
                offsets = cluster.groups.offsets(GROUP)
                found = [offsets.get(partition) for partition in PARTITIONS]
            return sum(each.offset for each in found if each is not None) == COUNT

        spin(consumer, timeout_s, is_committed)
    assert diary.lines == [("assigned", [0, 1, 2, 3]), ("revoked", [0, 1, 2, 3])]


@pytest.mark.promise("polls with timeout 0 join, read, commit and raise what is wrong")
def test_members_share_what_there_is(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka) as first, member(fake_kafka) as second:
        first.subscribe([TOPIC])
        spin(first, 0, lambda _: has_all(first)())
        second.subscribe([TOPIC])

        def is_shared(_: int) -> bool:
            first.poll(0)
            return len(first.assignment()) == len(second.assignment()) == 2

        spin(second, 0, is_shared)


@pytest.mark.promise("polls with timeout 0 join, read, commit and raise what is wrong")
def test_they_take_no_time(fake_kafka: FakeKafka) -> None:
    """Though there is somebody to be waited for: the coordinator, who does not answer."""
    with fake_kafka.control() as cluster:
        dropped = cluster.faults.add(faults.drop(), ApiKey.JOIN_GROUP, times=None)
    with member(fake_kafka) as consumer:
        consumer.subscribe([TOPIC])
        spin(consumer, 0, lambda _: dropped.used_count > 0)
        spent_s = []
        for _ in range(200):
            started_s = time.monotonic()
            consumer.poll(0)
            spent_s.append(time.monotonic() - started_s)
        assert sorted(spent_s)[len(spent_s) * 9 // 10] < 0.05


@pytest.mark.promise("polls with timeout 0 join, read, commit and raise what is wrong")
def test_they_tell_what_no_waiting_cures(fake_kafka: FakeKafka) -> None:
    with member(fake_kafka, allow_auto_create_topics=False) as consumer:
        consumer.subscribe(["absent"])
        with pytest.raises(UnknownTopicOrPartitionError):
            spin(consumer, 0, lambda _: False)
