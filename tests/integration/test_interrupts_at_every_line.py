"""A consumer whose call is interrupted at any line reads on: nothing is skipped, or read twice.

Method: call after call is interrupted by a signal, each a line later than the last, until calls end
before the line is reached. After each the next records must be those after the last ones.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest

from pykclient import Consumer, Producer, RebalanceListener
from pykclient.errors import ClosedError, KafkaTimeoutError
from pykclient.types import TopicPartition
from tests.signal_at_line import Alarm, SignalAtLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.consumer.record import ConsumerRecord
    from pykclient.testing import FakeKafka

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PROTOCOLS = ("classic", "consumer")
RECORDS_AHEAD = 300
UNREACHED_MAX = 5
STEPS = [23, pytest.param(7, marks=pytest.mark.soak)]
LINES_MAX = 1_400
CHECK_INTERVAL = 300
JOIN_STEPS, JOIN_LINES_MAX = {"classic": 31, "consumer": 1_200}, 2_500
CLOSE_STEPS, CLOSE_LINES_MAX = [61, pytest.param(13, marks=pytest.mark.soak)], 2_500
PATIENCE_S = 8.0
CLOSE_MAX_S = 4.0


class Reader:
    """Reads two partitions with small polls, and checks that each record is the next one."""

    def __init__(self, fake: FakeKafka, protocol: str, **settings: object) -> None:
        self.servers = fake.bootstrap_servers
        with fake.control() as cluster:
            cluster.create_topic("t", 2)
        self._producer = Producer(bootstrap_servers=self.servers)
        self._sent_count = 0
        self._read: defaultdict[TopicPartition, int] = defaultdict(int)
        self.may_repeat = False
        """True if it may resume from its last commit, as a new member does."""
        self.returned: Iterable[ConsumerRecord] = ()
        """Result of the interrupted call, if it returned one."""
        self.consumer = Consumer(
            {
                "bootstrap_servers": self.servers,
                "group_id": "g",
                "group_protocol": protocol,
                "auto_offset_reset": "earliest",
                "auto_commit_interval_ms": 3,
                "max_poll_records": 7,
                "fetch_max_wait_ms": 20,
                "retry_backoff_ms": 10,
                **settings,
            }
        )
        self.consumer.subscribe(["t"])

    @property
    def read_count(self) -> int:
        return sum(self._read.values())

    def offset(self, partition: TopicPartition) -> int:
        """Position that this consumer has reached."""
        return self._read[partition]

    def take(self, records: Iterable[ConsumerRecord]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            assert record.offset <= self._read[partition], partition
            assert record.offset == self._read[partition] or self.may_repeat, partition
            self._read[partition] = record.offset + 1

    def read_on(self) -> None:
        """Read until more has come."""
        if self._sent_count - self.read_count < RECORDS_AHEAD:
            for number in range(2 * RECORDS_AHEAD):
                self._producer.send("t", b"%d" % number, partition=number % 2)
            self._producer.flush()
            self._sent_count += 2 * RECORDS_AHEAD
        before, started_s = self.read_count, time.monotonic()
        while self.read_count == before:
            self.take(self.consumer.poll(1.0))
            assert time.monotonic() - started_s < PATIENCE_S, "it stands still"

    def check_commits(self) -> None:
        """See that nothing is committed that was not returned."""
        with Consumer(bootstrap_servers=self.servers, group_id="g") as other:
            for partition, committed in other.committed([A, B]).items():
                assert committed is None or committed.offset <= self._read[partition]

    def close(self) -> None:
        started_s = time.monotonic()
        self.consumer.close(timeout=10.0)
        assert time.monotonic() - started_s < CLOSE_MAX_S
        self._producer.close()
        self.check_commits()


def poll(reader: Reader) -> None:
    reader.returned = reader.consumer.poll(0.05)


def iterate(reader: Reader) -> None:
    for _ in reader.consumer:
        break  # with a record in hand, which comes again


def commit(reader: Reader) -> None:
    reader.consumer.commit()


def commit_async(reader: Reader) -> None:
    reader.consumer.commit_async()


def look_up(reader: Reader) -> None:
    try:
        reader.consumer.seek_to_end([A])
        reader.consumer.position(A)
    finally:
        sys.settrace(None)
        reader.consumer.seek(A, reader.offset(A))


RAISED_TYPES: Final = (Alarm, KeyboardInterrupt, SystemExit, KafkaTimeoutError, TimeoutError)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("call", [poll, iterate, commit, commit_async, look_up])
@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_skipped_read_twice_or_committed_unread(
    call: Callable[[Reader], None], protocol: str, step: int, fake_kafka: FakeKafka
) -> None:
    reader = Reader(fake_kafka, protocol)
    reader.read_on()
    unreached_count = number = interrupted_count = 0
    while unreached_count < UNREACHED_MAX and number < LINES_MAX:
        number += step
        reader.returned = ()
        at = SignalAtLine(number, RAISED_TYPES[number % len(RAISED_TYPES)]())
        try:
            with at:
                call(reader)
                sys.settrace(None)
        except RAISED_TYPES:
            interrupted_count += 1
        unreached_count += at.place is None
        reader.take(reader.returned)
        try:
            reader.read_on()
        except BaseException as error:
            error.add_note(f"line {number}: {at.place}")
            raise
        if number % CHECK_INTERVAL < step:
            reader.check_commits()
    assert interrupted_count > 10
    reader.close()


class Known:
    """A listener that keeps what it was assigned."""

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.listener = RebalanceListener(self._on_assigned, self._on_revoked)

    def _on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions.update(partitions)

    def _on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions.difference_update(partitions)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rebalance_that_is_interrupted_comes_to_its_end(
    protocol: str, fake_kafka: FakeKafka
) -> None:
    reader, known = Reader(fake_kafka, protocol), Known()
    reader.may_repeat = True
    consumer = reader.consumer
    consumer.subscribe(["t"], listener=known.listener)
    reader.read_on()
    interrupted_count = 0
    for number in range(0, JOIN_LINES_MAX, JOIN_STEPS[protocol]):
        consumer.unsubscribe()
        consumer.subscribe(["t"], listener=known.listener)
        at = SignalAtLine(number + 1, RAISED_TYPES[number % len(RAISED_TYPES)]())
        reader.returned = ()
        try:
            with at:
                reader.returned = consumer.poll(1.0)
                sys.settrace(None)
        except RAISED_TYPES:
            interrupted_count += 1
        reader.take(reader.returned)
        started_s = time.monotonic()
        while known.partitions != {A, B} or consumer.assignment() != {A, B}:
            reader.take(consumer.poll(0.05))
            assert time.monotonic() - started_s < PATIENCE_S, (number, at.place)
        reader.read_on()
    assert interrupted_count > 1
    reader.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("step", CLOSE_STEPS)
def test_a_close_that_is_interrupted_ends_the_consumer_all_the_same(
    protocol: str, step: int, fake_kafka: FakeKafka
) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 2)
    unreached_count = number = 0
    while unreached_count < UNREACHED_MAX and number < CLOSE_LINES_MAX:
        number += step
        threads_before = set(threading.enumerate())
        consumer = Consumer(
            {"group_protocol": protocol},
            bootstrap_servers=fake_kafka.bootstrap_servers,
            group_id=f"g{number}",
        )
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.05)
        threads = set(threading.enumerate()) - threads_before
        assert threads, "it has none for its heartbeats"
        at = SignalAtLine(number, Alarm())
        started_s = time.monotonic()
        with contextlib.suppress(Alarm), at:
            consumer.close()
            sys.settrace(None)
        unreached_count += at.place is None
        consumer.close()
        assert time.monotonic() - started_s < CLOSE_MAX_S, at.place
        with pytest.raises(ClosedError):
            consumer.poll(0.0)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), at.place
