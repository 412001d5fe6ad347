"""Programs that leave a batch early: what they handled is committed, the rest is read next."""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import contextmanager, suppress
from threading import Event
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, ExactlyOnce, NewTopic, Producer, TopicPartition
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient import ConsumerRecords
    from pykclient.testing import FakeKafka, KafkaCluster

pytestmark = pytest.mark.promise(
    "a batch that the loop leaves early is returned again from that record"
)

COUNT = 20
HANDLED = 8
TIMEOUT_S = 20.0


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        fake: FakeKafka = request.getfixturevalue("fake_kafka")
        return fake.bootstrap_servers
    real: KafkaCluster = request.getfixturevalue("kafka_cluster")
    return real.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = f"left-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, 2, 1), NewTopic(f"{name}-out", 1, 1)])
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(COUNT):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


def member(servers: str, topic: str, **settings: object) -> Consumer:
    consumer = Consumer(
        {"max_poll_records": 5} | settings,
        bootstrap_servers=servers,
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
    )
    consumer.subscribe([topic])
    return consumer


Work = list[bytes]


def by_break(consumer: Consumer, handled: Work) -> None:
    while len(handled) < HANDLED:
        for record in consumer.poll(TIMEOUT_S):
            if len(handled) == HANDLED:
                break
            handled.append(record.value or b"")


def by_return(consumer: Consumer, handled: Work) -> None:
    while True:
        for record in consumer.poll(TIMEOUT_S):
            if len(handled) == HANDLED:
                return
            handled.append(record.value or b"")


def by_exception(consumer: Consumer, handled: Work) -> None:
    while True:
        for record in consumer.poll(TIMEOUT_S):
            if len(handled) == HANDLED:
                raise ZeroDivisionError
            handled.append(record.value or b"")


def by_exception_in_a_loop_over_the_consumer(consumer: Consumer, handled: Work) -> None:
    for record in consumer:
        if len(handled) == HANDLED:
            raise ZeroDivisionError
        handled.append(record.value or b"")


def by_break_in_a_loop_over_the_consumer(consumer: Consumer, handled: Work) -> None:
    for record in consumer:
        if len(handled) == HANDLED:
            break
        handled.append(record.value or b"")


def by_a_commit_behind_the_record(consumer: Consumer, handled: Work) -> None:
    while True:
        for record in consumer.poll(TIMEOUT_S):
            handled.append(record.value or b"")
            if len(handled) == HANDLED:
                consumer.commit()
                return


@contextmanager
def at_sigterm(stop: Event) -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def by_sigterm(consumer: Consumer, handled: Work) -> None:
    stop = Event()
    with at_sigterm(stop):
        while not stop.is_set():
            for record in consumer.poll(TIMEOUT_S):
                if stop.is_set():
                    break
                handled.append(record.value or b"")
                if len(handled) == HANDLED:
                    os.kill(os.getpid(), signal.SIGTERM)


def committed(consumer: Consumer) -> int:
    return sum(each.offset for each in consumer.committed().values() if each is not None)


def read_rest(consumer: Consumer, handled: Work) -> None:
    """Read on until everything was handled, a batch at a time."""
    while len(handled) < COUNT:
        handled += [record.value or b"" for record in consumer.poll(TIMEOUT_S)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(
    "leave",
    [
        by_break,
        by_return,
        by_exception,
        by_break_in_a_loop_over_the_consumer,
        by_exception_in_a_loop_over_the_consumer,
        by_a_commit_behind_the_record,
        by_sigterm,
    ],
)
def test_what_was_handled_is_committed_and_the_next_member_reads_the_rest(
    servers: str, topic: str, leave: Callable[[Consumer, Work], None], protocol: str
) -> None:
    handled: Work = []
    with (
        suppress(ZeroDivisionError),
        member(servers, topic, group_protocol=protocol) as consumer,
    ):
        leave(consumer, handled)
    assert len(handled) == HANDLED
    with member(servers, topic, group_protocol=protocol) as consumer:
        while not consumer.assignment():
            handled += [record.value or b"" for record in consumer.poll(0.1)]
        assert committed(consumer) == HANDLED
        read_rest(consumer, handled)
    assert sorted(handled) == sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_leaves_each_batch_handles_everything_once(
    servers: str, topic: str, protocol: str
) -> None:
    handled: Work = []
    with member(servers, topic, group_protocol=protocol, auto_commit_interval_ms=0) as consumer:
        while len(handled) < COUNT:
            for number, record in enumerate(consumer.poll(TIMEOUT_S)):
                if number == 2:
                    break
                handled.append(record.value or b"")
    with member(servers, topic, group_protocol=protocol) as consumer:
        while not consumer.assignment():
            assert not consumer.poll(0.1)
        assert committed(consumer) == COUNT
    assert sorted(handled) == sorted(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("sends_first", [False, True])
def test_a_block_of_exactly_once_that_is_left_early_is_aborted_and_done_again(
    servers: str, topic: str, caplog: pytest.LogCaptureFixture, *, sends_first: bool
) -> None:
    settings = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    attempts = 0
    with (
        member(servers, topic, **settings) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        for batch in ExactlyOnce(consumer, producer):
            attempts += 1
            with batch as records:
                for record in records:
                    if sends_first:
                        producer.send(f"{topic}-out", record.value)
                    if attempts % 2:
                        break
                    if not sends_first:
                        producer.send(f"{topic}-out", record.value)
            if committed(consumer) == COUNT:
                break
    assert attempts >= 2 * COUNT // 5
    with Consumer(
        bootstrap_servers=servers,
        group_id=f"check-{topic}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        reader.subscribe([f"{topic}-out"])
        written: Work = []
        read_rest(reader, written)
        assert not reader.poll(0.2)
    assert sorted(written) == sorted(b"%d" % number for number in range(COUNT))
    assert [text for text in caplog.messages if "left the loop over its records early" in text]


def test_blocks_of_exactly_once_that_always_leave_early_end_in_an_error(
    servers: str, topic: str
) -> None:
    settings = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    with (
        member(servers, topic, **settings) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        blocks = ExactlyOnce(consumer, producer)
        counts: list[int] = []

        def leave(records: ConsumerRecords[bytes, bytes]) -> None:
            counts.append(len(counts))
            if len(counts) == 5:
                raise LookupError  # so the next one is the first in its row
            assert any(record.value for record in records)

        with pytest.raises(LookupError):
            blocks.run(leave)
        with pytest.raises(UsageError, match="10 blocks in a row"):
            blocks.run(leave)
        assert len(counts) == 5 + 10
        assert committed(consumer) == 0
        for batch in blocks:
            with batch as records:
                for record in records:
                    producer.send(f"{topic}-out", record.value)
            if committed(consumer) == COUNT:
                break


@pytest.mark.parametrize("call", [Consumer.commit, Consumer.commit_async])
def test_a_commit_in_a_block_of_exactly_once_is_refused(
    servers: str, topic: str, call: Callable[[Consumer], object]
) -> None:
    """It would commit what an abort of the block has not written."""
    settings = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    with (
        member(servers, topic, **settings) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        blocks = ExactlyOnce(consumer, producer)
        with pytest.raises(UsageError, match=r"commit(_async)?\(\) in a block of ExactlyOnce"):
            blocks.run(lambda _: call(consumer))
        assert committed(consumer) == 0
        for batch in blocks:
            with batch as records:
                for record in records:
                    producer.send(f"{topic}-out", record.value)
            call(consumer)  # behind a block it commits the same again
            if committed(consumer) == COUNT:
                break


POLLS: dict[str, Callable[[Consumer], object]] = {
    "poll": lambda consumer: consumer.poll(0),
    "poll_arrow": lambda consumer: consumer.poll_arrow(0),
    "next": lambda consumer: next(iter(consumer)),
}
SEEKS: dict[str, Callable[[Consumer], object]] = {
    "seek": lambda consumer: consumer.seek(next(iter(consumer.assignment())), 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "seek_to_time": lambda consumer: consumer.seek_to_time(0),
}


@pytest.fixture
def pair(servers: str, topic: str) -> Iterator[tuple[Consumer, Producer]]:
    settings = {"enable_auto_commit": False, "isolation_level": "read_committed"}
    with (
        member(servers, topic, **settings) as consumer,
        Producer(bootstrap_servers=servers, transactional_id=topic) as producer,
    ):
        yield consumer, producer


def copy_all(consumer: Consumer, producer: Producer, topic: str) -> list[bytes]:
    """Copy the remaining records, and return the final contents of the output."""
    for batch in ExactlyOnce(consumer, producer):
        with batch as records:
            for record in records:
                producer.send(f"{topic}-out", record.value)
        if committed(consumer) == COUNT:
            break
    with Consumer(
        bootstrap_servers=consumer._wiring.config.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        output = TopicPartition(f"{topic}-out", 0)
        reader.assign([output])
        ends = reader.end_offsets([output])
        values: list[bytes] = []
        while reader.position(output) < ends[output]:
            values += reader.poll_arrow(until=ends)["value"].to_pylist()
        return values


@pytest.mark.parametrize("name", [*POLLS, *SEEKS])
def test_a_block_of_exactly_once_takes_and_moves_nothing_beside_its_loop(
    pair: tuple[Consumer, Producer], topic: str, name: str
) -> None:
    """Else the next transaction would pass over records that none has."""
    consumer, producer = pair
    call = (POLLS | SEEKS)[name]
    with pytest.raises(UsageError, match=rf"^{name}\(\) in a block of ExactlyOnce"):
        ExactlyOnce(consumer, producer).run(lambda _: call(consumer))
    assert sorted(copy_all(consumer, producer, topic)) == sorted(
        b"%d" % number for number in range(COUNT)
    )


@pytest.mark.parametrize("name", POLLS)
def test_no_poll_comes_between_batches_of_exactly_once(
    pair: tuple[Consumer, Producer], topic: str, name: str
) -> None:
    consumer, producer = pair
    for batch in ExactlyOnce(consumer, producer):
        with batch as records:
            for record in records:
                producer.send(f"{topic}-out", record.value)
        with pytest.raises(UsageError, match=rf"^{name}\(\) between the batches of ExactlyOnce"):
            POLLS[name](consumer)
        break
    assert sorted(copy_all(consumer, producer, topic)) == sorted(
        b"%d" % number for number in range(COUNT)
    )
    consumer.poll(0)  # the loop is over


def test_a_batch_that_was_not_used_is_not_passed_over(
    pair: tuple[Consumer, Producer], topic: str
) -> None:
    consumer, producer = pair
    batch = next(iter(ExactlyOnce(consumer, producer)))
    for call in (
        lambda: consumer.poll(0),
        lambda: next(iter(ExactlyOnce(consumer, producer))),
    ):
        with pytest.raises(UsageError, match=r"would skip a batch of ExactlyOnce that was not us"):
            call()
    with batch as records:
        for record in records:
            producer.send(f"{topic}-out", record.value)
    assert sorted(copy_all(consumer, producer, topic)) == sorted(
        b"%d" % number for number in range(COUNT)
    )
