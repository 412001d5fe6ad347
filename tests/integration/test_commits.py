"""What a consumer commits stays committed, is what it has finished with, and is where it goes on.

Method: consumers that assign partitions by hand and have a `group_id`, against brokers in this
process, whose groups can be looked into.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import pytest

from pykclient import Consumer, OffsetAndMetadata, TopicPartition
from pykclient.errors import (
    CommitFailedError,
    CoordinatorLoadInProgressError,
    KafkaError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UsageError,
    WakeupError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing.fake import faults
from tests.integration.assigned_reader import (
    COUNT,
    FETCH_WAIT_MS,
    P0,
    P1,
    TIMEOUT_S,
    committed,
    read,
    reader,
    write,
)
from tests.integration.fake_group import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.testing import FakeKafka


@pytest.fixture
def servers(fake_kafka: FakeKafka) -> str:
    """Topic ``t`` with records in both partitions."""
    with fake_kafka.control() as cluster:
        cluster.create_topic("t", 2)
    write(fake_kafka.bootstrap_servers, "t", 2)
    return fake_kafka.bootstrap_servers


# Committing, and going on.


@pytest.mark.promise(
    "a consumer goes on where its group committed, else where `auto_offset_reset` says"
)
def test_a_consumer_goes_on_where_its_group_has_committed(servers: str) -> None:
    with reader(servers, P0, P1, enable_auto_commit=False) as consumer:
        assert consumer.committed([P0, P1]) == {P0: None, P1: None}
        read(consumer, COUNT)
        consumer.seek(P1, 7)
        consumer.commit()
        assert consumer.committed([P0, P1]) == {
            P0: OffsetAndMetadata(COUNT // 2, leader_epoch=0),
            P1: OffsetAndMetadata(7),
        }
    with reader(servers, P0, P1) as consumer:
        assert (consumer.position(P0), consumer.position(P1)) == (COUNT // 2, 7)


@pytest.mark.promise(
    "offsets are committed with metadata and leader epochs, and read back, in every version"
)
def test_what_is_given_is_committed_with_its_metadata_and_epoch(servers: str) -> None:
    with reader(servers, enable_auto_commit=False) as consumer:
        note = OffsetAndMetadata(5, "a note, \N{SNOWMAN}", 0)
        consumer.commit({P0: note, P1: 6})
        assert consumer.committed([P0, P1]) == {P0: note, P1: OffsetAndMetadata(6)}


def test_offsets_come_before_auto_offset_reset_and_a_seek_before_both(servers: str) -> None:
    with reader(servers, P0, P1, auto_offset_reset="latest") as consumer:
        consumer.commit({P0: 3})
        consumer.seek(P1, 4)
        assert (consumer.position(P0), consumer.position(P1)) == (3, 4)


@pytest.mark.promise(
    "`commit` retries within its deadline, `commit_async` never; callbacks run in order"
)
def test_callbacks_are_called_in_order_before_a_later_commit_returns(servers: str) -> None:
    heard: list[tuple[int, KafkaError | None]] = []

    def callback(
        offsets: dict[TopicPartition, OffsetAndMetadata], error: KafkaError | None
    ) -> None:
        heard.append((offsets[P0].offset, error))

    with reader(servers, enable_auto_commit=False) as consumer:
        for offset in range(20):
            consumer.commit_async({P0: offset}, callback)
        consumer.commit({P0: 99})
        assert heard == [(offset, None) for offset in range(20)]
    assert committed(servers, P0) == [99]


def test_callbacks_that_are_still_due_are_called_by_close(servers: str) -> None:
    heard: list[KafkaError | None] = []
    with reader(servers, enable_auto_commit=False) as consumer:
        consumer.commit_async({P0: 1}, lambda _, error: heard.append(error))
        consumer.commit_async({P0: 2}, lambda _, error: heard.append(error))
    assert heard == [None, None]
    assert committed(servers, P0) == [2]


def test_a_callback_may_use_the_consumer_and_what_it_raises_comes_out(servers: str) -> None:
    with reader(servers, P0, enable_auto_commit=False) as consumer:

        def callback(_: object, __: object) -> None:
            consumer.commit({P0: 42})
            raise LookupError("the application's own")

        consumer.commit_async({P0: 1}, callback)
        with pytest.raises(LookupError, match="own"):
            consumer.commit({P0: 2})
        assert consumer.committed([P0])[P0] == OffsetAndMetadata(42)


@pytest.mark.promise("automatic commits cover what was processed, and nothing else")
def test_a_callback_that_commits_does_not_commit_what_poll_is_about_to_return(
    servers: str,
) -> None:
    write(servers, "t", 1, 50 * COUNT)  # more than are read before the answer comes
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        consumer.commit({P0: 0})
        read(consumer, 10)
        called_at: list[int] = []

        def callback(_: object, __: object) -> None:
            called_at.append(consumer.position(P0))
            consumer.commit()

        consumer.commit_async({P0: 1}, callback)
        while not called_at:
            (record,) = consumer.poll(TIMEOUT_S, max_records=1)
        assert called_at == [record.offset]
    assert committed(servers, P0) == called_at


def test_the_interceptors_hear_of_commits(servers: str) -> None:
    heard: list[object] = []

    class Listening:
        def on_consume(self, records: object) -> object:
            return records

        def on_commit(self, offsets: object) -> None:
            heard.append(offsets)
            raise LookupError("an interceptor does no harm")

    with reader(servers, enable_auto_commit=False, interceptors=[Listening()]) as consumer:
        consumer.commit({P0: 1})
        consumer.commit_async({P0: 2})
        consumer.commit({})
    assert heard == [{P0: OffsetAndMetadata(1)}, {P0: OffsetAndMetadata(2)}]


@pytest.mark.promise("a commit does not wait behind a fetch")
def test_a_commit_does_not_wait_behind_a_fetch(fake_kafka: FakeKafka, servers: str) -> None:
    with reader(
        servers, P0, P1, enable_auto_commit=False, fetch_max_wait_ms=FETCH_WAIT_MS
    ) as consumer:
        read(consumer, COUNT)  # and the next fetch, of every leader, waits for more
        started_s = time.monotonic()
        consumer.commit()
        consumer.committed([P0, P1])
        assert time.monotonic() - started_s < FETCH_WAIT_MS / 1_000 / 2


# Automatic commits.


@pytest.mark.promise("a clean close commits; after an exception the last records are not committed")
def test_a_clean_close_commits_what_was_handed_out(servers: str) -> None:
    with reader(servers, P0) as consumer:
        read(consumer, 10)
    assert committed(servers, P0) == [10]


@pytest.mark.promise("a clean close commits; after an exception the last records are not committed")
def test_leaving_by_an_exception_does_not_commit_what_was_handed_out_last(servers: str) -> None:
    def work(consumer: Consumer) -> None:
        read(consumer, 10)
        read(consumer, 7)

    fail_after(work, reader(servers, P0))
    assert committed(servers, P0) == [10]


@pytest.mark.promise("automatic commits cover what was processed, and nothing else")
def test_an_iteration_counts_record_by_record(servers: str) -> None:
    def work(consumer: Consumer) -> None:
        for record in consumer:
            if record.offset == 12:
                raise LookupError

    fail_after(work, reader(servers, P0))
    assert committed(servers, P0) == [12]


def test_a_record_at_which_an_iteration_was_left_is_finished_with(servers: str) -> None:
    with reader(servers, P0) as consumer:
        for record in consumer:
            if record.offset == 12:
                break
    assert committed(servers, P0) == [13]


def test_an_exception_after_a_seek_commits_where_the_user_went(servers: str) -> None:
    def work(consumer: Consumer) -> None:
        read(consumer, 10)
        consumer.seek(P0, 4)

    fail_after(work, reader(servers, P0))
    assert committed(servers, P0) == [4]


def fail_after(work: Callable[[Consumer], None], consumer: Consumer) -> None:
    """Leave the consumer's block by an exception, from the work or after it."""

    def fail() -> None:
        with consumer:
            work(consumer)
            raise LookupError

    with pytest.raises(LookupError):
        fail()


@pytest.mark.promise("automatic commits cover what was processed, and nothing else")
def test_a_poll_commits_what_those_before_it_returned_and_not_what_it_returns_itself(
    fake_kafka: FakeKafka, servers: str
) -> None:
    write(servers, "t", 1, 50 * COUNT)
    found = 0
    with reader(servers, P0, auto_commit_interval_ms=0) as consumer:
        while found < COUNT:
            finished = consumer.position(P0)
            read(consumer, 1)
            found = offset_of(fake_kafka, P0) or 0
            assert found <= finished


def test_a_poll_that_waits_commits_when_the_interval_is_over(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with reader(servers, P0, auto_commit_interval_ms=200) as consumer:
        read(consumer, COUNT // 2)
        while offset_of(fake_kafka, P0) is None:
            assert len(consumer.poll(TIMEOUT_S / 20)) == 0
    assert offset_of(fake_kafka, P0) == COUNT // 2


@pytest.mark.promise("`assign` commits what was processed and is dropped, if the interval is over")
def test_assigning_others_commits_what_is_finished_if_the_interval_is_over(
    fake_kafka: FakeKafka, servers: str
) -> None:
    interval_ms = 200
    with reader(servers, P0, auto_commit_interval_ms=interval_ms) as consumer:
        read(consumer, 10)
        finished = 0
        while not finished:
            finished = consumer.position(P0)
            read(consumer, 1)
        over_s = time.monotonic() + interval_ms / 1_000
        wait_until(lambda: time.monotonic() >= over_s)  # the interval is real time
        consumer.assign([P1])
        wait_until(lambda: offset_of(fake_kafka, P0) == finished)


@pytest.mark.promise("`assign` commits what was processed and is dropped, if the interval is over")
def test_assigning_others_does_not_commit_before_the_interval_is_over(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with reader(servers, P0) as consumer:
        read(consumer, 10)
        consumer.assign([P1])
        consumer.unsubscribe()
    assert offset_of(fake_kafka, P0) is None


@pytest.mark.promise("`commit_async` has sent when it returns, where the coordinator is known")
def test_a_commit_without_waiting_is_sent_before_anything_else_is_called(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        consumer.committed([P0])  # which finds the coordinator
        consumer.commit_async({P0: 1})
        wait_until(lambda: offset_of(fake_kafka, P0) == 1)
        consumer.commit_async({P0: 2})
        wait_until(lambda: offset_of(fake_kafka, P0) == 2)


@pytest.mark.promise("`commit_async` has sent when it returns, where the coordinator is known")
def test_a_commit_without_waiting_is_sent_when_a_later_call_has_found_the_coordinator(
    servers: str,
) -> None:
    heard: list[object] = []
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        consumer.commit_async({P0: 1}, lambda offsets, _: heard.append(offsets[P0].offset))
        consumer.commit_async({P0: 2}, lambda offsets, _: heard.append(offsets[P0].offset))
        while len(heard) < 2:
            consumer.poll(0)
        assert consumer.committed([P0]) == {P0: OffsetAndMetadata(2)}
    assert heard == [1, 2]


@pytest.mark.promise("the timer of automatic commits runs in `poll` alone")
def test_no_other_call_commits(fake_kafka: FakeKafka, servers: str) -> None:
    with reader(servers, P0, auto_commit_interval_ms=0) as consumer:
        read(consumer, 10)
        before = offset_of(fake_kafka, P0)
        for _ in range(20):
            consumer.end_offsets([P0])
            consumer.committed([P0])
        assert offset_of(fake_kafka, P0) == before


def test_without_auto_commit_nothing_is_committed(fake_kafka: FakeKafka, servers: str) -> None:
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        read(consumer, 10)
    assert committed(servers, P0) == [None]


@pytest.mark.promise(
    "a refused commit says what, where and its cure; `poll` raises what no retry cures"
)
def test_an_automatic_commit_that_is_refused_for_good_is_raised_from_poll(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with fake_kafka.control() as cluster:
        refusal = faults.fail_with(TopicAuthorizationFailedError)
        cluster.faults.add(refusal, ApiKey.OFFSET_COMMIT, times=None)
    with reader(servers, P0, auto_commit_interval_ms=1) as consumer:
        with pytest.raises(TopicAuthorizationFailedError, match="t-0 in group 'g'"):
            read(consumer, COUNT)  # more than there is
        with fake_kafka.control() as cluster:
            cluster.faults.clear()


@pytest.mark.promise(
    "a refused automatic commit is raised before records; an empty commit needs no coordinator"
)
def test_a_refusal_is_raised_though_there_are_records_at_hand(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with fake_kafka.control() as cluster:
        refusal = faults.fail_with(TopicAuthorizationFailedError)
        cluster.faults.add(refusal, ApiKey.OFFSET_COMMIT, times=None)
    with reader(servers, P0, auto_commit_interval_ms=1, max_poll_records=1) as consumer:

        def read_half() -> None:
            for _ in range(COUNT // 2):
                assert consumer.poll(TIMEOUT_S)
                consumer.committed([P0])  # answered after what was sent before

        with pytest.raises(TopicAuthorizationFailedError):
            read_half()
        with fake_kafka.control() as cluster:
            cluster.faults.clear()


@pytest.mark.promise(
    "a refused automatic commit is raised before records; an empty commit needs no coordinator"
)
def test_committing_nothing_needs_no_coordinator(fake_kafka: FakeKafka, servers: str) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.drop(), ApiKey.FIND_COORDINATOR, times=None)
    with Consumer(
        bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        started_s = time.monotonic()
        consumer.commit()
        consumer.commit({})
        assert time.monotonic() - started_s < TIMEOUT_S


def offset_of(fake_kafka: FakeKafka, partition: TopicPartition) -> int | None:
    """What the broker has of group ``g``."""
    with fake_kafka.control() as cluster:
        found = cluster.groups.offsets("g").get(partition)
    return None if found is None else found.offset


# Trouble.


def test_a_coordinator_that_moves_is_followed(fake_kafka: FakeKafka, servers: str) -> None:
    with reader(servers, enable_auto_commit=False) as consumer:
        for number in range(6):
            consumer.commit({P0: number})
            with fake_kafka.control() as cluster:
                cluster.move_coordinator(0, "g", (cluster.group("g").coordinator_id + 1) % 3)
            assert consumer.committed([P0])[P0] == OffsetAndMetadata(number)


def test_a_coordinator_that_stops_is_replaced(fake_kafka: FakeKafka, servers: str) -> None:
    with reader(servers, P0, enable_auto_commit=False) as consumer:
        consumer.commit({P0: 1})
        with fake_kafka.control() as cluster:
            cluster.stop_broker(cluster.group("g").coordinator_id)
        consumer.commit({P0: 2})
        assert consumer.committed([P0])[P0] == OffsetAndMetadata(2)


def test_a_lost_answer_is_asked_for_again(fake_kafka: FakeKafka, servers: str) -> None:
    with fake_kafka.control() as cluster:
        for api_key in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR):
            cluster.faults.add(faults.lose_response(closes=True), api_key)
            cluster.faults.add(faults.fail_with(CoordinatorLoadInProgressError), api_key)
    with reader(servers, enable_auto_commit=False) as consumer:
        consumer.commit({P0: 1})
        assert consumer.committed([P0])[P0] == OffsetAndMetadata(1)


def test_a_commit_that_cannot_succeed_in_time_says_why(fake_kafka: FakeKafka, servers: str) -> None:
    with fake_kafka.control() as cluster:
        refusal = faults.fail_with(CoordinatorLoadInProgressError)
        cluster.faults.add(refusal, ApiKey.OFFSET_COMMIT, times=None)
    with reader(servers, enable_auto_commit=False) as consumer:
        started_s = time.monotonic()
        with pytest.raises(KafkaTimeoutError) as caught:
            consumer.commit({P0: 1}, timeout=0.5)
        assert 0.5 <= time.monotonic() - started_s < 1.5
    assert "waited 500 ms for the commit of t-0: COORDINATOR_LOAD_IN_PROGRESS" in str(caught.value)


@pytest.mark.promise(
    "a refused commit says what, where and its cure; `poll` raises what no retry cures"
)
def test_a_group_whose_members_subscribed_takes_no_offsets_from_others(
    fake_kafka: FakeKafka, servers: str
) -> None:
    with Consumer(bootstrap_servers=servers, group_id="g") as member:
        member.subscribe(["t"])
        while not member.assignment():
            member.poll(TIMEOUT_S / 20)
        with (
            reader(servers, P0, enable_auto_commit=False) as consumer,
            pytest.raises(CommitFailedError, match="needs a group_id of its own"),
        ):
            consumer.commit({P0: 1})


def test_metadata_that_is_too_large_is_refused_by_name(servers: str) -> None:
    with (
        reader(servers, P0, enable_auto_commit=False) as consumer,
        pytest.raises(OffsetMetadataTooLargeError, match="t-0 in group 'g'"),
    ):
        consumer.commit({P0: OffsetAndMetadata(1, "x" * 10_000)})


def test_a_commit_can_be_woken(fake_kafka: FakeKafka, servers: str) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.drop(), ApiKey.OFFSET_COMMIT)
    with reader(servers, enable_auto_commit=False) as consumer:
        waker = threading.Timer(0.2, consumer.wakeup)
        waker.start()
        with pytest.raises(WakeupError):
            consumer.commit({P0: 1}, timeout=TIMEOUT_S)
        waker.join()


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.commit_async(),
        lambda consumer: consumer.committed([P0]),
    ],
    ids=["commit", "commit_async", "committed"],
)
def test_without_a_group_there_is_nowhere_to_commit_to(call: Callable[[Consumer], None]) -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1") as consumer,
        pytest.raises(UsageError, match="set group_id"),
    ):
        call(consumer)


@pytest.mark.parametrize(
    "offsets",
    [
        {"t": 1},
        {P0: -1},
        {P0: "1"},
        {P0: OffsetAndMetadata(-1)},
        {P0: OffsetAndMetadata(1, cast("str", 7))},
    ],
)
def test_what_is_no_offset_is_refused_before_anything_is_sent(offsets: object) -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(UsageError),
    ):
        consumer.commit(offsets)  # type: ignore[arg-type]  # what is tried


@pytest.mark.promise("`close` ends in time, whatever becomes of the last commit")
def test_close_ends_in_time_when_nobody_takes_the_last_commit(
    fake_kafka: FakeKafka, servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fake_kafka.control() as cluster:
        cluster.faults.add(faults.drop(), ApiKey.OFFSET_COMMIT, times=None)
    consumer = reader(servers, P0)
    read(consumer, 10)
    started_s = time.monotonic()
    consumer.close(timeout=0.5)
    assert time.monotonic() - started_s < 1.5
    assert "closed without the last commit" in caplog.text
