"""Members that are slow, in their own code or in a deserializer, and those that poll without time.

Goal: heartbeats go on whatever the application does, and `max_poll_interval_ms` counts all the
same; polls with no time at all go on where the last was, as Java's do with `Duration.ZERO`. Method:
real consumers and threads over the loopback, in groups of both protocols, with short sessions; the
group is looked at in the broker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import UnknownTopicOrPartitionError
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.fake_group import (
    CLASSIC,
    GROUP,
    NUMBERS,
    PARTITIONS,
    POLL_S,
    TIMEOUT_S,
    TOPIC,
    ListenerRecording,
    each_protocol,
    has_all,
    have_counts,
    make_brokers,
    member_count,
    poll_until,
    write,
)
from tests.integration.fake_group import member as member_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import Consumer
    from pykclient.testing import FakeKafka

SESSION_MS = 1_000
COUNT = 8
POLL_COUNT = 200
SLOW_S = 2.5 * SESSION_MS / 1_000 / COUNT
"""For each record: for all of them longer than two sessions."""


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """Provide a broker whose coordinator gives members up after a second."""
    with make_brokers(1, SESSION_MS) as fake:
        yield fake


def member(fake: FakeKafka, protocol: str, **settings: object) -> Consumer:
    timing = {"session_timeout_ms": SESSION_MS} if protocol == CLASSIC else {}
    return member_of(fake, protocol, **timing, **settings)


def polled(consumer: Consumer, count: int) -> list[object]:
    values: list[object] = []
    while len(values) < count:
        values += [record.value for record in consumer.poll(TIMEOUT_S)]
    return values


def iterated(consumer: Consumer, count: int) -> list[object]:
    values: list[object] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            consumer.commit_async(record)  # or it would come again
            break
    return values


READERS = [polled, iterated]
each_reader_and_protocol = pytest.mark.parametrize(
    ("protocol", "read"),
    [
        (CLASSIC, polled),
        ("consumer", iterated),
        pytest.param(CLASSIC, iterated, marks=pytest.mark.soak),
        pytest.param("consumer", polled, marks=pytest.mark.soak),
    ],
)


@each_reader_and_protocol
def test_a_slow_deserializer_keeps_its_membership(
    protocol: str, read: Callable[[Consumer, int], list[object]], fake: FakeKafka
) -> None:
    """All records of the batch together take longer than two sessions."""
    write(fake, COUNT, 1)
    recording = ListenerRecording()

    def slow(data: bytes) -> int:
        time.sleep(SLOW_S)
        return int(data)

    with member(fake, protocol, value_deserializer=slow) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        assert read(consumer, COUNT) == list(range(COUNT))
        consumer.commit()
        assert recording.events == [("assigned", NUMBERS)]


@pytest.mark.parametrize("read", READERS)
@each_protocol
def test_a_deserializer_that_takes_longer_than_the_poll_interval_is_given_up(
    protocol: str, read: Callable[[Consumer, int], list[object]], fake: FakeKafka
) -> None:
    write(fake, COUNT, 1)
    recording = ListenerRecording()
    member_counts: list[int] = []

    def wait_until_given_up(data: bytes) -> int:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not member_counts and (count := member_count(fake)):
            assert count == 1
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
        member_counts.append(0)
        return int(data)

    with member(
        fake, protocol, value_deserializer=wait_until_given_up, max_poll_interval_ms=400
    ) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        read(consumer, COUNT)
        poll_until(lambda: len(recording.events) >= 3, consumer)
    assert recording.calls[:3] == ["assigned", "lost", "assigned"]


@each_reader_and_protocol
def test_a_consumer_that_always_has_records_buffered_is_not_late(
    protocol: str, read: Callable[[Consumer, int], list[object]], fake: FakeKafka
) -> None:
    """One record a call, all of which are there after the first: each call counts as a poll."""
    interval_ms = 1_000
    count = 40
    write(fake, count, 1)
    recording = ListenerRecording()
    with member(fake, protocol, max_poll_interval_ms=interval_ms, max_poll_records=1) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        values = read(consumer, 1)
        started_s = time.monotonic()
        while len(values) < count:
            time.sleep(3 * interval_ms / 1_000 / count)
            values += read(consumer, 1)
        assert time.monotonic() - started_s > 2 * interval_ms / 1_000
        assert values == [b"%d" % number for number in range(count)]
        assert recording.events == [("assigned", NUMBERS)]


@each_protocol
def test_what_a_deserializer_commits_leaves_out_what_it_has_in_hand(
    protocol: str, fake: FakeKafka
) -> None:
    """And an automatic commit that becomes due meanwhile does so, too."""
    partitions = PARTITIONS[:2]
    write(fake, 6, len(partitions))
    got: list[object] = []
    counts: list[tuple[int, int]] = []

    def committed_count() -> int:
        offsets = consumer.committed(partitions).values()
        return sum(each.offset for each in offsets if each is not None)

    def commit(data: bytes) -> int:
        counts.append((committed_count(), len(got)))  # which takes long enough for what is due
        consumer.commit()
        counts.append((committed_count(), len(got)))
        return int(data)

    with member(fake, protocol, value_deserializer=commit, auto_commit_interval_ms=1) as consumer:
        consumer.subscribe([TOPIC])
        while len(got) < 6:
            got += [record.value for record in consumer.poll(TIMEOUT_S)]
        assert len(counts) == 12
        for commit_count, got_count in counts:
            assert commit_count <= got_count, "what no poll has returned was committed"
        consumer.commit()
        assert committed_count() == 6


@each_protocol
def test_a_deserializer_may_have_the_consumer_leave(protocol: str, fake: FakeKafka) -> None:
    """The records of that poll are not returned: they are for the next owner of the partition."""
    write(fake, COUNT, 1)
    values: list[bytes] = []

    def leave(data: bytes) -> bytes:
        if not values:
            consumer.unsubscribe()
        values.append(data)
        return data

    with member(fake, protocol, value_deserializer=leave) as consumer:
        consumer.subscribe([TOPIC])
        while not values:
            assert not consumer.poll(POLL_S)
        assert not consumer.assignment()
        consumer.subscribe([TOPIC])
        assert polled(consumer, COUNT) == [b"%d" % number for number in range(COUNT)]


# Polls with no time at all, or next to none, one after the other.


@pytest.fixture
def filled() -> Iterator[FakeKafka]:
    with make_brokers() as fake:
        write(fake, POLL_COUNT)
        yield fake


def spin(consumer: Consumer, timeout_s: float, until: Callable[[int], bool]) -> int:
    """Poll until as many records were read as are enough; return how many."""
    deadline_s = time.monotonic() + TIMEOUT_S
    count = 0
    while not until(count):
        count += len(consumer.poll(timeout_s))
        assert time.monotonic() < deadline_s
    return count


@pytest.mark.parametrize("timeout_s", [0, 1e-6, 1e-3])
@each_protocol
def test_they_join_read_and_commit(protocol: str, timeout_s: float, filled: FakeKafka) -> None:
    recording = ListenerRecording()
    with member_of(filled, protocol, auto_commit_interval_ms=1) as consumer:
        consumer.subscribe([TOPIC], listener=recording.listener)
        assert spin(consumer, timeout_s, lambda count: count >= POLL_COUNT) == POLL_COUNT

        def is_committed(_: int) -> bool:
            with filled.control() as cluster:
                offsets = cluster.groups.offsets(GROUP)
                found = [offsets.get(partition) for partition in PARTITIONS]
            return sum(each.offset for each in found if each is not None) == POLL_COUNT

        spin(consumer, timeout_s, is_committed)
    assert recording.events == [("assigned", NUMBERS), ("revoked", NUMBERS)]


def test_members_share_what_there_is(filled: FakeKafka) -> None:
    with member_of(filled) as first, member_of(filled) as second:
        first.subscribe([TOPIC])
        spin(first, 0, lambda _: has_all(first)())
        second.subscribe([TOPIC])

        def is_shared(_: int) -> bool:
            first.poll(0)
            return have_counts({first: 2, second: 2})()

        spin(second, 0, is_shared)


def test_they_take_no_time(filled: FakeKafka) -> None:
    """Though there is something to wait for: the coordinator, which does not respond."""
    with filled.control() as cluster:
        dropped = cluster.faults.add(faults.drop(), ApiKey.JOIN_GROUP, times=None)
    with member_of(filled) as consumer:
        consumer.subscribe([TOPIC])
        spin(consumer, 0, lambda _: dropped.used_count > 0)
        spent_s = []
        for _ in range(200):
            started_s = time.monotonic()
            consumer.poll(0)
            spent_s.append(time.monotonic() - started_s)
        assert sorted(spent_s)[len(spent_s) * 9 // 10] < 0.05


def test_they_raise_what_no_waiting_cures(filled: FakeKafka) -> None:
    with member_of(filled, allow_auto_create_topics=False) as consumer:
        consumer.subscribe(["absent"])
        with pytest.raises(UnknownTopicOrPartitionError):
            spin(consumer, 0, lambda _: False)
