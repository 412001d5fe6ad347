"""Consumer: whole calls over a broker that serves a log, without sockets."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer import consumer as consumer_module
from pykclient.consumer import silence
from pykclient.consumer.consumer import Consumer
from pykclient.consumer.record import ConsumerRecords
from pykclient.errors import (
    ClosedError,
    ConcurrentModificationError,
    ConfigError,
    CorruptRecordError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    NotSubscribedError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    UsageError,
    WakeupError,
)
from pykclient.protocol.messages.fetch import FetchRequest
from pykclient.types import IsolationLevel, OffsetAndMetadata, TopicPartition
from tests.consumer.fetched_records import batch, marker, value_at
from tests.consumer.serving_port import ServingPort, consumer_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
UNKNOWN = TopicPartition("absent", 0)
SHORT_S = 0.05
LONG_S = 20.0


@pytest.fixture
def port() -> ServingPort:
    return ServingPort(2)


@pytest.fixture
def consumer(port: ServingPort) -> Iterator[Consumer]:
    with consumer_over(port) as consumer:
        consumer.assign([A])
        yield consumer


def offsets(records: ConsumerRecords) -> list[int]:
    return [record.offset for record in records]


def poll_until(consumer: Consumer, count: int) -> list[int]:
    """Poll until there were `count` records; return their offsets."""
    got: list[int] = []
    while len(got) < count:
        got += offsets(consumer.poll(LONG_S))
    return got


# Polling.


def test_a_poll_returns_what_there_is_and_moves_the_position(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    records = consumer.poll(LONG_S)
    assert [(r.topic, r.partition, r.offset, r.value) for r in records] == [
        ("t", 0, offset, value_at(offset)) for offset in range(3)
    ]
    assert consumer.position(A) == 3
    assert consumer.current_lag(A) == 0


def test_the_next_fetch_is_sent_before_records_are_returned(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    consumer.poll(LONG_S)
    (fetch,) = port.unanswered(FetchRequest)
    assert isinstance(fetch, FetchRequest)
    assert fetch.topics[0].partitions[0].fetch_offset == 3


def test_a_fetch_asks_for_what_the_settings_say(port: ServingPort) -> None:
    settings = {
        "fetch_min_bytes": 3,
        "fetch_max_wait_ms": 4,
        "fetch_max_bytes": 5_000,
        "max_partition_fetch_bytes": 6,
        "isolation_level": "read_committed",
    }
    with consumer_over(port, **settings) as consumer:
        consumer.assign([A])
        consumer.seek(A, 0)
        consumer.poll(SHORT_S)
        fetch = port.last_fetch
        assert fetch is not None
        assert (fetch.min_bytes, fetch.max_wait_ms, fetch.max_bytes) == (3, 4, 5_000)
        assert fetch.isolation_level == IsolationLevel.READ_COMMITTED
        assert fetch.topics[0].partitions[0].partition_max_bytes == 6


def test_a_poll_returns_no_more_than_asked_and_the_rest_next_time(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(1_200)
    assert len(consumer.poll(LONG_S)) == 500
    assert len(consumer.poll(LONG_S, max_records=600)) == 600
    assert len(consumer.poll(LONG_S)) == 100


def test_several_partitions_are_polled_together(port: ServingPort) -> None:
    with consumer_over(port) as consumer:
        consumer.assign([A, B])
        port.logs[0].append(2)
        port.logs[1].append(2)
        assert sorted(poll_until(consumer, 4)) == [0, 0, 1, 1]


def test_an_empty_poll_ends_in_time(consumer: Consumer) -> None:
    started_s = time.monotonic()
    records = consumer.poll(SHORT_S)
    assert len(records) == 0
    # The clock that it goes by counts whole milliseconds.
    assert SHORT_S - 0.002 <= time.monotonic() - started_s < SHORT_S + 1


def test_polling_without_time_gets_there_in_the_end(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(2)
    got: list[int] = []
    for _ in range(20):
        got += offsets(consumer.poll(0))
    assert got == [0, 1]


def test_nothing_assigned_is_an_error(port: ServingPort) -> None:
    with consumer_over(port) as consumer, pytest.raises(NotSubscribedError, match=r"assign\(\)"):
        consumer.poll(SHORT_S)


def test_without_a_reset_a_poll_says_that_there_is_no_position(port: ServingPort) -> None:
    with consumer_over(port, auto_offset_reset="none") as consumer:
        consumer.assign([A])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                consumer.poll(LONG_S)
        consumer.seek(A, 0)
        port.logs[0].append(1)
        assert offsets(consumer.poll(LONG_S)) == [0]


def test_a_position_outside_the_log_is_reset_by_the_setting(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    port.logs[0].start = 2
    port.logs[0].append(1)
    consumer.seek(A, 0)
    assert consumer.poll(LONG_S)
    assert consumer.position(A) == 4


def test_without_a_reset_a_position_outside_the_log_is_told_until_the_user_seeks(
    port: ServingPort,
) -> None:
    port.logs[0].append(5)
    with consumer_over(port, auto_offset_reset="none", retry_backoff_ms=1) as consumer:
        consumer.assign([A])
        consumer.seek(A, 50)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 50.*0 to 5"):
                consumer.poll(LONG_S)
        assert consumer.position(A) == 50
        consumer.seek(A, 4)
        assert offsets(consumer.poll(LONG_S)) == [4]


def test_corrupt_records_are_told_and_can_be_sought_past(
    consumer: Consumer, port: ServingPort
) -> None:
    damaged = bytearray(batch(range(2, 4)))
    damaged[-1] ^= 1
    port.logs[0].append(2)
    port.logs[0].append(2, bytes(damaged))
    port.logs[0].append(2)
    assert offsets(consumer.poll(LONG_S)) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptRecordError) as raised:
            consumer.poll(LONG_S)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("t", 0, 2)
        assert consumer.position(A) == 2
    consumer.seek(A, 4)
    assert poll_until(consumer, 2) == [4, 5]


def refuse_twos(value: bytes) -> str:
    if value == value_at(2):
        raise ValueError("no twos")
    return value.decode()


def test_a_record_that_cannot_be_deserialized_is_told_and_can_be_sought_past(
    port: ServingPort,
) -> None:
    port.logs[0].append(4)
    with consumer_over(port, value_deserializer=refuse_twos) as consumer:
        consumer.assign([A])
        assert [r.value for r in consumer.poll(LONG_S)] == ["value 0", "value 1"]
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(LONG_S)
        assert raised.value.value == value_at(2)
        fetch_count = port.answers.count(FetchRequest)
        consumer.seek(A, raised.value.offset + 1)
        assert offsets(consumer.poll(LONG_S)) == [3]
        assert port.answers.count(FetchRequest) == fetch_count, "nothing needed fetching anew"


class KeepEven:
    """An interceptor that lets records at even offsets through, in runs that have any."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        kept = [
            run._replace(columns=run.columns.rows(0, 1))
            for run in records._runs
            if run.columns.offsets[0] % 2 == 0
        ]
        return ConsumerRecords(kept)


def test_interceptors_see_records_first(port: ServingPort) -> None:
    port.logs[0].append(2)
    with consumer_over(port, interceptors=[KeepEven]) as consumer:
        consumer.assign([A])
        assert offsets(consumer.poll(LONG_S)) == [0]
        assert consumer.position(A) == 2


# What nobody waits for in vain.


def test_an_unknown_topic_is_told_when_polls_stay_empty(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "UNKNOWN_TOPIC_MS", round(SHORT_S * 1000))
    consumer.assign([UNKNOWN])
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartitionError, match=r"'absent'.*create_topics"):
            consumer.poll(SHORT_S)


def test_a_partition_that_the_topic_lacks_is_told_with_how_many_there_are(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "UNKNOWN_TOPIC_MS", round(SHORT_S * 1000))
    consumer.assign([TopicPartition("t", 7)])
    with pytest.raises(UnknownTopicOrPartitionError, match=r"t-7.*2 partitions"):
        consumer.poll(SHORT_S)


def test_brokers_that_never_answer_are_told_when_polls_stay_empty(
    consumer: Consumer, port: ServingPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "NO_CLUSTER_MS", round(SHORT_S * 1000))
    port.is_silent = True
    with pytest.raises(KafkaTimeoutError, match="boot:9092"):
        consumer.poll(SHORT_S)


def test_a_refused_connection_is_told_by_the_first_empty_poll(
    consumer: Consumer, port: ServingPort
) -> None:
    def refuse(_: int) -> None:
        for peer in port.peers:
            if not peer.is_accepted and not peer.is_ended:
                peer.is_accepted = True
                peer.refuse()

    port.on_wait = refuse
    with pytest.raises(KafkaTimeoutError, match=r"boot:9092.*refused"):
        consumer.poll(SHORT_S)


def test_a_fatal_error_is_raised_at_once_by_every_call(
    consumer: Consumer, port: ServingPort
) -> None:
    consumer._metadata.fatal_error = UnsupportedVersionError("too old")
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(LONG_S),
        lambda: consumer.position(A, LONG_S),
        lambda: consumer.end_offsets([A], LONG_S),
        lambda: consumer.partitions_for("t", LONG_S),
        lambda: consumer.list_topics(LONG_S),
        lambda: next(iter(consumer)),
    ]
    for call in calls:
        with pytest.raises(UnsupportedVersionError):
            call()


# Seeking, pausing.


def test_a_seek_decides_what_comes_next(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(10)
    assert consumer.poll(LONG_S)
    consumer.seek(A, 2)
    assert consumer.position(A) == 2
    assert offsets(consumer.poll(LONG_S, 1)) == [2]
    consumer.seek(A, OffsetAndMetadata(8))
    assert poll_until(consumer, 2) == [8, 9]


def test_seeks_to_the_ends_ask_the_broker(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(10)
    consumer.seek_to_end()
    assert consumer.position(A) == 10
    consumer.seek_to_beginning([A])
    assert consumer.position(A) == 0


@pytest.mark.parametrize("offset", [-1, "5", 2.0, None])
def test_an_offset_that_is_none_is_refused(consumer: Consumer, offset: object) -> None:
    with pytest.raises(UsageError, match="an offset is an integer from 0"):
        consumer.seek(A, offset)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["t", ("t", 0), TopicPartition("t", -1), None])
def test_what_is_no_partition_cannot_be_assigned(consumer: Consumer, wrong: object) -> None:
    with pytest.raises(UsageError, match="TopicPartition"):
        consumer.assign([wrong])  # type: ignore[list-item]
    assert consumer.assignment() == {A}


def test_a_paused_partition_is_silent_and_loses_nothing(port: ServingPort) -> None:
    port.logs[0].append(600)
    port.logs[1].append(2)
    with consumer_over(port) as consumer:
        consumer.assign([A, B])
        consumer.poll(LONG_S, 100)
        consumer.pause([A])
        assert consumer.paused() == {A}
        before = consumer.position(A)
        for _ in range(5):
            assert A not in consumer.poll(SHORT_S).partitions
        consumer.resume([A])
        assert consumer.paused() == frozenset()
        assert offsets(consumer.poll(LONG_S, 1)) == [before]


def test_a_new_assignment_keeps_positions_that_stay(port: ServingPort) -> None:
    port.logs[0].append(5)
    with consumer_over(port) as consumer:
        consumer.assign([A])
        consumer.poll(LONG_S, 2)
        consumer.assign([A, B])
        assert consumer.position(A) == 2
        assert offsets(consumer.poll(LONG_S)) == [2, 3, 4]


def test_only_what_is_assigned_can_be_sought_paused_and_asked_for(consumer: Consumer) -> None:
    calls: list[Callable[[], object]] = [
        lambda: consumer.seek(B, 1),
        lambda: consumer.seek_to_end([B]),
        lambda: consumer.pause([B]),
        lambda: consumer.resume([B]),
        lambda: consumer.position(B),
        lambda: consumer.current_lag(B),
        lambda: consumer.poll_arrow(0, until={B: 1}),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="t-1 is not assigned"):
            call()


def test_subscribe_is_refused_with_what_to_use_instead(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match=r"assign\(\)"):
        consumer.subscribe(["t"])


def test_the_lag_is_not_known_before_a_fetch(consumer: Consumer) -> None:
    assert consumer.current_lag(A) is None


# Iterating.


def test_iteration_goes_on_where_it_was_left(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(6)
    got = []
    for record in consumer:
        got.append(record.offset)
        if record.offset == 2:
            break
    assert consumer.position(A) == 3
    for record in consumer:
        got.append(record.offset)
        if record.offset == 4:
            break
    assert got == [0, 1, 2, 3, 4]
    assert offsets(consumer.poll(LONG_S)) == [5]


def test_the_position_moves_record_by_record(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(5)
    positions = []
    for record in consumer:
        positions.append((record.offset, consumer.position(A)))
        if record.offset == 4:
            break
    assert positions == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


def test_a_seek_inside_the_loop_counts_at_once(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(6)
    got: list[int] = []
    for record in consumer:
        got.append(record.offset)
        if len(got) == 2:
            consumer.seek(A, 4)
        if len(got) == 4:
            consumer.seek(A, 0)
        if len(got) == 5:
            break
    assert got == [0, 1, 4, 5, 0]


def test_a_pause_inside_the_loop_counts_at_once(port: ServingPort) -> None:
    port.logs[0].append(3)
    port.logs[1].append(3)
    with consumer_over(port, consumer_timeout_ms=50) as consumer:
        consumer.assign([A, B])
        got: list[tuple[int, int]] = []
        for record in consumer:
            if not got:
                consumer.pause([TopicPartition(record.topic, record.partition)])
            got.append((record.partition, record.offset))
    first = got[0][0]
    assert got == [(first, 0)] + [(1 - first, offset) for offset in range(3)]


def test_a_poll_inside_the_loop_takes_its_records_out_of_it(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(6)
    got: list[int] = []
    for record in consumer:
        got.append(record.offset)
        if record.offset == 1:
            got += offsets(consumer.poll(LONG_S, 2))
        if record.offset == 5:
            break
    assert got == [0, 1, 2, 3, 4, 5]


def test_iteration_ends_when_nothing_comes_for_as_long_as_set(port: ServingPort) -> None:
    port.logs[0].append(2)
    port.logs[0].append(1, marker(2, 9))
    with consumer_over(port, consumer_timeout_ms=50) as consumer:
        consumer.assign([A])
        assert [record.offset for record in consumer] == [0, 1]
        assert consumer.position(A) == 3
        assert list(consumer) == []


def test_an_unassign_inside_the_loop_ends_that_partition(port: ServingPort) -> None:
    port.logs[0].append(3)
    port.logs[1].append(1)
    with consumer_over(port, consumer_timeout_ms=50) as consumer:
        consumer.assign([A])
        got = []
        for record in consumer:
            got.append((record.partition, record.offset))
            consumer.assign([B])
        assert got == [(0, 0), (1, 0)]


def test_a_close_inside_the_loop_ends_it_with_an_error(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    iterator = iter(consumer)
    assert next(iterator).offset == 0
    consumer.close()
    with pytest.raises(ClosedError):
        next(iterator)


def test_a_bad_record_ends_the_loop_where_it_stands(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, value_deserializer=refuse_twos) as consumer:
        consumer.assign([A])
        iterator = iter(consumer)
        assert [next(iterator).value for _ in range(2)] == ["value 0", "value 1"]
        with pytest.raises(RecordDeserializationError):
            next(iterator)
        assert consumer.position(A) == 2


def test_iteration_hands_out_what_interceptors_leave(port: ServingPort) -> None:
    for _ in range(3):
        port.logs[0].append(2)
    with consumer_over(port, interceptors=[KeepEven], consumer_timeout_ms=50) as consumer:
        consumer.assign([A])
        assert [record.offset for record in consumer] == [0, 2, 4]
        assert consumer.position(A) == 6


# Arrow.


def test_a_bounded_scan_ends_at_its_limits_and_says_so(port: ServingPort) -> None:
    port.logs[0].append(5)
    port.logs[1].append(2)
    port.logs[1].append(1, marker(2, 9))
    until = {A: 3, B: 3}
    with consumer_over(port) as consumer:
        consumer.assign([A, B])
        rows: list[tuple[int, int]] = []
        while any(consumer.position(p) < end for p, end in until.items()):
            table = consumer.poll_arrow(LONG_S, until=until)
            rows += zip(
                table.column("partition").to_pylist(),
                table.column("offset").to_pylist(),
                strict=True,
            )
        assert sorted(rows) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        started_s = time.monotonic()
        assert consumer.poll_arrow(LONG_S, until=until).num_rows == 0
        assert time.monotonic() - started_s < LONG_S / 2
        assert offsets(consumer.poll(LONG_S)) == [3, 4]


def test_a_limit_in_a_hole_is_reached(port: ServingPort) -> None:
    port.logs[0].append(2)
    port.logs[0].skip(5)
    port.logs[0].append(1)
    with consumer_over(port) as consumer:
        consumer.assign([A])
        count = 0
        while consumer.position(A) < 5:
            count += consumer.poll_arrow(LONG_S, until={A: 5}).num_rows
        assert (count, consumer.position(A)) == (2, 5)


def test_arrow_batches_are_not_deserialized(port: ServingPort) -> None:
    port.logs[0].append(4)
    with consumer_over(port, value_deserializer=refuse_twos) as consumer:
        consumer.assign([A])
        table = consumer.poll_arrow(LONG_S, include_headers=True)
        assert table.column("value").to_pylist() == [value_at(n) for n in range(4)]
        assert "headers" in table.schema.names


# Questions.


def test_offsets_are_asked_for_without_an_assignment(port: ServingPort) -> None:
    port.logs[0].append(5)
    port.logs[0].start = 2
    with consumer_over(port) as consumer:
        assert consumer.beginning_offsets([A, B]) == {A: 2, B: 0}
        assert consumer.end_offsets([A, B]) == {A: 5, B: 0}
        assert consumer.offsets_for_times({A: 10**15}) == {A: None}
        assert consumer.end_offsets([]) == {}


def test_a_time_before_1970_is_refused(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match="beginning_offsets"):
        consumer.offsets_for_times({A: -2})


def test_topics_and_partitions_are_told(consumer: Consumer) -> None:
    partitions = consumer.partitions_for("t")
    assert [(p.topic, p.partition, p.leader_id) for p in partitions] == [("t", 0, 1), ("t", 1, 1)]
    assert consumer.list_topics().keys() == {"t"}


def test_a_question_about_an_unknown_topic_ends_in_time_with_its_name(consumer: Consumer) -> None:
    calls: list[Callable[[], object]] = [
        lambda: consumer.partitions_for("absent", SHORT_S),
        lambda: consumer.end_offsets([UNKNOWN], SHORT_S),
        lambda: consumer.offsets_for_times({UNKNOWN: 0}, SHORT_S),
    ]
    for call in calls:
        with pytest.raises(UnknownTopicOrPartitionError, match="absent"):
            call()


def test_a_typing_error_in_a_topic_does_not_cost_the_whole_time_out(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "UNKNOWN_TOPIC_WAIT_MS", round(SHORT_S * 1000))
    started_s = time.monotonic()
    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.partitions_for("absent", LONG_S)
    assert time.monotonic() - started_s < LONG_S / 2


def test_a_question_without_an_answer_says_what_it_waited_for(
    consumer: Consumer, port: ServingPort
) -> None:
    port.is_silent = True
    calls: dict[str, Callable[[], object]] = {
        "t-0": lambda: consumer.end_offsets([A], SHORT_S),
        "position of t-0": lambda: consumer.position(A, SHORT_S),
        "topic 't'": lambda: consumer.partitions_for("t", SHORT_S),
        "list of topics": lambda: consumer.list_topics(SHORT_S),
    }
    for what, call in calls.items():
        with pytest.raises(KafkaTimeoutError, match=rf"waited 50 ms.*{what}.*boot:9092"):
            call()


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_none_is_refused(consumer: Consumer, timeout: float) -> None:
    with pytest.raises(UsageError, match="seconds, from 0"):
        consumer.poll(timeout)


def test_a_timeout_may_be_endless(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(1)
    assert len(consumer.poll(float("inf"))) == 1


def test_no_records_at_all_cannot_be_asked_for(consumer: Consumer) -> None:
    with pytest.raises(UsageError, match="max_records=0"):
        consumer.poll(SHORT_S, max_records=0)


# Waking up, threads, interrupts, the end.


def test_a_wakeup_ends_the_wait_of_another_thread(consumer: Consumer, port: ServingPort) -> None:
    waits = threading.Event()
    port.on_wait = lambda _: waits.set()
    with ThreadPoolExecutor(1) as other:
        polled = other.submit(consumer.poll, LONG_S)
        waits.wait()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            polled.result()
    port.logs[0].append(1)
    assert offsets(consumer.poll(LONG_S)) == [0]


def test_a_wakeup_before_the_call_counts_once(consumer: Consumer) -> None:
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(SHORT_S)
    assert len(consumer.poll(SHORT_S)) == 0


def test_records_at_hand_come_before_a_wakeup(consumer: Consumer, port: ServingPort) -> None:
    port.logs[0].append(1)

    def wake(_: int) -> None:
        if port.answers.count(FetchRequest):
            port.on_wait = lambda _: None
            consumer.wakeup()

    port.on_wait = wake
    assert offsets(consumer.poll(LONG_S)) == [0]
    with pytest.raises(WakeupError):
        consumer.poll(LONG_S)


def test_a_second_thread_is_refused_while_the_first_polls(
    consumer: Consumer, port: ServingPort
) -> None:
    waits = threading.Event()
    port.on_wait = lambda _: waits.set()
    with ThreadPoolExecutor(1) as other:
        polled = other.submit(consumer.poll, LONG_S)
        waits.wait()
        calls: list[Callable[[], object]] = [
            lambda: consumer.poll(SHORT_S),
            lambda: consumer.position(A),
            consumer.assignment,
            consumer.close,
        ]
        for call in calls:
            with pytest.raises(ConcurrentModificationError):
                call()
        port.logs[0].append(1)
        assert offsets(polled.result()) == [0]


def test_an_interrupt_before_records_are_returned_loses_none(
    consumer: Consumer, port: ServingPort
) -> None:
    port.logs[0].append(3)
    consumer.position(A)

    def interrupt(timeout_ms: int) -> None:
        # The last look at the port, after records were taken, is the one that waits for nothing.
        if timeout_ms == 0 and consumer._subscription.require(A).offset == 3:
            port.on_wait = lambda _: None
            raise KeyboardInterrupt

    port.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(LONG_S)
    assert consumer.position(A) == 0
    assert poll_until(consumer, 3) == [0, 1, 2]


def test_an_interrupt_ends_a_wait_at_once(consumer: Consumer, port: ServingPort) -> None:
    def interrupt(_: int) -> None:
        port.on_wait = lambda _: None
        raise KeyboardInterrupt

    port.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(LONG_S)
    port.logs[0].append(1)
    assert offsets(consumer.poll(LONG_S)) == [0]


def test_after_close_every_call_says_so(port: ServingPort) -> None:
    consumer = consumer_over(port)
    consumer.assign([A])
    consumer.close()
    consumer.close()
    assert port.is_shut_down
    calls: list[Callable[[], object]] = [
        lambda: consumer.poll(LONG_S),
        lambda: consumer.poll_arrow(LONG_S),
        lambda: next(iter(consumer)),
        lambda: consumer.assign([A]),
        lambda: consumer.seek(A, 1),
        consumer.seek_to_beginning,
        consumer.seek_to_end,
        lambda: consumer.pause([A]),
        lambda: consumer.resume([A]),
        consumer.paused,
        consumer.assignment,
        lambda: consumer.subscribe(["t"]),
        lambda: consumer.position(A),
        lambda: consumer.current_lag(A),
        lambda: consumer.beginning_offsets([A]),
        lambda: consumer.end_offsets([A]),
        lambda: consumer.offsets_for_times({A: 1}),
        lambda: consumer.partitions_for("t"),
        consumer.list_topics,
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()
    consumer.wakeup()


class Closing:
    """An interceptor that notes its end."""

    def __init__(self) -> None:
        self.is_closed = False

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        return records

    def close(self) -> None:
        self.is_closed = True


def test_the_end_of_a_with_block_closes_everything(port: ServingPort) -> None:
    interceptor = Closing()
    with consumer_over(port, interceptors=[interceptor]) as consumer:
        consumer.assign([A])
        consumer.position(A)
    assert port.is_shut_down
    assert all(peer.is_closed for peer in port.peers)
    assert interceptor.is_closed


def test_a_refused_setting_leaves_nothing_open() -> None:
    with pytest.raises(ConfigError, match=r"value.deserializer"):
        Consumer(bootstrap_servers="localhost:1", value_deserializer="no_such_module:Name")


def test_it_shows_its_name() -> None:
    with Consumer(bootstrap_servers="localhost:1", client_id="reader") as consumer:
        assert repr(consumer) == "<Consumer reader>"
